#include "advisor/shell/syntax.h"

#include <algorithm>

#include "advisor/shell/state.h"

namespace heddle::advisor::shell {

namespace {

class Parser {
 public:
  Parser(std::string_view text, State& state, int source, int line)
      : text_(text), state_(state), source_(source), line_(line) {}

  NodePointer whole() {
    NodePointer all = list({});
    while (at_ < text_.size()) {  // text that closes nothing
      ++at_;
      NodePointer more = list({});
      for (size_t i = 0; i < more->children.size(); ++i) {
        all->children.push_back(std::move(more->children[i]));
        all->before.push_back(more->before[i]);
      }
    }
    return all;
  }

 private:
  using Words = std::vector<std::string_view>;

  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool at_text(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  void move_to(size_t at) {
    state_.step(line_, at - std::min(at, at_));
    line_ += static_cast<int>(std::ranges::count(text_.substr(at_, at - std::min(at, at_)), '\n'));
    at_ = std::min(at, text_.size());
  }
  NodePointer node(Node::Kind kind) const {
    auto n = std::make_unique<Node>();
    n->kind = kind, n->line = line_, n->source = source_, n->begin = n->end = at_;
    return n;
  }

  void blanks() {
    for (;;) {
      if (is_blank(now())) {
        ++at_;
      } else if (at_text("\\\n")) {
        move_to(at_ + 2);
      } else if (at_text("\\\r\n")) {
        move_to(at_ + 3);
      } else if (now() == '#' && (at_ == 0 || is_blank(text_[at_ - 1]) || text_[at_ - 1] == '\n' ||
                                  text_[at_ - 1] == ';' || text_[at_ - 1] == '(' || text_[at_ - 1] == ')')) {
        while (at_ < text_.size() && now() != '\n') ++at_;
      } else {
        return;
      }
    }
  }
  void end_of_line() {
    move_to(at_ + 1);
    for (Pending& each : pending_) {
      Heredoc& heredoc = each.of->heredocs[each.index];
      heredoc.line = line_;
      move_to(behind_heredoc(text_, at_, each.mark, each.tabs, &heredoc.body));
      if (at_ < text_.size()) move_to(at_ + 1);
    }
    pending_.clear();
  }
  void lines() {
    for (blanks(); now() == '\n' && at_ < text_.size(); blanks()) end_of_line();
  }

  // A reserved word at this place, as a whole word.
  bool at_word(std::string_view word) const {
    if (!at_text(word)) return false;
    const size_t end = at_ + word.size();
    return end >= text_.size() || is_blank(text_[end]) ||
           std::string_view("\n;&|()<>").find(text_[end]) != std::string_view::npos;
  }
  bool takes_word(std::string_view word) {
    if (!at_word(word)) return false;
    at_ += word.size();
    return true;
  }
  bool at_any(const Words& words) const {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view w) { return w[0] == ')' || w[0] == ';' ? at_text(w) : at_word(w); });
  }

  [[noreturn]] void open_end(int line, const std::string& what) const { state_.fail(line, what); }

  // Returns the place behind one word; the same place where there is none.
  size_t behind_word(size_t at) const {
    while (at < text_.size()) {
      const char c = text_[at];
      if (is_blank(c) || std::string_view("\n;&|<>()").find(c) != std::string_view::npos) break;
      size_t end = at + 1;
      if (c == '\\') {
        if (text_.substr(at).starts_with("\\\n") || text_.substr(at).starts_with("\\\r\n")) break;
        end = at + 2;
      } else if (c == '\'' || c == '"' || c == '`') {
        end = behind_quote(text_, at + 1, c);
        if (end == std::string_view::npos) open_end(line_at(at), "a quote is opened and never closed");
      } else if (c == '$' && at + 1 < text_.size() && (text_[at + 1] == '(' || text_[at + 1] == '{')) {
        const char open = text_[at + 1];
        end = behind_close(text_, at + 2, open, open == '(' ? ')' : '}');
        if (end == std::string_view::npos) open_end(line_at(at), std::string("'") + open + "' is never closed");
      }
      at = std::min(end, text_.size());
    }
    return at;
  }
  int line_at(size_t at) const {
    return line_ + static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                               text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  }
  Word word() {
    Word w{{}, line_};
    const size_t first = at_, end = behind_word(at_);
    w.text = text_.substr(first, end - first);
    move_to(end);
    return w;
  }

  NodePointer list(const Words& until) {
    const Deeper deeper(state_, line_);
    NodePointer all = node(Node::Kind::list);
    char before = ';';
    for (;;) {
      lines();
      if (at_ >= text_.size() || at_any(until)) break;
      const size_t begin = at_;
      NodePointer one = pipeline();
      if (one) {
        all->children.push_back(std::move(one));
        all->before.push_back(before);
      }
      blanks();
      before = ';';
      if (at_text("&&") || at_text("||")) {
        before = now();
        at_ += 2;
      } else if (now() == '\n' && at_ < text_.size()) {
        end_of_line();
      } else if (at_any(until)) {
        break;
      } else if (now() == ';' || now() == '&') {
        ++at_;
      } else if (at_ == begin) {  // ')' or a reserved word that closes nothing here
        if (until.empty()) break;
        move_to(at_ + 1);
      }
    }
    return all;
  }

  NodePointer pipeline() {
    bool negated = false;
    for (blanks(); takes_word("!"); blanks()) negated = !negated;
    if (takes_word("time")) blanks();
    NodePointer first = command();
    blanks();
    if (!first || now() != '|' || at_text("||")) {
      if (first) first->negated = first->negated != negated;
      return first;
    }
    NodePointer all = node(Node::Kind::pipeline);
    all->line = first->line, all->negated = negated;
    all->children.push_back(std::move(first));
    while (now() == '|' && !at_text("||")) {
      at_ += at_text("|&") ? 2 : 1;
      lines();
      NodePointer next = command();
      if (!next) break;
      all->children.push_back(std::move(next));
      blanks();
    }
    return all;
  }

  void expect(std::string_view word, const NodePointer& opened) {
    lines();
    if (!takes_word(word) && at_ >= text_.size())
      state_.note(opened->line, "a branch or loop that is never closed");
  }

  NodePointer command() {
    static const std::array<std::string_view, 8> closers{"then", "do", "done", "fi", "else", "elif", "esac", "}"};
    for (const std::string_view closer : closers)
      if (takes_word(closer)) return nullptr;  // where nothing is open
    NodePointer n = compound();
    if (!n) return simple();
    redirections(*n);
    return n;
  }

  NodePointer compound() {
    NodePointer n = node(Node::Kind::list);
    if (at_text("((")) {
      // As in a shell, "((" that doesn't close as "))" is two subshells.
      const size_t end = behind_close(text_, at_ + 2, '(', ')');
      if (end != std::string_view::npos && end < text_.size() && text_[end] == ')') {
        n->kind = Node::Kind::arithmetic;
        n->text = text_.substr(at_ + 2, end - 3 - at_);
        move_to(end + 1);
        return n;
      }
    }
    if (now() == '(') {
      ++at_;
      n = list({")"});
      n->subshell = true;
      if (at_ >= text_.size()) open_end(n->line, "'(' is never closed");
      ++at_;
      return n;
    }
    if (takes_word("{")) {
      n = list({"}"});
      expect("}", n);
      return n;
    }
    if (takes_word("[[")) {
      const size_t first = at_;
      while (at_ < text_.size()) {
        blanks_and_lines();
        if (at_word("]]")) break;
        const size_t end = behind_word(at_);
        move_to(end > at_ ? end : at_ + 1);
      }
      n->kind = Node::Kind::test;
      n->text = text_.substr(first, at_ - first);
      takes_word("]]");
      return n;
    }
    if (takes_word("if")) {
      n->kind = Node::Kind::branch;
      n->children.push_back(list({"then"}));
      expect("then", n);
      for (;;) {
        n->children.push_back(list({"elif", "else", "fi"}));
        if (takes_word("elif")) {
          n->children.push_back(list({"then"}));
          expect("then", n);
        } else if (takes_word("else")) {
          n->children.push_back(list({"fi"}));
          break;
        } else {
          break;
        }
      }
      expect("fi", n);
      return n;
    }
    if (at_word("while") || at_word("until")) {
      n->kind = Node::Kind::loop;
      n->negated = at_word("until");
      at_ += 5;
      n->children.push_back(list({"do"}));
      expect("do", n);
      n->children.push_back(list({"done"}));
      expect("done", n);
      // `negated` of a loop is its condition's.
      return n;
    }
    if (at_word("for") || at_word("select")) return each(std::move(n));
    if (takes_word("case")) return choose(std::move(n));
    if (takes_word("function")) {
      blanks();
      return function(std::move(n), std::string(word().text));
    }
    size_t end = at_;
    while (end < text_.size() && (is_name(text_[end]) || text_[end] == '-')) ++end;
    if (end > at_ && starts_name(now())) {
      size_t after = end;
      while (after < text_.size() && is_blank(text_[after])) ++after;
      if (text_.substr(after).starts_with("(")) {
        size_t close = after + 1;
        while (close < text_.size() && is_blank(text_[close])) ++close;
        if (close < text_.size() && text_[close] == ')') {
          const std::string name(text_.substr(at_, end - at_));
          move_to(close + 1);
          return function(std::move(n), name);
        }
      }
    }
    return nullptr;
  }

  void blanks_and_lines() {
    for (blanks(); now() == '\n' && at_ < text_.size(); blanks()) move_to(at_ + 1);
  }

  NodePointer function(NodePointer n, std::string name) {
    n->kind = Node::Kind::function;
    n->name = std::move(name);
    blanks();
    if (at_text("()")) at_ += 2;
    lines();
    NodePointer body = compound();
    if (body) {
      redirections(*body);
      n->children.push_back(std::move(body));
    }
    return n;
  }

  NodePointer each(NodePointer n) {
    n->kind = Node::Kind::each;
    at_ += at_word("for") ? 3 : 6;
    blanks();
    if (at_text("((")) {
      const size_t end = behind_close(text_, at_ + 2, '(', ')');
      if (end == std::string_view::npos) open_end(n->line, "'(' is never closed");
      n->text = text_.substr(at_ + 2, end - 3 - at_);
      move_to(end < text_.size() && text_[end] == ')' ? end + 1 : end);
    } else {
      n->name = std::string(word().text);
      lines();
      n->over_arguments = !takes_word("in");
      while (!n->over_arguments) {
        blanks();
        const Word w = word();
        if (w.text.empty()) break;
        n->words.push_back(w);
      }
    }
    blanks();
    if (now() == ';') ++at_;
    lines();
    const char* close = at_word("{") ? "}" : "done";
    if (!takes_word("{")) expect("do", n);
    n->children.push_back(list({close}));
    expect(close, n);
    return n;
  }

  NodePointer choose(NodePointer n) {
    n->kind = Node::Kind::choose;
    blanks();
    n->words.push_back(word());
    lines();
    takes_word("in");
    for (;;) {
      lines();
      if (at_ >= text_.size() || at_word("esac")) break;
      if (now() == '(') ++at_;
      Arm arm;
      for (;;) {
        blanks();
        const Word w = word();
        if (!w.text.empty()) arm.patterns.push_back(w);
        blanks();
        if (now() != '|') break;
        ++at_;
      }
      if (now() == ')') {
        ++at_;
      } else if (arm.patterns.empty()) {
        move_to(at_ + 1);
        continue;
      }
      arm.body = list({";;", ";&", "esac"});
      arm.falls = at_text(";&"), arm.tests_on = at_text(";;&");
      if (at_text(";;") || arm.falls) at_ += arm.tests_on ? 3 : 2;
      n->arms.push_back(std::move(arm));
    }
    expect("esac", n);
    return n;
  }

  // Passes over a redirection that stands here; here-documents are kept. False where there is none.
  bool redirection(Node& n) {
    size_t at = at_;
    while (at < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at])) != 0) ++at;
    const std::string_view rest = text_.substr(at);
    if (!rest.starts_with("<") && !rest.starts_with(">") && !(at == at_ && rest.starts_with("&>"))) return false;
    if (rest.starts_with("<(") || rest.starts_with(">(")) {
      const size_t end = behind_close(text_, at + 2, '(', ')');
      if (end == std::string_view::npos) open_end(line_, "'(' is never closed");
      move_to(end);
      return true;
    }
    const bool string = rest.starts_with("<<<"), heredoc = rest.starts_with("<<") && !string;
    at_ = at;
    while (now() == '<' || now() == '>' || now() == '&') ++at_;
    const bool tabs = heredoc && now() == '-';
    if (tabs) ++at_;
    if (now() == '|' && !heredoc) ++at_;  // >|
    blanks();
    const Word target = word();
    if (!heredoc) {
      if (target.text.empty() && (at_text("<(") || at_text(">("))) return redirection(n);
      if (string) n.heredocs.push_back({target.text, true, target.line, true});
      return true;
    }
    bool quoted = false;
    const std::string mark = heredoc_mark(target.text, quoted);
    n.heredocs.push_back({{}, !quoted, line_, false});
    pending_.push_back({&n, n.heredocs.size() - 1, mark, tabs});
    return true;
  }
  void redirections(Node& n) {
    for (blanks(); redirection(n); blanks()) {
    }
  }

  // NAME=, NAME+= or NAME[…]= at this place.
  bool assignment(Node& n) {
    if (!starts_name(now())) return false;
    size_t at = at_;
    while (at < text_.size() && is_name(text_[at])) ++at;
    Assignment a;
    a.name = text_.substr(at_, at - at_);
    if (at < text_.size() && text_[at] == '[') {
      const std::string_view line = text_.substr(0, text_.find('\n', at));
      const size_t end = behind_close(line, at + 1, '[', ']');
      if (end == std::string_view::npos || end == at + 2) return false;
      a.index = text_.substr(at + 1, end - at - 2);
      at = end;
    }
    a.adds = text_.substr(at).starts_with("+=");
    if (!a.adds && !text_.substr(at).starts_with("=")) return false;
    move_to(at + (a.adds ? 2 : 1));
    a.begin = at_;
    a.list = now() == '(';
    a.value.line = line_;
    if (!a.list) {
      a.value = word();
      a.end = at_;
      n.assignments.push_back(std::move(a));
      return true;
    }
    const int line = line_;
    ++at_;
    for (;;) {
      blanks_and_lines();
      if (at_ >= text_.size()) open_end(line, "'(' is never closed");
      if (now() == ')') break;
      const Word w = word();
      if (w.text.empty()) {
        move_to(at_ + 1);
      } else {
        a.items.push_back(w);
      }
    }
    ++at_;
    a.end = at_;
    n.assignments.push_back(std::move(a));
    return true;
  }

  NodePointer simple() {
    NodePointer n = node(Node::Kind::command);
    const auto declares = [&] {
      static const std::array<std::string_view, 5> words{"export", "declare", "local", "readonly", "typeset"};
      return !n->words.empty() && std::find(words.begin(), words.end(), n->words.front().text) != words.end();
    };
    for (;;) {
      blanks();
      if (at_ >= text_.size() || std::string_view("\n;&|()").find(now()) != std::string_view::npos) {
        if (!at_text("&>")) break;
      }
      if (redirection(*n)) continue;
      if ((n->words.empty() || declares()) && assignment(*n)) continue;
      const Word w = word();
      if (w.text.empty()) break;
      if (n->words.empty()) n->begin = static_cast<size_t>(w.text.data() - text_.data()), n->line = w.line;
      n->words.push_back(w);
      n->end = at_;
    }
    if (now() == '(' && !n->words.empty()) move_to(at_ + 1);  // no shell would take it
    if (n->words.empty() && n->assignments.empty() && n->heredocs.empty()) return nullptr;
    return n;
  }

  struct Pending {
    Node* of;
    size_t index;
    std::string mark;
    bool tabs;
  };
  std::string_view text_;
  State& state_;
  int source_ = 0;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Pending> pending_;
};

}  // namespace

NodePointer parse(std::string_view text, State& state, int source, int first_line) {
  return Parser(text, state, source, first_line).whole();
}

}  // namespace heddle::advisor::shell
