// POD, the format of Perl's documentation.
#include <algorithm>
#include <cctype>

#include "heddle/data/corpus/markup/entities.h"
#include "heddle/data/corpus/markup/formats.h"

namespace heddle::data::markup {

namespace {

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

}  // namespace

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

}  // namespace heddle::data::markup
