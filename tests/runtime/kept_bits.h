// What passes over a step's memory are held to: the bits of the run that keeps everything on the device, and the
// peak that the walk foretells.
#pragma once

#include <gtest/gtest.h>

#include "heddle/passes/op_groups.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::test {

constexpr int64_t kArenaBytes = 1 << 23;

inline model::ModelConfig small(int64_t latent_queries = 8) {
  model::ModelConfig c = tiny_model();
  c.num_hidden_layers = 4;
  c.first_k_dense_replace = 1;
  c.num_attention_heads = 4;
  c.q_lora_rank = latent_queries;
  c.sequence_aux_loss_alpha = 0.01;
  c.z_loss_weight = 0.001;
  return c;
}

inline model::ModelConfig small_grouped() {
  model::ModelConfig c = tiny_grouped_model();
  c.num_hidden_layers = 3;
  c.first_k_dense_replace = 1;
  return c;
}

inline plan::Plan plan_of_four(const plan::Degrees& mesh, const std::string& schedule = "1f1b") {
  plan::Plan plan;
  plan.mesh = mesh;
  plan.microbatches = 4;
  plan.sequences = 2;
  plan.sequence_length = kTinySequence;
  plan.parallel.schedule = schedule;
  plan.update.bucket_bytes = 4000;
  return plan;
}

struct Outcome {
  std::vector<std::pair<std::string, std::vector<double>>> values;  // by name
};

inline Outcome outcome_of(const model::ModelConfig& c, const plan::Plan& plan, const std::string& backend) {
  TinyRun run(c, plan, backend, kArenaBytes);
  fill(run, c, 5);
  run.run(tiny_batches(c, plan, 5));
  Outcome outcome;
  for (int r = 0; r < plan.ranks(); ++r) {
    for (const ir::Value& value : run.listing(r).values) {
      if (value.role < ir::Role::accumulator) continue;
      outcome.values.emplace_back(fmt::format("rank {} {}", r, value.name), run.read(r, value.name));
    }
  }
  return outcome;
}

inline void expect_same_bits(const model::ModelConfig& c, const plan::Plan& plan, const std::string& backend) {
  plan::Plan kept = plan;
  kept.memory.recompute.clear();
  kept.memory.offload.clear();
  kept.memory.weights.clear();
  kept.memory.gradients.clear();
  // What is kept does not depend on the words: once for all of them.
  static std::map<std::string, Outcome> known;
  const std::string key = fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {} {} {}", plan::text_of(plan.mesh), word_of(plan.parallel.context),
      word_of(plan.parallel.exchange.topology), plan.parallel.schedule, name_of(plan.dtype), plan.fusions.size(),
      backend, c.is_latent() ? c.q_lora_rank : -1, c.num_nextn_predict_layers, c.index_topk, word_of(c.index_stage),
      word_of(c.index_blocks), word_of(c.positions), c.compression_pattern);
  if (!known.contains(key)) known[key] = outcome_of(c, kept, backend);
  const Outcome with = outcome_of(c, plan, backend);
  const Outcome& without = known.at(key);
  ASSERT_EQ(with.values.size(), without.values.size());
  for (size_t i = 0; i < with.values.size(); ++i) {
    EXPECT_EQ(with.values[i].first, without.values[i].first);
    EXPECT_EQ(with.values[i].second, without.values[i].second)
        << with.values[i].first << " with '" << passes::text_of(plan.memory.recompute) << "' made again and '"
        << passes::text_of(plan.memory.offload) << "' on the host";
  }
}

// The walk without streams foretells the peak of the run, on the device and on the host.
inline void expect_peak_as_predicted(const model::ModelConfig& c, const plan::Plan& plan) {
  TinyRun run(c, plan, "reference", kArenaBytes);
  fill(run, c, 3);
  RowsSeen rows;
  rows.run(run, tiny_batches(c, plan, 3));
  const simulate::ScratchBytes scratch = scratch_of(run);
  for (int r = 0; r < plan.ranks(); ++r) {
    simulate::RecordOptions options;
    options.capacity_bytes = kArenaBytes;
    options.scratch_bytes = scratch;
    options.rows = rows.read();
    const simulate::Recording predicted = simulate::record(run.lowered().program, r, options);
    const ir::Walk& walk = run.executor(r).walk();
    EXPECT_EQ(predicted.peak_live_bytes, walk.storage().peak_live_bytes()) << "rank " << r;
    EXPECT_EQ(predicted.reserved_bytes, walk.storage().reserved_bytes()) << "rank " << r;
    EXPECT_EQ(predicted.host_peak_live_bytes, walk.storage(ir::Space::host).peak_live_bytes()) << "rank " << r;
  }
}

/// Live at the peak above what persists, of rank 0.
inline int64_t predicted_peak(const model::ModelConfig& c, const plan::Plan& plan) {
  const ir::StepProgram program = plan::lower(c, plan).program;
  const simulate::Recording recording = simulate::record(program, 0, {});
  return recording.peak_live_bytes - recording.persistent_bytes;
}

}  // namespace heddle::test
