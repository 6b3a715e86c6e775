// JinjaLoop: the `loop` variable of a for loop. Items pass the loop's filter one by one, as late as jinja2 lets them:
// a filter may look at what the body has changed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "text/jinja_interpreter.h"

namespace slideway {

class JinjaLoop : public JinjaObject {
 public:
  using Passes = std::function<bool(const JinjaValue&)>;
  JinjaLoop(const JinjaStmt& stmt, JinjaScope* outside, std::vector<JinjaValue> items, Passes passes,
            int depth)
      : stmt_(stmt), outside_(outside), items_(std::move(items)), passes_(std::move(passes)), depth_(depth) {}

  bool advance(JinjaInterpreter& run);  // to the next item; false: there is none
  const JinjaValue& current() const { return items_[std::size_t(index_)]; }
  void finish() { passes_ = nullptr; }  // it refers to the loop's frame

  std::string type_name() const override { return "LoopContext"; }
  bool callable() const override { return true; }
  JinjaValue call(JinjaInterpreter& run, const JinjaCall& arguments) override;  // of recursive loops
  std::optional<JinjaValue> attribute(JinjaInterpreter& run, const std::string& name) override;
  JinjaValue cycle(JinjaInterpreter& run, const JinjaCall& arguments) const;
  JinjaValue changed(JinjaInterpreter& run, const JinjaCall& arguments);

 private:
  bool has(std::size_t index);  // whether so many items passed; filters no further than that
  std::int64_t length();

  const JinjaStmt& stmt_;
  JinjaScope* outside_;
  std::vector<JinjaValue> items_;  // the first passed_ of them passed, those from next_ on were not looked at
  Passes passes_;
  int depth_;
  std::int64_t index_ = -1;
  std::size_t passed_ = 0, next_ = 0;
  std::optional<JinjaValue> last_;  // what changed() was given
};

}  // namespace slideway
