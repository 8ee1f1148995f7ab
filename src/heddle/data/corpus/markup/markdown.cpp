// Markdown: headings, lists, quotes and fenced code; tables and paragraphs of links alone are left out.
#include <algorithm>
#include <cctype>

#include "heddle/data/corpus/markup/formats.h"

namespace heddle::data::markup {

namespace {

// Text without emphasis, links and images; `outside_links` is set if it has a letter that is no link's.
std::string markdown_inline(std::string_view in, bool& outside_links, int depth = 0) {
  std::string out;
  outside_links = false;
  for (size_t i = 0; i < in.size(); ++i) {
    const char c = in[i];
    const char before = i > 0 ? in[i - 1] : ' ', after = i + 1 < in.size() ? in[i + 1] : ' ';
    if (c == '\\' && std::ispunct(static_cast<unsigned char>(after)) != 0) {
      out += after;
      ++i;
    } else if ((c == '[' || (c == '!' && after == '[')) && depth < 8) {
      const size_t begin = i + (c == '!' ? 2 : 1);
      const size_t close = in.find(']', begin);
      if (close != std::string_view::npos && close + 1 < in.size() && in[close + 1] == '(') {
        const size_t end = in.find(')', close);
        if (end != std::string_view::npos) {
          bool ignored;
          if (c == '[') out += markdown_inline(in.substr(begin, close - begin), ignored, depth + 1);
          i = end;
          continue;
        }
      }
      out += c;
      if (c == '[' && after == ' ') ++i;  // "[ **Title**": the space came of the markup
    } else {
      const bool emphasis = (c == '*' && !(is_space(before) && is_space(after))) ||
                            (c == '_' && !(is_word(before) && is_word(after)));
      if (emphasis || c == '`' || (c == ' ' && after == ',')) continue;
      outside_links |= is_letter(c);
      out += c;
    }
  }
  return out;
}

}  // namespace

void read_markdown(std::string_view document, Text& text) {
  std::string paragraph, code;
  bool fenced = false;
  const auto end_paragraph = [&] {
    bool outside_links;
    const std::string plain = markdown_inline(paragraph, outside_links);
    if (outside_links) text.prose(plain);
    paragraph.clear();
  };
  for (std::string_view line : lines_of(document)) {
    std::string_view inner = trimmed(line);
    if (inner.substr(0, 3) == "```") {
      if (fenced) text.verbatim(code);
      end_paragraph();
      code.clear();
      fenced = !fenced;
      continue;
    }
    if (fenced) {
      code += line;
      code += '\n';
      continue;
    }
    while (!inner.empty() && inner.front() == '>') inner = trimmed(inner.substr(1));
    const bool table = !inner.empty() && (inner.front() == '|' || inner.find("---|") != std::string_view::npos);
    if (inner.empty() || table) {
      end_paragraph();
      continue;
    }
    const bool rule = inner.size() >= 3 && inner.find_first_not_of("-=* ") == std::string_view::npos;
    if (rule) continue;
    const size_t hashes = inner.find_first_not_of('#');
    if (hashes >= 1 && hashes <= 6 && hashes < inner.size() && inner[hashes] == ' ') {
      end_paragraph();
      paragraph = inner.substr(hashes + 1);
      end_paragraph();
      continue;
    }
    const size_t number = std::min(inner.find_first_not_of("0123456789"), inner.size());
    const bool bullet =
        inner.size() > 2 && (inner[0] == '*' || inner[0] == '-' || inner[0] == '+') && inner[1] == ' ';
    const bool numbered =
        number >= 1 && number + 1 < inner.size() && inner[number] == '.' && inner[number + 1] == ' ';
    if (bullet || numbered) end_paragraph();
    paragraph += bullet ? trimmed(inner.substr(2)) : inner;
    paragraph += '\n';
  }
  end_paragraph();
}

}  // namespace heddle::data::markup
