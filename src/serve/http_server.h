// HttpServer: HTTP/1.1 over TCP, with or without TLS; a few threads for any number of connections.
//
//   HttpServer server({.host = "127.0.0.1", .port = 8000}, handlers);   // listens
//   server.start();   // answers
//   server.drain();   // begins to end
//   server.wait();    // the last reply has been sent
//
// A connection serves one request after another. While a reply is under way its socket is still read: a client that
// leaves ends its reply at once. A stream holds one piece unsent and the next is made when that one has gone; a reader
// that takes nothing for write_timeout loses its connection.
//
// Draining: nothing new is accepted, connections without a request close, replies under way are sent to their end or
// until drain_timeout.
//
// Units    seconds, bytes
// Threads  its own; drain() may be called by any
// Errors   invalid_input: the address cannot be bound, the certificate cannot be read
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "serve/http.h"

namespace slideway {

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;               // 0: any that is free
  std::string certificate_file, key_file;  // PEM; both or neither
  int threads = 2;
  std::size_t max_connections = 8192;
  std::size_t max_header_bytes = 32 << 10;
  std::size_t max_body_bytes = 32 << 20;
  int idle_timeout = 75;   // between requests
  int read_timeout = 30;   // for a request's header, and again for its body
  int write_timeout = 30;  // for each piece of a reply
  int drain_timeout = 30;
  bool access_log = true;
};

class HttpServer {
 public:
  HttpServer(const HttpOptions& options, HttpHandlers handlers);
  ~HttpServer();

  void start();  // begins to serve, on its own threads
  void drain();  // begins to end
  void wait();   // until it has ended
  std::uint16_t port() const;
  std::size_t connections() const;
  bool draining() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace slideway
