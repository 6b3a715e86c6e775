#include "serve/api_error.h"

#include <nlohmann/json.hpp>

#include "core/log.h"

namespace slideway {
namespace {

std::string type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

}  // namespace

int status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_input:
    case ErrorKind::corrupt:
    case ErrorKind::unsupported:
      return 400;
    case ErrorKind::not_found:
      return 404;
    case ErrorKind::out_of_memory:
      return 503;
    default:
      return 500;
  }
}

std::string error_body(const ApiError::Form& form, const std::string& message) {
  const nlohmann::ordered_json error = {{"message", message},
                                        {"type", form.type.empty() ? type_of(form.status) : form.type},
                                        {"param", text_or_null(form.param)},
                                        {"code", text_or_null(form.code)}};
  return nlohmann::ordered_json{{"error", error}}.dump(-1, ' ', false,
                                                       nlohmann::json::error_handler_t::replace);
}

HttpReply error_reply(const ApiError::Form& form, const std::string& message) {
  HttpReply reply{.status = form.status, .body = error_body(form, message)};
  if (form.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Basic realm=\"slideway\"");
  if (form.status == 429 || form.status == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

HttpReply error_reply_of_exception(const HttpRequest& request) {
  try {
    throw;
  } catch (const ApiError& error) {
    return error_reply(error.form(), error.what());
  } catch (const Error& error) {
    const int status = status_of(error.kind());
    if (status < 500) return error_reply({.status = status}, error.what());
    log(LogLevel::error, request.id, ": ", error.what());
    return error_reply({.status = status},
                       status == 503 ? error.what() : "internal error; see the server's log");
  } catch (const std::exception& error) {
    log(LogLevel::error, request.id, ": ", error.what());
    return error_reply({.status = 500}, "internal error; see the server's log");
  }
}

}  // namespace slideway
