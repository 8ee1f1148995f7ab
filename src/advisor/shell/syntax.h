// A script as a tree of commands. Words stay the text that they are: they are expanded when their command is read,
// for by then its variables are known.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "advisor/shell/ends.h"

namespace heddle::advisor::shell {

class State;

struct Word {
  std::string_view text;
  int line = 0;
};

struct Assignment {
  std::string name;
  std::string_view index;  // NAME[index]=
  bool adds = false;       // +=
  bool list = false;       // (…)
  Word value;
  std::vector<Word> items;
  size_t begin = 0, end = 0;  // the value's place, in its text
};

struct Heredoc {
  std::string_view body;
  bool expands = true;
  int line = 0;
  bool is_string = false;  // <<<: `body` is a word
};

struct Node;
using NodePointer = std::unique_ptr<Node>;

struct Arm {  // an arm of a case
  std::vector<Word> patterns;
  NodePointer body;
  bool falls = false, tests_on = false;  // ;& and ;;& at its end
};

struct Node {
  enum class Kind : uint8_t { command, list, pipeline, branch, choose, each, loop, function, arithmetic, test };
  Kind kind = Kind::list;
  int line = 0;
  int source = 0;             // which text it stands in: 0 is the script itself
  size_t begin = 0, end = 0;  // a command's first word, and behind its last one
  bool negated = false;
  bool subshell = false;  // list: ( … )

  // command: VAR=… before its words, or behind export and the like
  std::vector<Assignment> assignments;
  std::vector<Word> words;
  std::vector<Heredoc> heredocs;
  // list: children, each with what stands before it (';', '&' of &&, '|' of ||); pipeline: children
  std::vector<NodePointer> children;
  std::vector<char> before;
  // branch: children are condition, body, condition, body, …, and an else at last
  // choose: of words[0]
  std::vector<Arm> arms;
  // each: name in words, body; loop: condition and body in children, until: negated; function: name, body
  std::string name;
  bool over_arguments = false;  // for NAME without "in"
  // arithmetic: ((text)), also for ((a; b; c)) with body; test: [[text]]
  std::string_view text;
};

/// ConfigError naming the line: an open quote or bracket, nested too deeply.
NodePointer parse(std::string_view text, State& state, int source, int first_line);

}  // namespace heddle::advisor::shell
