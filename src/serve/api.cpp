#include "serve/api.h"

#include <algorithm>

#include "serve/api_error.h"
#include "serve/embedded.h"
#include "serve/fields.h"

namespace slideway {
namespace {

using Needs = ApiRoute::Needs;

constexpr ApiRoute kRoutes[] = {
    {"GET", "/health", Needs::nothing, nullptr},
    {"GET", "/ready", Needs::nothing, nullptr},
    {"GET", "/version", Needs::key, nullptr},
    {"GET", "/", Needs::key, nullptr},
    {"GET", "/openapi.json", Needs::key, nullptr},
    {"GET", "/metrics", Needs::key, show_metrics},
    {"GET", "/status", Needs::key, show_status},
    {"GET", "/v1/models", Needs::key, list_models},
    {"GET", "/v1/models/", Needs::key, show_model},
    {"POST", "/v1/completions", Needs::key, complete},
    {"POST", "/v1/chat/completions", Needs::key, chat},
    {"POST", "/tokenize", Needs::key, tokenize},
    {"POST", "/detokenize", Needs::key, detokenize},
    {"POST", "/v1/load_lora_adapter", Needs::admin, load_adapter_route},
    {"POST", "/v1/unload_lora_adapter", Needs::admin, unload_adapter_route},
};

// One page that needs nothing but this server; what it runs is its own script alone.
HttpReply status_page() {
  return {
      .type = "text/html; charset=utf-8",
      .headers = {{"Content-Security-Policy", "default-src 'self' 'unsafe-inline'; frame-ancestors 'none'"}},
      .body = std::string(kStatusPage)};
}

bool is_at(const ApiRoute& route, const std::string& path) {
  const std::string_view own = route.path;
  return own.size() > 1 && own.ends_with('/') ? path.starts_with(own) && path.size() > own.size()
                                              : path == own;
}

const ApiRoute& route_of(const HttpRequest& request) {
  const std::string& method = request.method == "HEAD" ? std::string("GET") : request.method;
  std::string others;
  for (const ApiRoute& route : kRoutes) {
    if (!is_at(route, request.path)) continue;
    if (route.method == method) return route;
    others += (others.empty() ? "" : ", ") + std::string(route.method);
  }
  if (others.empty()) fail_api({.status = 404}, "There is no ", request.path);
  fail_api({.status = 405}, request.path, " takes ", others, ", not ", request.method);
}

// A page of another site can make a browser send any text, but not JSON, without asking first.
void check_content_type(const HttpRequest& request) {
  const std::string_view type = request.header("content-type");
  if (request.method == "POST" && !type.starts_with("application/json"))
    fail_api({.status = 415}, "Content-Type should be application/json, found ",
             type.empty() ? "none" : type);
}

}  // namespace

std::span<const ApiRoute> api_routes() {
  return kRoutes;
}

HttpHandlers Api::handlers() {
  return {.refuse = [this](const HttpRequest& request) { return refuse(request); },
          .handle = [this](const HttpRequest& request) { return answer(request); },
          .error = [](int status,
                      const std::string& message) { return error_reply({.status = status}, message); }};
}

HttpReply Api::refuse(const HttpRequest& request) const {
  try {
    const ApiRoute& route = route_of(request);
    check_access(route, request);
    check_content_type(request);
    if (!route.answer) return {.status = 0};
    if (!model_) fail_api({.status = 503}, "The model is still loading.");
    if (draining_) fail_api({.status = 503}, "The server is shutting down.");
    if (model_.load()->engine->failed())
      fail_api({.status = 503}, "The device has failed; the server must be restarted.");
    return {.status = 0};
  } catch (const std::exception&) {
    return error_reply_of_exception(request);
  }
}

void Api::check_access(const ApiRoute& route, const HttpRequest& request) const {
  if (route.needs == Needs::nothing) return;
  if (access_.open()) {
    if (route.needs == Needs::admin && !loopback_)
      fail_api({.status = 403},
               "Loading and unloading need an admin key, and the server has none (--admin-api-key)");
    return;
  }
  const AccessKey* key = access_.find(request.header("authorization"));
  if (!key) {
    const bool none = request.header("authorization").empty();
    fail_api({.status = 401, .code = none ? "" : "invalid_api_key"},
             none ? "No API key was sent: Authorization: Bearer KEY" : "The API key is not known.");
  }
  if (route.needs == Needs::admin && !key->admin)
    fail_api({.status = 403}, access_.has_admin()
                                  ? "This needs an admin key."
                                  : "This needs an admin key, and the server has none (--admin-api-key)");
}

HttpReply Api::answer(const HttpRequest& request) const {
  try {
    const ApiRoute& route = route_of(request);
    if (route.answer) return route.answer({request, access_.find(request.header("authorization")), *model_});
    if (request.path == "/") return status_page();
    if (request.path == "/openapi.json") return {.body = std::string(kOpenApi)};
    if (request.path == "/version") return {.body = dump({{"version", SLIDEWAY_VERSION}})};
    return health(request.path == "/ready");
  } catch (const std::exception&) {
    return error_reply_of_exception(request);
  }
}

// Health: the process can go on. Ready: it takes new requests.
HttpReply Api::health(bool ready) const {
  const ServedModel* model = model_;
  if (!model) return error_reply({.status = 503, .code = "loading"}, "The model is still loading.");
  if (model->engine->failed())
    return error_reply({.status = 500}, "The device has failed; the server must be restarted.");
  if (ready && draining_)
    return error_reply({.status = 503, .code = "draining"}, "The server is shutting down.");
  return {.body = R"({"status":"ok"})"};
}

}  // namespace slideway
