#include "serve/http_connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <exception>
#include <optional>

#include "core/log.h"

namespace slideway {
namespace {

namespace http = boost::beast::http;
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kReadBytes = 8 << 10;
constexpr std::size_t kInboxBytes = 64 << 10;  // what a client may send ahead of its turn
constexpr int kFinishSeconds = 2;
constexpr std::size_t kIdBytes = 128;

std::string small(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return out;
}

// What may stand in a header and a log line.
bool plain(std::string_view text) {
  return !text.empty() && text.size() <= kIdBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

std::string chunk_of(const std::string& bytes) {
  char size[20];
  const int length = std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return std::string(size, std::size_t(length)) + bytes + "\r\n";
}

int status_of(const ErrorCode& error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return 413;
  return 400;
}

}  // namespace

void Signal::set() {
  set_ = true;
  timer_.cancel();
}

asio::awaitable<void> Signal::wait() {
  while (!set_) {
    timer_.expires_at(asio::steady_timer::time_point::max());
    co_await timer_.async_wait(kTuple);
  }
  set_ = false;
}

struct HttpConnection::Parsed {
  http::request_parser<http::string_body> parser;
  std::optional<HttpReply> refusal;  // decided before the body was read: the connection closes after it
  bool keep = false;
};

HttpConnection::HttpConnection(std::shared_ptr<HttpShared> shared, std::unique_ptr<ByteStream> stream,
                               asio::any_io_executor strand, std::string peer)
    : shared_(std::move(shared)),
      stream_(std::move(stream)),
      strand_(std::move(strand)),
      deadline_(strand_),
      news_(strand_),
      space_(strand_),
      peer_(std::move(peer)) {
  ++shared_->connections;
}

HttpConnection::~HttpConnection() {
  --shared_->connections;
}

void HttpConnection::start() {
  asio::co_spawn(
      strand_, [self = shared_from_this()] { return self->serve(); },
      [self = shared_from_this()](const std::exception_ptr& failure) {
        if (failure) self->close();  // no memory for this one; others go on
      });
}

void HttpConnection::drain() {
  asio::post(strand_, [self = shared_from_this()] { self->news_.set(); });
}

void HttpConnection::stop() {
  asio::post(strand_, [self = shared_from_this()] { self->close(); });
}

void HttpConnection::close() {
  if (std::exchange(closed_, true)) return;
  clear_deadline();
  stream_->close();
  news_.set();
  space_.set();
}

void HttpConnection::set_deadline(int seconds) {
  deadline_.expires_after(std::chrono::seconds(seconds));
  const std::uint64_t turn = ++deadline_turn_;
  deadline_.async_wait([self = shared_from_this(), turn](ErrorCode error) {
    if (!error && turn == self->deadline_turn_) self->close();
  });
}

void HttpConnection::clear_deadline() {
  ++deadline_turn_;
  deadline_.cancel();
}

asio::awaitable<void> HttpConnection::serve() {
  set_deadline(shared_->options.read_timeout);
  const ErrorCode error = co_await stream_->open();
  if (!error) {
    asio::co_spawn(strand_, [self = shared_from_this()] { return self->read_input(); }, asio::detached);
    for (;;) {
      parsed_ = std::make_unique<Parsed>();
      const bool read = co_await read_request();
      if (!read) break;
      ask();
      co_await answer();
      if (!parsed_->keep || closed_) break;
    }
    if (!closed_) {
      set_deadline(kFinishSeconds);
      co_await stream_->finish();
    }
  }
  close();
}

asio::awaitable<void> HttpConnection::read_input() {
  std::array<char, kReadBytes> buffer;
  for (;;) {
    while (inbox_.size() >= kInboxBytes && !closed_) co_await space_.wait();
    const std::size_t bytes = closed_ ? 0 : co_await stream_->read_some(asio::buffer(buffer));
    inbox_.append(buffer.data(), bytes);
    input_ended_ = bytes == 0;
    news_.set();
    if (input_ended_) co_return;
  }
}

asio::awaitable<bool> HttpConnection::read_request() {
  set_deadline(shared_->options.idle_timeout);
  while (inbox_.empty() && !input_ended_ && !closed_ && !shared_->draining) co_await news_.wait();
  if (inbox_.empty() || closed_) co_return false;
  began_ = std::chrono::steady_clock::now();
  request_ = {};
  request_.peer = peer_;
  request_.id = "req-" + std::to_string(shared_->next_id++);
  parsed_->parser.header_limit(std::uint32_t(shared_->options.max_header_bytes));
  parsed_->parser.body_limit(shared_->options.max_body_bytes);
  set_deadline(shared_->options.read_timeout);
  bool read = co_await read_header();
  if (!read) co_return false;
  if (parsed_->refusal) co_return true;
  set_deadline(shared_->options.read_timeout);
  read = co_await read_body();
  if (!read) co_return false;
  clear_deadline();
  co_return true;
}

asio::awaitable<bool> HttpConnection::read_header() {
  auto& parser = parsed_->parser;
  while (!parser.is_header_done()) {
    ErrorCode error;
    inbox_.erase(0, parser.put(asio::buffer(inbox_), error));
    space_.set();
    if (parser.is_header_done()) break;
    if (error && error != http::error::need_more) {
      parsed_->refusal =
          shared_->handlers.error(status_of(error), "the request is not HTTP/1.1: " + error.message());
      co_return true;
    }
    if (input_ended_ || closed_) co_return false;
    co_await news_.wait();
  }
  const auto& message = parser.get();
  request_.method = std::string(message.method_string());
  const std::string target(message.target());
  const std::size_t mark = target.find('?');
  request_.path = target.substr(0, mark);
  if (mark != std::string::npos) request_.query = target.substr(mark + 1);
  for (const auto& field : message) request_.headers.emplace_back(small(field.name_string()), field.value());
  if (const auto given = request_.header("x-request-id"); plain(given)) request_.id = given;
  parsed_->keep = message.keep_alive();
  head_ = request_.method == "HEAD";
  HttpReply refusal = shared_->handlers.refuse(request_);
  if (refusal.status != 0) parsed_->refusal = std::move(refusal);
  co_return true;
}

asio::awaitable<bool> HttpConnection::read_body() {
  auto& parser = parsed_->parser;
  parser.eager(true);
  if (small(request_.header("expect")) == "100-continue") {
    out_ = "HTTP/1.1 100 Continue\r\n\r\n";
    co_await write();
  }
  while (!parser.is_done()) {
    ErrorCode error;
    inbox_.erase(0, parser.put(asio::buffer(inbox_), error));
    space_.set();
    if (parser.is_done()) break;
    if (error && error != http::error::need_more) {
      const std::string limit = std::to_string(shared_->options.max_body_bytes);
      parsed_->refusal = shared_->handlers.error(
          status_of(error), error == http::error::body_limit ? "the body has more than " + limit + " bytes"
                                                             : "the body is malformed: " + error.message());
      co_return true;
    }
    if (input_ended_ || closed_) co_return false;
    co_await news_.wait();
  }
  request_.body = std::move(parser.get().body());
  request_.wake = [weak = weak_from_this(), strand = strand_] {
    if (const auto self = weak.lock()) asio::post(strand, [self] { self->news_.set(); });
  };
  co_return true;
}

void HttpConnection::ask() {
  sent_ = 0;
  if (shared_->draining || parsed_->refusal) parsed_->keep = false;
  reply_ = parsed_->refusal ? std::move(*parsed_->refusal) : shared_->handlers.handle(request_);
}

asio::awaitable<void> HttpConnection::answer() {
  if (reply_.later) {
    co_await send_later();
  } else {
    out_ = header_of(false);
    if (!head_) out_ += reply_.body;
    co_await write();
  }
  log_access();
  reply_ = {};
  clear_deadline();
}

asio::awaitable<void> HttpConnection::send_later() {
  bool begun = false;
  for (;;) {
    const auto state = reply_.later->advance(reply_);
    const bool done = state == LaterReply::State::done;
    if (done && !begun) {
      out_ = header_of(false) + reply_.body;
    } else if (state != LaterReply::State::waiting) {
      out_ = begun ? "" : header_of(true);
      begun = true;
      if (!reply_.body.empty()) out_ += chunk_of(reply_.body);
      if (done) out_ += "0\r\n\r\n";
    }
    reply_.body.clear();
    if (!out_.empty()) co_await write();
    if (done) co_return;
    co_await news_.wait();
    if (input_ended_) close();  // the client has left: nobody reads on
    if (closed_) {
      if (!begun) reply_.status = 499;  // for the log, as nginx has it
      co_return;
    }
  }
}

// Sends out_.
asio::awaitable<void> HttpConnection::write() {
  if (!closed_) {
    set_deadline(shared_->options.write_timeout);
    const ErrorCode error = co_await stream_->write(asio::buffer(out_));
    clear_deadline();
    sent_ += out_.size();
    if (error) close();
  }
  out_.clear();
}

std::string HttpConnection::header_of(bool chunked) const {
  std::string out = "HTTP/1.1 " + std::to_string(reply_.status) + " ";
  out += http_reason(reply_.status);
  out += "\r\nContent-Type: " + reply_.type + "\r\nX-Request-Id: " + request_.id;
  for (const auto& [name, value] : reply_.headers) out += "\r\n" + name + ": " + value;
  if (chunked)
    out += "\r\nTransfer-Encoding: chunked";
  else
    out += "\r\nContent-Length: " + std::to_string(reply_.body.size());
  out += parsed_->keep ? "\r\nConnection: keep-alive\r\n\r\n" : "\r\nConnection: close\r\n\r\n";
  return out;
}

void HttpConnection::log_access() const {
  if (!shared_->options.access_log) return;
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began_);
  log(LogLevel::info, peer_, ' ', request_.id, ' ', plain(request_.method) ? request_.method : "?", ' ',
      plain(request_.path) ? request_.path : "?", ' ', reply_.status, ' ', sent_, " bytes ", ms.count(),
      " ms", reply_.log.empty() ? "" : " ", reply_.log);
}

}  // namespace slideway
