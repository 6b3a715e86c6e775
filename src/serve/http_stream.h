// ByteStream: a connection's bytes, plain or under TLS. One read and one write may be under way at a time.
//
// Threads  those of the socket's executor, a strand
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

namespace slideway {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual asio::awaitable<ErrorCode> open() = 0;                                    // TLS: the handshake
  virtual asio::awaitable<std::size_t> read_some(asio::mutable_buffer buffer) = 0;  // 0: the end, or an error
  virtual asio::awaitable<ErrorCode> write(asio::const_buffer bytes) = 0;           // all of them
  virtual asio::awaitable<void> finish() = 0;  // says that nothing more will come
  virtual void close() = 0;                    // reads and writes under way end
};

std::unique_ptr<ByteStream> make_plain_stream(asio::ip::tcp::socket socket);
std::unique_ptr<ByteStream> make_tls_stream(asio::ip::tcp::socket socket, asio::ssl::context& context);
// TLS 1.2 and later. Errors: invalid_input with the file and what OpenSSL says.
std::unique_ptr<asio::ssl::context> make_tls_context(const std::string& certificate_file,
                                                     const std::string& key_file);

}  // namespace slideway
