// Reads a tree of commands from front to back.
#include <algorithm>
#include <array>
#include <deque>

#include "advisor/shell/assignment.h"
#include "advisor/shell/branches.h"
#include "advisor/shell/conditions.h"
#include "advisor/shell/expansion.h"
#include "advisor/shell/output.h"
#include "advisor/shell/pattern.h"
#include "advisor/shell/shell.h"
#include "advisor/shell/slurm.h"
#include "advisor/shell/syntax.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"

namespace heddle::advisor::shell {

namespace {

constexpr size_t kMostBytes = size_t{1} << 20, kMostCommands = 20000;
constexpr int kMostRounds = 1000;
constexpr int kMostEndless = 32;  // rounds of `while true`, which something unknown ends as a rule

template <size_t n>
bool is_one_of(const std::string& word, const std::array<const char*, n>& list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// Text that begins a trainer: worth reading where it stands in a string or a here-document.
bool looks_like_training(std::string_view text) {
  for (const std::string_view mark : {"--num-layers", "--num_layers", "--hidden-size", "--hidden_size"})
    if (text.find(mark) != std::string_view::npos) return true;
  return false;
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view name, const Environment& environment) : environment_(environment) {
    state_.name = name;
    for (const auto& [key, value] : environment.variables) {
      state_.variables[key] = {value};
      state_.given.insert(key);
    }
    state_.output_of = [this](std::string_view command, int line) { return output(command, line); };
    main_ = text;
  }

  Script read() {
    run_text(main_, 1);
    // Functions that the script defines for somebody else.
    if (std::none_of(script_.commands.begin(), script_.commands.end(), [](const Command& c) { return trains(c); }))
      for (const auto& [name, body] : functions_)
        if (!called_.contains(name)) run(*body);
    if (!state_.taken_as_empty.empty())
      state_.notes.push_back(fmt::format("not set, taken as empty: {}", fmt::join(state_.taken_as_empty, ", ")));
    for (const auto& [line, names] : left_out_)
      if (!names.empty())
        state_.note(
            line, fmt::format("this branch may or may not be taken: the flags that it would add to {} are left out",
                              fmt::join(names, ", ")));
    script_.notes = state_.notes;
    script_.used = state_.used;
    state_.output_of = nullptr;
    script_.state = std::move(state_);
    return std::move(script_);
  }

 private:
  enum class Flow : uint8_t { on, leave_loop, next_round, leave_function };

  static bool trains(const Command& command) {
    return std::any_of(command.words.begin(), command.words.end(),
                       [](const std::string& word) { return looks_like_training(word.substr(0, word.find('='))); });
  }

  void run_text(std::string_view text, int first_line) {
    const Deeper deeper(state_, first_line);
    texts_.emplace_back(text);
    const int source = static_cast<int>(texts_.size()) - 1;
    set_of_slurm(texts_.back(), state_);
    trees_.push_back(parse(texts_.back(), state_, source, first_line));
    run(*trees_.back());
  }

  Truth run(const Node& n) {
    const Deeper deeper(state_, n.line);
    state_.step(n.line, 16);
    switch (n.kind) {
      case Node::Kind::command: return negated(n, command(n));
      case Node::Kind::list: return negated(n, list(n));
      case Node::Kind::pipeline: {
        Truth last = Truth::unknown;
        for (const NodePointer& child : n.children) last = run(*child);
        return negated(n, last);
      }
      case Node::Kind::branch: return branch(n, 0);
      case Node::Kind::choose: return choose(n, 0);
      case Node::Kind::each: return each(n);
      case Node::Kind::loop: return loop(n);
      case Node::Kind::function:
        if (!n.children.empty()) functions_[n.name] = n.children.front().get();
        return Truth::yes;
      case Node::Kind::arithmetic: {
        const Number number = number_of(state_, text_between_quotes(state_, n.text, n.line), n.line);
        const Truth t = !number.value ? Truth::unknown : *number.value != 0 ? Truth::yes : Truth::no;
        return negated(n, t);
      }
      case Node::Kind::test: return negated(n, truth_of_text(state_, n.text, n.line));
    }
    return Truth::unknown;
  }

  static Truth negated(const Node& n, Truth t) { return n.negated ? negation(t) : t; }

  Truth list(const Node& n) {
    Truth last = Truth::yes;
    for (size_t i = 0; i < n.children.size() && flow_ == Flow::on; ++i) {
      const char before = n.before[i];
      if (before == '&' || before == '|') {
        const Truth wanted = before == '&' ? Truth::yes : Truth::no;
        if (last == negation(wanted)) continue;
        if (last == Truth::unknown) {
          maybe(n.children[i]->line, *n.children[i]);
          continue;
        }
      }
      last = run(*n.children[i]);
    }
    return last;
  }

  // Condition, body, condition, body, …, else, from `at` on.
  Truth branch(const Node& n, size_t at) {
    if (at >= n.children.size()) return Truth::yes;
    if (at + 1 == n.children.size()) return run(*n.children[at]);  // else
    const Truth holds = run(*n.children[at]);
    if (flow_ != Flow::on) return Truth::unknown;
    if (holds == Truth::yes) return run(*n.children[at + 1]);
    if (holds == Truth::no) return branch(n, at + 2);
    alternatives(n.line, {[&] { run(*n.children[at + 1]); }, [&] { branch(n, at + 2); }});
    return Truth::unknown;
  }

  Truth choose(const Node& n, size_t at) {
    const std::string subject = without_unset(text_of(state_, n.words.front()));
    for (; at < n.arms.size(); ++at) {
      Truth fits = is_known(subject) ? Truth::no : Truth::unknown;
      for (const Word& word : n.arms[at].patterns) {
        const std::string pattern = pattern_of(state_, word);
        if (pattern == "*") fits = Truth::yes;
        if (fits == Truth::yes || !is_known(subject)) continue;
        const std::optional<bool> found = is_known(pattern) ? matches(pattern, subject) : std::nullopt;
        fits = !found ? Truth::unknown : *found ? Truth::yes : fits;
      }
      if (fits == Truth::yes) return run(*n.arms[at].body);
      if (fits == Truth::no) continue;
      alternatives(n.line, {[&] { run(*n.arms[at].body); }, [&] { choose(n, at + 1); }});
      return Truth::unknown;
    }
    return Truth::yes;
  }

  // True if a round of a loop is followed by another.
  bool goes_on() {
    if (flow_ == Flow::next_round) flow_ = Flow::on;
    if (flow_ == Flow::on) return true;
    if (flow_ == Flow::leave_loop) flow_ = Flow::on;
    return false;
  }

  Truth each(const Node& n) {
    const Node* body = n.children.front().get();
    if (n.name.empty()) return each_of_arithmetic(n);
    Values items = n.over_arguments ? state_.arguments : Values{};
    for (const Word& word : n.words)
      for (std::string& value : words_of(state_, word)) items.push_back(std::move(value));
    int rounds = 0;
    for (const std::string& item : items) {
      if (++rounds > kMostRounds) {
        state_.note(n.line, fmt::format("{} rounds of this loop are read", kMostRounds));
        break;
      }
      const bool known = is_known(item);
      if (!known && is_certain(item) && without_unset(item).empty()) continue;
      state_.assign(n.name, {item});
      if (known) {
        run(*body);
      } else {  // how often is not known
        maybe(n.line, *body);
      }
      if (!goes_on()) break;
    }
    return Truth::yes;
  }

  Truth each_of_arithmetic(const Node& n) {
    const std::string_view text = n.text;
    const size_t first = text.find(';'),
                 second = first == std::string_view::npos ? first : text.find(';', first + 1);
    if (second == std::string_view::npos) return Truth::unknown;
    const auto value = [&](std::string_view part) {
      return number_of(state_, text_between_quotes(state_, part, n.line), n.line);
    };
    value(text.substr(0, first));
    rounds(
        n.line, *n.children.front(),
        [&] {
          const Number number = value(text.substr(first + 1, second - first - 1));
          return !number.value ? Truth::unknown : *number.value != 0 ? Truth::yes : Truth::no;
        },
        [&] { value(text.substr(second + 1)); });
    return Truth::yes;
  }

  Truth loop(const Node& n) {
    const Node *condition = n.children.front().get(), *body = n.children.back().get();
    rounds(
        n.line, *body,
        [&] {
          const Truth t = run(*condition);
          return n.negated ? negation(t) : t;
        },
        [] {}, is_endless(*condition) ? kMostEndless : kMostRounds);
    return Truth::yes;
  }

  static bool is_endless(const Node& condition) {
    if (condition.kind != Node::Kind::list || condition.children.size() != 1) return false;
    const std::vector<Word>& words = condition.children.front()->words;
    return words.size() == 1 && (words.front().text == "true" || words.front().text == ":");
  }

  template <class Holds, class After>
  void rounds(int line, const Node& body, const Holds& holds, const After& after, int most = kMostRounds) {
    for (int round = 0; round < most; ++round) {
      const Truth t = holds();
      if (t == Truth::no || flow_ == Flow::leave_function) return;
      if (t == Truth::unknown) return maybe(line, body);
      run(body);
      if (!goes_on()) return;
      after();
    }
    state_.note(line, fmt::format("{} rounds of this loop are read", most));
  }

  // Reads a node once or not at all.
  void maybe(int line, const Node& n) {
    alternatives(line, {[&] { run(n); }, [] {}});
  }

  // Reads each alternative from the same state, and keeps what they agree on.
  void alternatives(int line, const std::vector<std::function<void()>>& all) {
    const Variables before = copied(line);
    const bool certain = certain_;
    const Flow flow = flow_;
    certain_ = false;
    std::vector<Variables> after;
    for (const std::function<void()>& each : all) {
      state_.variables = before;
      each();
      flow_ = flow;  // it may leave or not: it is taken to go on
      after.push_back(std::move(state_.variables));
    }
    certain_ = certain;
    state_.variables = before;
    const std::vector<std::string> left_out = agreed(state_, line, before, after);
    left_out_[line].insert(left_out.begin(), left_out.end());
  }

  Variables copied(int line) {
    state_.copy(line);
    return state_.variables;
  }

  // --- commands

  Truth command(const Node& n) {
    Values words;
    for (const Word& word : n.words)
      for (std::string& value : words_of(state_, word)) words.push_back(std::move(value));
    static constexpr std::array kDeclares{"export", "declare", "local", "readonly", "typeset"};
    const bool declares = !words.empty() && is_one_of(words.front(), kDeclares);
    // Before a command's words an assignment holds for that command alone.
    if (n.words.empty() || declares)
      for (const Assignment& a : n.assignments)
        if (const auto given = assign(state_, n, a); given && n.source == 0) script_.overridden.push_back(*given);
    if (words.empty()) return n.words.empty() ? Truth::yes : Truth::unknown;
    if (declares) return Truth::yes;
    for (const Heredoc& h : n.heredocs) heredoc(n, h, words);
    return words_run(n, words);
  }

  void heredoc(const Node& n, const Heredoc& h, const Values& words) {
    if (words.front() == "read") {
      if (!state_.is_given(words.back()) && words.size() > 1)
        state_.assign(words.back(),
                      {h.expands ? text_between_quotes(state_, h.body, h.line) : std::string(h.body)});
      return;
    }
    if (!looks_like_training(h.body) && h.body.find('$') == std::string_view::npos) return;
    const std::string text = h.expands ? text_between_quotes(state_, h.body, h.line) : std::string(h.body);
    if (looks_like_training(text)) inside(text, n.line, words);
  }

  // A script in a string of another command.
  void inside(const std::string& text, int line, const Values& words) {
    Values outer = std::move(around_);
    around_ = words;
    const bool within = within_;
    within_ = true;
    run_text(text, line);
    within_ = within;
    around_ = std::move(outer);
  }

  Truth words_run(const Node& n, Values& words) {
    const std::string& name = words.front();
    static constexpr std::array kNothing{"echo", "printf", "mkdir", "cd",     "pushd", "popd",  "set",   "ulimit",
                                         "true", ":",      "sleep", "rm",     "cp",    "touch", "chmod", "trap",
                                         "wait", "cat",    "pwd",   "module", "shopt", "exit",  "ln",    "umask"};
    if (name == "set") return set_arguments(words);
    if (name == "printf" && words.size() > 3 && words[1] == "-v") {
      state_.assign(words[2], {printed(words[3], Values(words.begin() + 4, words.end()))});
      return Truth::yes;
    }
    if (name == "cd" && words.size() == 2) folder_ = words[1];
    if (is_one_of(name, kNothing)) return Truth::yes;
    if (name == "false") return Truth::no;
    if (name == "test" || name == "[") {
      if (name == "[" && words.back() == "]") words.pop_back();
      return truth_of_words(state_, Values(words.begin() + 1, words.end()), n.line);
    }
    if (name == "break" || name == "continue") {
      flow_ = name == "break" ? Flow::leave_loop : Flow::next_round;
      return Truth::yes;
    }
    if (name == "return") {
      if (function_depth_ > 0) flow_ = Flow::leave_function;
      return Truth::yes;
    }
    if (name == "shift") return shift(words, n.line);
    if (name == "unset") {
      for (size_t i = 1; i < words.size(); ++i)
        if (!state_.is_given(words[i])) state_.variables.erase(words[i]);
      return Truth::yes;
    }
    if (name == "read" || name == "mapfile" || name == "readarray") return read_names(n, words);
    if (name == "let") {
      for (size_t i = 1; i < words.size(); ++i) number_of(state_, words[i], n.line);
      return Truth::yes;
    }
    if (name == "eval") return evaluate(n, words);
    if (name == "source" || name == ".") return source(n, words);
    if (const auto found = functions_.find(name); found != functions_.end()) return call(*found, words, n.line);
    if (const size_t at = command_string(words); at < words.size()) {
      const bool here = n.source == 0 && !within_;
      const auto source = static_cast<int>(texts_.size());
      const size_t first = script_.commands.size();
      inside(words[at], n.line, words);
      for (size_t i = first; here && i < script_.commands.size(); ++i)
        if (last_in_[i] == source) place_in_string(n, words[at], script_.commands[i]);
      return Truth::unknown;
    }
    if (script_file(n, words)) return Truth::unknown;
    record(n, words);
    for (const std::string& word : words)
      if (word.find_first_of(" \n") != std::string::npos && looks_like_training(word)) {
        const size_t equals = word.starts_with("-") ? word.find('=') : std::string::npos;
        inside(equals == std::string::npos ? word : word.substr(equals + 1), n.line, words);
      }
    return Truth::unknown;
  }

  void record(const Node& n, const Values& words) {
    if (std::none_of(words.begin(), words.end(), [](const std::string& w) { return w.starts_with("--"); })) return;
    if (script_.commands.size() >= kMostCommands)
      state_.fail(n.line, fmt::format("more than {} commands", kMostCommands));
    const bool here = n.source == 0 && !within_;
    Command command;
    command.words = words;
    command.line = n.line;
    if (here) command.end = n.end;
    command.certain = certain_;
    command.around = around_;
    script_.commands.push_back(std::move(command));
    const std::string& text = texts_[n.source];
    const bool last = text.find_first_not_of(" \t\r\n", n.end) == std::string::npos;
    last_in_.push_back(last ? n.source : -1);
  }

  // Finds where the string that a command is the last one of ends in the script.
  void place_in_string(const Node& n, const std::string& text, Command& command) {
    for (const Word& word : n.words) {
      const char quote = word.text.empty() ? ' ' : word.text.front();
      if ((quote != '"' && quote != '\'') || word.text.size() < 2 || word.text.back() != quote) continue;
      if (behind_quote(word.text, 1, quote) != word.text.size()) continue;
      if (words_of(state_, word) != Values{text}) continue;
      command.outer_line = n.line;
      command.string_end = static_cast<size_t>(word.text.data() - texts_.front().data()) + word.text.size() - 1;
      command.quote = quote;
    }
  }

  // The word behind the -c of a shell.
  static size_t command_string(const Values& words) {
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      const std::string shell = words[i].substr(words[i].rfind('/') + 1);
      if (shell != "bash" && shell != "sh" && shell != "zsh") continue;
      for (size_t k = i + 1; k + 1 < words.size() && words[k].starts_with("-"); ++k)
        if (!words[k].starts_with("--") && words[k].ends_with("c")) return k + 1;
    }
    return words.size();
  }

  // "bash FILE ARGUMENTS": another script beside this one.
  bool script_file(const Node& n, const Values& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string shell = words[i].substr(words[i].rfind('/') + 1);
      const bool direct = i == 0 && words[i].ends_with(".sh");
      size_t at = i;
      if (!direct) {
        if (shell != "bash" && shell != "sh") continue;
        for (++at; at < words.size() && words[at].starts_with("-"); ++at) {
        }
        if (at >= words.size()) return false;
      }
      if (!words[at].ends_with(".sh")) return false;
      const std::optional<std::string> text = file(words[at]);
      if (!text) return false;
      const Values arguments = state_.arguments;
      const bool known = state_.arguments_known;
      state_.arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
      state_.arguments_known = true;
      const Variables before = copied(n.line);
      inside(*text, 1, Values(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at)));
      state_.variables = before;
      state_.arguments = arguments, state_.arguments_known = known;
      return true;
    }
    return false;
  }

  // Returns what printf makes of a format with %s and %d, once.
  std::string printed(const std::string& format, const Values& values) {
    std::string text;
    size_t next = 0;
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 == format.size()) {
        text += format[i];
        continue;
      }
      const char kind = format[++i];
      if (kind == '%') {
        text += '%';
      } else if (kind == 's' || kind == 'd') {
        if (next < values.size()) text += values[next++];
      } else {
        return state_.unknown("what printf makes");
      }
    }
    return text;
  }

  Truth set_arguments(const Values& words) {
    const auto dashes = std::find(words.begin(), words.end(), "--");
    if (dashes == words.end()) return Truth::yes;
    state_.arguments.assign(dashes + 1, words.end());
    state_.arguments_known = true;
    return Truth::yes;
  }

  Truth shift(const Values& words, int line) {
    int64_t by = 1;
    if (words.size() > 1) by = number_of(state_, words[1], line).value.value_or(0);
    if (by < 0 || by > static_cast<int64_t>(state_.arguments.size())) return Truth::no;
    state_.arguments.erase(state_.arguments.begin(), state_.arguments.begin() + by);
    return Truth::yes;
  }

  Truth read_names(const Node& n, const Values& words) {
    if (!n.heredocs.empty()) return Truth::unknown;
    for (size_t i = 1; i < words.size(); ++i)
      if (!words[i].empty() && starts_name(words[i][0]) && is_known(words[i]))
        state_.assign(words[i], {state_.unknown(fmt::format("line {}: what `{}` gets", n.line, words.front()))});
    return Truth::unknown;
  }

  Truth evaluate(const Node& n, const Values& words) {
    std::string text;
    for (size_t i = 1; i < words.size(); ++i) text += (i > 1 ? " " : "") + words[i];
    state_.spend(n.line, text.size());
    // A command in a variable: its words are those of the script, its place is that of eval.
    const bool within = within_;
    within_ = true;
    const size_t first = script_.commands.size();
    run_text(text, n.line);
    within_ = within;
    if (n.source == 0 && !within_ && script_.commands.size() == first + 1) {
      script_.commands.back().end = n.end;
      script_.commands.back().evaluated = true;
    }
    return Truth::unknown;
  }

  std::optional<std::string> file(const std::string& path) const {
    if (!environment_.file || !is_known(path) || path.empty()) return std::nullopt;
    std::vector<std::string> places;
    const std::string home = folder_of(state_.name);
    if (path.starts_with(home + "/")) {
      places.push_back(path.substr(home.size() + 1));
    } else if (!path.starts_with("/")) {
      if (!folder_.empty() && is_known(folder_) && folder_.starts_with(home))
        places.push_back(folder_.substr(std::min(folder_.size(), home.size() + 1)) + "/" + path);
      places.push_back(path);
    }
    for (std::string& place : places) {
      while (place.starts_with("/") || place.starts_with("./")) place.erase(0, place.find('/') + 1);
      if (std::optional<std::string> text = environment_.file(place)) {
        if (text->size() <= kMostBytes && is_known(*text)) return text;
      }
    }
    return std::nullopt;
  }

  Truth source(const Node& n, const Values& words) {
    if (words.size() < 2) return Truth::unknown;
    const std::optional<std::string> text = file(words[1]);
    if (!text) {
      state_.note(n.line, fmt::format("the sourced file {} is not read", is_known(words[1]) ? shown(words[1])
                                                                                            : "whose "
                                                                                              "name is not known"));
      return Truth::yes;
    }
    const bool within = within_;
    within_ = true;
    run_text(*text, 1);
    within_ = within;
    return Truth::yes;
  }

  Truth call(const std::pair<const std::string, const Node*>& function, const Values& words, int line) {
    const Deeper deeper(state_, line);
    called_.insert(function.first);
    const Values arguments = state_.arguments;
    const bool known = state_.arguments_known;
    state_.arguments.assign(words.begin() + 1, words.end());
    state_.arguments_known = true;
    ++function_depth_;
    const Truth t = run(*function.second);
    --function_depth_;
    if (flow_ == Flow::leave_function) flow_ = Flow::on;
    state_.arguments = arguments, state_.arguments_known = known;
    return t;
  }

  // Returns the output of $(…).
  std::string output(std::string_view command, int line) {
    const Deeper deeper(state_, line);
    texts_.emplace_back(command);
    trees_.push_back(parse(texts_.back(), state_, static_cast<int>(texts_.size()) - 1, line));
    const Node& tree = *trees_.back();
    std::string folder;
    const Values* ifs = state_.find("IFS");  // the one thing that is set in there
    const std::optional<Values> before = ifs != nullptr ? std::optional(*ifs) : std::nullopt;
    const std::optional<std::string> text = output_of(state_, tree, folder);
    if (before) {
      state_.variables["IFS"] = *before;
    } else {
      state_.variables.erase("IFS");
    }
    if (text) {
      state_.spend(line, text->size());
      return *text;
    }
    std::string name = command_name(tree);
    return state_.unknown(fmt::format("line {}: the output of {}", line, name.empty() ? "a command" : shown(name)));
  }

  const Environment& environment_;
  State state_{""};
  Script script_;
  std::string_view main_;
  std::vector<int> last_in_;       // [command]: the text that it is the last in; -1: none
  std::deque<std::string> texts_;  // the script, sourced files, strings: what trees point into
  std::deque<NodePointer> trees_;
  std::map<std::string, const Node*> functions_;
  std::set<std::string> called_;
  std::map<int, std::set<std::string>> left_out_;  // line -> variables that a branch would add flags to
  Values around_;
  std::string folder_;
  Flow flow_ = Flow::on;
  bool certain_ = true, within_ = false;
  int function_depth_ = 0;
};

}  // namespace

Script read_script(std::string_view text, std::string_view name, const Environment& environment) {
  if (text.size() > kMostBytes) config_error("{}: {} bytes, accepted: up to {}", name, text.size(), kMostBytes);
  if (text.find('\0') != std::string_view::npos) config_error("{}: holds a zero byte, accepted: a script", name);
  return Reader(text, name, environment).read();
}

}  // namespace heddle::advisor::shell
