// Tokens to the tree: statements and expressions with Jinja's precedence.
#include <algorithm>
#include <charconv>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/real_text.h"
#include "jinja/token_reader.h"

namespace heddle::jinja {

namespace {

using TokenKind = Expression::Kind;

class Parser : TokenReader {
 public:
  using TokenReader::TokenReader;

  Body all() {
    std::string end;
    Body body = statements({}, end);
    return body;
  }

 private:
  struct Deeper {
    explicit Deeper(Parser& p) : parser(p) {
      if (++parser.depth_ > kMostNesting) parser.fail(fmt::format("nested more than {} deep", kMostNesting));
    }
    ~Deeper() { --parser.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    Parser& parser;
  };

  // ---- statements

  // The body up to a block whose word is one of `ends`, which is taken and returned.
  Body statements(const std::vector<std::string_view>& ends, std::string& end) {
    const Deeper deeper(*this);
    const int begin = line();
    Body body;
    while (peek() != nullptr) {
      auto statement = std::make_unique<Statement>();
      statement->line = line();
      if (is(Token::Kind::data)) {
        statement->text = tokens_[at_++].text;
      } else if (is(Token::Kind::begin_print)) {
        ++at_;
        statement->kind = Statement::Kind::print;
        statement->expression = tuple();
        want(Token::Kind::end_print, "}}");
      } else {
        want(Token::Kind::begin_block, "a tag");
        const std::string word = want_name("a statement");
        if (std::find(ends.begin(), ends.end(), word) != ends.end()) {
          end = word;
          return body;
        }
        block(word, *statement);
      }
      body.push_back(std::move(statement));
    }
    if (!ends.empty()) config_error("{}:{}: has no end, {{% {} %}} is expected", place_, begin, ends.back());
    return body;
  }

  Body until(std::string_view word) {
    std::string end;
    Body body = statements({word}, end);
    end_block();
    return body;
  }

  void block(const std::string& word, Statement& s) {
    if (word == "if") return if_block(s);
    if (word == "for") return for_block(s);
    if (word == "set") return set_block(s);
    if (word == "macro") return macro_block(s);
    if (word == "call") return call_block(s);
    if (word == "generation") {
      s.kind = Statement::Kind::generation;
      end_block();
      s.body = until("endgeneration");
      return;
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail(fmt::format("{} outside of a loop", word));
      s.kind = word == "break" ? Statement::Kind::break_ : Statement::Kind::continue_;
      return end_block();
    }
    fail(fmt::format(
        "no statement '{}'; accepted are if, for, set, macro, call, generation, break, continue, raw{}",
        escaped(word, 40),
        did_you_mean(word, {"if", "for", "set", "macro", "call", "generation", "break", "continue", "raw", "elif",
                            "else", "endif", "endfor", "endset", "endmacro", "endcall"})));
  }

  void if_block(Statement& s) {
    s.kind = Statement::Kind::if_;
    Node condition = expression();
    for (std::string end;;) {
      end_block();
      Body body = end == "else" ? statements({"endif"}, end) : statements({"elif", "else", "endif"}, end);
      s.branches.emplace_back(std::move(condition), std::move(body));
      if (end == "endif") return end_block();
      condition = end == "elif" ? expression() : nullptr;
    }
  }

  void for_block(Statement& s) {
    s.kind = Statement::Kind::for_;
    s.target = target();
    if (!take_word("in")) fail(fmt::format("found {}, expected 'in'", found()));
    s.expression = tuple(false);
    if (take_word("if")) s.condition = expression();
    if (is_word("recursive")) fail("recursive loops are not accepted");
    end_block();
    std::string end;
    ++loops_;
    s.body = statements({"else", "endfor"}, end);
    --loops_;
    end_block();
    if (end == "else") s.otherwise = until("endfor");
  }

  void set_block(Statement& s) {
    s.target = target();
    if (take_sign("=")) {
      s.kind = Statement::Kind::set;
      s.expression = tuple();
      return end_block();
    }
    s.kind = Statement::Kind::set_block;
    if (is_sign("|")) {  // the filters that what stands in the block goes through
      auto inner = node(TokenKind::name);
      inner->word = kBlock;
      s.expression = filters(std::move(inner));
    }
    end_block();
    s.body = until("endset");
  }

  void macro_block(Statement& s) {
    s.kind = Statement::Kind::macro;
    s.text = want_name("a macro's name");
    s.parameters = parameters();
    end_block();
    body_of_its_own(s, "endmacro");
  }

  // {% call name(…) %} or {% call(parameters) name(…) %}: the macro gets the body as `caller`.
  void call_block(Statement& s) {
    s.kind = Statement::Kind::call;
    s.text = "caller";
    if (is_sign("(")) s.parameters = parameters();
    s.expression = expression();
    if (s.expression->kind != TokenKind::call) fail("call: a call of a macro is expected");
    end_block();
    body_of_its_own(s, "endcall");
  }

  std::vector<Argument> parameters() {
    std::vector<Argument> all;
    want_sign("(");
    while (!take_sign(")")) {
      Argument& parameter = all.emplace_back();
      parameter.name = want_name("a parameter");
      if (take_sign("=")) parameter.value = expression();
      if (!is_sign(")")) want_sign(",");
    }
    return all;
  }

  // No loop around it may be left from within.
  void body_of_its_own(Statement& s, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    s.body = until(end);
    loops_ = loops;
  }

  // The target of an assignment: names, or an attribute of a namespace.
  Node target() {
    std::vector<Node> names;
    bool tuple = false;
    const bool closed = take_sign("(");
    do {
      if (tuple && !is(Token::Kind::name)) break;
      Node name = node(TokenKind::name);
      name->word = want_name("a name");
      if (names.empty() && !closed && take_sign(".")) {
        Node attribute = node(TokenKind::attribute);
        attribute->word = want_name("an attribute");
        attribute->parts.push_back(std::move(name));
        return attribute;
      }
      names.push_back(std::move(name));
      tuple = tuple || is_sign(",");
    } while (take_sign(","));
    if (closed) want_sign(")");
    if (!tuple) return std::move(names[0]);
    Node all = node(TokenKind::tuple);
    all->parts = std::move(names);
    return all;
  }

  // ---- expressions

  Node node(TokenKind kind) const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = line();
    return made;
  }
  Node joined(TokenKind kind, std::string word, Node left, Node right) const {
    Node made = node(kind);
    made->word = std::move(word);
    made->parts.push_back(std::move(left));
    if (right != nullptr) made->parts.push_back(std::move(right));
    return made;
  }

  Node tuple(bool conditional = true) {
    const auto one = [&] { return conditional ? expression() : or_expression(); };
    Node first = one();
    if (!is_sign(",")) return first;
    Node all = node(TokenKind::tuple);
    all->parts.push_back(std::move(first));
    while (take_sign(",")) {
      if (is(Token::Kind::end_print) || is(Token::Kind::end_block) || is_sign(")")) break;
      all->parts.push_back(one());
    }
    return all;
  }

  Node expression() {
    const Deeper deeper(*this);
    Node value = or_expression();
    while (take_word("if")) {
      Node choice = node(TokenKind::choice);
      Node condition = or_expression();
      choice->parts.push_back(std::move(condition));
      choice->parts.push_back(std::move(value));
      choice->parts.push_back(take_word("else") ? expression() : nullptr);
      value = std::move(choice);
    }
    return value;
  }

  // Chains of operators make trees as deep as they are long; so many are enough.
  void chained(int& count) const {
    if (++count > kMostNesting) fail(fmt::format("more than {} operators in a row", kMostNesting));
  }

  Node or_expression() {
    Node left = and_expression();
    for (int n = 0; take_word("or"); chained(n))
      left = joined(TokenKind::or_, "", std::move(left), and_expression());
    return left;
  }
  Node and_expression() {
    Node left = not_expression();
    for (int n = 0; take_word("and"); chained(n))
      left = joined(TokenKind::and_, "", std::move(left), not_expression());
    return left;
  }
  Node not_expression() {
    const Deeper deeper(*this);
    if (take_word("not")) return joined(TokenKind::not_, "", not_expression(), nullptr);
    return comparison();
  }
  Node comparison() {
    Node left = sum();
    Node all;
    while (true) {
      std::string word;
      if (is(Token::Kind::sign)) {
        for (const std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"}) {
          if (word.empty() && take_sign(sign)) word = sign;
        }
      } else if (take_word("in")) {
        word = "in";
      } else if (is_word("not") && peek(1) != nullptr && peek(1)->text == "in" &&
                 peek(1)->kind == Token::Kind::name) {
        at_ += 2;
        word = "not in";
      }
      if (word.empty()) return all != nullptr ? std::move(all) : std::move(left);
      if (all == nullptr) {
        all = node(TokenKind::compare);
        all->parts.push_back(std::move(left));
      }
      all->words.push_back(word);
      all->parts.push_back(sum());
    }
  }
  Node sum() {
    Node left = concatenation();
    for (int n = 0; is_sign("+") || is_sign("-"); chained(n)) {
      const std::string word = tokens_[at_++].text;
      left = joined(TokenKind::arithmetic, word, std::move(left), concatenation());
    }
    return left;
  }
  Node concatenation() {
    Node first = product();
    if (!is_sign("~")) return first;
    Node all = node(TokenKind::concat);
    all->parts.push_back(std::move(first));
    while (take_sign("~")) all->parts.push_back(product());
    return all;
  }
  Node product() {
    Node left = power();
    for (int n = 0; is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%"); chained(n)) {
      const std::string word = tokens_[at_++].text;
      left = joined(TokenKind::arithmetic, word, std::move(left), power());
    }
    return left;
  }
  Node power() {
    Node left = unary(true);
    for (int n = 0; take_sign("**"); chained(n))
      left = joined(TokenKind::arithmetic, "**", std::move(left), unary(true));
    return left;
  }
  Node unary(bool with_filters) {
    const Deeper deeper(*this);
    Node value;
    if (take_sign("-")) {
      value = joined(TokenKind::negate, "", unary(false), nullptr);
    } else if (take_sign("+")) {
      value = joined(TokenKind::plus, "", unary(false), nullptr);
    } else {
      value = primary();
    }
    value = postfix(std::move(value));
    return with_filters ? filters(std::move(value)) : std::move(value);
  }

  Node primary() {
    if (peek() == nullptr) fail("found the end, expected an expression");
    const Token& token = *peek();
    Node made = node(TokenKind::constant);
    switch (token.kind) {
      case Token::Kind::name:
        ++at_;
        if (token.text == "true" || token.text == "True") {
          made->value = true;
        } else if (token.text == "false" || token.text == "False") {
          made->value = false;
        } else if (token.text == "none" || token.text == "None") {
          made->value = None();
        } else {
          made->kind = TokenKind::name;
          made->word = token.text;
        }
        return made;
      case Token::Kind::text: {
        std::string all;
        while (is(Token::Kind::text)) all += tokens_[at_++].text;
        made->value = Value(std::move(all));
        return made;
      }
      case Token::Kind::integer:
      case Token::Kind::real: made->value = number(token); return made;
      default: break;
    }
    if (take_sign("(")) return parenthesis();
    if (take_sign("[")) return list();
    if (take_sign("{")) return map();
    fail(fmt::format("found {}, expected an expression", found()));
  }
  Value number(const Token& token) {
    ++at_;
    const char *first = token.text.data(), *last = first + token.text.size();
    int64_t whole = 0;
    double real = 0;
    if (token.kind == Token::Kind::integer && std::from_chars(first, last, whole).ec == std::errc()) return whole;
    if (token.kind == Token::Kind::integer || read_real(first, last, real).ec != std::errc())
      fail(fmt::format("the number {} is too large", escaped(token.text, 40)));
    return real;
  }
  Node parenthesis() {
    if (take_sign(")")) return node(TokenKind::tuple);
    Node inner = tuple();
    want_sign(")");
    return inner;
  }
  Node list() {
    Node all = node(TokenKind::list);
    while (!take_sign("]")) {
      all->parts.push_back(expression());
      if (!is_sign("]")) want_sign(",");
    }
    return all;
  }
  Node map() {
    Node all = node(TokenKind::map);
    while (!take_sign("}")) {
      all->parts.push_back(expression());
      want_sign(":");
      all->parts.push_back(expression());
      if (!is_sign("}")) want_sign(",");
    }
    return all;
  }

  Node postfix(Node value) {
    for (int n = 0;; chained(n)) {
      if (take_sign(".")) {
        Node made = node(TokenKind::attribute);
        if (is(Token::Kind::integer)) {
          made->kind = TokenKind::item;
          made->parts.push_back(std::move(value));
          made->parts.push_back(primary());
        } else {
          made->word = want_name("an attribute");
          made->parts.push_back(std::move(value));
        }
        value = std::move(made);
      } else if (take_sign("[")) {
        value = subscript(std::move(value));
      } else if (is_sign("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }
  Node subscript(Node value) {
    Node made = node(TokenKind::item);
    made->parts.push_back(std::move(value));
    const auto bound = [&] { made->parts.push_back(is_sign(":") || is_sign("]") ? nullptr : expression()); };
    bound();
    if (is_sign(":")) {
      made->kind = TokenKind::slice;
      for (int i = 0; i < 2 && take_sign(":"); ++i) bound();
      while (made->parts.size() < 4) made->parts.push_back(nullptr);
    } else if (made->parts[1] == nullptr) {
      fail("found ']', expected an index");
    }
    want_sign("]");
    return made;
  }
  Node call(Node callee) {
    Node made = node(TokenKind::call);
    made->parts.push_back(std::move(callee));
    made->arguments = arguments();
    return made;
  }
  std::vector<Argument> arguments() {
    std::vector<Argument> all;
    want_sign("(");
    while (!take_sign(")")) {
      Argument& argument = all.emplace_back();
      if (take_sign("*")) {
        argument.spread = Argument::Spread::items;
      } else if (take_sign("**")) {
        argument.spread = Argument::Spread::entries;
      } else if (is(Token::Kind::name) && peek(1) != nullptr && peek(1)->kind == Token::Kind::sign &&
                 peek(1)->text == "=") {
        argument.name = peek()->text;
        at_ += 2;
      } else if (all.size() > 1 && !all[all.size() - 2].name.empty()) {
        fail("an argument without a name behind one with it");
      }
      argument.value = expression();
      if (!is_sign(")")) want_sign(",");
    }
    return all;
  }

  // | filter, is test, and calls of what they give.
  Node filters(Node value) {
    for (int n = 0;; chained(n)) {
      if (take_sign("|")) {
        Node made = node(TokenKind::filter);
        made->word = want_name("a filter");
        made->parts.push_back(std::move(value));
        if (is_sign("(")) made->arguments = arguments();
        value = std::move(made);
      } else if (take_word("is")) {
        value = test(std::move(value));
      } else if (is_sign("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }
  Node test(Node value) {
    const bool negated = take_word("not");
    Node made = node(TokenKind::test);
    made->word = want_name("a test");
    made->parts.push_back(std::move(value));
    if (is_sign("(")) {
      made->arguments = arguments();
    } else if (is(Token::Kind::text) || is(Token::Kind::integer) || is(Token::Kind::real) || is_sign("[") ||
               is_sign("{") ||
               (is(Token::Kind::name) && !is_word("else") && !is_word("or") && !is_word("and") && !is_word("is") &&
                !is_word("if") && !is_word("in") && !is_word("not"))) {
      made->arguments.push_back({"", postfix(primary())});
    }
    return negated ? joined(TokenKind::not_, "", std::move(made), nullptr) : std::move(made);
  }

  static constexpr const char* kBlock = "<block>";  // no name is written so
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Body parse(std::string_view text, const std::string& place) { return Parser(tokens_of(text, place), place).all(); }

}  // namespace heddle::jinja
