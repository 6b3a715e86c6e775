// ApiError: an error as OpenAI's clients know it. Bodies always have all four: message, type, param, code.
//
// Any other Error becomes one by its kind.
#pragma once

#include <optional>
#include <string>

#include "core/error.h"
#include "serve/http.h"

namespace slideway {

class ApiError : public Error {
 public:
  struct Form {
    int status = 400;
    std::string type;   // empty: by status
    std::string param;  // the field; empty: null
    std::string code;   // empty: null
  };
  ApiError(Form form, const std::string& message)
      : Error(form.status == 404 ? ErrorKind::not_found : ErrorKind::invalid_input, message),
        form_(std::move(form)) {}
  const Form& form() const { return form_; }

 private:
  Form form_;
};

// 400 about one field.
template <class... Parts>
[[noreturn]] void fail_field(const std::string& param, const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  throw ApiError({.param = param}, out.str());
}

template <class... Parts>
[[noreturn]] void fail_api(ApiError::Form form, const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  throw ApiError(std::move(form), out.str());
}

int status_of(ErrorKind kind);
// The body alone, as it also stands in an event of a stream.
std::string error_body(const ApiError::Form& form, const std::string& message);
HttpReply error_reply(const ApiError::Form& form, const std::string& message);
// Of the exception being handled. What is not the client's doing is logged whole and told in a word.
HttpReply error_reply_of_exception(const HttpRequest& request);

}  // namespace slideway
