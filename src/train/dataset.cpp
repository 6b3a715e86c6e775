#include "train/dataset.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <sstream>

#include "core/error.h"
#include "core/log.h"
#include "core/threads.h"
#include "train/dataset_rows.h"

namespace slideway {
namespace {

struct Encoded {
  TokenIds ids;
  std::vector<bool> trained;
};

class RowEncoder {
 public:
  RowEncoder(const TrainOptions& options, const Tokenizer& tokenizer, const ChatTemplate* chat)
      : options_(options), tokenizer_(tokenizer), chat_(chat) {
    const TokenIds some = tokenizer.encode("a", {});
    while (closing_ < some.size() && some[some.size() - 1 - closing_] == tokenizer.eos_token_id()) ++closing_;
  }

  Encoded encode(const DataRow& row) const {
    Encoded sample = row.kind == DataRow::Kind::messages ? chat(row) : plain(row);
    if (options_.train_on_inputs) sample.trained.assign(sample.ids.size(), true);
    return sample;
  }

 private:
  Encoded plain(const DataRow& row) const {
    Encoded sample;
    sample.ids = tokenizer_.encode(row.text, {});
    const bool whole = row.kind == DataRow::Kind::text;
    if (!whole) sample.ids.resize(sample.ids.size() - closing_);
    sample.trained.assign(sample.ids.size(), whole);
    if (!whole) {
      const TokenIds answer = tokenizer_.encode(row.completion, {.add_special_tokens = false});
      sample.ids.insert(sample.ids.end(), answer.begin(), answer.end());
      sample.trained.resize(sample.ids.size(), true);
    }
    const std::int32_t end = tokenizer_.eos_token_id();
    if (end >= 0 && (sample.ids.empty() || sample.ids.back() != end)) {
      sample.ids.push_back(end);
      sample.trained.push_back(true);
    }
    return sample;
  }

  Encoded chat(const DataRow& row) const {
    if (!chat_)
      fail(ErrorKind::invalid_input, row.where,
           ": rows with messages need a chat template, and the model has none; "
           "set chat_template");
    Encoded sample;
    std::vector<TextPiece> pieces;
    try {
      pieces = chat_->render_turns(row.messages, {.tools_json = row.tools, .now = now_});
    } catch (const Error& error) {
      fail(error.kind(), row.where, ": ", error.what());
    }
    sample.ids = tokenizer_.encode(pieces, &sample.trained);
    return sample;
  }

  const TrainOptions& options_;
  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_;
  std::size_t closing_ =
      0;  // end tokens that the tokenizer puts behind every text: not between prompt and answer
  std::time_t now_ = std::time(nullptr);  // one for all rows, should the template ask the time
};

// The rows' encodings, in order; the first row that cannot be encoded is the one that is reported.
std::vector<Encoded> encode_all(const std::vector<DataRow>& rows, const RowEncoder& encoder,
                                Threads* threads) {
  std::vector<Encoded> encoded(rows.size());
  std::vector<std::optional<Error>> errors(rows.size());
  const auto one = [&](std::int64_t i) {
    try {
      encoded[std::size_t(i)] = encoder.encode(rows[std::size_t(i)]);
    } catch (const Error& error) {
      errors[std::size_t(i)] = error;
    }
  };
  if (threads) {
    threads->for_each(std::int64_t(rows.size()), one);
  } else {
    for (std::size_t i = 0; i < rows.size(); ++i) one(std::int64_t(i));
  }
  for (const auto& error : errors)
    if (error) throw *error;
  return encoded;
}

bool any_target(const Encoded& sample) {
  return std::find(
             sample.trained.begin() + std::min<std::ptrdiff_t>(1, std::ptrdiff_t(sample.trained.size())),
             sample.trained.end(), true) != sample.trained.end();
}

}  // namespace

Dataset Dataset::load(const std::vector<std::filesystem::path>& files, const TrainOptions& options,
                      const Tokenizer& tokenizer, const ChatTemplate* chat, Threads* threads) {
  constexpr std::size_t kAtOnce = 4096;  // rows held as text
  Dataset data;
  const RowEncoder encoder(options, tokenizer, chat);
  std::vector<DataRow> rows;
  bool dated = false;
  const auto flush = [&] {
    dated |= chat && chat->asks_the_time() && std::any_of(rows.begin(), rows.end(), [](const DataRow& row) {
               return row.kind == DataRow::Kind::messages;
             });
    std::vector<Encoded> encoded = encode_all(rows, encoder, threads);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Encoded& sample = encoded[i];
      if (std::int64_t(sample.ids.size()) > options.sequence_len) {
        if (options.long_rows == LongRows::refuse)
          fail(ErrorKind::invalid_input, rows[i].where, ": ", sample.ids.size(), " tokens, sequence_len is ",
               options.sequence_len);
        if (options.long_rows == LongRows::drop) {
          ++data.counts_.dropped_long;
          continue;
        }
        sample.ids.resize(std::size_t(options.sequence_len));
        sample.trained.resize(sample.ids.size());
        ++data.counts_.truncated;
      }
      if (any_target(sample)) {
        data.add(sample.ids, sample.trained);
      } else {
        ++data.counts_.dropped_empty;
      }
    }
    data.counts_.rows += std::int64_t(rows.size());
    rows.clear();
  };
  for (const auto& file : files)
    read_rows(file, [&](DataRow&& row) {
      rows.push_back(std::move(row));
      if (rows.size() == kAtOnce) flush();
    });
  flush();
  if (dated)
    log(LogLevel::warning,
        "the chat template writes today's date into the data: a run that is resumed tomorrow finds other "
        "data");
  if (data.counts_.trained_tokens == 0)
    fail(ErrorKind::invalid_input, "the data set has 0 trainable tokens: ", data.summary(),
         data.counts_.dropped_empty > 0 ? "; a larger sequence_len may reach the answers" : "");
  return data;
}

void Dataset::add(const TokenIds& ids, const std::vector<bool>& trained) {
  CHECK(ids.size() == trained.size());
  for (std::size_t t = 0; t < ids.size(); ++t) {
    words_.push_back(std::uint32_t(ids[t]) | (trained[t] ? kTrained : 0));
    counts_.trained_tokens += t > 0 && trained[t];
  }
  ends_.push_back(words_.size());
  ++counts_.samples;
  counts_.tokens += std::int64_t(ids.size());
}

std::int64_t Dataset::longest() const {
  std::int64_t most = 0;
  for (std::int64_t s = 0; s < size(); ++s) most = std::max(most, length(s));
  return most;
}

std::string Dataset::summary() const {
  std::ostringstream out;
  out << counts_.rows << " rows, " << counts_.samples << " samples, " << counts_.tokens << " tokens, "
      << counts_.trained_tokens << " of them trained";
  if (counts_.truncated) out << "; " << counts_.truncated << " cut to sequence_len";
  if (counts_.dropped_long) out << "; " << counts_.dropped_long << " dropped: longer than sequence_len";
  if (counts_.dropped_empty) out << "; " << counts_.dropped_empty << " dropped: no trained token";
  return out.str();
}

std::uint64_t Dataset::digest() const {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, a word at a time
  const auto mix = [&](std::uint64_t word) { hash = (hash ^ word) * 0x100000001b3u; };
  for (const std::uint32_t word : words_) mix(word);
  for (const std::uint64_t end : ends_) mix(end);
  return hash;
}

}  // namespace slideway
