// The main of every bench: it reads the arguments that the bench names, and tells what went wrong in one line.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/base/error.h"

namespace heddle::bench {

/// What a bench takes. It names all, each with the variable that has its usual value and gets the given one, and
/// then calls `read`.
class Arguments {
 public:
  Arguments(int count, char** words);

  /// "--json"
  void flag(const char* name, bool& into);
  /// "--rounds N": a number from `least` on.
  void number(const char* name, int& into, int least = 1);
  void number(const char* name, int64_t& into, int64_t least = 1);
  void number(const char* name, double& into, double least = 0);
  /// "--profile FILE"; `accepted`: of these only, where there are any.
  void word(const char* name, const char* what, std::string& into,
            std::initializer_list<const char*> accepted = {});
  void dtype(const char* name, Dtype& into);
  /// What stands without a name.
  void place(const char* what, std::string& into);

  /// Done is thrown for --help, ConfigError with what is accepted for anything else that was not named. Every bench
  /// takes "--limit SECONDS" beside what it names (bench/support/stops.h).
  void read();
  struct Done {};

 private:
  struct Row {
    std::string name, what;  // what: "" for a flag
    std::function<bool(const std::string& value)> take;
  };
  std::string usage() const;
  [[noreturn]] void refuse(const std::string& word) const;

  std::string program_;
  std::vector<std::string> words_;
  std::vector<Row> rows_;
};

/// Each bench defines it. Returns the exit status.
int run(Arguments& arguments);

/// The ranks of a bench that needs those of a launcher: ConfigError where there is none.
void check_launched();

}  // namespace heddle::bench
