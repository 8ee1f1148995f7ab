// HTML: blocks and preformatted text; scripts, styles and menus are left out.
#include <algorithm>
#include <cctype>

#include "heddle/data/corpus/markup/entities.h"
#include "heddle/data/corpus/markup/formats.h"

namespace heddle::data::markup {

void read_html(std::string_view document, Text& text) {
  std::string block, skipped;  // skipped: the element whose content goes, empty if none
  int skipped_depth = 0, preformatted = 0;
  const auto end_block = [&] {
    preformatted > 0 ? text.verbatim(block) : text.prose(block);
    block.clear();
  };
  for (size_t i = 0; i < document.size();) {
    const char c = document[i];
    if (c == '&') {
      const size_t end = document.find(';', i);
      if (end != std::string_view::npos && end - i <= 10) {
        if (skipped.empty()) append_entity(document.substr(i + 1, end - i - 1), block);
        i = end + 1;
        continue;
      }
    }
    if (c != '<') {
      if (skipped.empty()) block += c;
      ++i;
      continue;
    }
    if (document.substr(i, 4) == "<!--") {
      const size_t end = document.find("-->", i);
      i = end == std::string_view::npos ? document.size() : end + 3;
      continue;
    }
    const size_t end = document.find('>', i);
    if (end == std::string_view::npos) break;
    const std::string_view tag = document.substr(i + 1, end - i - 1);
    i = end + 1;
    const bool closing = !tag.empty() && tag[0] == '/', empty = !tag.empty() && tag.back() == '/';
    std::string name;
    for (const char t : tag.substr(closing ? 1 : 0)) {
      if (!is_word(t)) break;
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(t)));
    }
    if (!closing && !empty && is_one_of(name, {"script", "style"})) {  // their content is no markup
      const size_t close = document.find("</" + name, i);
      i = std::min(close, document.size());
      continue;
    }
    if (!skipped.empty()) {
      if (name == skipped && !empty) skipped_depth += closing ? -1 : 1;
      if (skipped_depth == 0) skipped.clear();
      continue;
    }
    const bool menu = name == "div" && (tag.find("\"nav") != std::string_view::npos ||
                                        tag.find("\"toc\"") != std::string_view::npos);
    if (!closing && !empty && (menu || is_one_of(name, {"head", "nav", "svg"}))) {
      end_block();
      skipped = name;
      skipped_depth = 1;
      continue;
    }
    if (name == "pre") {
      end_block();
      preformatted = std::max(0, preformatted + (closing ? -1 : 1));
    } else if (is_one_of(name, {"p",  "div", "h1", "h2", "h3",    "h4", "h5",         "h6",      "li", "ul",
                                "ol", "dl",  "dt", "dd", "table", "tr", "blockquote", "section", "hr", "body"})) {
      if (preformatted == 0) end_block();
    } else if (is_one_of(name, {"br", "td", "th"})) {
      block += preformatted > 0 ? '\n' : ' ';
    }
  }
  end_block();
}

}  // namespace heddle::data::markup
