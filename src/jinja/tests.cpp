// Tests that `is` asks, and the functions that a template finds by name.
#include <algorithm>

#include "heddle/base/escaped.h"
#include "jinja/machine.h"

namespace heddle::jinja {

namespace {

using TestArgs = Arguments;

template <bool (*holds)(const Value&)>
Value is(Machine&, const Value& v, const TestArgs&) {
  return holds(v);
}

const Value& other(Machine& machine, const TestArgs& a) {
  if (a.placed.empty()) machine.fail("the test lacks what it compares with");
  return a.placed[0];
}
template <bool equal>
Value equals(Machine& machine, const Value& v, const TestArgs& a) {
  return machine.equal(v, other(machine, a)) == equal;
}
// A boolean is not the same as a number that equals it.
Value same(Machine& machine, const Value& v, const TestArgs& a) {
  const Value& with = other(machine, a);
  return v.is_boolean() == with.is_boolean() && v.is_real() == with.is_real() && machine.equal(v, with);
}
template <int low, int high>
Value ordered(Machine& machine, const Value& v, const TestArgs& a) {
  const auto order = machine.compared(v, other(machine, a));
  if (!order) machine.fail(fmt::format("{} and {} cannot be compared", v.kind(), a.placed[0].kind()));
  return *order >= low && *order <= high;
}
Value in(Machine& machine, const Value& v, const TestArgs& a) { return machine.contains(other(machine, a), v); }
Value divisible(Machine& machine, const Value& v, const TestArgs& a) {
  return machine.arithmetic("%", v, other(machine, a)).real() == 0;
}
template <int rest>
Value parity(Machine& machine, const Value& v, const TestArgs&) {
  return machine.arithmetic("%", v, int64_t{2}).real() == rest;
}
template <std::string (*change)(std::string_view), std::string (*back)(std::string_view)>
Value cased(Machine& machine, const Value& v, const TestArgs&) {
  const std::string text = machine.text_of(v);
  return change(text) == text && back(text) != text;
}

constexpr NamedFunction kTests[] = {
    {"defined", is<[](const Value& v) { return !v.is_undefined(); }>},
    {"undefined", is<[](const Value& v) { return v.is_undefined(); }>},
    {"none", is<[](const Value& v) { return v.is_none(); }>},
    {"string", is<[](const Value& v) { return v.is_text(); }>},
    {"number", is<[](const Value& v) { return v.is_number(); }>},
    {"integer", is<[](const Value& v) { return v.is_integer(); }>},
    {"float", is<[](const Value& v) { return v.is_real(); }>},
    {"boolean", is<[](const Value& v) { return v.is_boolean(); }>},
    {"true", is<[](const Value& v) { return v.is_boolean() && v.truth(); }>},
    {"false", is<[](const Value& v) { return v.is_boolean() && !v.truth(); }>},
    {"mapping", is<[](const Value& v) { return v.is_map(); }>},
    {"sequence", is<[](const Value& v) { return v.is_text() || v.is_list() || v.is_map() || v.is_undefined(); }>},
    {"iterable", is<[](const Value& v) { return v.is_text() || v.is_list() || v.is_map() || v.is_undefined(); }>},
    {"callable", is<[](const Value& v) { return v.callable() != nullptr; }>},
    {"==", equals<true>, 1},
    {"!=", equals<false>, 1},
    {"<", ordered<-1, -1>, 1},
    {"<=", ordered<-1, 0>, 1},
    {">", ordered<1, 1>, 1},
    {">=", ordered<0, 1>, 1},
    {"eq", equals<true>, 1},
    {"equalto", equals<true>, 1},
    {"sameas", same, 1},
    {"ne", equals<false>, 1},
    {"lt", ordered<-1, -1>, 1},
    {"lessthan", ordered<-1, -1>, 1},
    {"le", ordered<-1, 0>, 1},
    {"gt", ordered<1, 1>, 1},
    {"greaterthan", ordered<1, 1>, 1},
    {"ge", ordered<0, 1>, 1},
    {"in", in, 1},
    {"divisibleby", divisible, 1},
    {"odd", parity<1>},
    {"even", parity<0>},
    {"upper", cased<upper, lower>},
    {"lower", cased<lower, upper>}};

Value range(Machine& machine, const Value&, const TestArgs& a) {
  if (a.placed.empty() || a.placed.size() > 3) machine.fail("range takes one to three numbers");
  const auto at = [&](size_t i) { return machine.want_integer(a.placed[i], "range"); };
  const bool one = a.placed.size() == 1;
  const int64_t begin = one ? 0 : at(0), end = one ? at(0) : at(1), stride = a.placed.size() == 3 ? at(2) : 1;
  if (stride == 0) machine.fail("range by steps of 0");
  constexpr int64_t kMost = 100'000;  // Jinja's sandbox has the same
  const __int128 span = stride > 0 ? static_cast<__int128>(end) - begin : static_cast<__int128>(begin) - end;
  const __int128 width = stride > 0 ? static_cast<__int128>(stride) : -static_cast<__int128>(stride);
  if (span > width * kMost) machine.fail(fmt::format("a range of more than {} numbers", kMost));
  Values all;
  machine.step(span > 0 ? static_cast<int64_t>(span / width) : 0);
  for (__int128 i = begin; stride > 0 ? i < end : i > end; i += stride) all.emplace_back(static_cast<int64_t>(i));
  return machine.list(std::move(all));
}

Value space(Machine& machine, const Value&, const TestArgs& a) {
  Namespace* made = machine.new_namespace();
  for (const Value& given : a.placed) {
    if (!given.is_map()) machine.fail("namespace takes mappings and names with values");
    for (const auto& [key, value] : given.entries()) made->members[machine.want_text(key, "namespace")] = value;
  }
  for (const auto& [name, value] : a.named) made->members[name] = value;
  return made;
}

Value dictionary(Machine& machine, const Value&, const TestArgs& a) {
  Entries entries;
  if (!a.placed.empty() && a.placed[0].is_map()) {
    entries = a.placed[0].entries();
  } else if (!a.placed.empty()) {
    for (const Value& pair : machine.items_of(a.placed[0])) {
      const Values both = machine.items_of(pair);
      if (both.size() != 2) machine.fail("dict takes a mapping or pairs");
      entries.emplace_back(both[0], both[1]);
    }
  }
  machine.make(std::ssize(entries) * 128);
  for (const auto& [name, value] : a.named) {
    const auto same = [&key = name](const auto& own) { return own.first.is_text() && own.first.text() == key; };
    if (const auto at = std::find_if(entries.begin(), entries.end(), same); at != entries.end()) {
      at->second = value;
    } else {
      entries.emplace_back(name, value);
    }
  }
  return Value::map(std::move(entries));
}

Value raise_exception(Machine& machine, const Value&, const TestArgs& a) {
  machine.fail(fmt::format("the template refuses: {}", escaped(machine.text_of(a.get(0, "message", "")), 300)));
}

constexpr NamedFunction kFunctions[] = {{"range", range, 3},
                                        {"namespace", space, NamedFunction::kAny},
                                        {"dict", dictionary, NamedFunction::kAny},
                                        {"raise_exception", raise_exception, 1}};

}  // namespace

std::span<const NamedFunction> tests() { return kTests; }
std::span<const NamedFunction> functions() { return kFunctions; }

}  // namespace heddle::jinja
