#include "advisor/points/points.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/real_text.h"
#include "heddle/base/text.h"

namespace heddle::advisor {

namespace {

constexpr size_t kMostPointsBytes = size_t{64} << 20, kMostColumns = 256, kMostRows = 1'000'000;

// Reads one record from `at`; false at the end of the text.
class PointsReader {
 public:
  PointsReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  bool record(std::vector<std::string>& fields, int& line) {
    fields.clear();
    if (at_ >= text_.size()) return false;
    line = line_;
    fields.emplace_back();
    for (;;) {
      if (at_ < text_.size() && text_[at_] == '"') {
        quoted_field(fields.back());
      } else {
        while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n') fields.back() += text_[at_++];
      }
      if (at_ >= text_.size()) break;
      const char c = text_[at_++];
      if (c == '\n') {
        ++line_;
        break;
      }
      if (fields.size() >= kMostColumns) config_error("{}:{}: more than {} fields", name_, line_, kMostColumns);
      fields.emplace_back();
    }
    if (!fields.back().empty() && fields.back().back() == '\r') fields.back().pop_back();
    return true;
  }

 private:
  void quoted_field(std::string& field) {
    const int opened = line_;
    for (++at_;; ++at_) {
      if (at_ >= text_.size()) config_error("{}:{}: a quote is opened and never closed", name_, opened);
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        field += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        field += '"';
        ++at_;
      } else {
        break;
      }
    }
    ++at_;
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n')
      config_error("{}:{}: text after a closing quote, accepted: a comma or the end of the line", name_, line_);
  }

  std::string_view text_, name_;
  size_t at_ = 0;
  int line_ = 1;
};

// " (tp_size?)": what may be meant by it.
std::string near_columns(const std::string& column, const std::vector<std::string>& columns) {
  const std::string near = nearest_name(column, columns);
  return near.empty() ? "" : fmt::format(" ('{}'?)", near);
}

}  // namespace

int PointTable::column(std::string_view name) const {
  const auto it = std::find(columns.begin(), columns.end(), name);
  return it == columns.end() ? -1 : static_cast<int>(it - columns.begin());
}

std::string_view PointTable::field(size_t row, std::string_view name) const {
  const int at = column(name);
  return at < 0 ? std::string_view() : trimmed(rows.at(row)[at]);
}

PointTable read_points(std::string_view text, std::string_view name, const std::vector<std::string>& needed) {
  if (text.size() > kMostPointsBytes)
    config_error("{}: {} bytes, accepted: up to {}", name, text.size(), kMostPointsBytes);
  if (text.find('\0') != std::string_view::npos) config_error("{}: holds a zero byte, accepted: text", name);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  PointsReader reader(text, name);
  PointTable table;
  std::vector<std::string> fields;
  int line = 0;
  if (!reader.record(fields, line)) config_error("{}: empty, accepted: a header line with names of columns", name);
  for (const std::string& f : fields) {
    const std::string column(trimmed(f));
    if (table.column(column) >= 0)
      config_error("{}:{}: column '{}' is there twice", name, line, column.substr(0, 60));
    table.columns.push_back(column);
  }
  std::vector<std::string> missing;
  for (const std::string& column : needed)
    if (table.column(column) < 0)
      missing.push_back(fmt::format("'{}'{}", column, near_columns(column, table.columns)));
  if (!missing.empty())
    config_error("{}:1: no column{} {}", name, missing.size() > 1 ? "s" : "", fmt::join(missing, ", "));
  while (reader.record(fields, line)) {
    if (fields.size() == 1 && trimmed(fields[0]).empty()) continue;
    if (fields.size() != table.columns.size())
      config_error("{}:{}: {} fields, the header has {}", name, line, fields.size(), table.columns.size());
    if (table.rows.size() >= kMostRows) config_error("{}: more than {} rows", name, kMostRows);
    table.rows.push_back(std::move(fields));
    table.lines.push_back(line);
  }
  return table;
}

std::string csv_field(std::string_view field) {
  if (field.find_first_of(",\"\n\r") == std::string_view::npos) return std::string(field);
  std::string out = "\"";
  for (const char c : field) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::optional<double> number(std::string_view field, bool& bad) {
  if (field.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = read_real(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value)) {
    bad = true;
    return std::nullopt;
  }
  return value;
}

}  // namespace heddle::advisor
