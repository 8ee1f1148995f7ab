// A table of a page. On a narrow page each of its rows becomes a block of lines, so that none of it is cut off.
#pragma once

#include <string>
#include <vector>

namespace heddle::observe {

struct HtmlColumn {
  std::string title;
  bool number = false;
  bool code = false;  // letters of one width
};

struct HtmlTable {
  std::string caption;
  std::vector<HtmlColumn> columns;
  std::vector<std::vector<std::string>> rows;  // escaped here

  std::string html() const;  // "" without rows
};

}  // namespace heddle::observe
