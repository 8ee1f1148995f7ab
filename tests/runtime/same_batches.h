// What tests of layouts have in common that hold many ranks to one: the same sequences whatever the layout, and
// what a step leaves behind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/base/random.h"
#include "tests/runtime/tiny_run.h"
#include "tests/simulate/tiny_step.h"
#include "tests/support/relative.h"

namespace heddle::test {

/// Of each rank, of a step of eight microbatches of two sequences.
inline std::vector<Batch> same_batches(const model::ModelConfig& c, const TinyRun& run) {
  std::vector<Batch> batches;
  for (int r = 0; r < run.plan().ranks(); ++r) {
    Batch& batch = batches.emplace_back();
    for (int m = 0; m < run.plan().microbatches; ++m) {
      const int whole = m * run.plan().mesh.dp + run.mesh().at(r).at(ir::Axis::dp);
      runtime::Microbatch& micro = batch.microbatches.emplace_back();
      for (int i = 0; i < 2 * (kTinySequence + 1); ++i)
        micro.tokens.push_back(static_cast<int32_t>(RandomKey(7).bits(static_cast<uint64_t>(whole * 100 + i)) %
                                                    static_cast<uint64_t>(c.vocab_size)));
    }
    const double tokens = 8 * 2 * kTinySequence;
    batch.scales = {1 / tokens, 1.0 / 16, 1 / tokens};
    batch.hyper = {1e-3, 0.1, 0.05};
  }
  return batches;
}

/// Whole gradients by parameter, and the loss as "loss".
inline std::map<std::string, std::vector<double>> gradients_of(TinyRun& run) {
  std::map<std::string, std::vector<double>> found;
  for (int r = 0; r < run.plan().ranks(); ++r) {
    for (const model::Parameter& p : run.parameters(r)) {
      if (p.trained && !found.contains(p.name)) found[p.name] = run.whole("grad.", p.name);
    }
  }
  found["loss"] = {run.total("loss.next_token")};
  return found;
}

}  // namespace heddle::test
