// Every switch of a run, in one table: what it may be set to, what it does to the numbers, what it costs.
//
// The configuration's parser, `heddle explain`, the command line's help and the documentation test read this table,
// so that a switch can be neither unparsed nor undocumented.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::plan {

/// What a switch does to loss and gradients.
enum class MathsClass : uint8_t {
  bitwise,        // nothing: the same bits
  reassociates,   // the same sums, rounded at other places
  changes_maths,  // another function is trained
};
std::string_view name_of(MathsClass maths);
/// What the class promises, as a sentence.
std::string_view promise_of(MathsClass maths);

struct Switch {
  std::string key;                  // in the configuration: "fusions.norm"
  std::vector<std::string> values;  // accepted words; empty: the key's own range
  MathsClass maths = MathsClass::bitwise;
  std::string effect;  // one sentence
  std::string cost;
  std::string page;  // "docs/features/fusion_norm.md"
};

const std::vector<Switch>& switches();
/// The switch of this configuration key, or null.
const Switch* find_switch(std::string_view key);

}  // namespace heddle::plan
