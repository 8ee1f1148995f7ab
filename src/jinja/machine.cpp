#include "jinja/machine.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/utf8.h"

namespace heddle::jinja {

namespace {

using Kind = Expression::Kind;

Value cycle(Machine& machine, const Value& self, const Arguments& arguments) {
  if (arguments.placed.empty()) machine.fail("loop.cycle() needs something to go through");
  const auto at = static_cast<size_t>(self.space()->members.at("index0").integer());
  return arguments.placed[at % arguments.placed.size()];
}

}  // namespace

const Value* Arguments::find(size_t place, std::string_view name) const {
  if (place < placed.size()) return &placed[place];
  for (const auto& [own, value] : named) {
    if (own == name) return &value;
  }
  return nullptr;
}

Value Arguments::get(size_t place, std::string_view name, Value otherwise) const {
  const Value* found = find(place, name);
  return found == nullptr ? std::move(otherwise) : *found;
}

const NamedFunction* find_in(std::span<const NamedFunction> table, std::string_view name) {
  const auto at = std::find_if(table.begin(), table.end(), [&](const NamedFunction& f) { return f.name == name; });
  return at == table.end() ? nullptr : &*at;
}

Machine::Machine(const Body& body, std::string place, std::vector<std::pair<std::string, Value>> globals)
    : body_(body), place_(std::move(place)), scopes_(2) {
  for (const NamedFunction& f : functions()) {
    scopes_[0].emplace_back(f.name, std::make_shared<const Callable>(Callable{.function = &f, .self = {}}));
  }
  for (auto& global : globals) scopes_[0].push_back(std::move(global));
}

void Machine::watch(const Value& list) {
  for (size_t i = 0; i < list.items().size(); ++i) {
    if (const void* map = list.items()[i].identity()) watched_.emplace(map, i);
  }
}

void Machine::set_day(std::string day, bool asked_for) {
  day_ = std::move(day);
  if (!asked_for) return;
  static constexpr NamedFunction kNow{kDay,
                                      [](Machine& machine, const Value&, const Arguments& arguments) {
                                        return strftime(machine.day_, machine, arguments);
                                      },
                                      1};
  scopes_[0].emplace_back(kDay, std::make_shared<const Callable>(Callable{.function = &kNow, .self = {}}));
}

Machine::Rendered Machine::run() {
  out_ = &rendered_.text;
  try {
    run(body_);
  } catch (const ConfigError& error) {
    if (std::string_view(error.what()).starts_with(place_ + ":")) throw;
    fail(error.what());
  }
  return std::move(rendered_);
}

void Machine::fail(const std::string& what) const { config_error("{}:{}: {}", place_, line_, what); }

void Machine::fail_name(std::span<const NamedFunction> table, std::string_view what, std::string_view name) const {
  std::vector<std::string> names;
  for (const NamedFunction& f : table) names.emplace_back(f.name);
  fail(fmt::format("{} '{}'{}", what, escaped(name, 40), did_you_mean(name, names)));
}

void Machine::step(int64_t count) {
  if (count > kMostSteps - steps_) fail(fmt::format("takes more than {} steps", kMostSteps));
  steps_ += count;
}

void Machine::make(int64_t bytes) {
  if (bytes > kMostBytes - bytes_) fail(fmt::format("makes more than {} bytes", kMostBytes));
  bytes_ += bytes;
}

bool Machine::equal(const Value& a, const Value& b) {
  const int64_t weight = std::min(a.weight(), b.weight());
  const bool maps = a.depth() > 0 && weight > 1;  // keys are looked for one by one
  step(maps ? std::min(kMostSteps, weight * std::min<int64_t>(weight, 1 << 20)) / 8 + weight : weight);
  return jinja::equal(a, b);
}

std::optional<int> Machine::compared(const Value& a, const Value& b) {
  if (a.is_list() && b.is_list()) equal(a, b);  // pays for both
  step(std::min(a.weight(), b.weight()));
  return jinja::compared(a, b);
}

std::string Machine::text_of(const Value& value) {
  step(value.weight());
  make(8 * value.weight());
  return jinja::text_of(value);
}

Namespace* Machine::new_namespace() {
  make(512);
  namespaces_.push_back(std::make_unique<Namespace>());
  return namespaces_.back().get();
}

Values Machine::items_of(const Value& value) {
  if (value.is_undefined()) return {};
  Values items;
  if (value.is_list()) {
    items = value.items();
  } else if (value.is_map()) {
    for (const auto& [key, item] : value.entries()) items.push_back(key);
  } else if (value.is_text()) {
    const Letters letters(value.text());
    make(letters.count() * 64);
    for (int64_t i = 0; i < letters.count(); ++i) items.emplace_back(std::string(letters.part(i, i + 1)));
  } else {
    fail(fmt::format("{} has no items to go through", value.kind()));
  }
  step(std::ssize(items));
  make(std::ssize(items) * static_cast<int64_t>(sizeof(Value)));
  return items;
}

const std::string& Machine::want_text(const Value& value, std::string_view who) const {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) fail(fmt::format("{}: '{}' is undefined", who, escaped(value.undefined_name(), 60)));
  fail(fmt::format("{}: {}, where a text is expected", who, value.kind()));
}

int64_t Machine::want_integer(const Value& value, std::string_view who) const {
  if (value.is_integer() || value.is_boolean()) return value.integer();
  fail(fmt::format("{}: {}, where a whole number is expected", who, value.kind()));
}

// ---- statements

Machine::Flow Machine::run(const Body& body) {
  const Deeper deeper(depth_, kMostRunning, *this, "statements and expressions stand");
  for (const auto& statement : body) {
    line_ = statement->line;
    step();
    if (const Flow flow = run(*statement); flow != Flow::on) return flow;
  }
  return Flow::on;
}

Machine::Flow Machine::run(const Statement& s) {
  switch (s.kind) {
    case Statement::Kind::data: write(s.text); break;
    case Statement::Kind::print: write(text_of(evaluate(*s.expression))); break;
    case Statement::Kind::if_: return run_if(s);
    case Statement::Kind::for_: return run_for(s);
    case Statement::Kind::set: assign(*s.target, evaluate(*s.expression)); break;
    case Statement::Kind::set_block: {
      Value made = text(captured(s.body));
      if (s.expression != nullptr) {
        scopes_.emplace_back();
        set("<block>", std::move(made));
        made = evaluate(*s.expression);
        scopes_.pop_back();
      }
      assign(*s.target, made);
      break;
    }
    case Statement::Kind::macro: set(s.text, macro_here(s)); break;
    case Statement::Kind::call: write(text_of(call(*s.expression, macro_here(s)))); break;
    case Statement::Kind::generation: {
      if (out_ != &rendered_.text) {
        rendered_.unplaced = true;
        return run(s.body);
      }
      const size_t begin = out_->size();
      const Flow flow = run(s.body);
      rendered_.generated.emplace_back(begin, out_->size());
      return flow;
    }
    case Statement::Kind::break_: return Flow::leave;
    case Statement::Kind::continue_: return Flow::next;
  }
  return Flow::on;
}

// One of the template itself sees the template's scopes, which lie below all others.
Value Machine::macro_here(const Statement& macro) const {
  const bool outermost = macro.kind == Statement::Kind::macro && scopes_.size() == 2;
  return std::make_shared<const Callable>(Callable{.function = nullptr,
                                                   .self = {},
                                                   .macro = &macro,
                                                   .lowest = lowest_,
                                                   .scopes = outermost ? 0 : scopes_.size()});
}

Machine::Flow Machine::run_if(const Statement& s) {
  for (const auto& [condition, body] : s.branches) {
    if (condition == nullptr || evaluate(*condition).truth()) return run(body);
  }
  return Flow::on;
}

Machine::Flow Machine::run_for(const Statement& s) {
  Values items = items_of(evaluate(*s.expression));
  scopes_.emplace_back();
  const size_t own = scopes_.size() - 1;
  if (s.condition != nullptr) {
    Values kept;
    for (Value& item : items) {
      scopes_[own].clear();
      assign(*s.target, item);
      if (evaluate(*s.condition).truth()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  const auto count = std::ssize(items);
  Namespace* loop = new_namespace();
  static constexpr NamedFunction kCycle{"cycle", cycle, NamedFunction::kAny};
  loop->members["cycle"] = std::make_shared<const Callable>(Callable{.function = &kCycle, .self = Value(loop)});
  for (int64_t i = 0; i < count; ++i) {
    step();
    scopes_[own].clear();
    auto& members = loop->members;
    members["index"] = i + 1;
    members["index0"] = i;
    members["revindex"] = count - i;
    members["revindex0"] = count - i - 1;
    members["first"] = i == 0;
    members["last"] = i == count - 1;
    members["length"] = static_cast<int64_t>(count);
    members["previtem"] = i > 0 ? items[i - 1] : Value(Undefined{"previtem"});
    members["nextitem"] = i + 1 < count ? items[i + 1] : Value(Undefined{"nextitem"});
    set("loop", Value(loop));
    assign(*s.target, items[i]);
    if (run_round(s, items[i]) == Flow::leave) break;
  }
  loop->members.clear();  // it holds itself
  scopes_.pop_back();
  if (count == 0) return run(s.otherwise);
  return Flow::on;
}

// A round of a loop; what it writes for one of the watched values is noted.
Machine::Flow Machine::run_round(const Statement& s, const Value& item) {
  if (watched_.empty() || out_ != &rendered_.text) return run(s.body);
  const auto own = watched_.find(item.identity());
  const std::optional<size_t> around = std::exchange(taken_, std::nullopt);
  const size_t begin = out_->size();
  const Flow flow = run(s.body);
  const std::optional<size_t> which = own != watched_.end() ? own->second : taken_;
  if (which && out_->size() > begin)
    rendered_.written.push_back({*which, begin, out_->size(), own != watched_.end()});
  taken_ = around;
  return flow;
}

void Machine::assign(const Expression& target, const Value& value) {
  if (target.kind == Kind::name) return set(target.word, value);
  if (target.kind == Kind::attribute) {
    const Value* object = find(target.parts[0]->word);
    if (object == nullptr || object->space() == nullptr)
      fail(fmt::format("'{}' is no namespace, whose attributes alone can be set",
                       escaped(target.parts[0]->word, 60)));
    make(64 + std::ssize(target.word));
    object->space()->members[target.word] = value;
    return;
  }
  const Values items = items_of(value);
  if (items.size() != target.parts.size())
    fail(fmt::format("{} values for {} names", items.size(), target.parts.size()));
  for (size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i]);
}

void Machine::set(const std::string& name, Value value) {
  Scope& scope = scopes_.back();
  const auto at = std::find_if(scope.begin(), scope.end(), [&](const auto& own) { return own.first == name; });
  if (at != scope.end()) {
    at->second = std::move(value);
  } else {
    scope.emplace_back(name, std::move(value));
  }
}

const Value* Machine::find(std::string_view name) const {
  const auto in = [&](const Scope& scope) -> const Value* {
    for (size_t i = scope.size(); i-- > 0;) {
      if (scope[i].first == name) return &scope[i].second;
    }
    return nullptr;
  };
  for (size_t i = scopes_.size(); i-- > lowest_;) {
    if (const Value* found = in(scopes_[i])) return found;
  }
  if (const Value* found = in(scopes_[1])) return found;
  return in(scopes_[0]);
}

void Machine::write(std::string_view text) {
  make(std::ssize(text));
  *out_ += text;
}

std::string Machine::captured(const Body& body) {
  std::string made;
  std::string* before = std::exchange(out_, &made);
  scopes_.emplace_back();
  run(body);
  scopes_.pop_back();
  out_ = before;
  return made;
}

}  // namespace heddle::jinja
