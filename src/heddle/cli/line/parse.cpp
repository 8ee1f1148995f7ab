#include "heddle/cli/line/parse.h"

#include <algorithm>
#include <optional>
#include <set>

#include "heddle/base/count_text.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/config/setting_names.h"

namespace heddle::cli {

namespace {

class Parser {
 public:
  explicit Parser(const Command& command) : command_(command) {}

  void parse(const std::vector<std::string>& arguments) {
    bool only_words = false;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      if (only_words || argument == "-" || !argument.starts_with('-')) {
        take_word(argument);
      } else if (argument == "--") {
        only_words = true;
      } else {
        const size_t equals = argument.find('=');
        const Option& option = named(argument.substr(0, equals));
        if (option.is_flag()) {
          if (equals != std::string::npos)
            config_error("{}: {} takes no value, found '{}'", command_.name, option.name, shown(argument));
          note(option);
          *std::get<bool*>(option.into) = true;
        } else if (equals != std::string::npos) {
          accept(option, argument.substr(equals + 1));
        } else {
          if (i + 1 == arguments.size() || is_option(arguments[i + 1]))
            config_error("{}: {} lacks its value{} (see heddle {} --help)", command_.name, option.name,
                         i + 1 == arguments.size() ? "" : fmt::format(", found {}", shown(arguments[i + 1])),
                         command_.name);
          accept(option, arguments[++i]);
        }
      }
    }
    check_together();
  }

 private:
  const Option* find(std::string_view name) const {
    const auto at = std::find_if(command_.options.begin(), command_.options.end(),
                                 [&](const Option& o) { return o.name == name; });
    return at == command_.options.end() ? nullptr : &*at;
  }
  bool is_option(const std::string& argument) const {
    return argument.starts_with("--") && find(argument.substr(0, argument.find('='))) != nullptr;
  }

  const Option& named(const std::string& flag) const {
    if (const Option* option = find(flag)) return *option;
    std::vector<std::string> flags{"--help"};
    for (const Option& o : command_.options)
      if (!o.stands_alone()) flags.push_back(o.name);
    const std::string_view word = std::string_view(flag).substr(std::min(flag.find_first_not_of('-'), flag.size()));
    const std::vector<std::string> keys =
        command_.sets_keys ? config::keys_called(word) : std::vector<std::string>{};
    config_error(
        "{}: unknown flag '{}'{}", command_.name, shown(flag),
        keys.empty() ? did_you_mean(flag, flags) : fmt::format(", did you mean --set {}=…?", keys.front()));
  }

  void take_word(const std::string& word) {
    for (const Option& option : command_.options) {
      if (!option.stands_alone() || (given_.contains(option.name) && !option.is_list())) continue;
      return accept(option, word);
    }
    config_error("{}: unexpected argument '{}' (see heddle {} --help)", command_.name, shown(word), command_.name);
  }

  void note(const Option& option) {
    if (!given_.insert(option.name).second && !option.is_list() && !option.is_flag())
      config_error("{}: {} is given twice", command_.name, option.name);
  }

  void accept(const Option& option, const std::string& text) {
    note(option);
    if (!option.words.empty() && std::find(option.words.begin(), option.words.end(), text) == option.words.end())
      config_error("{}: {} is '{}', accepted: {}{}", command_.name, option.name, shown(text),
                   fmt::join(option.words, ", "), did_you_mean(text, option.words));
    std::visit(
        [&]<class T>(T* into) {
          if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::optional<std::string>>) {
            *into = text;
          } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            into->push_back(text);
          } else if constexpr (std::is_same_v<T, int64_t>) {
            *into = held<int64_t>(option, text, count_of(text));
          } else if constexpr (std::is_same_v<T, double>) {
            *into = held<double>(option, text, number_of(text));
          }
        },
        option.into);
  }

  template <class T>
  T held(const Option& option, const std::string& text, const std::optional<T>& number) const {
    const bool whole = std::is_same_v<T, int64_t>;
    if (!number || static_cast<double>(*number) < option.least || static_cast<double>(*number) > option.most) {
      const std::string_view what = whole ? "a whole number" : "a number";
      std::string accepted;
      if (option.least == std::numeric_limits<double>::min()) {
        accepted = fmt::format("{} above 0", what);
      } else if (option.most < Option::kAny) {
        accepted = fmt::format("{} from {} to {}", what, option.least, option.most);
      } else {
        accepted = option.least > -Option::kAny ? fmt::format("{} of {} or more", what, option.least) : what;
      }
      if (whole && !number) accepted += ", such as 1000, 1e3 or 500M";
      config_error("{}: {} is {}, accepted: {}", command_.name, option.name,
                   text.empty() ? "empty"
                   : number     ? shown(text)
                                : fmt::format("'{}'", shown(text)),
                   accepted);
    }
    return *number;
  }

  void check_together() const {
    for (const Option& option : command_.options) {
      if (option.is_required && !given_.contains(option.name))
        config_error("{}: {} is required (see heddle {} --help)", command_.name, option.name, command_.name);
      if (!given_.contains(option.name)) continue;
      for (const std::string& other : option.excluded)
        if (given_.contains(other)) config_error("{}: {} excludes {}", command_.name, option.name, other);
      for (const std::string& other : option.needed)
        if (!given_.contains(other)) config_error("{}: {} needs {}", command_.name, option.name, other);
    }
  }

  const Command& command_;
  std::set<std::string> given_;
};

}  // namespace

void parse(const Command& command, const std::vector<std::string>& arguments) { Parser(command).parse(arguments); }

}  // namespace heddle::cli
