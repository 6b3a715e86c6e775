// HTTP as the API sees it: a request, and a reply that is there at once or comes in time.
//
//   HttpReply handle(const HttpRequest& request) {
//     if (request.path == "/health") return {.body = "{}"};
//     HttpReply reply;
//     reply.later = std::make_unique<Answer>(…, request.wake);   // Answer::advance is asked after every wake
//     return reply;
//   }
//
// Threads  a connection's calls come one at a time, on any of the server's threads; wake may be called by any thread at
//          any time, even when the connection is gone
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slideway {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // as sent, without the query
  std::string query;    // what follows '?'
  HttpHeaders headers;  // names in small letters
  std::string body;
  std::string id;    // the client's X-Request-Id, or one of ours
  std::string peer;  // address of the client
  std::function<void()> wake;

  std::string_view header(std::string_view name) const;  // the first of that name; empty where there is none
};

struct HttpReply;

// A reply under way. Its end, however it comes, is the object's destruction: whatever still works for it must stop then.
class LaterReply {
 public:
  enum class State {
    waiting,    // nothing to send yet
    streaming,  // status and headers are final; body holds what is new, perhaps nothing
    done,       // body holds the rest: of a stream, or the whole
  };
  virtual ~LaterReply() = default;
  virtual State advance(HttpReply& reply) = 0;
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  HttpHeaders headers = {};
  std::string body = {};
  std::unique_ptr<LaterReply> later = nullptr;
  std::string log = {};  // for the access log: what was asked of whom, and never a prompt
};

struct HttpHandlers {
  // Called with a request whose body has not been read. A status other than 0 is the reply: the body is never read.
  std::function<HttpReply(const HttpRequest&)> refuse;
  std::function<HttpReply(const HttpRequest&)> handle;
  // An error found before the API is asked (malformed, too large), in the API's own form.
  std::function<HttpReply(int status, const std::string& message)> error;
};

std::string_view http_reason(int status);

}  // namespace slideway
