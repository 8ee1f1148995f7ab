// What the readers of the formats have in common: the lines and blocks of a document, and the plain text that is
// made of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/text.h"

namespace heddle::data::markup {

bool is_space(char c);
bool is_letter(char c);
bool is_word(char c);
bool has_letter(std::string_view text);

/// Without their ends, be these LF or CR LF.
std::vector<std::string_view> lines_of(std::string_view text);
size_t indent_of(std::string_view line);

/// Blocks between blank lines.
template <class Use>
void for_each_block(std::string_view document, Use&& use) {
  std::string block;
  for (const std::string_view line : lines_of(document)) {
    if (!trimmed(line).empty()) {
      block += line;
      block += '\n';
      continue;
    }
    if (!block.empty()) use(std::string_view(block));
    block.clear();
  }
  if (!block.empty()) use(std::string_view(block));
}

/// Plain text, block after block, with an empty line between two.
class Text {
 public:
  /// Adds a paragraph with its white space collapsed. A word broken after its hyphen at a line's end is joined.
  void prose(std::string_view text);
  /// Adds lines as they are, less their common indentation and what trails.
  void verbatim(std::string_view text);
  std::string take() { return std::move(out_); }

 private:
  void begin_block() {
    if (!out_.empty()) out_ += '\n';
  }
  std::string out_;
};

}  // namespace heddle::data::markup
