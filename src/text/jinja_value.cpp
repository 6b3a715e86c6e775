#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/error.h"

namespace slideway {

using Kind = JinjaValue::Kind;

JinjaValue JinjaValue::undefined(std::string why) {
  JinjaValue value = of(TracedText(std::move(why)));
  value.kind_ = Kind::undefined;
  return value;
}

JinjaValue JinjaValue::blank() {
  static const auto kEmpty = std::make_shared<const TracedText>();
  JinjaValue value;
  value.text_ = kEmpty;
  return value;
}

JinjaValue JinjaValue::of(bool boolean) {
  JinjaValue value;
  value.kind_ = Kind::boolean;
  value.number_.integer = boolean;
  return value;
}

JinjaValue JinjaValue::of(std::int64_t integer) {
  JinjaValue value;
  value.kind_ = Kind::integer;
  value.number_.integer = integer;
  return value;
}

JinjaValue JinjaValue::of(double real) {
  JinjaValue value;
  value.kind_ = Kind::real;
  value.number_.real = real;
  return value;
}

JinjaValue JinjaValue::of(TracedText text) {
  JinjaValue value;
  value.kind_ = Kind::string;
  value.text_ = std::make_shared<const TracedText>(std::move(text));
  return value;
}

JinjaValue JinjaValue::of(const JinjaList* list) {
  JinjaValue value;
  value.kind_ = Kind::list;
  value.list_ = list;
  return value;
}

JinjaValue JinjaValue::of(const JinjaDict* dict) {
  JinjaValue value;
  value.kind_ = Kind::dict;
  value.dict_ = dict;
  return value;
}

JinjaValue JinjaValue::of(JinjaObject* object) {
  JinjaValue value;
  value.kind_ = Kind::object;
  value.object_ = object;
  return value;
}

JinjaValue JinjaValue::big_integer(std::string digits) {
  JinjaValue value = of(TracedText(std::move(digits)));
  value.kind_ = Kind::integer;
  return value;
}

double JinjaValue::real() const {
  if (kind_ == Kind::real) return number_.real;
  return is_big() ? std::strtod(text_->bytes().c_str(), nullptr) : double(number_.integer);
}

const TracedText* JinjaValue::readable() const {
  if (kind_ == Kind::string || is_blank()) return text_.get();
  if (kind_ == Kind::dict && dict_->spelling) return &*dict_->spelling;
  return nullptr;
}

bool JinjaValue::truth() const {
  switch (kind_) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return number_.integer != 0;
    case Kind::integer:
      return is_big() || number_.integer != 0;
    case Kind::real:
      return number_.real != 0;
    case Kind::string:
      return !text_->empty();
    case Kind::list:
      return list_->shape == JinjaList::Shape::iterator || !list_->items.empty();
    case Kind::dict:
      return !dict_->entries.empty();
    case Kind::object:
      return true;
  }
  return false;
}

std::string JinjaValue::type_name() const {
  switch (kind_) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list: {
      static const char* const kNames[] = {"list", "tuple", "range", "dict_view", "generator"};
      return kNames[int(list_->shape)];
    }
    case Kind::dict:
      return "dict";
    case Kind::object:
      return object_->type_name();
  }
  return {};
}

int JinjaValue::depth() const {
  if (kind_ == Kind::list) return list_->depth;
  if (kind_ == Kind::dict) return dict_->depth;
  return 0;
}

bool JinjaValue::same_as(const JinjaValue& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::none:
      return true;
    case Kind::string:
      return text_ == other.text_ || text_->bytes() == other.text_->bytes();
    case Kind::list:
      return list_ == other.list_;
    case Kind::dict:
      return dict_ == other.dict_;
    case Kind::object:
      return object_ == other.object_;
    default:
      return equal(*this, other);
  }
}

JinjaValue JinjaObject::call(JinjaInterpreter&, const JinjaCall&) {
  fail(ErrorKind::invalid_input, "a ", type_name(), " cannot be called");
}

std::optional<JinjaValue> JinjaObject::attribute(JinjaInterpreter&, const std::string&) {
  return std::nullopt;
}

// --- mappings ---------------------------------------------------------------------------------------------------

std::string canonical_key(const JinjaValue& key) {
  switch (key.kind()) {
    case Kind::none:
      return "none";
    case Kind::boolean:
    case Kind::integer:
      return "n" + text_of(key.is_whole() ? JinjaValue::of(key.integer()) : key).bytes();
    case Kind::real: {
      const double value = key.real();
      if (value == std::floor(value) && std::abs(value) < 1e15)
        return "n" + std::to_string(std::int64_t(value));
      return "n" + real_text(value);
    }
    case Kind::string:
      return "s" + key.text().bytes();
    case Kind::list:
      if (key.list().shape == JinjaList::Shape::tuple) {
        std::string text = "t";
        for (const JinjaValue& item : key.list().items) {
          const std::string part = canonical_key(item);
          text += std::to_string(part.size()) + ":" + part;
        }
        return text;
      }
      [[fallthrough]];
    default:
      fail(ErrorKind::invalid_input, "a ", key.type_name(), " cannot be the key of a mapping");
  }
}

constexpr std::size_t kIndexFrom = 12;  // entries; below, walking through them is quicker

void JinjaDict::index() {
  if (entries.size() < kIndexFrom) return;
  for (std::size_t i = 0; i < entries.size(); ++i) index_.emplace(canonical_key(entries[i].first), i);
}

const JinjaValue* JinjaDict::find(const JinjaValue& key) const {
  if (!index_.empty()) {
    const auto found = index_.find(canonical_key(key));
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries)
    if (equal(name, key)) return &value;
  return nullptr;
}

const JinjaValue* JinjaDict::find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find("s" + std::string(key));
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries)
    if (name.is(Kind::string) && name.text().bytes() == key) return &value;
  return nullptr;
}

const JinjaList* JinjaHeap::list(std::vector<JinjaValue> items, JinjaList::Shape shape) {
  auto list = std::make_unique<JinjaList>();
  list->shape = shape;
  for (const JinjaValue& item : items) list->depth = std::max(list->depth, 1 + item.depth());
  if (list->depth > kMaxDepth) fail(ErrorKind::invalid_input, "lists nest deeper than ", kMaxDepth);
  list->items = std::move(items);
  lists_.push_back(std::move(list));
  return lists_.back().get();
}

const JinjaDict* JinjaHeap::dict(std::vector<std::pair<JinjaValue, JinjaValue>> entries) {
  auto dict = std::make_unique<JinjaDict>();
  std::unordered_map<std::string, std::size_t> seen;
  for (auto& [key, value] : entries) {
    dict->depth = std::max(dict->depth, 1 + std::max(key.depth(), value.depth()));
    const auto [at, fresh] = seen.emplace(canonical_key(key), dict->entries.size());
    if (fresh)
      dict->entries.emplace_back(std::move(key), std::move(value));
    else
      dict->entries[at->second].second = std::move(value);
  }
  if (dict->depth > kMaxDepth) fail(ErrorKind::invalid_input, "mappings nest deeper than ", kMaxDepth);
  if (dict->entries.size() >= kIndexFrom) dict->index_ = std::move(seen);
  dicts_.push_back(std::move(dict));
  return dicts_.back().get();
}

const JinjaDict* JinjaHeap::spelled_dict(const JinjaDict& from, TracedText spelling) {
  auto dict = std::make_unique<JinjaDict>(from);
  dict->spelling = std::move(spelling);
  dicts_.push_back(std::move(dict));
  return dicts_.back().get();
}

// --- comparison ---------------------------------------------------------------------------------------------------

namespace {

int order(double a, double b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

// Sequences are equal only to those of their own kind.
bool comparable(const JinjaList& a, const JinjaList& b) {
  return a.shape == b.shape && a.shape != JinjaList::Shape::iterator;
}

bool equal_dicts(const JinjaDict& a, const JinjaDict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const JinjaValue* other = b.find(entry.first);
    return other && equal(entry.second, *other);
  });
}

}  // namespace

bool equal(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_big() || b.is_big())
      return a.is_big() && b.is_big() ? a.text().bytes() == b.text().bytes() : a.real() == b.real();
    if (a.is_whole() && b.is_whole()) return a.integer() == b.integer();
    return a.real() == b.real();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      return a.text().bytes() == b.text().bytes();
    case Kind::list:
      if (&a.list() == &b.list()) return true;
      return comparable(a.list(), b.list()) &&
             std::equal(a.list().items.begin(), a.list().items.end(), b.list().items.begin(),
                        b.list().items.end(), equal);
    case Kind::dict:
      return &a.dict() == &b.dict() || equal_dicts(a.dict(), b.dict());
    case Kind::object:
      return &a.object() == &b.object();
    default:
      return false;
  }
}

std::optional<int> compare(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return (a.integer() > b.integer()) - (a.integer() < b.integer());
    return order(a.real(), b.real());
  }
  if (a.is(Kind::string) && b.is(Kind::string)) return a.text().bytes().compare(b.text().bytes());
  const auto ordered = [](const JinjaValue& v) {
    return v.is(Kind::list) && v.list().shape <= JinjaList::Shape::tuple;
  };
  if (!ordered(a) || !ordered(b) || a.list().shape != b.list().shape) return std::nullopt;
  const auto& x = a.list().items;
  const auto& y = b.list().items;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (!equal(x[i], y[i])) return compare(x[i], y[i]);
  return int(x.size() > y.size()) - int(x.size() < y.size());
}

}  // namespace slideway
