// The flags that Megatron-LM and MindSpeed share or spell apart, in one table: each row writes a part of a launch
// as flags and reads it back from them. Emitting and reading scripts both walk this table, so that neither knows a
// flag that the other doesn't.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "heddle/search/launch/launch.h"

namespace heddle::search {

/// One flag with its values, and the group of the script that it stands in: model, experts, parallel, memory,
/// training.
struct Flag {
  std::string group;
  std::string name;  // "--num-layers"
  std::vector<std::string> values;
  bool operator==(const Flag&) const = default;
};

/// The flags of a launch. What the dialect can't say is not here: see refusals_of in emit.h.
std::vector<Flag> flags_of(const Launch& launch, Dialect dialect);

/// Flags as a script gives them, the last of each name standing; remembers which were asked for.
class GivenFlags {
 public:
  explicit GivenFlags(std::map<std::string, std::vector<std::string>> flags, std::string place);

  bool has(const std::string& name) const;
  /// Whether one of several spellings of the same is there.
  bool any(std::initializer_list<const char*> names) const;
  /// The first value, "" when the flag is absent or has none.
  std::string text(const std::string& name) const;
  const std::vector<std::string>& all(const std::string& name) const;
  /// A whole number from `least` to `most`; `otherwise` when absent. ConfigError naming the flag.
  int64_t whole(const std::string& name, int64_t otherwise, int64_t least = 0, int64_t most = 1 << 24) const;
  double real(const std::string& name, double otherwise) const;
  /// ConfigError when absent.
  int64_t needed(const std::string& name, int64_t least = 1, int64_t most = 1 << 24) const;
  [[noreturn]] void refuse(const std::string& name, const std::string& accepted) const;

  /// Flags that are there: those that nothing asked for, and the others.
  std::vector<std::string> unread() const;
  std::vector<std::string> asked_for() const;

 private:
  std::map<std::string, std::vector<std::string>> flags_;
  std::string place_;
  mutable std::set<std::string> read_;
};

/// What stands otherwise in the flags of two launches, row by row of the table: flags of the second, and those
/// among `given` that say the same in the first, however they are spelt.
struct FlagChanges {
  std::vector<Flag> added;
  std::vector<std::string> removed;
};
FlagChanges flag_changes(const Launch& from, const Launch& to, Dialect dialect,
                         const std::map<std::string, std::vector<std::string>>& given);

/// What the flags say, put into `launch`, whose device and imbalance stand already; `devices` is the whole world.
/// Adds to `notes` what was assumed. ConfigError for what is impossible.
void read_flags(const GivenFlags& flags, Dialect dialect, int devices, Launch& launch,
                std::vector<std::string>& notes);

/// Bytes of a gradient and of the optimizer's states, and graph capture, as far as flags can say them.
bool gradients_sayable(const Software& software);
bool states_sayable(const Software& software, Dialect dialect);
bool capture_sayable(double captured);

}  // namespace heddle::search
