// The order in which the uses of a parameter that several pipeline ranks hold are added up. It is that of one rank,
// so that the sum has its bits wherever the uses lie. An attribute of reduce_gradients, "1,1,0": the copy of each
// use in turn.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "heddle/ir/attributes.h"

namespace heddle::ir {

struct UseOrder {
  std::vector<int> of_use;  // the copy that has it
  /// The copies of the messages: uses that come first, and lie on one copy, are added up there.
  std::vector<int> parts;
  int first = 0;   // how many uses those are
  int copies = 1;  // of the parameter

  static bool given(const Attributes& attributes) { return attributes.has("order"); }
  explicit UseOrder(const Attributes& attributes) {
    const std::string& word = attributes.word("order");
    for (const char *at = word.data(), *end = at + word.size(); at < end; ++at) {
      int copy = 0;
      at = std::from_chars(at, end, copy).ptr;
      of_use.push_back(copy);
      copies = std::max(copies, copy + 1);
    }
    while (first < static_cast<int>(of_use.size()) && of_use[first] == of_use[0]) ++first;
    parts.assign(of_use.begin() + first - 1, of_use.end());
  }
};

}  // namespace heddle::ir
