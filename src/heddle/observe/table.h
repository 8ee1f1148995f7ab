// Tables of text whose columns line up, as all commands print them.
//
//   layer   experts     bytes  kind
//   ─────  ────────  ────────  ─────
//       3       256   1.2 GiB  moe
//
// Widths are counted in terminal columns, not bytes. Accents take none of their own, East Asian letters two. A
// cell's control characters are dropped, so that no text from outside can break the lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/observe/terminal/terminal.h"

namespace heddle::observe {

/// The columns a terminal uses for this UTF-8 text. A byte that is no UTF-8 counts as one.
int display_width(std::string_view text);

/// The longest beginning of `text` of at most `columns` columns, with "…" at its end where something was cut off.
std::string cut_to_width(std::string_view text, int columns);

/// `text` in lines of at most `columns` columns (at least 1), broken at blanks, and inside a word only where it
/// alone is longer. A line feed of its own is a break too; there is at least one line.
std::vector<std::string> wrapped(std::string_view text, int columns);

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns);

  /// Adds a row of as many cells as there are columns (InternalError otherwise).
  void row(std::vector<std::string> cells);

  /// Adds a line between the rows before and after it.
  void rule();

  /// Returns the table; every line ends in a newline and none in a space. `unicode` chooses the line of the rules.
  /// Where the table is wider than `columns` (0: no limit), its longest columns of text are narrowed and their
  /// cells wrapped; numbers never are.
  std::string text(bool unicode = true, int columns = 0) const;
  /// Returns the table as it suits the reader of the output.
  std::string text(const Terminal& terminal) const { return text(terminal.unicode, terminal.columns); }

 private:
  std::vector<int> widths(int columns) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

}  // namespace heddle::observe
