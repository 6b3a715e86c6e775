#include "serve/http_server.h"

#include <sys/resource.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "serve/http_connection.h"

namespace slideway {
namespace {

using asio::ip::tcp;
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr int kSendBytes = 128 << 10;                   // that the system keeps for a reader who is slow
constexpr auto kPause = std::chrono::milliseconds(50);  // between looks at what is still open

tcp::endpoint endpoint_of(asio::io_context& io, const HttpOptions& options) {
  tcp::resolver resolver(io);
  ErrorCode error;
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty())
    fail(ErrorKind::invalid_input, "there is no address ", options.host, ": ", error.message());
  return *found.begin();
}

// As many open files as the system allows this process; shells often begin with 1,024.
void allow_many_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct HttpServer::Parts {
  Parts(const HttpOptions& options, HttpHandlers handlers)
      : io(options.threads), accepting(asio::make_strand(io)), acceptor(accepting), pause(accepting) {
    shared->options = options;
    shared->handlers = std::move(handlers);
    if (!options.certificate_file.empty() || !options.key_file.empty())
      tls = make_tls_context(options.certificate_file, options.key_file);
    allow_many_files();
    listen(endpoint_of(io, options));
  }

  void listen(const tcp::endpoint& endpoint) {
    try {
      acceptor.open(endpoint.protocol());
      acceptor.set_option(tcp::acceptor::reuse_address(true));
      acceptor.bind(endpoint);
      acceptor.listen(4096);
      port = acceptor.local_endpoint().port();
    } catch (const boost::system::system_error& error) {
      fail(ErrorKind::invalid_input, "cannot listen on ", endpoint.address().to_string(), " port ",
           endpoint.port(), ": ", error.code().message());
    }
  }

  asio::awaitable<void> accept() {
    for (;;) {
      auto [error, socket] = co_await acceptor.async_accept(asio::make_strand(io), kTuple);
      if (shared->draining) break;
      if (!error && shared->connections < shared->options.max_connections) {
        open(std::move(socket));
      } else if (error) {  // too many open files, perhaps: they will be fewer
        pause.expires_after(kPause);
        co_await pause.async_wait(kTuple);
      }
    }
  }

  void open(tcp::socket socket) {
    ErrorCode error;
    socket.set_option(tcp::no_delay(true), error);
    socket.set_option(tcp::socket::send_buffer_size(kSendBytes), error);
    const auto remote = socket.remote_endpoint(error);
    if (error) return;  // gone already
    const asio::any_io_executor strand = socket.get_executor();
    auto stream = tls ? make_tls_stream(std::move(socket), *tls) : make_plain_stream(std::move(socket));
    auto connection =
        std::make_shared<HttpConnection>(shared, std::move(stream), strand, remote.address().to_string());
    connection->start();
    if (open_ones.size() > 2 * shared->connections + 64)
      open_ones.remove_if([](const auto& weak) { return weak.expired(); });
    open_ones.push_back(connection);
  }

  void each_connection(void (HttpConnection::*what)()) {
    for (const auto& weak : open_ones)
      if (const auto connection = weak.lock()) (connection.get()->*what)();
  }

  asio::awaitable<void> end() {
    ErrorCode ignored;
    acceptor.close(ignored);
    each_connection(&HttpConnection::drain);
    const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(shared->options.drain_timeout);
    while (shared->connections > 0 && std::chrono::steady_clock::now() < last) {
      pause.expires_after(kPause);
      co_await pause.async_wait(kTuple);
    }
    if (shared->connections > 0)
      log(LogLevel::warning, shared->connections.load(), " connections were cut off after ",
          shared->options.drain_timeout, " s of draining");
    each_connection(&HttpConnection::stop);
  }

  std::shared_ptr<HttpShared> shared = std::make_shared<HttpShared>();
  asio::io_context io;
  std::unique_ptr<asio::ssl::context> tls;
  asio::any_io_executor accepting;  // a strand: of the acceptor and open_ones
  tcp::acceptor acceptor;
  std::uint16_t port = 0;
  asio::steady_timer pause;
  std::list<std::weak_ptr<HttpConnection>> open_ones;
  std::vector<std::thread> threads;
};

HttpServer::HttpServer(const HttpOptions& options, HttpHandlers handlers)
    : parts_(std::make_unique<Parts>(options, std::move(handlers))) {}

HttpServer::~HttpServer() {
  parts_->io.stop();
  wait();
}

void HttpServer::start() {
  Parts& p = *parts_;
  asio::co_spawn(p.accepting, p.accept(), asio::detached);
  for (int i = 0; i < p.shared->options.threads; ++i) p.threads.emplace_back([&p] { p.io.run(); });
}

void HttpServer::drain() {
  if (parts_->shared->draining.exchange(true)) return;
  asio::co_spawn(parts_->accepting, parts_->end(), asio::detached);
}

void HttpServer::wait() {
  for (std::thread& thread : parts_->threads) thread.join();
  parts_->threads.clear();
}

std::uint16_t HttpServer::port() const {
  return parts_->acceptor.local_endpoint().port();
}
std::size_t HttpServer::connections() const {
  return parts_->shared->connections;
}
bool HttpServer::draining() const {
  return parts_->shared->draining;
}

}  // namespace slideway
