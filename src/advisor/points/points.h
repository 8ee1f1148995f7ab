// A table of measured points: comma-separated text with a header line, quoted fields as in RFC 4180. The table is
// foreign: sizes are bounded, and what is malformed is refused naming the line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::advisor {

struct PointTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as columns
  std::vector<int> lines;                      // line at which each row starts in the text, from 1

  /// Index of a column or -1.
  int column(std::string_view name) const;
  /// The field without surrounding blanks; "" when the table has no such column.
  std::string_view field(size_t row, std::string_view name) const;
};

/// Reads a table. Throws ConfigError: no header, a needed column that is missing or one that stands twice, a row of
/// another length, an open quote, too large.
PointTable read_points(std::string_view text, std::string_view name,
                       const std::vector<std::string>& needed = {"model", "hw"});

/// Quotes a field where it needs it.
std::string csv_field(std::string_view field);

/// A number in a field; nullopt when blank. `bad` is set when it is no finite number.
std::optional<double> number(std::string_view field, bool& bad);

}  // namespace heddle::advisor
