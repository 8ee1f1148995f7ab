// The faults that a layout of ranks usually has, each as a change of the program: what would every rank hold if the
// program had it? A fault is a row of the table in faults.cpp. It has a name, a sentence, and one of two functions.
//
//   factor  The number by which each part counts in the sum that a rank holds. 1 everywhere is the program itself.
//   change  What the rank holds instead of its slice of the sum.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "check/parts.h"

namespace heddle::check {

/// One tensor on all the ranks that hold some of it.
struct Case {
  Stage stage = Stage::forward;
  std::string name;
  int microbatch = -1;
  std::vector<const Record*> records;
  std::vector<double> ratios;  // of each, to the reference
  int order = 0;               // in the program
  double worst() const;
  std::string text() const { return records.front()->text(); }
};

/// A rank with a fault sees this.
struct Seen {
  const Record& record;
  const ir::Coordinates& here;
  const Case& all;
  const Reference& reference;
  const Parts& parts;
};

struct Fault {
  std::string name;       // "not_summed.tp"
  std::string sentence;   // "it is not summed over tp"
  bool constant = false;  // the factor is the same for all parts
  std::function<double(const Seen&, const Part&)> factor;
  std::function<std::optional<Numbers>(const Numbers& whole, const Seen&)> change;
  /// The mutated line of the program's text, from the line as it is.
  std::function<std::string(const std::string& line)> text;
};

/// All rows, for the degrees of a layout.
std::vector<Fault> faults_of(const Reference& reference, const Parts& parts);

/// The rank of `seen` would hold this with these faults at once, in this order; nothing where they say nothing of
/// it.
std::optional<Numbers> predicted(const std::vector<const Fault*>& faults, const Seen& seen);

}  // namespace heddle::check
