#include "heddle/search/launch/launch_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/search/launch/launch_flag_row.h"
#include "heddle/search/launch/shell_words.h"

namespace heddle::search {

bool gradients_sayable(const Software& s) {
  return s.gradient_bytes == s.reduce_bytes && (s.gradient_bytes == 2 || s.gradient_bytes == 4);
}

bool states_sayable(const Software& s, Dialect dialect) {
  if (s.state_bytes == 12) return true;
  if (dialect == Dialect::mindspeed) return s.state_bytes == 10;
  return s.state_bytes == 8 || s.state_bytes == 6;
}

bool capture_sayable(double captured) { return captured == 0 || captured == 0.5 || captured == 0.95; }

std::vector<Flag> flags_of(const Launch& launch, Dialect dialect) {
  std::vector<Flag> flags;
  for (const auto* rows : {&model_rows(), &run_rows()})
    for (const Row& row : *rows) row.write({launch, dialect, flags, row.group});
  return flags;
}

void read_flags(const GivenFlags& flags, Dialect dialect, int devices, Launch& launch,
                std::vector<std::string>& notes) {
  for (const auto* rows : {&model_rows(), &run_rows()})
    for (const Row& row : *rows) row.read({flags, dialect, devices, launch, notes});
}

GivenFlags::GivenFlags(std::map<std::string, std::vector<std::string>> flags, std::string place)
    : flags_(std::move(flags)), place_(std::move(place)) {}

bool GivenFlags::has(const std::string& name) const {
  read_.insert(name);
  return flags_.contains(name);
}

bool GivenFlags::any(std::initializer_list<const char*> names) const {
  bool found = false;
  for (const char* name : names) found |= has(name);
  return found;
}

const std::vector<std::string>& GivenFlags::all(const std::string& name) const {
  static const std::vector<std::string> none;
  read_.insert(name);
  const auto it = flags_.find(name);
  return it == flags_.end() ? none : it->second;
}

std::string GivenFlags::text(const std::string& name) const {
  const std::vector<std::string>& values = all(name);
  return values.empty() ? "" : values.front();
}

void GivenFlags::refuse(const std::string& name, const std::string& accepted) const {
  config_error("{}: {} {}, accepted: {}", place_, name, shown(text(name)), accepted);
}

int64_t GivenFlags::whole(const std::string& name, int64_t otherwise, int64_t least, int64_t most) const {
  if (!has(name)) return otherwise;
  const std::string value = text(name);
  int64_t n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc() || end != value.data() + value.size() || n < least || n > most)
    refuse(name, fmt::format("a whole number from {} to {}", least, most));
  return n;
}

double GivenFlags::real(const std::string& name, double otherwise) const {
  if (!has(name)) return otherwise;
  const std::string value = text(name);
  double n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(n)) refuse(name, "a number");
  return n;
}

int64_t GivenFlags::needed(const std::string& name, int64_t least, int64_t most) const {
  if (!has(name)) config_error("{}: {} is not given, or its value is not known", place_, name);
  return whole(name, 0, least, most);
}

FlagChanges flag_changes(const Launch& from, const Launch& to, Dialect dialect,
                         const std::map<std::string, std::vector<std::string>>& given) {
  FlagChanges changes;
  for (const auto* rows : {&model_rows(), &run_rows()})
    for (const Row& row : *rows) {
      std::vector<Flag> before, after;
      row.write({from, dialect, before, row.group});
      row.write({to, dialect, after, row.group});
      if (before == after) continue;
      changes.added.insert(changes.added.end(), after.begin(), after.end());
      const GivenFlags asked(given, "");
      Launch read = from;
      std::vector<std::string> notes;
      row.read({asked, dialect, from.job.layout.devices, read, notes});
      for (std::string& name : asked.asked_for())
        if (std::find(changes.removed.begin(), changes.removed.end(), name) == changes.removed.end())
          changes.removed.push_back(std::move(name));
    }
  return changes;
}

std::vector<std::string> GivenFlags::asked_for() const {
  std::vector<std::string> names;
  for (const auto& [name, values] : flags_)
    if (read_.contains(name)) names.push_back(name);
  return names;
}

std::vector<std::string> GivenFlags::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, values] : flags_)
    if (!read_.contains(name)) names.push_back(name);
  return names;
}

}  // namespace heddle::search
