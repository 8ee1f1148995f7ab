// The constants of an op: a few named numbers and words, kept sorted so that printing is stable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::ir {

class Attributes {
 public:
  using Item = std::variant<int64_t, double, std::string>;

  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Item>> items);

  Attributes& set(std::string name, Item item);
  bool has(std::string_view name) const;
  /// InternalError when the attribute is absent or of another type.
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;  // an integer is a number too
  const std::string& word(std::string_view name) const;
  int64_t integer_or(std::string_view name, int64_t otherwise) const;
  double number_or(std::string_view name, double otherwise) const;

  const std::vector<std::pair<std::string, Item>>& items() const { return items_; }
  bool operator==(const Attributes&) const = default;

 private:
  const Item* find(std::string_view name) const;
  std::vector<std::pair<std::string, Item>> items_;
};

}  // namespace heddle::ir
