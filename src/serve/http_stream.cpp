#include "serve/http_stream.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "core/error.h"

namespace slideway {
namespace {

using asio::ip::tcp;
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

void close_socket(tcp::socket& socket) {
  ErrorCode ignored;
  socket.shutdown(tcp::socket::shutdown_both, ignored);
  socket.close(ignored);
}

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(tcp::socket socket) : socket_(std::move(socket)) {}
  asio::awaitable<ErrorCode> open() override { co_return ErrorCode{}; }
  asio::awaitable<std::size_t> read_some(asio::mutable_buffer buffer) override {
    const auto [error, bytes] = co_await socket_.async_read_some(buffer, kTuple);
    co_return error ? 0 : bytes;
  }
  asio::awaitable<ErrorCode> write(asio::const_buffer bytes) override {
    const auto [error, _] = co_await asio::async_write(socket_, bytes, kTuple);
    co_return error;
  }
  asio::awaitable<void> finish() override {
    ErrorCode ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    co_return;
  }
  void close() override { close_socket(socket_); }

 private:
  tcp::socket socket_;
};

class TlsStream final : public ByteStream {
 public:
  TlsStream(tcp::socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}
  asio::awaitable<ErrorCode> open() override {
    const auto [error] = co_await stream_.async_handshake(asio::ssl::stream_base::server, kTuple);
    co_return error;
  }
  asio::awaitable<std::size_t> read_some(asio::mutable_buffer buffer) override {
    const auto [error, bytes] = co_await stream_.async_read_some(buffer, kTuple);
    co_return error ? 0 : bytes;
  }
  asio::awaitable<ErrorCode> write(asio::const_buffer bytes) override {
    const auto [error, _] = co_await asio::async_write(stream_, bytes, kTuple);
    co_return error;
  }
  asio::awaitable<void> finish() override { co_await stream_.async_shutdown(kTuple); }
  void close() override { close_socket(stream_.next_layer()); }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

}  // namespace

std::unique_ptr<ByteStream> make_plain_stream(tcp::socket socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

std::unique_ptr<ByteStream> make_tls_stream(tcp::socket socket, asio::ssl::context& context) {
  return std::make_unique<TlsStream>(std::move(socket), context);
}

std::unique_ptr<asio::ssl::context> make_tls_context(const std::string& certificate_file,
                                                     const std::string& key_file) {
  if (certificate_file.empty() || key_file.empty())
    fail(ErrorKind::invalid_input, "TLS needs a certificate and a key; only one of them was given");
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                       asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                       asio::ssl::context::no_tlsv1_1);
  ErrorCode error;
  context->use_certificate_chain_file(certificate_file, error);
  if (error)
    fail(ErrorKind::invalid_input, "cannot use the certificate ", certificate_file, ": ", error.message());
  context->use_private_key_file(key_file, asio::ssl::context::pem, error);
  if (error) fail(ErrorKind::invalid_input, "cannot use the private key ", key_file, ": ", error.message());
  return context;
}

}  // namespace slideway
