#include "heddle/observe/charts/html_table.h"

#include <fmt/format.h>

#include "heddle/base/error.h"
#include "heddle/observe/charts/html.h"

namespace heddle::observe {

std::string HtmlTable::html() const {
  if (rows.empty()) return "";
  std::string out =
      fmt::format("<table class=\"rows\"><caption>{}</caption>\n<tr class=\"head\">", escape_html(caption));
  for (const HtmlColumn& column : columns)
    out += fmt::format("<th{}>{}</th>", column.number ? " class=\"number\"" : "", escape_html(column.title));
  out += "</tr>\n";
  for (const std::vector<std::string>& row : rows) {
    HEDDLE_CHECK(row.size() == columns.size(), "{} cells for {} columns", row.size(), columns.size());
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const char* kind = columns[i].number ? " class=\"number\"" : columns[i].code ? " class=\"mono\"" : "";
      out += fmt::format("<td{} data-label=\"{}\">{}</td>", kind, escape_html(columns[i].title),
                         columns[i].code ? escape_breakable(row[i]) : escape_html(row[i]));
    }
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

}  // namespace heddle::observe
