// reStructuredText, with the directives of the Python documentation.
#include <cctype>

#include "heddle/data/corpus/markup/formats.h"

namespace heddle::data::markup {

namespace {

std::string rst_inline(std::string_view in) {
  std::string out;
  for (size_t i = 0; i < in.size(); ++i) {
    const char c = in[i];
    if (c == ':' && (i == 0 || !is_word(in[i - 1]))) {  // :role:`text`
      size_t end = i + 1;
      while (end < in.size() && (is_word(in[end]) || in[end] == '-' || in[end] == ':')) ++end;
      if (end > i + 1 && end < in.size() && in[end] == '`' && in[end - 1] == ':') i = end;
    }
    if (in[i] == '`') {
      const size_t begin = in.find_first_not_of('`', i);
      if (begin == std::string_view::npos) break;
      const size_t end = in.find('`', begin);
      if (end == std::string_view::npos) continue;
      std::string_view inner = in.substr(begin, end - begin);
      const size_t target = inner.rfind('<');
      if (begin == i + 1 && target != std::string_view::npos && target > 0 && inner.back() == '>') {
        inner = inner.substr(0, target);
      }
      inner = trimmed(inner);
      if (!inner.empty() && (inner[0] == '~' || inner[0] == '!')) inner.remove_prefix(1);
      out += inner;
      i = end;
      while (i + 1 < in.size() && (in[i + 1] == '`' || in[i + 1] == '_')) ++i;
      continue;
    }
    const char before = i > 0 ? in[i - 1] : ' ', after = i + 1 < in.size() ? in[i + 1] : ' ';
    if (in[i] == '*' && !(is_space(before) && is_space(after))) continue;
    if (in[i] == '\\' && std::ispunct(static_cast<unsigned char>(after)) != 0) continue;
    out += in[i];
  }
  return out;
}

}  // namespace

void read_rst(std::string_view document, Text& text) {
  const std::vector<std::string_view> lines = lines_of(document);
  std::string paragraph;
  const auto end_paragraph = [&] {
    text.prose(rst_inline(paragraph));
    paragraph.clear();
  };
  // The indented block that follows a line.
  const auto block_after = [&](size_t at, size_t indent) {
    size_t end = at + 1;
    while (end < lines.size() && (trimmed(lines[end]).empty() || indent_of(lines[end]) > indent)) ++end;
    return end;
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i], inner = trimmed(line);
    const size_t indent = indent_of(line);
    if (inner.empty()) {
      end_paragraph();
      continue;
    }
    const bool adornment = inner.size() >= 3 && std::ispunct(static_cast<unsigned char>(inner[0])) != 0 &&
                           inner.find_first_not_of(inner[0]) == std::string_view::npos;
    if (adornment && inner[0] != '.') {
      end_paragraph();
      continue;
    }
    if (inner.substr(0, 2) == "..") {
      end_paragraph();
      const size_t mark = inner.find("::");
      const std::string_view name = mark == std::string_view::npos ? "" : trimmed(inner.substr(2, mark - 2));
      if (is_one_of(name, {"note", "warning", "tip", "seealso", "versionadded", "versionchanged", "deprecated"})) {
        continue;  // its content is prose
      }
      if (is_one_of(name,
                    {"function", "class", "method", "attribute", "data", "module", "exception", "describe"})) {
        text.prose(rst_inline(inner.substr(mark + 2)));
        continue;
      }
      i = block_after(i, indent) - 1;
      continue;
    }
    if (inner[0] == ':' && inner.find(':', 1) != std::string_view::npos &&
        inner.find('`') == std::string_view::npos && paragraph.empty()) {
      continue;  // an option or field
    }
    const bool doctest = inner.substr(0, 3) == ">>>";
    if (doctest) {
      end_paragraph();
      std::string code;
      for (; i < lines.size() && !trimmed(lines[i]).empty(); ++i) (code += lines[i]) += '\n';
      text.verbatim(code);
      continue;
    }
    const bool bullet = inner.size() > 2 && (inner[0] == '*' || inner[0] == '-' || inner[0] == '#') &&
                        (inner[1] == ' ' || (inner[1] == '.' && inner[2] == ' '));
    if (bullet) end_paragraph();
    paragraph += bullet ? trimmed(inner.substr(2)) : inner;
    paragraph += '\n';
    if (inner.size() >= 2 && inner.substr(inner.size() - 2) == "::") {  // literal text follows
      paragraph.resize(paragraph.size() - 2);
      paragraph += '\n';
      end_paragraph();
      const size_t end = block_after(i, indent);
      std::string code;
      for (size_t at = i + 1; at < end; ++at) (code += lines[at]) += '\n';
      text.verbatim(code);
      i = end - 1;
    }
  }
  end_paragraph();
}

}  // namespace heddle::data::markup
