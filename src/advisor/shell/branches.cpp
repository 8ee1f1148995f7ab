#include "advisor/shell/branches.h"

#include <fmt/format.h>

#include <algorithm>

#include "heddle/base/escaped.h"

namespace heddle::advisor::shell {

namespace {

bool adds_flags(const Values* before, const Values* after) {
  if (after == nullptr) return before == nullptr;
  const Values none;
  const Values& from = before == nullptr ? none : *before;
  // A longer list, or a longer text, that begins with what was there.
  if (from.size() <= 1 && after->size() == 1) {
    const std::string& text = after->front();
    const std::string_view beginning = from.empty() ? std::string_view() : std::string_view(from.front());
    if (!text.starts_with(beginning)) return false;
    const std::string_view more = std::string_view(text).substr(beginning.size());
    return more.find_first_not_of(" \t\n") == std::string_view::npos || more.find("--") != std::string_view::npos;
  }
  if (after->size() < from.size() || !std::equal(from.begin(), from.end(), after->begin())) return false;
  for (size_t i = from.size(); i < after->size(); ++i)
    if ((*after)[i].starts_with("--")) return true;
  return after->size() == from.size();
}

}  // namespace

std::vector<std::string> agreed(State& state, int line, const std::string& doubt, const Variables& before,
                                const std::vector<Variables>& after) {
  std::set<std::string> names;
  for (const Variables& each : after)
    for (const auto& [name, values] : each) names.insert(name);
  std::vector<std::string> left_out;
  for (const std::string& name : names) {
    const auto in = [&](const Variables& v) {
      const auto it = v.find(name);
      return it == v.end() ? nullptr : &it->second;
    };
    const Values* was = in(before);
    const auto alike = [&](const Variables& v) {
      const Values* now = in(v);
      return now == nullptr ? in(after.front()) == nullptr
                            : in(after.front()) != nullptr && *now == *in(after.front());
    };
    if (std::all_of(after.begin(), after.end(), alike)) {
      if (const Values* now = in(after.front()); now != nullptr) state.variables[name] = *now;
    } else if (std::all_of(after.begin(), after.end(),
                           [&](const Variables& v) { return adds_flags(was, in(v)); })) {
      left_out.push_back(name);
      if (was == nullptr) state.variables[name] = {""};
    } else {
      state.variables[name] = {
          state.unknown(fmt::format("line {}: {} is set in a branch that may not be taken{}", line, shown(name),
                                    doubt.empty() ? "" : " (" + doubt + ")"))};
    }
  }
  return left_out;
}

}  // namespace heddle::advisor::shell
