// Arenas as they are foretold, under rows that come otherwise: steps are walked with drawn counts and nothing is
// run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "heddle/base/random.h"
#include "heddle/config/run_config.h"
#include "heddle/runtime/dry_run.h"
#include "heddle/runtime/predict.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::test {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 40;

/// Rows of each microbatch and layer over balanced ones are a power of e of this deviation, at most four times as
/// many.
class DrawnRows : public ir::Issuer {
 public:
  DrawnRows(const ir::StepProgram& program, double deviation, uint64_t seed)
      : scratch_(runtime::kernel_scratch(program, "host", 0)),
        balanced_(runtime::balanced_rows(program)),
        deviation_(deviation),
        key_(seed) {}
  int64_t scratch_bytes(int listing, uint32_t op, const ir::RowCounts& rows) override {
    return scratch_(listing, op, rows);
  }
  void issue(const ir::Issue&) override {}
  int64_t read_rows(const ir::Issue& issue, size_t output) override {
    if (output == 0) times_ = std::min(4.0, std::exp(deviation_ * key_.normal(reads_++)));
    return static_cast<int64_t>(std::ceil(times_ * static_cast<double>(balanced_(0, issue, output))));
  }

 private:
  const simulate::ScratchBytes scratch_;
  const simulate::RowsRead balanced_;
  const double deviation_;
  const RandomKey key_;
  uint64_t reads_ = 0;
  double times_ = 1;
};

/// Runs of twenty steps, of thirty, that take more than was foretold.
int grown(const std::vector<std::string>& more) {
  std::vector<std::string> set{"mesh.dp=8",
                               "mesh.ep=8",
                               "model.vocab_size=8192",
                               "model.hidden_size=256",
                               "model.num_hidden_layers=4",
                               "model.first_k_dense_replace=1",
                               "model.intermediate_size=768",
                               "model.num_attention_heads=4",
                               "model.q_lora_rank=0",
                               "model.kv_lora_rank=64",
                               "model.qk_nope_head_dim=32",
                               "model.qk_rope_head_dim=16",
                               "model.v_head_dim=32",
                               "model.n_routed_experts=16",
                               "model.num_experts_per_tok=4",
                               "model.n_shared_experts=1",
                               "model.moe_intermediate_size=128",
                               "model.n_group=1",
                               "model.topk_group=1",
                               "train.microbatch=2",
                               "train.sequence_length=256",
                               "device.dtype=bf16"};
  set.insert(set.end(), more.begin(), more.end());
  const config::RunConfig config = config::parse_run_config("", "", set);
  const plan::Lowered lowered = plan::lower(config.model, train::plan_of(config));
  const int64_t predicted = runtime::arena_bytes(lowered.program, 0, "host", kNoLimit);
  int count = 0;
  for (const double deviation : {0.1, 0.3, 0.7}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      DrawnRows rows(lowered.program, deviation, 77 + seed);
      ir::Walk walk(lowered.program, 0, predicted, 0, kNoLimit);
      for (int step = 0; step < 20; ++step) walk.run_step(rows, ir::Purpose::train);
      if (walk.storage().reserved_bytes() > predicted) ++count;
    }
  }
  return count;
}

// Copies that come ahead live longer than others, and what was copied to the host frees its place late.
TEST(PredictedArena, HoldsCopiesByHistoryBesideOffload) {
  for (const char* batch : {"train.global_batch=16", "train.global_batch=64"})
    EXPECT_EQ(grown({batch, "memory.offload=layer", "moe.replicas=2", "moe.replicas_from=history"}), 0) << batch;
}

TEST(PredictedArena, HoldsOffload) {
  EXPECT_EQ(grown({"train.global_batch=64", "memory.offload=input,layer"}), 0);
  EXPECT_EQ(grown({"train.global_batch=64", "memory.offload=input,layer", "moe.replicas=2"}), 0);
}

}  // namespace
}  // namespace heddle::test
