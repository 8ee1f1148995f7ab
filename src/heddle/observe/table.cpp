#include "heddle/observe/table.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/base/utf8.h"

namespace heddle::observe {
namespace {

struct CodeRange {
  uint32_t first, last;
};

// Combining marks, joiners and variation selectors: drawn upon the letter before them.
constexpr std::array<CodeRange, 17> kZeroWidth = {{{0x0300, 0x036f},
                                                   {0x0483, 0x0489},
                                                   {0x0591, 0x05bd},
                                                   {0x0610, 0x061a},
                                                   {0x064b, 0x065f},
                                                   {0x0900, 0x0902},
                                                   {0x093c, 0x093c},
                                                   {0x0941, 0x0948},
                                                   {0x0e31, 0x0e31},
                                                   {0x0e34, 0x0e3a},
                                                   {0x1ab0, 0x1aff},
                                                   {0x1dc0, 0x1dff},
                                                   {0x200b, 0x200f},
                                                   {0x20d0, 0x20ff},
                                                   {0xfe00, 0xfe0f},
                                                   {0xfe20, 0xfe2f},
                                                   {0xfeff, 0xfeff}}};
// East Asian wide and full-width letters, and the pictures that terminals draw wide.
constexpr std::array<CodeRange, 12> kDoubleWidth = {{{0x1100, 0x115f},
                                                     {0x2e80, 0x303e},
                                                     {0x3041, 0x33ff},
                                                     {0x3400, 0x4dbf},
                                                     {0x4e00, 0x9fff},
                                                     {0xa000, 0xa4cf},
                                                     {0xac00, 0xd7a3},
                                                     {0xf900, 0xfaff},
                                                     {0xfe30, 0xfe6f},
                                                     {0xff00, 0xff60},
                                                     {0xffe0, 0xffe6},
                                                     {0x1f300, 0x1faff}}};

template <size_t N>
bool among(const std::array<CodeRange, N>& ranges, uint32_t code) {
  return std::any_of(ranges.begin(), ranges.end(), [&](CodeRange r) { return r.first <= code && code <= r.last; });
}

int letter_width(uint32_t code) {
  if (is_control(code) || among(kZeroWidth, code)) return 0;
  return among(kDoubleWidth, code) || (code >= 0x20000 && code <= 0x3fffd) ? 2 : 1;
}

std::string without_control(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    if (!is_control(letter.code)) kept += text.substr(0, letter.bytes);
    text.remove_prefix(letter.bytes);
  }
  return kept;
}

}  // namespace

int display_width(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    columns += letter_width(letter.code);
    text.remove_prefix(letter.bytes);
  }
  return columns;
}

std::string cut_to_width(std::string_view text, int columns) {
  if (display_width(text) <= columns) return std::string(text);
  if (columns <= 0) return "";
  std::string kept;
  int used = 0;
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    const int width = letter_width(letter.code);
    if (used + width > columns - 1) break;
    used += width;
    kept += text.substr(0, letter.bytes);
    text.remove_prefix(letter.bytes);
  }
  return kept + "…";
}

std::vector<std::string> wrapped(std::string_view text, int columns) {
  columns = std::max(1, columns);
  std::vector<std::string> lines;
  std::string line;
  int used = 0;
  bool goes_on = false;  // the line does from the one before: it begins with its word
  const auto end_line = [&] {
    while (!line.empty() && line.back() == ' ') line.pop_back();
    lines.push_back(std::move(line));
    line.clear();
    used = 0;
  };
  while (!text.empty()) {
    if (text.front() == '\n') {
      end_line();
      goes_on = false;
      text.remove_prefix(1);
      continue;
    }
    // A word with the blanks before it.
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    std::string_view word = text.substr(begin, end - begin);
    const int gap = static_cast<int>(begin), width = display_width(word);
    if (!line.empty() && used + gap + width > columns) {
      end_line();
      goes_on = true;
    } else if (!line.empty() || !goes_on) {
      line.append(begin, ' ');
      used += gap;
    }
    while (!word.empty()) {
      const Letter letter = first_letter(word);
      const int letter_columns = letter_width(letter.code);
      if (used + letter_columns > columns && !line.empty()) end_line();
      line += word.substr(0, letter.bytes);
      used += letter_columns;
      word.remove_prefix(letter.bytes);
    }
    text.remove_prefix(end);
  }
  if (!line.empty() || lines.empty()) end_line();
  return lines;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  HEDDLE_CHECK(!columns_.empty(), "a table without columns");
}

void Table::row(std::vector<std::string> cells) {
  HEDDLE_CHECK(cells.size() == columns_.size(), "a row of {} cells in a table of {} columns", cells.size(),
               columns_.size());
  for (std::string& cell : cells) cell = without_control(cell);
  rows_.push_back(std::move(cells));
}

void Table::rule() { rows_.emplace_back(); }

// The widest columns of text shrink, all to the same width, and none below what is of use.
std::vector<int> Table::widths(int columns) const {
  constexpr int kLeast = 8, kGap = 2;
  std::vector<int> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int width = display_width(columns_[c].title);
    for (const auto& row : rows_) {
      if (!row.empty()) width = std::max(width, display_width(row[c]));
    }
    widths.push_back(width);
  }
  if (columns <= 0) return widths;
  int excess =
      std::accumulate(widths.begin(), widths.end(), 0) + kGap * (static_cast<int>(widths.size()) - 1) - columns;
  while (excess > 0) {
    int* widest = nullptr;
    for (size_t c = 0; c < widths.size(); ++c) {
      const bool gives =
          columns_[c].align == Align::left && widths[c] > std::max(kLeast, display_width(columns_[c].title));
      if (gives && (widest == nullptr || widths[c] > *widest)) widest = &widths[c];
    }
    if (widest == nullptr) break;
    --*widest;
    --excess;
  }
  return widths;
}

std::string Table::text(bool unicode, int columns) const {
  const std::vector<int> widths = this->widths(columns);
  std::string text;
  const auto end_line = [&] {
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text += '\n';
  };
  const auto add_cells = [&](const auto& cell_of) {
    std::vector<std::vector<std::string>> lines;
    size_t height = 1;
    for (size_t c = 0; c < columns_.size(); ++c) {
      lines.push_back(wrapped(cell_of(c), std::max(1, widths[c])));
      height = std::max(height, lines.back().size());
    }
    for (size_t l = 0; l < height; ++l) {
      for (size_t c = 0; c < columns_.size(); ++c) {
        const std::string cell = l < lines[c].size() ? lines[c][l] : "";
        const std::string room(static_cast<size_t>(std::max(0, widths[c] - display_width(cell))), ' ');
        if (c > 0) text += "  ";
        text += columns_[c].align == Align::right ? room + cell : cell + room;
      }
      end_line();
    }
  };
  const auto add_rule = [&] {
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) text += "  ";
      for (int i = 0; i < widths[c]; ++i) text += unicode ? "─" : "-";
    }
    end_line();
  };
  add_cells([&](size_t c) -> const std::string& { return columns_[c].title; });
  add_rule();
  for (const auto& row : rows_) {
    if (row.empty()) {
      add_rule();
    } else {
      add_cells([&](size_t c) -> const std::string& { return row[c]; });
    }
  }
  return text;
}

}  // namespace heddle::observe
