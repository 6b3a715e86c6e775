// AlignedText: text on its way through normaliser and pre-tokenizer, and where each of its bytes came from.
//
// Offsets are bytes of the text that was given to encode. They are kept only where somebody asks for them (chat: which
// tokens are trained, which text was typed by a user).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slideway {

struct Span {
  std::uint32_t begin, end;
};

class AlignedText {
 public:
  // A view of text that stays alive, whose first byte is byte `start` of the original.
  AlignedText(std::string_view text, std::uint32_t start, bool tracked)
      : bytes_(text), start_(start), tracked_(tracked) {}
  AlignedText(const AlignedText&) = delete;

  std::string_view bytes() const { return bytes_; }
  bool tracked() const { return tracked_; }
  // Where byte i came from; bytes().size() gives the end. Without tracking this holds for unchanged text only.
  std::uint32_t origin(std::size_t i) const {
    return origin_.empty() ? start_ + static_cast<std::uint32_t>(i) : origin_[i];
  }

  // A rewritten text is built front to back: kept bytes, then written ones with the byte they stand for.
  class Rewrite {
   public:
    explicit Rewrite(AlignedText& text) : text_(text) { out_.reserve(text.bytes_.size() + 16); }
    void keep(std::size_t begin, std::size_t end) {
      out_ += text_.bytes_.substr(begin, end - begin);
      if (text_.tracked_) {
        for (std::size_t i = begin; i < end; ++i) origin_.push_back(text_.origin(i));
      }
    }
    void write(std::string_view bytes, std::size_t stands_for) {
      out_ += bytes;
      if (text_.tracked_) origin_.insert(origin_.end(), bytes.size(), text_.origin(stands_for));
    }
    std::uint32_t bytes() const { return static_cast<std::uint32_t>(out_.size()); }
    void finish() {
      if (text_.tracked_) {
        origin_.push_back(text_.origin(text_.bytes_.size()));
        text_.origin_ = std::move(origin_);
      }
      text_.storage_.swap(out_);
      text_.bytes_ = text_.storage_;
    }

   private:
    AlignedText& text_;
    std::string out_;
    std::vector<std::uint32_t> origin_;
  };

  // Part of another text, which stays alive.
  AlignedText(const AlignedText& whole, Span part)
      : bytes_(whole.bytes_.substr(part.begin, part.end - part.begin)),
        start_(whole.origin(part.begin)),
        tracked_(whole.tracked_) {
    if (!whole.origin_.empty()) {
      origin_.assign(whole.origin_.begin() + part.begin, whole.origin_.begin() + part.end + 1);
    }
  }

 private:
  std::string_view bytes_;
  std::uint32_t start_;
  bool tracked_;
  std::vector<std::uint32_t> origin_;
  std::string storage_;
};

}  // namespace slideway
