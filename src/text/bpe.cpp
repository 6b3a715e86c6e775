#include "text/bpe.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "text/byte_alphabet.h"

namespace slideway {
namespace {

constexpr char32_t kTableEnd = 0x180;

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

std::uint64_t hash_pair(std::uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  return pair ^ pair >> 32;
}

// A heap's top is its largest by this order: the lowest rank, then the leftmost place.
bool later(const Bpe::Candidate& a, const Bpe::Candidate& b) {
  return a.rank_and_place > b.rank_and_place;
}

std::string fallback_name(int byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[static_cast<std::size_t>(byte >> 4)] +
         digits[static_cast<std::size_t>(byte & 15)] + ">";
}

}  // namespace

Bpe::Bpe(BpeSpec spec, bool byte_level, std::span<const std::int32_t> not_words)
    : vocabulary_(std::move(spec.vocabulary)),
      unk_token_(spec.unk_token),
      byte_level_(byte_level),
      fuse_unk_(spec.fuse_unk),
      byte_fallback_(spec.byte_fallback),
      ignore_merges_(spec.ignore_merges) {
  if (!unk_token_.empty()) unk_ = vocabulary_.find(unk_token_);
  for (char32_t c = 0; c < kTableEnd; ++c) {
    std::string text;
    append_utf8(text, c);
    of_character_.push_back(vocabulary_.find(text));
  }
  for (int byte = 0; byte < 256; ++byte) {
    of_byte_.push_back(of_character_[byte_alphabet::kCharacterOfByte[static_cast<std::size_t>(byte)]]);
    fallback_.push_back(vocabulary_.find(fallback_name(byte)));
  }
  not_word_.resize(static_cast<std::size_t>(vocabulary_.size()));
  for (const std::int32_t id : not_words) {
    if (id < vocabulary_.size()) not_word_[static_cast<std::size_t>(id)] = true;
  }

  std::size_t slots = 16;
  while (slots < 2 * spec.merges.size()) slots *= 2;
  merges_.resize(slots);
  std::string merged;
  std::uint32_t rank = 0;
  for (const auto& [left, right] : spec.merges) {
    merged.assign(left);
    merged += right;
    const std::array<std::int32_t, 3> ids = {vocabulary_.find(left), vocabulary_.find(right),
                                             vocabulary_.find(merged)};
    if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0) {
      fail(ErrorKind::corrupt, "model.merges: merge ", rank, " joins ", left, " and ", right,
           ", but the vocabulary has no ",
           ids[0] < 0   ? left
           : ids[1] < 0 ? right
                        : std::string_view(merged));
    }
    add_merge(pair_of(ids[0], ids[1]), rank++, ids[2]);
  }
}

void Bpe::add_merge(std::uint64_t pair, std::uint32_t rank, std::int32_t merged) {
  std::size_t slot = hash_pair(pair) & (merges_.size() - 1);
  while (merges_[slot].merged >= 0 && merges_[slot].pair != pair) slot = (slot + 1) & (merges_.size() - 1);
  merges_[slot] = {pair, rank, merged};  // of a merge that stands twice the last one counts
}

const Bpe::Merge* Bpe::find_merge(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t slot = hash_pair(pair) & (merges_.size() - 1);
  while (merges_[slot].pair != pair) {
    if (merges_[slot].merged < 0) return nullptr;
    slot = (slot + 1) & (merges_.size() - 1);
  }
  return &merges_[slot];
}

std::span<const WordToken> Bpe::encode(std::string_view word, Scratch& scratch) const {
  const bool cached = word.size() <= WordCache::kLongestWord;
  std::uint64_t hash = 0;
  if (cached) {
    hash = hash_bytes(word);
    if (const auto tokens = scratch.cache.find(word, hash); !tokens.empty()) return tokens;
  }
  scratch.tokens.clear();
  if (const std::int32_t id = ignore_merges_ ? find_whole(word, scratch) : -1; id >= 0) {
    scratch.tokens.push_back({id, static_cast<std::uint32_t>(word.size())});
  } else {
    scratch.symbols.clear();
    spell(word, scratch.symbols);
    merge(scratch);
    for (const Symbol& symbol : scratch.symbols) {
      if (symbol.bytes > 0) scratch.tokens.push_back({symbol.id, symbol.bytes});
    }
  }
  if (cached) scratch.cache.insert(word, hash, scratch.tokens);
  return scratch.tokens;
}

std::int32_t Bpe::find_whole(std::string_view word, Scratch& scratch) const {
  if (byte_level_) {
    scratch.spelled.clear();
    byte_alphabet::append_spelled(scratch.spelled, word);
    word = scratch.spelled;
  }
  const std::int32_t id = vocabulary_.find(word);
  return id >= 0 && !not_word_[static_cast<std::size_t>(id)] ? id : -1;
}

void Bpe::spell(std::string_view word, std::vector<Symbol>& symbols) const {
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t begin = at;
    std::int32_t id = -1;
    if (byte_level_) {
      id = of_byte_[static_cast<unsigned char>(word[at++])];
    } else {
      const char32_t c = next_character(word, at);
      id = c < kTableEnd ? of_character_[c] : vocabulary_.find(word.substr(begin, at - begin));
    }
    const auto bytes = static_cast<std::uint32_t>(at - begin);
    if (id >= 0) {
      symbols.push_back({id, bytes, 0, 0});
    } else {
      spell_unknown(word.substr(begin, bytes), bytes, symbols);
    }
  }
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<std::int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<std::int32_t>(i) + 1 : -1;
  }
}

// A character that the vocabulary lacks: its bytes as tokens, or the unknown token, or nothing.
void Bpe::spell_unknown(std::string_view character, std::uint32_t bytes, std::vector<Symbol>& symbols) const {
  std::string spelled(character);
  if (byte_level_) {
    spelled.clear();
    byte_alphabet::append_spelled(spelled, character);
  }
  if (byte_fallback_ && std::all_of(spelled.begin(), spelled.end(),
                                    [&](char c) { return fallback_[static_cast<unsigned char>(c)] >= 0; })) {
    for (const char c : spelled) symbols.push_back({fallback_[static_cast<unsigned char>(c)], 1, 0, 0});
    return;
  }
  if (unk_token_.empty()) return;
  if (unk_ < 0) fail(ErrorKind::corrupt, "model.unk_token is ", unk_token_, ", which the vocabulary lacks");
  if (fuse_unk_ && !symbols.empty() && symbols.back().id == unk_) {
    symbols.back().bytes += bytes;
  } else {
    symbols.push_back({unk_, bytes, 0, 0});
  }
}

void Bpe::consider(std::int32_t left, Scratch& scratch) const {
  const Symbol& symbol = scratch.symbols[static_cast<std::size_t>(left)];
  if (symbol.next < 0) return;
  const Merge* merge = find_merge(symbol.id, scratch.symbols[static_cast<std::size_t>(symbol.next)].id);
  if (merge == nullptr) return;
  scratch.heap.push_back(
      {static_cast<std::uint64_t>(merge->rank) << 32 | static_cast<std::uint32_t>(left), merge->merged});
}

void Bpe::merge(Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Candidate>& heap = scratch.heap;
  heap.clear();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<std::int32_t>(i), scratch);
  std::make_heap(heap.begin(), heap.end(), later);
  const auto consider_later = [&](std::int32_t left) {
    const std::size_t before = heap.size();
    consider(left, scratch);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate best = heap.back();
    heap.pop_back();
    const auto place = static_cast<std::int32_t>(best.rank_and_place & UINT32_MAX);
    Symbol& left = symbols[static_cast<std::size_t>(place)];
    if (left.bytes == 0 || left.next < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    // The pair may have changed since it was put here.
    const Merge* now = find_merge(left.id, right.id);
    if (now == nullptr || now->merged != best.merged) continue;
    left.id = best.merged;
    left.bytes += right.bytes;
    right.bytes = 0;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = place;
    if (left.previous >= 0) consider_later(left.previous);
    consider_later(place);
  }
}

}  // namespace slideway
