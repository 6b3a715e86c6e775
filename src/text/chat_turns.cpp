#include "text/chat_turns.h"

#include <algorithm>
#include <optional>

#include "core/error.h"

namespace slideway {
namespace {

struct Range {
  std::size_t begin, end;
};

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return std::size_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// From the first to the last byte that came from a message.
std::optional<Range> of_message(const TracedText& text, std::size_t message) {
  std::optional<Range> range;
  std::size_t begin = 0;
  for (const TracedText::Run& run : text.runs()) {
    if (run.origin.source == std::int32_t(message)) {
      if (!range) range = {begin, run.end};
      range->end = run.end;
    }
    begin = run.end;
  }
  return range;
}

class TurnFinder {
 public:
  TurnFinder(const TracedText& whole, const RenderPrefix& render) : whole_(whole), render_(render) {}

  // The text of one message from where a generation prompt ends to what ends the turn.
  std::optional<Range> find(std::size_t message) const {
    const std::optional<Range> own = of_message(whole_, message);
    const std::optional<std::size_t> begin = begin_of(message, own);
    const std::optional<std::size_t> end = end_of(message, own);
    if (!begin || !end || *begin > *end) return std::nullopt;
    return Range{*begin, without_spaces(*begin, *end, own)};
  }

 private:
  // Where the generation prompt ends: the messages before the turn, rendered with it, begin the whole text. A prompt
  // that opens thoughts which the whole text leaves out agrees with it only so far; the turn begins there.
  std::optional<std::size_t> begin_of(std::size_t message, const std::optional<Range>& own) const {
    try {
      const std::string prompt = render_(message, true).bytes();
      const std::size_t agrees = common_prefix(prompt, whole_.bytes());
      if (agrees == prompt.size()) return own ? std::min(agrees, own->begin) : agrees;
      const std::string before = render_(message, false).bytes();
      if (!own || !whole_.bytes().starts_with(before) || agrees < before.size()) return std::nullopt;
      return std::min(agrees, own->begin);
    } catch (const Error&) {
      return std::nullopt;  // some templates refuse to end before a turn
    }
  }

  // Where the turn ends: the messages up to it begin the whole text. Where the last turn of a chat is written
  // differently, what follows the message's own words must be the same there and in the whole text.
  std::optional<std::size_t> end_of(std::size_t message, const std::optional<Range>& own) const {
    try {
      const TracedText until = render_(message + 1, false);
      if (whole_.bytes().starts_with(until.bytes())) return until.size();
      const std::optional<Range> there = of_message(until, message);
      if (!own || !there) return std::nullopt;
      const std::string_view tail = std::string_view(until.bytes()).substr(there->end);
      if (!std::string_view(whole_.bytes()).substr(own->end).starts_with(tail)) return std::nullopt;
      return own->end + tail.size();
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // A line's end after the token that ends a turn is the next turn's business.
  std::size_t without_spaces(std::size_t begin, std::size_t end, const std::optional<Range>& own) const {
    const std::size_t tail = own ? std::clamp(own->end, begin, end) : begin;
    const std::string_view text = std::string_view(whole_.bytes()).substr(tail, end - tail);
    const std::size_t left = stripped(text, false, true).second;
    return left > 0 ? tail + left : end;
  }

  const TracedText& whole_;
  const RenderPrefix& render_;
};

void append_marked(TracedText& out, const TracedText& from, Range range) {
  TracedText part = from.slice(range.begin, range.end);
  part.mark_trained();
  out.append(part);
}

}  // namespace

TracedText mark_turns(const TracedText& whole, const std::vector<ChatMessage>& messages,
                      const RenderPrefix& render) {
  const TurnFinder finder(whole, render);
  TracedText out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].trained) continue;
    const std::optional<Range> turn = finder.find(i);
    if (!turn || turn->begin < at)
      fail(ErrorKind::unsupported, "messages[", i,
           "]: cannot tell where the assistant's turn lies in the chat template's text: the messages before "
           "it do not "
           "render to the beginning of the whole. Mark the turn in the template with {% generation %} … "
           "{% endgeneration %} (chat_template: FILE)");
    out.append(whole, at, turn->begin);
    append_marked(out, whole, *turn);
    at = turn->end;
  }
  out.append(whole, at, whole.size());
  return out;
}

TracedText unmark_turns(const TracedText& whole, const std::vector<ChatMessage>& messages) {
  TracedText out;
  const auto& runs = whole.runs();
  for (std::size_t first = 0, begin = 0; first < runs.size();) {
    std::size_t last = first;  // runs of one mark
    bool keep = true;
    for (; last < runs.size() && runs[last].origin.trained == runs[first].origin.trained; ++last) {
      const std::int32_t source = runs[last].origin.source;
      if (source >= 0 && !messages[std::size_t(source)].trained) keep = false;
    }
    for (; first < last; begin = runs[first++].end) {
      Origin origin = runs[first].origin;
      origin.trained = origin.trained && keep;
      out.append(std::string_view(whole.bytes()).substr(begin, runs[first].end - begin), origin);
    }
  }
  return out;
}

}  // namespace slideway
