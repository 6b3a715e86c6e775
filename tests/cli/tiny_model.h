// A folder with one of the golden models and a tokenizer: every printable ASCII character is a token, id 7 ends.
#pragma once

#include <filesystem>
#include <string>

#include "core/file.h"
#include "support/project_path.h"
#include "support/temporary_folder.h"

namespace slideway {

inline std::string tiny_tokenizer() {
  std::string vocab;
  const auto add = [&](int id, const std::string& token) {
    vocab += (vocab.empty() ? "\"" : ",\"") + token + "\":" + std::to_string(id);
  };
  for (int id = 0; id < 128; ++id) {
    if (id == ' ')
      add(id, "Ġ");
    else if (id == '"' || id == '\\')
      add(id, std::string("\\") + char(id));
    else if (id > ' ' && id < 127)
      add(id, std::string(1, char(id)));
    else if (id != 7)
      add(id, "<" + std::to_string(id) + ">");
  }
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":7,"content":"<end>",
    "single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":null,
    "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
    "post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,
    "use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,
    "end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"vocab":{)" +
         vocab + R"(},"merges":[]}})";
}

class TinyModel {
 public:
  TinyModel() {
    fs::copy(project_path("tests/golden/llama"), path(), fs::copy_options::recursive);
    write_text_atomically(path() / "tokenizer.json", tiny_tokenizer());
    write_text_atomically(path() / "tokenizer_config.json", R"({"eos_token":"<end>"})");
  }
  fs::path path() const { return folder_ / "tiny"; }
  std::string text() const { return path().string(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace slideway
