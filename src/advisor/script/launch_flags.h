// The flags that Megatron-LM and MindSpeed share or spell apart, in one table: each row writes a part of a launch
// as flags and reads it back from them. Emitting and reading scripts both walk this table, so that neither knows a
// flag that the other doesn't.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "advisor/script/dialect.h"
#include "advisor/words.h"

namespace heddle::advisor {

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

/// Flags as a script gives them, the last of each name standing; remembers which were asked for. A name is asked
/// for by its present spelling, and found by an old one too. A value may be unknown (a mark of shell/state.h): it
/// is refused where it is asked for, with the reason.
class GivenFlags {
 public:
  /// `why` says why a value is not known.
  explicit GivenFlags(std::map<std::string, std::vector<std::string>> flags, std::string place,
                      std::function<std::string(const std::string&)> why = {});

  bool has(const std::string& name) const;
  /// True if one of several spellings of the same is there.
  bool any(std::initializer_list<const char*> names) const;
  /// The first value, "" when the flag is absent or has none. ConfigError where it is not known.
  std::string text(const std::string& name) const;
  /// The first value, "" also where it is not known, and whether it is.
  std::string known_text(const std::string& name) const;
  bool is_known(const std::string& name) const;
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
  /// The spelling of a name that is there; the name itself where none is.
  const std::string& spelt(const std::string& name) const;

  std::map<std::string, std::vector<std::string>> flags_;
  std::string place_;
  std::function<std::string(const std::string&)> why_;
  mutable std::set<std::string> read_;
};

/// Differences between the flags of two launches, row by row of the table. They are flags of the second, and those
/// among `given` that say the same in the first, however they are spelt. A flag that the script leaves to a default
/// which follows another flag is added where that other one changes.
struct FlagChanges {
  std::vector<Flag> added;
  std::vector<std::string> removed;
};
FlagChanges flag_changes(const Launch& from, const Launch& to, Dialect dialect,
                         const std::map<std::string, std::vector<std::string>>& given);

/// Puts what the flags say into `launch`, whose device and imbalance are set already; `devices` is the whole world.
/// Adds to `notes` what was assumed. ConfigError for what is impossible.
void read_flags(const GivenFlags& flags, Dialect dialect, int devices, Launch& launch,
                std::vector<std::string>& notes);

/// True if flags can say the bytes of a gradient and of the optimizer's states, graph capture, and rows that cross
/// to a node once.
bool gradients_sayable(const Software& software);
bool states_sayable(const Software& software, Dialect dialect);
bool capture_sayable(double captured);
bool deepep_sayable(const cost::Accelerator& device);

}  // namespace heddle::advisor
