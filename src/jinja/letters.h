// Texts by letters, as Python counts and changes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::jinja {

/// Letters of a text by their place: Python counts these, not bytes.
class Letters {
 public:
  explicit Letters(std::string_view text);
  int64_t count() const { return count_; }
  /// Letters [begin, end).
  std::string_view part(int64_t begin, int64_t end) const;

 private:
  std::string_view text_;
  int64_t count_;
  std::vector<uint32_t> begins_;  // of each letter; empty where all are bytes
};

/// Python's white space.
bool is_space(uint32_t code);
bool is_letter(uint32_t code);
/// One character at a time: ß stays what it is.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
/// The text without white space, or without these letters, at its ends.
std::string_view stripped(std::string_view text, const std::string* letters = nullptr, bool left = true,
                          bool right = true);

class Machine;
/// The first `most` places where `from` stands, all if below 0.
std::string replaced(Machine& machine, const std::string& text, const std::string& from, const std::string& to,
                     int64_t most);

}  // namespace heddle::jinja
