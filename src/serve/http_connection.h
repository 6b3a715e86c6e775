// HttpConnection: one client, its requests one after another.
//
// Two coroutines on the connection's strand: one reads whatever comes into inbox_, always; the other parses requests out
// of it, asks the API and writes replies. So the end of the client's stream is seen while a reply is under way.
//
// Owns     its stream; itself, until both coroutines have ended
// Threads  those of the strand; drain may be called by any
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "serve/http.h"
#include "serve/http_server.h"
#include "serve/http_stream.h"

namespace slideway {

// Something that one coroutine waits for, told by others of the same strand.
class Signal {
 public:
  explicit Signal(const asio::any_io_executor& executor) : timer_(executor) {}
  void set();
  asio::awaitable<void> wait();  // until set, once

 private:
  asio::steady_timer timer_;
  bool set_ = false;
};

// What connections share.
struct HttpShared {
  HttpOptions options;
  HttpHandlers handlers;
  std::atomic<bool> draining{false};
  std::atomic<std::size_t> connections{0};
  std::atomic<std::uint64_t> next_id{1};
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpShared> shared, std::unique_ptr<ByteStream> stream,
                 asio::any_io_executor strand, std::string peer);
  ~HttpConnection();
  void start();
  void drain();  // ends when the request under way has its reply; now where there is none
  void stop();   // ends now

 private:
  struct Parsed;
  // g++ 12 makes wrong code of a co_await within a condition: what it gives gets a name first.
  asio::awaitable<void> serve();
  asio::awaitable<void> read_input();
  asio::awaitable<bool> read_request();  // false where there is none to come
  asio::awaitable<bool> read_header();
  asio::awaitable<bool> read_body();
  asio::awaitable<void> answer();
  asio::awaitable<void> send_later();
  asio::awaitable<void> write();  // out_
  void ask();
  void set_deadline(int seconds);
  void clear_deadline();
  void close();
  std::string header_of(bool chunked) const;
  void log_access() const;

  std::shared_ptr<HttpShared> shared_;
  std::unique_ptr<ByteStream> stream_;
  asio::any_io_executor strand_;
  asio::steady_timer deadline_;
  std::uint64_t deadline_turn_ = 0;
  Signal news_;   // input, its end, something of a reply, draining
  Signal space_;  // in inbox_
  std::string inbox_;
  bool input_ended_ = false;
  bool closed_ = false;
  bool head_ = false;  // the request's method is HEAD: no body
  std::string peer_;
  std::unique_ptr<Parsed> parsed_;
  HttpRequest request_;
  HttpReply reply_;
  std::string out_;
  std::chrono::steady_clock::time_point began_;
  std::uint64_t sent_ = 0;  // bytes of the reply under way
};

}  // namespace slideway
