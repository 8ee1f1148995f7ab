#include "advisor/shell/state.h"

#include <array>
#include <cctype>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::advisor::shell {

namespace {

constexpr size_t kMostExpanded = size_t{4} << 20, kMostSteps = size_t{1} << 26, kMostCopied = size_t{256} << 20,
                 kMostNotes = 200;
constexpr int kMostDepth = 100;

// Names that a launcher, a scheduler or the shell itself sets, to what a script can't say.
bool set_by_others(const std::string& name) {
  static constexpr std::array beginnings{"SLURM_",      "PBS_",    "LSB_", "OMPI_", "PMI_",   "PMIX_",
                                         "KUBERNETES_", "SLURMD_", "BASH", "MLP_",  "ARNOLD_"};
  static constexpr std::array whole{"RANDOM", "SECONDS",      "HOSTNAME", "USER",      "HOME",      "PWD",
                                    "OLDPWD", "PATH",         "UID",      "PPID",      "HOST",      "SHELL",
                                    "LINENO", "EPOCHSECONDS", "RANK",     "NODE_RANK", "LOCAL_RANK"};
  for (const char* beginning : beginnings)
    if (name.starts_with(beginning)) return true;
  for (const char* each : whole)
    if (name == each) return true;
  return false;
}

bool is_argument(const std::string& name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0 && name != "0";
}

// Calls `known` with each part of a text between marks, `mark` with each mark.
template <class Known, class Mark>
void for_each_part(std::string_view text, const Known& known, const Mark& mark) {
  while (!text.empty()) {
    const size_t first = text.find('\0');
    known(text.substr(0, first));
    if (first == std::string_view::npos) return;
    const size_t end = text.find('\0', first + 1);
    if (end == std::string_view::npos) return;
    mark(text.substr(first, end + 1 - first));
    text.remove_prefix(end + 1);
  }
}

}  // namespace

bool is_certain(std::string_view text) {
  bool certain = true;
  for_each_part(
      text, [](std::string_view) {}, [&](std::string_view mark) { certain &= mark[1] == 'e'; });
  return certain;
}

std::string without_unset(std::string_view text) {
  std::string out;
  for_each_part(
      text, [&](std::string_view known) { out += known; },
      [&](std::string_view mark) {
        if (mark[1] != 'e') out += mark;
      });
  return out;
}

bool is_all_unknown(std::string_view text) {
  bool all = !text.empty();
  for_each_part(
      text, [&](std::string_view known) { all &= known.empty(); }, [](std::string_view) {});
  return all;
}

std::string first_mark(std::string_view text) {
  std::string first;
  for_each_part(
      text, [](std::string_view) {},
      [&](std::string_view mark) {
        if (first.empty()) first = mark;
      });
  return first;
}

std::string State::unknown(const std::string& why) {
  reasons_.push_back(why);
  return fmt::format("{}u{}{}", '\0', reasons_.size() - 1, '\0');
}

std::string State::unset(const std::string& variable, int line) {
  std::string& mark = unset_[variable];
  if (mark.empty()) {
    if (is_argument(variable)) {
      mark = unknown(fmt::format("line {}: the script's argument {} is not given", line, variable));
    } else if (set_by_others(variable)) {
      mark = unknown(fmt::format("line {}: {} is for the machine to set", line, shown(variable)));
    } else {
      reasons_.push_back(fmt::format("line {}: {} is not set", line, shown(variable)));
      mark = fmt::format("{}e{}{}", '\0', reasons_.size() - 1, '\0');
    }
  }
  return mark;
}

std::string State::reason(std::string_view mark) const {
  size_t n = 0;
  for (const char c : mark.substr(std::min<size_t>(2, mark.size())))
    if (c >= '0' && c <= '9') n = n * 10 + static_cast<size_t>(c - '0');
  return n < reasons_.size() ? reasons_[n] : "";
}

void State::note(int line, const std::string& what) {
  if (notes.size() < kMostNotes) notes.push_back(fmt::format("line {}: {}", line, what));
}

void State::fail(int line, const std::string& what) const { config_error("{}:{}: {}", source, line, what); }

void State::spend(int line, size_t bytes) {
  expanded_ += bytes;
  if (expanded_ > kMostExpanded) fail(line, fmt::format("expands to more than {} bytes", kMostExpanded));
}

void State::step(int line, size_t steps) {
  steps_ += steps;
  if (steps_ > kMostSteps) fail(line, "expands without end");
}

void State::copy(int line) {
  for (const auto& [key, values] : variables) {
    copied_ += key.size() + 64;
    for (const std::string& value : values) copied_ += value.size() + 32;
  }
  if (copied_ > kMostCopied) fail(line, "has more branches on what is not known than can be followed");
}

const Values* State::find(const std::string& key) const {
  const auto it = variables.find(key);
  return it == variables.end() ? nullptr : &it->second;
}

Values State::value_of(const std::string& key, int line) {
  used.insert(key);
  const Values* found = find(key);
  return found != nullptr ? *found : Values{unset(key, line)};
}

void State::assign(const std::string& key, Values values) {
  used.insert(key);
  if (!is_given(key)) variables[key] = std::move(values);
}

std::string State::separators() const {
  const Values* set = find("IFS");
  return set == nullptr || (!set->empty() && !is_known(set->front())) ? " \t\r\n"
         : set->empty()                                               ? ""
                                                                      : set->front();
}

Deeper::Deeper(State& state, int line) : state_(state) {
  if (++state_.depth > kMostDepth) {
    --state_.depth;
    state_.fail(line, "nested too deeply");
  }
}

}  // namespace heddle::advisor::shell
