// The model that the tests of the cuda backend train for a step, and its data.
#pragma once

#include <map>

#include "heddle/base/random.h"
#include "heddle/model/hashed_experts.h"
#include "heddle/model/rope_table.h"
#include "tests/runtime/tiny_run.h"
#include "tests/support/tiny_models.h"

namespace heddle::test {

constexpr int64_t kSequence = 16;
constexpr int kMicrobatches = 4;  // of one sequence, in the whole batch

inline model::ModelConfig step_model() {
  model::ModelConfig c = tiny_balanced_model();
  c.first_k_dense_replace = 1;
  return c;
}

inline double tiny_value(const model::ModelConfig& c, const model::Parameter& p, int64_t i) {
  static std::map<int64_t, std::vector<double>> tables;  // by width
  std::vector<double>& table = tables[c.rotary_width()];
  if (table.empty() && c.turns()) table = model::rope_table(c, kSequence);
  switch (p.start) {
    case model::Parameter::Start::rope_table: return table[static_cast<size_t>(i)];
    case model::Parameter::Start::ones: return 1.0;
    case model::Parameter::Start::zeros: return 0.0;
    case model::Parameter::Start::hashed_experts:
      return static_cast<double>(
          model::hashed_expert(RandomKey(3).with(p.name), i, c.num_experts_per_tok, c.choices()));
    default: return 0.3 * RandomKey(3).with(p.name).normal(static_cast<uint64_t>(i));
  }
}

/// Of one data rank. The first sequence repeats one token, so that a few experts take all of its rows.
inline Batch tiny_batch(const plan::Plan& plan, int data_rank) {
  Batch batch;
  for (int m = 0; m < plan.microbatches; ++m) {
    const int whole = m * plan.mesh.dp + data_rank;
    runtime::Microbatch& micro = batch.microbatches.emplace_back();
    for (int64_t i = 0; i < kSequence + 1; ++i) {
      const uint64_t bits = RandomKey(7).bits(static_cast<uint64_t>(whole * (kSequence + 1) + i));
      micro.tokens.push_back(whole == 0 ? 11 : static_cast<int32_t>(bits % 48));
    }
  }
  const double tokens = static_cast<double>(kMicrobatches * kSequence);
  batch.scales = {1 / tokens, 1.0 / kMicrobatches, 1 / tokens};
  batch.hyper = {1e-3, 0.1, 0.05};
  return batch;
}

inline plan::Plan tiny_plan(const plan::Degrees& mesh, Dtype dtype) {
  plan::Plan plan;
  plan.mesh = mesh;
  plan.microbatches = kMicrobatches / mesh.dp;
  plan.sequence_length = kSequence;
  plan.dtype = dtype;
  plan.parallel.exchange.topology = ir::Topology::plain;
  return plan;
}

}  // namespace heddle::test
