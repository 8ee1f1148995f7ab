// Plain text: paragraphs, drawings, tables and code told apart by how they look.
#include "heddle/data/corpus/markup/formats.h"

namespace heddle::data::markup {

namespace {

// Whether wrapped lines are running text, not a drawing, a table or code.
bool reads_as_prose(std::string_view block) {
  size_t words = 0, gaps = 0;
  const std::vector<std::string_view> lines = lines_of(block);
  for (auto line : lines) {
    line = trimmed(line);
    for (const char c : line) words += is_letter(c) || c == ' ' || c == ',' || c == '.';
    for (size_t at = line.find("   "); at != std::string_view::npos; at = line.find("   ", at + 3)) ++gaps;
  }
  return words * 4 >= block.size() * 3 && gaps * 3 < lines.size();
}

}  // namespace

void read_plain(std::string_view document, Text& text) {
  for_each_block(document, [&](std::string_view block) {
    const bool ruler = !has_letter(block) && block.size() > 8;
    if (ruler) return;
    reads_as_prose(block) ? text.prose(block) : text.verbatim(block);
  });
}

}  // namespace heddle::data::markup
