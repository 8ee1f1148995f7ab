// The numbers that the parameters of a test's model begin with.
#pragma once

#include <vector>

#include "heddle/base/random.h"
#include "heddle/model/parameter.h"
#include "heddle/model/rope_table.h"

namespace heddle::test {

/// Tables, ones and zeros where a model begins with them, and else normal numbers that are drawn by name.
class UsualStart {
 public:
  UsualStart(const model::ModelConfig& model, int64_t sequence, uint64_t seed)
      : table_(model::rope_table(model, sequence)), key_(seed) {}
  double operator()(const model::Parameter& p, int64_t i) const {
    switch (p.start) {
      case model::Parameter::Start::rope_table: return table_[static_cast<size_t>(i)];
      case model::Parameter::Start::ones: return 1.0;
      case model::Parameter::Start::zeros: return 0.0;
      default: return 0.3 * key_.with(p.name).normal(static_cast<uint64_t>(i));
    }
  }

 private:
  const std::vector<double> table_;
  const RandomKey key_;
};

}  // namespace heddle::test
