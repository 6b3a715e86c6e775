// Reads a tokenizer.json.
//
// Errors   corrupt (no JSON, a field missing or of the wrong type), unsupported (a kind or field that is not known);
//          the message names the file and the field
// Source   tokenizers' file format, version 1.0. truncation and padding are left aside: they say how batches were cut
//          when the file was written, and nobody wants a text shortened by it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer_spec.h"

namespace slideway {

class TokenizerJson {
 public:
  // where: the file's name, for messages.
  TokenizerJson(std::string_view text, std::string where);
  ~TokenizerJson();
  // The merges are views that live as long as this object.
  TokenizerSpec read();

 private:
  struct Document;
  std::unique_ptr<Document> document_;
};

}  // namespace slideway
