// Entries of a dictionary: a paragraph each, a headword that stands alone with what follows it.
#include "heddle/data/corpus/dictionary_markup.h"
#include "heddle/data/corpus/markup/formats.h"

namespace heddle::data::markup {

void read_dictionary(std::string_view document, Text& text) {
  std::string headword;  // that stands alone in its block and begins the next one
  bool passed_over = false;
  for_each_block(document, [&](std::string_view block) {
    if (!is_space(block[0])) {
      passed_over = is_about_dictionary(block);
      headword.clear();
    }
    if (passed_over) return;
    const std::string prose = dictionary_prose(block);
    const std::string_view inner = trimmed(prose);
    if (!has_letter(inner)) return;
    const bool alone = !is_space(block[0]) && inner.find('\n') == std::string_view::npos && inner.back() != '.';
    if (alone) {
      headword = std::string(inner) + ": ";
      return;
    }
    text.prose(headword + std::string(inner));
    headword.clear();
  });
}

}  // namespace heddle::data::markup
