// Reads a tree of commands from front to back.
#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "advisor/shell/assignment.h"
#include "advisor/shell/branches.h"
#include "advisor/shell/builtins.h"
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
    state_.name = state_.source = name;
    for (const auto& [key, value] : environment.variables) {
      state_.variables[key] = {value};
      state_.given.insert(key);
    }
    state_.output_of = [this](std::string_view command, int line) { return output(command, line); };
    main_ = text, script_name_ = name;
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
  enum class Flow : uint8_t { on, leave_loop, next_round, leave_function, leave_script };
  // Output of commands where $(…) asks for it.
  struct Output {
    std::string text;
    std::string unknown_of;  // the command whose output is not known
    bool known = true;
  };
  using Saved = std::map<std::string, Variables>;  // entries that a name had: itself, its elements

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
      case Node::Kind::list: {
        Truth last = Truth::unknown;
        n.subshell ? apart(n.line, [&] { last = list(n); }) : void(last = list(n));
        return negated(n, last);
      }
      case Node::Kind::pipeline: return negated(n, pipeline(n));
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

  // Runs something in a shell of its own, which leaves nothing behind.
  template <class Runs>
  void apart(int line, const Runs& runs) {
    const Variables before = copied(line);
    const Values arguments = state_.arguments;
    const std::string folder = folder_;
    runs();
    state_.variables = before, state_.arguments = arguments, folder_ = folder;
    if (flow_ == Flow::leave_script) flow_ = Flow::on;
  }

  bool calls_function(const Node& n) const {
    return n.kind == Node::Kind::command && !n.words.empty() &&
           functions_.contains(std::string(n.words.front().text));
  }
  Truth pipeline(const Node& n) {
    if (output_ != nullptr) return not_printed(n);
    Truth last = Truth::unknown;
    for (const NodePointer& child : n.children) {
      if (child->kind == Node::Kind::command && !calls_function(*child)) {
        last = run(*child);
      } else {
        apart(n.line, [&] { last = run(*child); });
      }
    }
    return last;
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
    state_.doubt = state_.reason(first_mark(subject));
    for (; at < n.arms.size(); ++at) {
      Truth fits = is_known(subject) ? Truth::no : Truth::unknown;
      for (const Word& word : n.arms[at].patterns) {
        const std::string pattern = pattern_of(state_, word);
        if (pattern == "*") fits = Truth::yes;
        if (fits == Truth::yes || !is_known(subject)) continue;
        const std::optional<bool> found = is_known(pattern) ? matches(pattern, subject) : std::nullopt;
        fits = !found ? Truth::unknown : *found ? Truth::yes : fits;
      }
      if (fits == Truth::yes) return arm(n, at);
      if (fits == Truth::no) continue;
      alternatives(n.line, {[&] { arm(n, at); }, [&] { choose(n, at + 1); }});
      return Truth::unknown;
    }
    return Truth::yes;
  }

  Truth arm(const Node& n, size_t at) {
    Truth last = run(*n.arms[at].body);
    for (; n.arms[at].falls && at + 1 < n.arms.size() && flow_ == Flow::on; ++at) last = run(*n.arms[at + 1].body);
    return n.arms[at].tests_on && flow_ == Flow::on ? choose(n, at + 1) : last;
  }

  // True if a round of a loop is followed by another.
  bool goes_on() {
    if (flow_ != Flow::leave_loop && flow_ != Flow::next_round) return flow_ == Flow::on;
    if (--loops_left_ > 0) return false;  // it goes on, or not, with one around it
    const bool next = flow_ == Flow::next_round;
    flow_ = Flow::on;
    return next;
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
      if (t == Truth::no || flow_ >= Flow::leave_function) return;
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
    const std::string doubt = std::exchange(state_.doubt, "");
    const Variables before = copied(line);
    const bool certain = certain_;
    const Flow flow = flow_;
    certain_ = false;
    std::vector<Variables> after;
    std::pair<size_t, size_t> commands;  // of the last one that goes on
    for (const std::function<void()>& each : all) {
      state_.variables = before;
      const size_t first = script_.commands.size();
      each();
      const bool leaves = flow_ == Flow::leave_script;
      may_return_ |= flow_ == Flow::leave_function;
      flow_ = flow;  // of a function it may leave or not: it is taken to go on
      if (leaves) continue;
      after.push_back(std::move(state_.variables));
      commands = {first, script_.commands.size()};
    }
    certain_ = certain;
    state_.variables = before;
    if (after.empty()) return leave_script();
    if (after.size() == 1 && all.size() > 1) {  // the others end the script
      state_.variables = std::move(after.front());
      for (size_t i = commands.first; i < commands.second; ++i) script_.commands[i].certain = certain;
      return;
    }
    const std::vector<std::string> left_out = agreed(state_, line, doubt, before, after);
    left_out_[line].insert(left_out.begin(), left_out.end());
  }

  // The job is on a path that goes on: only behind a training command, or where another path may be taken, a script
  // ends.
  void leave_script() {
    if (!certain_ || std::any_of(script_.commands.begin(), script_.commands.end(), trains))
      flow_ = Flow::leave_script;
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
    const bool own = declares && words.front() != "export" && words.front() != "readonly" && !scopes_.empty() &&
                     std::find(words.begin(), words.end(), "-g") == words.end();
    // Before a command's words an assignment holds for that command alone.
    if (n.words.empty() || declares)
      for (const Assignment& a : n.assignments) {
        if (own) save(a.name);
        if (const auto given = assign(state_, n, a); given && n.source == 0) script_.overridden.push_back(*given);
      }
    if (words.empty()) return n.words.empty() ? Truth::yes : Truth::unknown;
    if (own)
      for (size_t i = 1; i < words.size(); ++i)
        if (is_known(words[i]) && starts_name(words[i].c_str()[0])) save(words[i]), erase(words[i]);
    if (declares) return Truth::yes;
    if (output_ == nullptr && words.front() != "read" && words.front() != "mapfile" && words.front() != "readarray")
      for (const Heredoc& h : n.heredocs) heredoc(n, h, words);
    return words_run(n, words);
  }

  // Keeps what a function's own name means outside of it.
  void save(const std::string& name) {
    if (state_.is_given(name) || scopes_.back().contains(name)) return;
    Variables& saved = scopes_.back()[name];
    for_entries(name, [&](const auto& it) { saved.insert(*it); });
  }
  void erase(const std::string& name) {
    if (!state_.is_given(name)) for_entries(name, [&](const auto& it) { state_.variables.erase(it); });
  }
  template <class Does>
  void for_entries(const std::string& name, const Does& does) {
    if (const auto it = state_.variables.find(name); it != state_.variables.end()) does(it);
    const std::string elements = name + "[";
    for (auto it = state_.variables.lower_bound(elements);
         it != state_.variables.end() && it->first.starts_with(elements);)
      does(it++);
  }

  void heredoc(const Node& n, const Heredoc& h, const Values& words) {
    if (!looks_like_training(h.body) && h.body.find('$') == std::string_view::npos) return;
    const std::string text = document_of(state_, h);
    if (looks_like_training(text)) inside(text, n.line, words);
  }

  // A script in a string or a file of another command, with arguments of its own.
  void inside(const std::string& text, int line, const Values& words,
              const std::optional<Values>& arguments = std::nullopt) {
    Values outer = std::move(around_);
    around_ = words;
    const Values outer_arguments = std::exchange(state_.arguments, arguments.value_or(Values{}));
    const bool known = std::exchange(state_.arguments_known, arguments.has_value());
    const bool within = within_;
    within_ = true;
    run_text(text, line);
    if (flow_ == Flow::leave_script) flow_ = Flow::on;  // of that one
    within_ = within;
    state_.arguments = outer_arguments, state_.arguments_known = known;
    around_ = std::move(outer);
  }

  Truth words_run(const Node& n, Values& words) {
    const std::string& name = words.front();
    if (name == "cd" && words.size() > 1) folder_ = words.back();
    if (name == "exit") {
      leave_script();
      return Truth::yes;
    }
    if (name == "break" || name == "continue") {
      flow_ = name == "break" ? Flow::leave_loop : Flow::next_round;
      loops_left_ = words.size() > 1 ? number_of(state_, words[1], n.line).value.value_or(1) : 1;
      return Truth::yes;
    }
    if (name == "return") {
      returned_ = status(words, n.line);
      if (function_depth_ > 0) flow_ = Flow::leave_function;
      return returned_;
    }
    if (output_ != nullptr) {
      static constexpr std::array kPrint{"echo", "printf", "cat", "pwd"};
      if (const std::optional<std::string> text = printed_by(state_, n, words, folder_)) return print(*text, n);
      if (is_one_of(name, kPrint)) return not_printed(n);
    }
    if (const std::optional<Truth> done = run_builtin(state_, n, words)) return *done;
    if (name == "eval") return evaluate(n, words);
    if (name == "source" || name == ".") return source(n, words);
    if (const auto found = functions_.find(name); found != functions_.end()) return call(*found, words, n.line);
    if (output_ != nullptr) return not_printed(n);
    if (const size_t at = command_string(words); at < words.size()) {
      const bool here = n.source == 0 && !within_;
      const auto source = static_cast<int>(texts_.size());
      const size_t first = script_.commands.size();
      const size_t given = std::min(at + 2, words.size());  // behind the string and the name of its shell
      inside(words[at], n.line, words, Values(words.begin() + static_cast<std::ptrdiff_t>(given), words.end()));
      for (size_t i = first; here && i < script_.commands.size(); ++i)
        if (last_in_[i] == source) place_in_string(n, words[at], script_.commands[i]);
      return Truth::unknown;
    }
    // Its own words count where that file starts nothing with them.
    const size_t before = script_.commands.size();
    const auto more = [&] { return script_.commands.begin() + static_cast<std::ptrdiff_t>(before); };
    if (script_file(n, words) && std::any_of(more(), script_.commands.end(), trains)) return Truth::unknown;
    record(n, words);
    state_.doubt = fmt::format("line {}: whether {} succeeds", n.line, is_known(name) ? shown(name) : "a command");
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
    command.file = state_.source;
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
      const Variables before = copied(n.line);
      const std::string source = std::exchange(state_.source, words[at]),
                        name = std::exchange(state_.name, words[at]);
      const auto place = words.begin() + static_cast<std::ptrdiff_t>(at);
      inside(*text, 1, Values(words.begin(), place), Values(place + 1, words.end()));
      state_.source = source, state_.name = name;
      state_.variables = before;
      return true;
    }
    return false;
  }

  Truth status(const Values& words, int line) {
    if (words.size() < 2) return Truth::yes;
    const Number n = number_of(state_, words[1], line);
    return !n.value ? Truth::unknown : *n.value == 0 ? Truth::yes : Truth::no;
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
    const std::string home = folder_of(script_name_);
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
    const Values arguments = state_.arguments;
    const bool known = state_.arguments_known;
    if (words.size() > 2) state_.arguments.assign(words.begin() + 2, words.end()), state_.arguments_known = true;
    const std::string source = std::exchange(state_.source, words[1]);
    run_text(*text, 1);
    state_.source = source;
    if (words.size() > 2) state_.arguments = arguments, state_.arguments_known = known;
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
    scopes_.emplace_back();
    const bool may_return = std::exchange(may_return_, false);
    Truth t = run(*function.second);
    if (flow_ == Flow::leave_function) flow_ = Flow::on, t = returned_;
    if (may_return_) t = Truth::unknown;
    may_return_ = may_return;
    for (const auto& [name, entries] : scopes_.back()) {
      erase(name);
      for (const auto& [key, values] : entries) state_.variables[key] = values;
    }
    scopes_.pop_back();
    --function_depth_;
    state_.arguments = arguments, state_.arguments_known = known;
    return t;
  }

  // --- output of $(…)

  std::string output(std::string_view command, int line) {
    const Deeper deeper(state_, line);
    texts_.emplace_back(command);
    trees_.push_back(parse(texts_.back(), state_, static_cast<int>(texts_.size()) - 1, line));
    const Node& tree = *trees_.back();
    Output own;
    Output* const outer = std::exchange(output_, &own);
    const bool certain = std::exchange(certain_, true);
    const Flow flow = flow_;
    const bool simple = tree.children.size() == 1 && tree.children.front()->kind == Node::Kind::command &&
                        !calls_function(*tree.children.front());
    simple ? void(run(tree)) : apart(line, [&] { run(tree); });
    flow_ = flow, certain_ = certain, output_ = outer;
    if (!own.known)
      return state_.unknown(fmt::format("line {}: the output of {}", line,
                                        own.unknown_of.empty() ? "a command" : shown(own.unknown_of)));
    while (own.text.ends_with('\n')) own.text.pop_back();
    state_.spend(line, own.text.size());
    return own.text;
  }
  Truth print(const std::string& text, const Node& n) {
    if (!certain_) return not_printed(n);
    output_->text += text;
    state_.spend(n.line, text.size());
    return Truth::yes;
  }
  Truth not_printed(const Node& n) {
    if (output_->known) output_->unknown_of = command_name(n);
    output_->known = false;
    return Truth::unknown;
  }
  static std::string command_name(const Node& n) {
    if (n.kind == Node::Kind::command)
      return n.words.empty() ? "" : std::string(n.words.front().text.substr(0, 40));
    for (const NodePointer& child : n.children)
      if (std::string name = command_name(*child); !name.empty()) return name;
    return "";
  }

  const Environment& environment_;
  State state_{""};
  Script script_;
  std::string_view main_;
  std::string script_name_;
  std::vector<int> last_in_;       // [command]: the text that it is the last in; -1: none
  std::deque<std::string> texts_;  // the script, sourced files, strings: what trees point into
  std::deque<NodePointer> trees_;
  std::map<std::string, const Node*> functions_;
  std::set<std::string> called_;
  std::map<int, std::set<std::string>> left_out_;  // line -> variables that a branch would add flags to
  Values around_;
  std::string folder_;
  Flow flow_ = Flow::on;
  int64_t loops_left_ = 0;       // that a break or a continue leaves
  Truth returned_ = Truth::yes;  // of the last return
  bool may_return_ = false;      // the function that is read returns somewhere, or not
  std::vector<Saved> scopes_;    // of the functions that are read: what their own names mean outside
  Output* output_ = nullptr;
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
