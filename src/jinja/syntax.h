// A template as a tree, and how a text becomes one. Tags are found with Jinja's control of white space (trim_blocks
// and lstrip_blocks on, as published templates are rendered). Then come statements and expressions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace heddle::jinja {

struct Token {
  enum class Kind : uint8_t {
    data,
    begin_print,
    end_print,
    begin_block,
    end_block,
    name,
    text,
    integer,
    real,
    sign
  };
  Kind kind = Kind::data;
  std::string text;
  int line = 1;
};

struct Expression;
using Node = std::unique_ptr<Expression>;

struct Argument {
  enum class Spread : uint8_t { none, items, entries };  // * before a list, ** before a mapping
  std::string name;                                      // empty: by its place
  Node value;
  Spread spread = Spread::none;
};

struct Expression {
  enum class Kind : uint8_t {
    constant,
    name,
    list,
    tuple,
    map,
    attribute,
    item,
    slice,
    call,
    filter,
    test,
    negate,
    plus,
    not_,
    and_,
    or_,
    compare,
    arithmetic,
    concat,
    choice
  };
  Kind kind = Kind::constant;
  int line = 1;
  std::string word;                // a name, an attribute, an operator, a filter, a test
  Value value;                     // a constant
  std::vector<Node> parts;         // operands; null where a slice or a choice leaves one out
  std::vector<std::string> words;  // the operators of a chain of comparisons
  std::vector<Argument> arguments;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct Statement {
  enum class Kind : uint8_t { data, print, if_, for_, set, set_block, macro, call, generation, break_, continue_ };
  Kind kind = Kind::data;
  int line = 1;
  std::string text;            // of data; a macro's name
  Node expression, condition;  // printed, assigned, looped over, called; of a loop: which items
  Node target;                 // a name, a tuple of names, an attribute of a namespace
  std::vector<Argument> parameters;
  std::vector<std::pair<Node, Body>> branches;  // of an if; a null condition is else
  Body body, otherwise;
};

/// ConfigError "place:line: …" for what is no template of the subset.
std::vector<Token> tokens_of(std::string_view text, const std::string& place);
Body parse(std::string_view text, const std::string& place);

inline constexpr size_t kMostTemplateBytes = 1 << 20;
inline constexpr int kMostNesting = 100;  // of expressions and statements

}  // namespace heddle::jinja
