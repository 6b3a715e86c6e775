// Api: from a request to the function that answers it: routes, keys, and what is said while the model is not there yet.
//
//   Api api(std::move(access), loopback);
//   HttpServer server(options, api.handlers());
//   server.start();          // /health says 503
//   api.begin(model);        // … and now 200
//
// A route says what it needs: nothing, a key, or an admin's key; and whether the model must be there. That is checked
// before the body is read.
//
// Threads  any
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "serve/access.h"
#include "serve/http.h"
#include "serve/served_model.h"

namespace slideway {

struct ApiRoute {
  enum class Needs { nothing, key, admin };
  const char* method;
  const char* path;  // one that ends with a slash stands for all that begin with it
  Needs needs;
  HttpReply (*answer)(const ApiCall& call);  // null: answered without the model
};
std::span<const ApiRoute> api_routes();

class Api {
 public:
  // loopback: only this machine can reach the server, so without keys it may load and unload.
  Api(Access access, bool loopback) : access_(std::move(access)), loopback_(loopback) {}

  HttpHandlers handlers();
  void begin(ServedModel& model) { model_ = &model; }
  void drain() { draining_ = true; }  // new requests are refused

 private:
  HttpReply refuse(const HttpRequest& request) const;
  HttpReply answer(const HttpRequest& request) const;
  HttpReply health(bool ready) const;
  void check_access(const ApiRoute& route, const HttpRequest& request) const;

  Access access_;
  bool loopback_;
  std::atomic<ServedModel*> model_{nullptr};
  std::atomic<bool> draining_{false};
};

}  // namespace slideway
