// A pass held to texts: what stands before it, what it must leave.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/ir/parse.h"
#include "heddle/ir/print.h"
#include "heddle/ir/verify/verify.h"
#include "heddle/ops/ops.h"

namespace heddle::test {

using Rewrite = std::function<void(ir::Listing&)>;

/// Blank lines, which end a listing elsewhere, don't count, so that texts can be put together of raw strings.
inline ir::Listing listing_of(std::string text) {
  for (size_t at = 0; (at = text.find("\n\n", at)) != std::string::npos;) text.erase(at, 1);
  return ir::parse_listing(text, ops::find);
}

/// Its lines, with two blanks instead of more within one.
inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines{""};
  for (const char c : text) {
    std::string& line = lines.back();
    if (c == '\n') {
      lines.emplace_back();
    } else if (c != ' ' || line.find_first_not_of(' ') == std::string::npos || !line.ends_with("  ")) {
      line += c;
    }
  }
  lines.pop_back();
  return lines;
}

/// What is wanted with "-" before each line that isn't found, and with "+" what is found in its place.
inline std::string difference(const std::vector<std::string>& wanted, const std::vector<std::string>& found) {
  std::vector<std::vector<size_t>> common(wanted.size() + 1,
                                          std::vector<size_t>(found.size() + 1, 0));  // of the rests
  for (size_t w = wanted.size(); w-- > 0;) {
    for (size_t f = found.size(); f-- > 0;) {
      common[w][f] =
          wanted[w] == found[f] ? common[w + 1][f + 1] + 1 : std::max(common[w + 1][f], common[w][f + 1]);
    }
  }
  std::string text;
  for (size_t w = 0, f = 0; w < wanted.size() || f < found.size();) {
    if (w < wanted.size() && f < found.size() && wanted[w] == found[f]) {
      text += "  " + wanted[w] + "\n";
      ++w, ++f;
    } else if (f == found.size() || (w < wanted.size() && common[w + 1][f] >= common[w][f + 1])) {
      text += "- " + wanted[w++] + "\n";
    } else {
      text += "+ " + found[f++] + "\n";
    }
  }
  return text;
}

inline void expect_text(const ir::Listing& found, const std::string& wanted) {
  const std::string text = ir::text_of(found), as_printed = ir::text_of(listing_of(wanted));
  if (text != as_printed) ADD_FAILURE() << difference(lines_of(as_printed), lines_of(text));
}

/// Both texts as ir/parse.h reads them; both listings must be right.
inline void expect_becomes(const std::string& before, const Rewrite& pass, const std::string& after) {
  ir::Listing listing = listing_of(before);
  ir::verify(listing);
  pass(listing);
  expect_text(listing, after);
  ir::verify(listing);
}

inline void expect_stays(const std::string& text, const Rewrite& pass) { expect_becomes(text, pass, text); }

}  // namespace heddle::test
