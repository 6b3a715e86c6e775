// StopStrings: ends a growing text at the first of some strings, wherever the borders of its pieces lie.
//
// Text that may still turn out to be the beginning of a stop string is held back until it cannot be.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace slideway {

class StopStrings {
 public:
  // include: the stop string itself is part of the text.
  explicit StopStrings(std::vector<std::string> stops, bool include = false);

  std::string push(std::string_view text);  // what is certain by now, perhaps empty
  std::string finish();                     // the end has come: what was held back
  bool stopped() const { return !found_.empty(); }
  const std::string& found() const { return found_; }  // the string that stopped it
  std::size_t held() const { return held_.size(); }    // bytes

 private:
  std::size_t uncertain(std::string_view text) const;
  std::vector<std::string> stops_;
  bool include_;
  std::string held_, found_;
};

}  // namespace slideway
