#include "advisor/shell/assignment.h"

#include "advisor/shell/expansion.h"

namespace heddle::advisor::shell {

namespace {

// "[key]=value" among the items of a list goes to that element.
Values list_of(State& state, const Assignment& a) {
  Values values;
  for (const Word& item : a.items) {
    const size_t close = item.text.starts_with("[") ? item.text.find("]=") : std::string_view::npos;
    if (close != std::string_view::npos) {
      const std::string key = text_between_quotes(state, item.text.substr(1, close - 1), item.line);
      state.assign(element_name(a.name, key), {text_of(state, {item.text.substr(close + 2), item.line})});
      continue;
    }
    for (std::string& value : words_of(state, item)) values.push_back(std::move(value));
  }
  return values;
}

void set_element(State& state, const Assignment& a, Values values) {
  const std::string key = text_between_quotes(state, a.index, a.value.line);
  const Number at = number_of(state, key, a.value.line);
  Values* into = state.variables.contains(a.name) ? &state.variables[a.name] : nullptr;
  if (at.value && *at.value >= 0 && into != nullptr && *at.value <= static_cast<int64_t>(into->size())) {
    const auto i = static_cast<size_t>(*at.value);
    if (i == into->size()) into->emplace_back();
    (*into)[i] = a.adds ? (*into)[i] + values.front() : values.front();
  } else {
    state.assign(element_name(a.name, key), std::move(values));
  }
}

}  // namespace

std::optional<Overridden> assign(State& state, const Node& n, const Assignment& a) {
  std::string name = a.name;
  if (!a.index.empty()) name = element_name(a.name, text_between_quotes(state, a.index, n.line));
  state.used.insert(name);
  if (state.is_given(name)) return Overridden{name, a.value.line, a.begin, a.end};
  Values values;
  if (a.list) {
    values = list_of(state, a);
  } else {
    values = {text_of(state, a.value)};
  }
  if (!a.index.empty()) {
    set_element(state, a, std::move(values));
    return std::nullopt;
  }
  Values* into = state.variables.contains(name) ? &state.variables[name] : nullptr;
  if (!a.adds || into == nullptr) {
    state.variables[name] = std::move(values);
  } else if (a.list) {
    for (std::string& value : values) into->push_back(std::move(value));
  } else {
    if (into->empty()) into->emplace_back();
    state.spend(n.line, into->front().size());
    into->front() += values.front();
  }
  return std::nullopt;
}

}  // namespace heddle::advisor::shell
