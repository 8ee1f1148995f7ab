#include "heddle/data/corpus/markup.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <vector>

#include "heddle/base/text.h"
#include "heddle/base/utf8.h"
#include "heddle/data/corpus/dictionary_markup.h"

namespace heddle::data {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || (c & 0x80) != 0; }
bool is_word(char c) { return is_letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool has_letter(std::string_view text) { return std::any_of(text.begin(), text.end(), is_letter); }

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

size_t indent_of(std::string_view line) { return std::min(line.find_first_not_of(" \t"), line.size()); }

class Text {
 public:
  /// Adds a paragraph with its white space collapsed. A word broken after its hyphen at a line's end is joined.
  void prose(std::string_view text) {
    text = trimmed(text);
    if (text.empty()) return;
    begin_block();
    for (size_t i = 0; i < text.size(); ++i) {
      if (!is_space(text[i])) {
        out_ += text[i];
        continue;
      }
      bool line_end = false;
      size_t after = i;
      for (; is_space(text[after]); ++after)
        line_end |= text[after] == '\n';  // trimmed: it ends before the text does
      const bool broken =
          line_end && i >= 2 && text[i - 1] == '-' && is_letter(text[i - 2]) && is_letter(text[after]);
      if (!broken) out_ += ' ';
      i = after - 1;
    }
    out_ += '\n';
  }
  /// Adds lines as they are, less their common indentation and what trails.
  void verbatim(std::string_view text) {
    std::vector<std::string_view> lines = lines_of(text);
    while (!lines.empty() && trimmed(lines.front()).empty()) lines.erase(lines.begin());
    while (!lines.empty() && trimmed(lines.back()).empty()) lines.pop_back();
    if (lines.empty()) return;
    size_t indent = std::string_view::npos;
    for (const auto line : lines) {
      if (!trimmed(line).empty()) indent = std::min(indent, indent_of(line));
    }
    begin_block();
    for (auto line : lines) {
      line.remove_prefix(std::min(indent, line.size()));
      while (!line.empty() && is_space(line.back())) line.remove_suffix(1);
      out_ += line;
      out_ += '\n';
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void begin_block() {
    if (!out_.empty()) out_ += '\n';
  }
  std::string out_;
};

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

// Blocks between blank lines.
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

void read_plain(std::string_view document, Text& text) {
  for_each_block(document, [&](std::string_view block) {
    const bool ruler = !has_letter(block) && block.size() > 8;
    if (ruler) return;
    reads_as_prose(block) ? text.prose(block) : text.verbatim(block);
  });
}

// ---- Markdown ----

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

// ---- HTML ----

void append_entity(std::string_view name, std::string& out) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 18> kNamed{{
      {"amp", "&"},
      {"lt", "<"},
      {"gt", ">"},
      {"quot", "\""},
      {"apos", "'"},
      {"nbsp", " "},
      {"mdash", "—"},
      {"ndash", "–"},
      {"hellip", "…"},
      {"lsquo", "‘"},
      {"rsquo", "’"},
      {"ldquo", "“"},
      {"rdquo", "”"},
      {"copy", "©"},
      {"reg", "®"},
      {"times", "×"},
      {"bull", "•"},
      {"trade", "™"},
  }};
  if (name.size() > 1 && name[0] == '#') {
    const bool hex = name[1] == 'x' || name[1] == 'X';
    const std::string_view digits = name.substr(hex ? 2 : 1);
    uint32_t code = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, hex ? 16 : 10);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    if (whole && code > 0 && code < 0x110000 && (code < 0xd800 || code >= 0xe000)) {
      append_utf8(out, code == 0xa0 ? ' ' : code);  // a space that doesn't break is a space
      return;
    }
  }
  for (const auto& [known, text] : kNamed) {
    if (known == name) {
      out += text;
      return;
    }
  }
  out += '&';
  out += name;
  out += ';';
}

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

// ---- Perl's POD ----

// Appends in[at..] up to the close of the present formatting code, without the codes.
void pod_inline(std::string_view in, size_t& at, size_t angles, int depth, std::string& out) {
  while (at < in.size()) {
    const char c = in[at];
    if (angles == 1 && c == '>') {
      ++at;
      return;
    }
    if (angles > 1 && is_space(c)) {
      const size_t close = in.find_first_not_of(" \t\n", at);
      if (close != std::string_view::npos && in.substr(close, angles) == std::string(angles, '>')) {
        at = close + angles;
        return;
      }
    }
    const bool code = c >= 'A' && c <= 'Z' && at + 1 < in.size() && in[at + 1] == '<' && depth < 16;
    if (!code) {
      out += c;
      ++at;
      continue;
    }
    size_t open = 0;
    while (at + 1 + open < in.size() && in[at + 1 + open] == '<') ++open;
    at += 1 + open;
    std::string inner;
    pod_inline(in, at, open, depth + 1, inner);
    if (c == 'X' || c == 'Z') continue;
    if (c == 'E') {
      if (inner == "sol" || inner == "verbar") {
        out += inner == "sol" ? '/' : '|';
      } else {
        append_entity(
            std::isdigit(static_cast<unsigned char>(inner.empty() ? 'x' : inner[0])) ? "#" + inner : inner, out);
      }
      continue;
    }
    if (c == 'L') {
      const size_t bar = inner.find('|');
      if (bar != std::string::npos) {
        inner.resize(bar);
      } else {
        std::erase(inner, '"');
        if (!inner.empty() && inner[0] == '/') inner.erase(0, 1);
      }
    }
    out += trimmed(inner);
  }
}

void read_pod(std::string_view document, Text& text) {
  bool pod = false;
  std::string skipped_until;
  for_each_block(document, [&](std::string_view block) {
    if (block[0] == '=') {
      pod = true;
      const size_t word_end = std::min(block.find_first_of(" \t\n"), block.size());
      const std::string_view command = block.substr(1, word_end - 1);
      if (command == "begin") skipped_until = trimmed(block.substr(word_end));
      if (command == "end") skipped_until.clear();
      if (command == "cut") pod = false;
      if (!skipped_until.empty() || !(command.substr(0, 4) == "head" || command == "item")) return;
      block = trimmed(block.substr(word_end));
      if (command == "item" && !has_letter(block)) return;  // a bullet
    } else if (!pod || !skipped_until.empty()) {
      return;
    } else if (is_space(block[0])) {
      return text.verbatim(block);
    }
    std::string out;
    size_t at = 0;
    pod_inline(block, at, 0, 0, out);
    text.prose(out);
  });
}

// ---- reStructuredText ----

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

// ---- Dictionaries ----

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

}  // namespace

std::string plain_text(std::string_view document, Markup markup) {
  if (!is_valid_utf8(document)) return plain_text(replace_invalid_utf8(document), markup);
  Text text;
  switch (markup) {
    case Markup::plain: read_plain(document, text); break;
    case Markup::markdown: read_markdown(document, text); break;
    case Markup::html: read_html(document, text); break;
    case Markup::pod: read_pod(document, text); break;
    case Markup::rst: read_rst(document, text); break;
    case Markup::dictionary: read_dictionary(document, text); break;
  }
  return text.take();
}

}  // namespace heddle::data
