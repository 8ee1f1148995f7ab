// The linear maps that have adapters, in the words of lora.targets. A word is a part of the model ("attention",
// "mlp", "shared", "experts", "all"), a released name of modules ("q_proj"), or a module of one part alone
// ("experts.down_proj").
#pragma once

#include <set>
#include <string>
#include <vector>

#include "heddle/ir/listing.h"
#include "heddle/model/parameter.h"

namespace heddle::passes {

/// "a.b.q_proj" of "a.b.q_proj.weight".
std::string stem_of(const std::string& name);
/// "q_proj" of it.
std::string module_of(const std::string& name);

/// The narrowest word for a released weight of a parameter, "experts.down_proj"; "" where none may have adapters:
/// of a shape that is no matrix, of other parts, or behind the first `layers` layers.
std::string word_of_module(const model::Parameter& p, size_t dims, const std::string& released, int64_t layers);

class Targets {
 public:
  Targets(const std::string& targets, int64_t layers);

  /// True if a parameter of this listing is among them. ConfigError where a part of it is and another is not.
  bool has(const model::Parameter& p, const ir::Listing& listing);

  /// After all parameters were asked for: ConfigError where a word names nothing that the model has.
  void check() const;

 private:
  std::vector<std::string> words_;
  int64_t layers_;
  std::set<std::string> known_, narrow_;  // what a model is said to have, and modules of its parts
};

}  // namespace heddle::passes
