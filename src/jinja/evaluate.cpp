// Expressions of a template.
#include <algorithm>

#include "heddle/base/escaped.h"
#include "jinja/machine.h"

namespace heddle::jinja {

using Kind = Expression::Kind;

Value Machine::evaluate(const Expression& e) {
  const Deeper deeper(depth_, kMostRunning, *this, "statements and expressions stand");
  step();
  line_ = e.line;
  const auto part = [&](size_t i) { return evaluate(*e.parts[i]); };
  switch (e.kind) {
    case Kind::constant: return e.value;
    case Kind::name: {
      const Value* found = find(e.word);
      return found == nullptr ? Value(Undefined{e.word}) : *found;
    }
    case Kind::list:
    case Kind::tuple: {
      Values items;
      for (const Node& each : e.parts) items.push_back(evaluate(*each));
      return list(std::move(items), e.kind == Kind::tuple);
    }
    case Kind::map: {
      Entries entries;
      for (size_t i = 0; i < e.parts.size(); i += 2) {
        Value key = part(i);
        if (key.depth() > 0 && !key.is_tuple()) fail(fmt::format("{} is no key of a mapping", key.kind()));
        const auto same = [&](const auto& own) { return equal(own.first, key); };
        if (const auto at = std::find_if(entries.begin(), entries.end(), same); at != entries.end()) {
          at->second = part(i + 1);
        } else {
          entries.emplace_back(std::move(key), part(i + 1));
        }
      }
      make(std::ssize(entries) * 2 * static_cast<int64_t>(sizeof(Value)));
      return Value::map(std::move(entries));
    }
    case Kind::attribute: return attribute(part(0), e.word);
    case Kind::item: {
      const Value object = part(0);
      return item(object, part(1));
    }
    case Kind::slice: return slice(e);
    case Kind::call: return call(e);
    case Kind::filter: {
      const Value value = part(0);
      return filter(e.word, value, arguments_of(e.arguments));
    }
    case Kind::test: {
      const Value value = part(0);
      return test(e.word, value, arguments_of(e.arguments));
    }
    case Kind::negate: {
      const Value value = part(0);
      return value.is_real() ? Value(-value.real()) : arithmetic("-", int64_t{0}, value);
    }
    case Kind::plus: return arithmetic("+", int64_t{0}, part(0));
    case Kind::not_: return !part(0).truth();
    case Kind::and_: {
      Value left = part(0);
      return left.truth() ? part(1) : left;
    }
    case Kind::or_: {
      Value left = part(0);
      return left.truth() ? left : part(1);
    }
    case Kind::compare: {
      Value left = part(0);
      for (size_t i = 0; i < e.words.size(); ++i) {
        Value right = part(i + 1);
        const std::string& word = e.words[i];
        bool holds = false;
        if (word == "==" || word == "!=") {
          holds = equal(left, right) == (word == "==");
        } else if (word.ends_with("in")) {
          holds = contains(right, left) == (word == "in");
        } else {
          const std::optional<int> order = compared(left, right);
          if (!order) fail(fmt::format("{} and {} cannot be compared by {}", left.kind(), right.kind(), word));
          holds = word == "<" ? *order < 0 : word == ">" ? *order > 0 : word == "<=" ? *order <= 0 : *order >= 0;
        }
        if (!holds) return false;
        left = std::move(right);
      }
      return true;
    }
    case Kind::arithmetic: {
      const Value left = part(0);
      return arithmetic(e.word, left, part(1));
    }
    case Kind::concat: {
      std::string all;
      for (const Node& each : e.parts) all += text_of(evaluate(*each));
      return text(std::move(all));
    }
    case Kind::choice:
      if (part(0).truth()) return part(1);
      return e.parts[2] == nullptr ? Value(Undefined{"the other side of an if"}) : part(2);
  }
  return {};
}

Value Machine::slice(const Expression& e) {
  const Value object = evaluate(*e.parts[0]);
  const auto bound = [&](size_t i) -> std::optional<int64_t> {
    if (e.parts[i] == nullptr) return std::nullopt;
    const Value value = evaluate(*e.parts[i]);
    if (value.is_none()) return std::nullopt;
    return want_integer(value, "a slice");
  };
  const std::optional<int64_t> first = bound(1), last = bound(2);
  const int64_t stride = bound(3).value_or(1);
  if (stride == 0) fail("a slice by steps of 0");
  if (!object.is_text() && !object.is_list()) fail(fmt::format("{} cannot be sliced", object.kind()));
  const Letters letters(object.is_text() ? object.text() : std::string_view());
  const int64_t count = object.is_text() ? letters.count() : std::ssize(object.items());
  step(count);
  const auto placed = [&](std::optional<int64_t> at, int64_t otherwise) {
    const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? count : count - 1;
    if (!at) return otherwise;
    return std::clamp(*at < 0 ? *at + count : *at, low, high);
  };
  const int64_t begin = placed(first, stride > 0 ? 0 : count - 1), end = placed(last, stride > 0 ? count : -1);
  if (object.is_text() && stride == 1) return text(std::string(letters.part(begin, std::max(begin, end))));
  std::string made;
  Values items;
  const int64_t size = stride > 0 ? (end - begin + stride - 1) / stride : (begin - end - stride - 1) / -stride;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = begin + i * stride;
    if (object.is_text()) {
      made += letters.part(at, at + 1);
    } else {
      items.push_back(object.items()[at]);
    }
  }
  return object.is_text() ? text(std::move(made)) : list(std::move(items), object.is_tuple());
}

Arguments Machine::arguments_of(const std::vector<Argument>& arguments) {
  Arguments all;
  for (const Argument& argument : arguments) {
    Value value = evaluate(*argument.value);
    if (argument.spread == Argument::Spread::items) {
      for (Value& item : items_of(value)) all.placed.push_back(std::move(item));
    } else if (argument.spread == Argument::Spread::entries) {
      if (!value.is_map()) fail(fmt::format("**: {} is no mapping", value.kind()));
      for (const auto& [key, item] : value.entries()) all.named.emplace_back(want_text(key, "**"), item);
    } else if (argument.name.empty()) {
      all.placed.push_back(std::move(value));
    } else {
      all.named.emplace_back(argument.name, std::move(value));
    }
  }
  return all;
}

Value Machine::call(const Expression& e, Value caller) {
  const Expression& called = *e.parts[0];
  if (called.kind == Kind::name && called.word == kDay && find(called.word) == nullptr)
    return strftime(day_, *this, arguments_of(e.arguments));
  const Value callee = evaluate(called);
  const Callable* callable = callee.callable();
  if (callable == nullptr) {
    if (callee.is_undefined()) fail(fmt::format("'{}' is undefined", escaped(callee.undefined_name(), 60)));
    fail(fmt::format("{} is called like a function", callee.kind()));
  }
  const Arguments arguments = arguments_of(e.arguments);
  line_ = e.line;
  if (callable->macro != nullptr) return call_macro(*callable, arguments, std::move(caller));
  if (!caller.is_undefined()) fail("call: a call of a macro is expected");
  return run(*callable->function, callable->self, arguments);
}

Value Machine::run(const NamedFunction& function, const Value& self, const Arguments& arguments) {
  if (arguments.count() > function.most)
    fail(fmt::format("{}: {} arguments, at most {} are accepted", function.name, arguments.count(), function.most));
  return function.function(*this, self, arguments);
}

Value Machine::call_macro(const Callable& called, const Arguments& arguments, Value caller) {
  const Deeper deeper(calls_, kMostCalls, *this, "macros call each other");
  const Statement& macro = *called.macro;
  if (arguments.placed.size() > macro.parameters.size())
    fail(fmt::format("{} takes {} arguments, {} are given", escaped(macro.text, 60), macro.parameters.size(),
                     arguments.placed.size()));
  for (const auto& [name, value] : arguments.named) {
    if (std::none_of(macro.parameters.begin(), macro.parameters.end(),
                     [&given = name](const Argument& p) { return p.name == given; }))
      fail(fmt::format("{} takes no '{}'", escaped(macro.text, 60), escaped(name, 60)));
  }
  if (called.scopes > scopes_.size()) fail(fmt::format("{} is called behind its end", escaped(macro.text, 60)));
  const size_t lowest = std::exchange(lowest_, called.scopes > 0 ? called.lowest : scopes_.size());
  std::vector<Scope> hidden;
  if (called.scopes > 0) {
    const auto first = scopes_.begin() + static_cast<ptrdiff_t>(called.scopes);
    std::move(first, scopes_.end(), std::back_inserter(hidden));
    scopes_.resize(called.scopes);
  }
  Value made = call_body(macro, arguments, std::move(caller));
  std::move(hidden.begin(), hidden.end(), std::back_inserter(scopes_));
  lowest_ = lowest;
  return made;
}

Value Machine::call_body(const Statement& macro, const Arguments& arguments, Value caller) {
  scopes_.emplace_back();
  set("caller", std::move(caller));
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Argument& parameter = macro.parameters[i];
    const Value* given = arguments.find(i, parameter.name);
    set(parameter.name, given != nullptr             ? *given
                        : parameter.value != nullptr ? evaluate(*parameter.value)
                                                     : Value(Undefined{parameter.name}));
  }
  std::string made = captured(macro.body);
  scopes_.pop_back();
  return text(std::move(made));
}

Value Machine::attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) fail(fmt::format("'{}' is undefined", escaped(object.undefined_name(), 60)));
  if (Namespace* space = object.space()) {
    const auto at = space->members.find(name);
    return at == space->members.end() ? Value(Undefined{name}) : at->second;
  }
  const NamedFunction* method = nullptr;
  if (object.is_map()) method = find_in(map_methods(), name);
  if (object.is_text()) method = find_in(text_methods(), name);
  if (object.is_list()) method = find_in(list_methods(), name);
  if (method != nullptr) {
    make(128);
    return std::make_shared<const Callable>(Callable{.function = method, .self = object});
  }
  if (!object.is_map()) return Undefined{name};
  step(1 + std::ssize(object.entries()) / 8);
  const Value* found = object.find_word(name);
  return found == nullptr ? Value(Undefined{name}) : *found;
}

Value Machine::item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail(fmt::format("'{}' is undefined", escaped(object.undefined_name(), 60)));
  if (object.is_map()) {
    step(1 + std::ssize(object.entries()) / 8);
    if (const Value* found = object.find(key)) return *found;
  }
  if (key.is_text()) return attribute(object, key.text());
  if (!(object.is_list() || object.is_text()) || !(key.is_integer() || key.is_boolean()))
    return Undefined{text_of(key)};
  if (object.is_lazy()) return Undefined{text_of(key)};
  const Letters letters(object.is_text() ? object.text() : std::string_view());
  if (object.is_text()) step(std::ssize(object.text()) / 8);
  const int64_t count = object.is_text() ? letters.count() : std::ssize(object.items());
  const int64_t at = key.integer() < 0 ? key.integer() + count : key.integer();
  if (at < 0 || at >= count) return Undefined{text_of(key)};
  if (object.is_text()) return text(std::string(letters.part(at, at + 1)));
  const Value& found = object.items()[at];
  if (const auto at_watched = watched_.find(found.identity()); !taken_ && at_watched != watched_.end())
    taken_ = at_watched->second;
  return found;
}

Value Machine::filter(std::string_view name, const Value& value, const Arguments& arguments) {
  const NamedFunction* function = find_in(jinja::filters(), name);
  if (function == nullptr) fail_name(jinja::filters(), "no filter", name);
  step(1 + value.weight() / 8);
  return run(*function, value, arguments);
}

bool Machine::test(std::string_view name, const Value& value, const Arguments& arguments) {
  const NamedFunction* function = find_in(jinja::tests(), name);
  if (function == nullptr) fail_name(jinja::tests(), "no test", name);
  return run(*function, value, arguments).truth();
}

bool Machine::contains(const Value& in, const Value& what) {
  if (in.is_undefined()) return false;
  step(1 + in.weight());
  if (in.is_text()) return in.text().find(want_text(what, "in")) != std::string::npos;
  if (in.is_map()) return in.find(what) != nullptr;
  if (in.is_list())
    return std::any_of(in.items().begin(), in.items().end(), [&](const Value& v) { return equal(v, what); });
  fail(fmt::format("{} holds nothing that could be in it", in.kind()));
}

}  // namespace heddle::jinja
