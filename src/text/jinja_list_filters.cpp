// Filters of lists and mappings.
#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_set>

#include "text/jinja_filters.h"

namespace slideway {

using Kind = JinjaValue::Kind;
using Shape = JinjaList::Shape;
using Run = JinjaInterpreter;

namespace {

// "a.b.0" of an item, as filters with an attribute mean it; the item itself where there is none.
class Attribute {
 public:
  Attribute(Run& run, const JinjaValue* path, const JinjaValue* otherwise = nullptr)
      : run_(run), otherwise_(otherwise) {
    if (!path || path->is(Kind::none)) return;
    if (!path->is(Kind::string)) {
      parts_.push_back(*path);
      return;
    }
    const JinjaCall dot{{JinjaValue::of(".")}, {}};
    for (const JinjaValue& part : run.items_of(find_jinja_method(*path, "split")(run, *path, dot))) {
      const bool number = find_jinja_method(part, "isdigit")(run, part, {}).truth();
      parts_.push_back(number ? run.filter("int", part, {}) : part);
    }
  }
  JinjaValue of(JinjaValue item) const {
    for (const JinjaValue& part : parts_) {
      item = run_.item(item, part);
      if (otherwise_ && item.is(Kind::undefined)) item = *otherwise_;
    }
    return item;
  }

 private:
  Run& run_;
  const JinjaValue* otherwise_;
  std::vector<JinjaValue> parts_;
};

const JinjaValue* optional_value(const JinjaParameters& given, std::size_t i) {
  return given.has(i) && !given.value(i).is(Kind::none) ? &given.value(i) : nullptr;
}

JinjaValue folded(Run& run, const JinjaValue& value, bool case_sensitive) {
  return !case_sensitive && value.is(Kind::string) ? run.filter("lower", value, {}) : value;
}

int order(Run& run, const JinjaValue& a, const JinjaValue& b) {
  run.step();
  run.need_defined(a);
  run.need_defined(b);
  const auto order = compare(a, b);
  if (!order) run.error("a ", a.type_name(), " and a ", b.type_name(), " have no order");
  return *order;
}

// Sorts items by the keys beside them; equal ones keep their order.
std::vector<JinjaValue> sorted(Run& run, std::vector<std::pair<JinjaValue, JinjaValue>> keyed, bool reverse) {
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const auto& a, const auto& b) { return order(run, a.first, b.first) < 0; });
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::vector<JinjaValue> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return items;
}

JinjaValue sort(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<Attribute> attributes;
  const JinjaValue* path = optional_value(given, 2);
  if (path && path->is(Kind::string)) {
    const JinjaCall comma{{JinjaValue::of(",")}, {}};
    for (const JinjaValue& part : run.items_of(find_jinja_method(*path, "split")(run, *path, comma)))
      attributes.emplace_back(run, &part);
  } else {
    attributes.emplace_back(run, path);
  }
  std::vector<std::pair<JinjaValue, JinjaValue>> keyed;
  for (JinjaValue& item : run.items_of(input)) {
    std::vector<JinjaValue> keys;
    for (const Attribute& attribute : attributes)
      keys.push_back(folded(run, attribute.of(item), given.truth(1, false)));
    JinjaValue key = run.make(std::move(keys));
    keyed.emplace_back(std::move(key), std::move(item));
  }
  return run.make(sorted(run, std::move(keyed), given.truth(0, false)));
}

JinjaValue dictsort(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "dictsort", {"case_sensitive", "by", "reverse"});
  if (!input.is(Kind::dict)) run.error("dictsort() needs a mapping, found a ", input.type_name());
  const std::string by = given.text(1, "key").bytes();
  if (by != "key" && by != "value") run.error("dictsort(): 'by' is key or value, not '", by, "'");
  std::vector<std::pair<JinjaValue, JinjaValue>> keyed;
  for (const auto& [key, value] : input.dict().entries)
    keyed.emplace_back(folded(run, by == "key" ? key : value, given.truth(0, false)),
                       run.make({key, value}, Shape::tuple));
  return run.make(sorted(run, std::move(keyed), given.truth(2, false)));
}

JinjaValue unique(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "unique", {"case_sensitive", "attribute"});
  const Attribute attribute(run, optional_value(given, 1));
  std::unordered_set<std::string> seen;
  std::vector<JinjaValue> items;
  for (JinjaValue& item : run.items_of(input))
    if (seen.insert(canonical_key(folded(run, attribute.of(item), given.truth(0, false)))).second)
      items.push_back(std::move(item));
  return run.make(std::move(items), Shape::iterator);
}

template <int wanted>
JinjaValue extreme(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, wanted < 0 ? "min" : "max", {"case_sensitive", "attribute"});
  const Attribute attribute(run, optional_value(given, 1));
  std::optional<JinjaValue> best, best_key;
  for (JinjaValue& item : run.items_of(input)) {
    JinjaValue key = folded(run, attribute.of(item), given.truth(0, false));
    if (best && order(run, key, *best_key) * wanted <= 0) continue;
    best = std::move(item);
    best_key = std::move(key);
  }
  return best ? *best : JinjaValue::undefined("the list was empty");
}

JinjaValue sum(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "sum", {"attribute", "start"});
  const Attribute attribute(run, optional_value(given, 0));
  JinjaValue total = given.value(1, JinjaValue::of(std::int64_t(0)));
  for (const JinjaValue& item : run.items_of(input))
    total = run.binary(JinjaExpr::Op::add, total, attribute.of(item));
  return total;
}

JinjaValue join(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "join", {"d", "attribute"});
  const Attribute attribute(run, optional_value(given, 1));
  const TracedText separator = given.has(0) ? run.text_of(given.value(0)) : TracedText();
  TracedText out;
  bool first = true;
  for (const JinjaValue& item : run.items_of(input)) {
    if (!first) out.append(separator);
    first = false;
    out.append(run.text_of(attribute.of(item)));
    run.check_bytes(out.size());
  }
  return run.make(std::move(out));
}

JinjaValue length(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "length", {});
  const bool countable = input.is(Kind::undefined) || input.is(Kind::dict) || input.readable() ||
                         (input.is(Kind::list) && input.list().shape != Shape::iterator);
  if (!countable) run.error("a ", input.type_name(), " has no length");
  if (input.is(Kind::list)) return JinjaValue::of(std::int64_t(input.list().items.size()));
  if (input.is(Kind::dict)) return JinjaValue::of(std::int64_t(input.dict().entries.size()));
  return JinjaValue::of(std::int64_t(input.readable() ? count_chars(input.readable()->bytes()) : 0));
}

JinjaValue to_list(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "list", {});
  return run.make(run.items_of(input));
}

JinjaValue first(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "first", {});
  std::vector<JinjaValue> items = run.items_of(input);
  return items.empty() ? JinjaValue::undefined("the list has no first item") : std::move(items.front());
}

JinjaValue last(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "last", {});
  if (input.is(Kind::list) && input.list().shape == Shape::iterator)
    run.error("last() needs a list: put |list before it");
  std::vector<JinjaValue> items = run.items_of(input);
  return items.empty() ? JinjaValue::undefined("the list has no last item") : std::move(items.back());
}

JinjaValue reverse(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "reverse", {});
  std::vector<JinjaValue> items = run.items_of(input);
  std::reverse(items.begin(), items.end());
  if (!input.readable() || input.is(Kind::dict)) return run.make(std::move(items), Shape::iterator);
  TracedText out;
  for (const JinjaValue& item : items) out.append(item.text());
  return run.make(std::move(out));
}

JinjaValue items(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "items", {});
  if (!input.is(Kind::dict) && !input.is(Kind::undefined))
    run.error("items() needs a mapping, found a ", input.type_name());
  std::vector<JinjaValue> pairs;
  if (input.is(Kind::dict))
    for (const auto& [key, value] : input.dict().entries)
      pairs.push_back(run.make({key, value}, Shape::tuple));
  return run.make(std::move(pairs), Shape::iterator);
}

JinjaValue batch(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "batch", {"linecount", "fill_with"}, 1);
  const std::int64_t count = given.integer(0, 1);
  if (count < 1) run.error("batch() needs a count of at least 1");
  std::vector<JinjaValue> batches, current;
  const auto flush = [&] { batches.push_back(run.make(std::exchange(current, {}))); };
  for (JinjaValue& item : run.items_of(input)) {
    if (std::int64_t(current.size()) == count) flush();
    current.push_back(std::move(item));
  }
  if (!current.empty() && optional_value(given, 1)) {
    run.step(std::size_t(count));
    current.resize(std::size_t(count), given.value(1));
  }
  if (!current.empty()) flush();
  return run.make(std::move(batches), Shape::iterator);
}

JinjaValue attr(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "attr", {"name"}, 1);
  const std::string name = given.text(0).bytes();
  if (!input.is(Kind::dict) || find_jinja_method(input, name)) return run.attribute(input, name);
  return JinjaValue::undefined("'dict object' has no attribute '" + name + "'");
}

JinjaValue map(Run& run, const JinjaValue& input, const JinjaCall& call) {
  std::vector<JinjaValue> out;
  if (call.positional.empty()) {
    const JinjaParameters given(run, call, "map", {"attribute", "default"}, 1);
    const Attribute attribute(run, &given.value(0), optional_value(given, 1));
    for (const JinjaValue& item : run.items_of(input)) out.push_back(attribute.of(item));
    return run.make(std::move(out), Shape::iterator);
  }
  const JinjaCall rest{{call.positional.begin() + 1, call.positional.end()}, call.named};
  const std::string name = run.text_of(call.positional[0]).bytes();
  for (const JinjaValue& item : run.items_of(input)) out.push_back(run.filter(name, item, rest));
  return run.make(std::move(out), Shape::iterator);
}

// select, reject, selectattr, rejectattr: the items (or an attribute of theirs) that pass a test, or do not.
template <bool by_attribute, bool keep>
JinjaValue chosen(Run& run, const JinjaValue& input, const JinjaCall& call) {
  std::vector<JinjaValue> out;
  if (!input.truth()) return run.make(std::move(out), Shape::iterator);
  constexpr std::size_t kName = by_attribute ? 1 : 0;
  if (by_attribute && call.positional.empty())
    run.error("selectattr() and rejectattr() need the name of an attribute");
  const Attribute attribute(run, by_attribute ? &call.positional[0] : nullptr);
  JinjaCall rest;
  std::string test;
  if (call.positional.size() > kName) {
    test = run.text_of(call.positional[kName]).bytes();
    rest = {{call.positional.begin() + kName + 1, call.positional.end()}, call.named};
  }
  for (JinjaValue& item : run.items_of(input)) {
    const JinjaValue value = attribute.of(item);
    const bool passes = test.empty() ? value.truth() : run.test(test, value, rest);
    if (passes == keep) out.push_back(std::move(item));
  }
  return run.make(std::move(out), Shape::iterator);
}

}  // namespace

std::vector<std::pair<const char*, JinjaFilter>> jinja_list_filters() {
  return {{"attr", attr},
          {"batch", batch},
          {"count", length},
          {"dictsort", dictsort},
          {"first", first},
          {"items", items},
          {"join", join},
          {"last", last},
          {"length", length},
          {"list", to_list},
          {"map", map},
          {"max", extreme<1>},
          {"min", extreme<-1>},
          {"reject", chosen<false, false>},
          {"rejectattr", chosen<true, false>},
          {"reverse", reverse},
          {"select", chosen<false, true>},
          {"selectattr", chosen<true, true>},
          {"sort", sort},
          {"sum", sum},
          {"unique", unique}};
}

}  // namespace slideway
