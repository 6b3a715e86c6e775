#include "text/grammar.h"

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "core/error.h"
#include "text/json_schema.h"

// xgrammar's own log, which it leaves to its user (XGRAMMAR_LOG_CUSTOMIZE): what it passes over in a schema it says there
// alone.
namespace xgrammar {

namespace {
thread_local std::string warnings;
constexpr int kWarning = 2;
}  // namespace

[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message);
void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message);
void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  if (level >= kWarning) warnings += (warnings.empty() ? "" : "; ") + message;
}

}  // namespace xgrammar

namespace slideway {

class Grammar {
 public:
  explicit Grammar(xgrammar::CompiledGrammar compiled) : compiled(std::move(compiled)) {}
  xgrammar::CompiledGrammar compiled;
};

namespace {

// White space in one place, so that an answer cannot be made of it: enough to indent.
constexpr int kMostSpace = 16;
constexpr std::int64_t kCacheBytes = std::int64_t(64) << 20;
constexpr const char* kObject = R"({"type":"object"})";

std::vector<std::string> vocabulary_of(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes(std::size_t(tokenizer.vocab_size()));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (!tokenizer.is_special(id))
      bytes[std::size_t(id)] = tokenizer.token_bytes(id);  // empty: never allowed
  return bytes;
}

}  // namespace

struct GrammarCompiler::Parts {
  xgrammar::TokenizerInfo tokenizer;
  mutable xgrammar::GrammarCompiler compiler;
};

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocab_size,
                                 std::span<const std::int32_t> end_ids) {
  CHECK(vocab_size >= tokenizer.vocab_size());
  const xgrammar::TokenizerInfo info(vocabulary_of(tokenizer), xgrammar::VocabType::RAW, int(vocab_size),
                                     std::vector<std::int32_t>(end_ids.begin(), end_ids.end()));
  // One thread: schemas are compiled beside the server's work, and warnings belong to the thread that asked.
  parts_.reset(new Parts{info, xgrammar::GrammarCompiler(info, 1, true, kCacheBytes)});
}

GrammarCompiler::~GrammarCompiler() = default;

std::shared_ptr<const Grammar> GrammarCompiler::json_schema(std::string_view schema) const {
  const std::string text = checked_json_schema(schema);
  xgrammar::warnings.clear();
  std::optional<xgrammar::CompiledGrammar> compiled;
  try {
    // A cached grammar would not warn again, so a schema that warns must not be cached: it is converted here first.
    xgrammar::Grammar::FromJSONSchema(text, true, std::nullopt, std::nullopt, false, kMostSpace);
    if (!xgrammar::warnings.empty())
      fail(ErrorKind::unsupported, "the schema cannot be kept to: ", xgrammar::warnings);
    compiled = parts_->compiler.CompileJSONSchema(text, true, std::nullopt, std::nullopt, false, kMostSpace);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ErrorKind::invalid_input, "the schema cannot be used: ", error.what());
  }
  return std::make_shared<const Grammar>(std::move(*compiled));
}

std::shared_ptr<const Grammar> GrammarCompiler::json_object() const {
  return json_schema(kObject);
}

struct GrammarState::Parts {
  std::shared_ptr<const Grammar> grammar;
  xgrammar::GrammarMatcher matcher;
};

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar)
    : parts_(new Parts{grammar, xgrammar::GrammarMatcher(grammar->compiled)}) {}

GrammarState::~GrammarState() = default;

bool GrammarState::mask(std::span<std::uint32_t> allowed) {
  CHECK(!ended(), "an answer that has ended has no next token");
  std::int64_t words = std::int64_t(allowed.size());
  CHECK(words == xgrammar::GetBitmaskSize(parts_->grammar->compiled.GetTokenizerInfo().GetVocabSize()));
  DLTensor view{.data = allowed.data(),
                .device = {kDLCPU, 0},
                .ndim = 1,
                .dtype = xgrammar::GetBitmaskDLType(),
                .shape = &words,
                .strides = nullptr,
                .byte_offset = 0};
  std::fill(allowed.begin(), allowed.end(), ~0u);
  if (!parts_->matcher.FillNextTokenBitmask(&view)) return true;  // every token may come
  return std::any_of(allowed.begin(), allowed.end(), [](std::uint32_t word) { return word != 0; });
}

bool GrammarState::accept(std::int32_t token) {
  return parts_->matcher.AcceptToken(token);
}

bool GrammarState::ended() const {
  return parts_->matcher.IsTerminated();
}

}  // namespace slideway
