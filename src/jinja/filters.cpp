// Filters, as Jinja has them; tojson as Transformers has it, which escapes nothing for HTML.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "heddle/base/real_text.h"
#include "jinja/machine.h"

namespace heddle::jinja {

namespace {

using Args = Arguments;

int64_t count_of(Machine& machine, const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) return Letters(value.text()).count();
  if (value.is_list()) return std::ssize(value.items());
  if (value.is_map()) return std::ssize(value.entries());
  machine.fail(fmt::format("length: {} has none", value.kind()));
}

// An attribute by its path, as filters take it: names and places between points.
Value at_path(Machine& machine, Value value, const Value& path) {
  if (path.is_integer()) return machine.item(value, path);
  std::string_view left = machine.want_text(path, "attribute");
  while (true) {
    const size_t point = std::min(left.find('.'), left.size());
    const std::string name(left.substr(0, point));
    const bool number =
        !name.empty() && name.find_first_not_of("0123456789") == std::string::npos && name.size() < 10;
    value = machine.item(value, number ? Value(int64_t{std::stoi(name)}) : Value(name));
    if (point == left.size()) return value;
    left.remove_prefix(point + 1);
  }
}

Value length(Machine& machine, const Value& v, const Args&) { return count_of(machine, v); }

Value trim(Machine& machine, const Value& v, const Args& a) {
  const Value letters = a.get(0, "chars", None());
  const std::string text = machine.text_of(v);
  return machine.text(
      std::string(stripped(text, letters.is_none() ? nullptr : &machine.want_text(letters, "trim"))));
}

template <std::string (*change)(std::string_view)>
Value changed(Machine& machine, const Value& v, const Args&) {
  return machine.text(change(machine.text_of(v)));
}

// Words set apart by blanks, hyphens and opening brackets.
std::string titled(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const auto apart = [](char c) {
      return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(static_cast<unsigned char>(c));
    };
    while (end < text.size() && !apart(text[end])) ++end;
    out += capitalized(text.substr(at, end - at));
    if (end < text.size()) out += text[end++];
    at = end;
  }
  return out;
}

Value default_(Machine&, const Value& v, const Args& a) {
  const bool missing = v.is_undefined() || (a.get(1, "boolean", false).truth() && !v.truth());
  return missing ? a.get(0, "default_value", "") : v;
}

Value replace(Machine& machine, const Value& v, const Args& a) {
  const Value count = a.get(2, "count", None());
  return machine.text(replaced(machine, machine.text_of(v), machine.text_of(a.get(0, "old", Value())),
                               machine.text_of(a.get(1, "new", Value())),
                               count.is_none() ? -1 : machine.want_integer(count, "replace")));
}

Value join(Machine& machine, const Value& v, const Args& a) {
  const std::string between = machine.text_of(a.get(0, "d", ""));
  const Value* path = a.find(1, "attribute");
  std::string all;
  bool first = true;
  for (const Value& each : machine.items_of(v)) {
    if (!first) all += between;
    machine.make(std::ssize(between));
    all += machine.text_of(path == nullptr ? each : at_path(machine, each, *path));
    first = false;
  }
  return machine.text(std::move(all));
}

Value first(Machine& machine, const Value& v, const Args&) {
  Values items = machine.items_of(v);
  return items.empty() ? Value(Undefined{"the first of nothing"}) : items.front();
}
Value last(Machine& machine, const Value& v, const Args&) {
  Values items = machine.items_of(v);
  return items.empty() ? Value(Undefined{"the last of nothing"}) : items.back();
}
Value list(Machine& machine, const Value& v, const Args&) { return machine.list(machine.items_of(v)); }
Value string(Machine& machine, const Value& v, const Args&) { return machine.text(machine.text_of(v)); }
Value safe(Machine& machine, const Value& v, const Args&) { return Value::safe(machine.text_of(v)); }

Value integer(Machine&, const Value& v, const Args& a) {
  const Value otherwise = a.get(0, "default", int64_t{0});
  if (v.is_integer() || v.is_boolean()) return v.integer();
  if (v.is_real()) return std::abs(v.real()) < 0x1p62 ? Value(static_cast<int64_t>(v.real())) : otherwise;
  if (!v.is_text()) return otherwise;
  std::string_view text = stripped(v.text());
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t whole = 0;
  double real = 0;
  const char* end = text.data() + text.size();
  if (const auto read = std::from_chars(text.data(), end, whole); read.ec == std::errc() && read.ptr == end)
    return whole;
  const auto read = read_real(text.data(), end, real);
  return read.ec == std::errc() && read.ptr == end && std::abs(real) < 0x1p62 ? Value(static_cast<int64_t>(real))
                                                                              : otherwise;
}

Value real(Machine&, const Value& v, const Args& a) {
  if (v.is_number()) return v.real();
  double read = 0;
  const std::string_view text = v.is_text() ? stripped(v.text()) : std::string_view();
  const auto end = read_real(text.data(), text.data() + text.size(), read);
  return !text.empty() && end.ec == std::errc() && end.ptr == text.data() + text.size() ? Value(read)
                                                                                        : a.get(0, "default", 0.0);
}

Value reverse(Machine& machine, const Value& v, const Args&) {
  Values items = machine.items_of(v);
  std::reverse(items.begin(), items.end());
  if (!v.is_text()) return machine.lazy(std::move(items));
  std::string all;
  for (const Value& letter : items) all += letter.text();
  return machine.text(std::move(all));
}

Value items(Machine& machine, const Value& v, const Args&) {
  if (v.is_undefined()) return machine.lazy({});
  if (!v.is_map()) machine.fail(fmt::format("items: {} is no mapping", v.kind()));
  Values all;
  for (const auto& [key, value] : v.entries()) all.push_back(machine.list({key, value}, true));
  return machine.lazy(std::move(all));
}

Value tojson(Machine& machine, const Value& v, const Args& a) {
  const Value indent = a.get(1, "indent", None());
  const Value between = a.get(2, "separators", None());
  const int64_t wide = indent.is_none() ? -1 : machine.want_integer(indent, "tojson");
  if (wide > 64) machine.fail("tojson: an indent above 64");
  machine.step(v.weight());
  JsonForm form{.indent = static_cast<int>(wide),
                .sorted = a.get(3, "sort_keys", false).truth(),
                .ascii = a.get(0, "ensure_ascii", false).truth(),
                .comma = wide >= 0 ? "," : ", "};
  if (!between.is_none()) {
    if (!between.is_list() || between.items().size() != 2) machine.fail("tojson: separators are two texts");
    form.comma = machine.want_text(between.items()[0], "tojson");
    form.colon = machine.want_text(between.items()[1], "tojson");
  }
  machine.make(v.weight() *
               (16 + std::ssize(form.comma) + std::ssize(form.colon) + (wide > 0 ? wide * v.depth() : 0)));
  return machine.text(json_of(v, form));
}

Value indent(Machine& machine, const Value& v, const Args& a) {
  const Value width = a.get(0, "width", int64_t{4});
  const int64_t count = width.is_text() ? 0 : machine.want_integer(width, "indent");
  if (count > 1000) machine.fail("indent: more than 1000");
  const std::string room =
      width.is_text() ? width.text() : std::string(static_cast<size_t>(std::max<int64_t>(0, count)), ' ');
  const bool begins = a.get(1, "first", false).truth(), blank = a.get(2, "blank", false).truth();
  const std::string text = machine.text_of(v);
  std::string out;
  for (size_t at = 0, line = 0;; ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    machine.make(std::ssize(room));
    if ((line > 0 || begins) && (end > at || blank || (line == 0 && begins))) out += room;
    out.append(text, at, end - at);
    if (end == text.size()) return machine.text(std::move(out));
    out += '\n';
    at = end + 1;
  }
}

Value absolute(Machine& machine, const Value& v, const Args&) {
  if (!v.is_number()) machine.fail(fmt::format("abs: {} is no number", v.kind()));
  return v.is_real() ? Value(std::abs(v.real()))
                     : machine.arithmetic(v.integer() < 0 ? "*" : "+", v,
                                          v.integer() < 0 ? Value(int64_t{-1}) : Value(int64_t{0}));
}

Value round(Machine& machine, const Value& v, const Args& a) {
  if (!v.is_number()) machine.fail(fmt::format("round: {} is no number", v.kind()));
  const std::string method = machine.text_of(a.get(1, "method", "common"));
  const double scale =
      std::pow(10, static_cast<double>(machine.want_integer(a.get(0, "precision", int64_t{0}), "round")));
  const double x = v.real() * scale;
  return (method == "ceil" ? std::ceil(x) : method == "floor" ? std::floor(x) : std::nearbyint(x)) / scale;
}

Value sum(Machine& machine, const Value& v, const Args& a) {
  const Value* path = a.find(0, "attribute");
  Value all = a.get(1, "start", int64_t{0});
  for (const Value& each : machine.items_of(v))
    all = machine.arithmetic("+", all, path == nullptr || path->is_none() ? each : at_path(machine, each, *path));
  return all;
}

// The key to compare: texts without regard of case, unless told.
Value key_of(Machine& machine, const Value& v, const Value& path, bool cased) {
  const Value key = path.is_none() ? v : at_path(machine, v, path);
  return key.is_text() && !cased ? machine.text(lower(key.text())) : key;
}

void sort_by(Machine& machine, std::vector<std::pair<Value, Value>>& keyed, bool backwards) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const auto order = machine.compared(a.first, b.first);
    if (!order) machine.fail(fmt::format("sort: {} and {} cannot be compared", a.first.kind(), b.first.kind()));
    return backwards ? *order > 0 : *order < 0;
  });
}

Value sort(Machine& machine, const Value& v, const Args& a) {
  const bool cased = a.get(1, "case_sensitive", false).truth();
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& each : machine.items_of(v))
    keyed.emplace_back(key_of(machine, each, a.get(2, "attribute", None()), cased), each);
  sort_by(machine, keyed, a.get(0, "reverse", false).truth());
  Values all;
  for (auto& [key, value] : keyed) all.push_back(std::move(value));
  return machine.list(std::move(all));
}

Value dictsort(Machine& machine, const Value& v, const Args& a) {
  if (!v.is_map()) machine.fail(fmt::format("dictsort: {} is no mapping", v.kind()));
  const bool cased = a.get(0, "case_sensitive", false).truth();
  const bool by_value = machine.text_of(a.get(1, "by", "key")) == "value";
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : v.entries())
    keyed.emplace_back(key_of(machine, by_value ? value : key, None(), cased), machine.list({key, value}, true));
  sort_by(machine, keyed, a.get(2, "reverse", false).truth());
  Values all;
  for (auto& [key, value] : keyed) all.push_back(std::move(value));
  return machine.list(std::move(all));
}

Value unique(Machine& machine, const Value& v, const Args& a) {
  const bool cased = a.get(0, "case_sensitive", false).truth();
  Values keys, all;
  for (const Value& each : machine.items_of(v)) {
    Value key = key_of(machine, each, a.get(1, "attribute", None()), cased);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& own) { return machine.equal(own, key); })) continue;
    keys.push_back(std::move(key));
    all.push_back(each);
  }
  return machine.lazy(std::move(all));
}

template <int sign>
Value extreme(Machine& machine, const Value& v, const Args& a) {
  const Values items = machine.items_of(v);
  if (items.empty()) return Undefined{"the extreme of nothing"};
  const bool cased = a.get(0, "case_sensitive", false).truth();
  const Value path = a.get(1, "attribute", None());
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const auto order =
        machine.compared(key_of(machine, items[i], path, cased), key_of(machine, items[best], path, cased));
    if (!order) machine.fail(fmt::format("{} and {} cannot be compared", items[i].kind(), items[best].kind()));
    if (*order * sign > 0) best = i;
  }
  return items[best];
}

// The arguments from a place on.
Args from(const Args& a, size_t place) {
  const auto begin = a.placed.begin() + static_cast<ptrdiff_t>(std::min(place, a.placed.size()));
  return {{begin, a.placed.end()}, a.named};
}

Value map(Machine& machine, const Value& v, const Args& a) {
  Values all;
  if (!v.truth()) return machine.lazy({});
  const Value* path = a.placed.empty() ? a.find(0, "attribute") : nullptr;
  const Value* otherwise = a.placed.empty() ? a.find(99, "default") : nullptr;
  for (const Value& each : machine.items_of(v)) {
    if (path == nullptr) {
      all.push_back(machine.filter(machine.want_text(a.get(0, "filter", Value()), "map"), each, from(a, 1)));
      continue;
    }
    Value got = at_path(machine, each, *path);
    all.push_back(got.is_undefined() && otherwise != nullptr ? *otherwise : std::move(got));
  }
  return machine.lazy(std::move(all));
}

template <bool kept, bool by_attribute>
Value select(Machine& machine, const Value& v, const Args& a) {
  constexpr size_t first = by_attribute ? 1 : 0;
  Values all;
  if (!v.truth()) return machine.lazy({});
  for (const Value& each : machine.items_of(v)) {
    const Value asked = by_attribute ? at_path(machine, each, a.get(0, "attribute", Value())) : each;
    const Value* test = first < a.placed.size() ? &a.placed[first] : nullptr;
    const bool holds = test == nullptr
                           ? asked.truth()
                           : machine.test(machine.want_text(*test, "select"), asked, from(a, first + 1));
    if (holds == kept) all.push_back(each);
  }
  return machine.lazy(std::move(all));
}

constexpr NamedFunction kFilters[] = {{"length", length},
                                      {"count", length},
                                      {"trim", trim, 1},
                                      {"upper", changed<upper>},
                                      {"lower", changed<lower>},
                                      {"capitalize", changed<capitalized>},
                                      {"title", changed<titled>},
                                      {"default", default_, 2},
                                      {"d", default_, 2},
                                      {"replace", replace, 3},
                                      {"join", join, 2},
                                      {"first", first},
                                      {"last", last},
                                      {"list", list},
                                      {"string", string},
                                      {"safe", safe},
                                      {"int", integer, 1},
                                      {"float", real, 1},
                                      {"reverse", reverse},
                                      {"items", items},
                                      {"tojson", tojson, 4},
                                      {"indent", indent, 3},
                                      {"abs", absolute},
                                      {"round", round, 2},
                                      {"sum", sum, 2},
                                      {"sort", sort, 3},
                                      {"dictsort", dictsort, 3},
                                      {"unique", unique, 2},
                                      {"min", extreme<-1>, 2},
                                      {"max", extreme<1>, 2},
                                      {"map", map, NamedFunction::kAny},
                                      {"select", select<true, false>, NamedFunction::kAny},
                                      {"reject", select<false, false>, NamedFunction::kAny},
                                      {"selectattr", select<true, true>, NamedFunction::kAny},
                                      {"rejectattr", select<false, true>, NamedFunction::kAny}};

}  // namespace

std::span<const NamedFunction> filters() { return kFilters; }

}  // namespace heddle::jinja
