// A tiny model with its data, for runs that are held against their simulation.
#pragma once

#include <map>
#include <tuple>

#include "heddle/base/random.h"
#include "heddle/comm/collectives.h"
#include "heddle/simulate/simulate.h"
#include "tests/runtime/tiny_run.h"
#include "tests/support/tiny_models.h"
#include "tests/support/usual_start.h"

namespace heddle::test {

constexpr int64_t kTinySequence = 8;

inline plan::Plan tiny_plan(int pipeline, int experts, bool fused, int microbatches = 3,
                            const std::string& weave = "off") {
  plan::Plan plan;
  plan.mesh.pp = pipeline;
  plan.mesh.dp = plan.mesh.ep = experts;
  plan.microbatches = microbatches;
  plan.sequences = 2;
  plan.sequence_length = kTinySequence;
  if (!fused) plan.fusions.clear();
  plan.parallel.weave = from_word<plan::Weave>(weave);
  return plan;
}

inline void fill(TinyRun& run, const model::ModelConfig& c, uint64_t seed) {
  run.fill(UsualStart(c, kTinySequence, seed));
}

inline std::vector<Batch> tiny_batches(const model::ModelConfig& c, const plan::Plan& plan, uint64_t seed) {
  std::vector<Batch> batches;
  for (int r = 0; r < plan.ranks(); ++r) {
    Batch& batch = batches.emplace_back();
    // Ranks of one data share (the listings of a pipeline) read the same tokens.
    const RandomKey key = RandomKey(seed).with(static_cast<uint64_t>(plan::Mesh(plan.mesh).at(r).at(ir::Axis::dp)));
    uint64_t at = 0;
    for (int m = 0; m < plan.microbatches; ++m) {
      runtime::Microbatch& micro = batch.microbatches.emplace_back();
      const int64_t width = plan.sequence_length + 1 + c.num_nextn_predict_layers;
      for (int64_t i = 0; i < plan.sequences * width; ++i) {
        micro.tokens.push_back(static_cast<int32_t>(key.bits(at++) % static_cast<uint64_t>(c.vocab_size)));
      }
    }
    const double tokens =
        static_cast<double>(plan.microbatches * plan.sequences * plan.mesh.dp * plan.sequence_length);
    batch.scales.assign(3 + static_cast<size_t>(c.num_nextn_predict_layers), 1 / tokens);
    batch.hyper = {1e-3, 0.1, 0.05};
  }
  return batches;
}

/// The rows that each host stall of a run reads, taken from a run op by op.
class RowsSeen {
 public:
  void run(TinyRun& tiny, const std::vector<Batch>& batches) {
    rows_.assign(batches.size(), {});
    std::vector<std::thread> threads;
    for (size_t r = 0; r < batches.size(); ++r) {
      threads.emplace_back([&, r] {
        runtime::Executor& executor = tiny.executor(static_cast<int>(r));
        executor.run_step(
            inputs_of(batches[r], executor), [&](const ir::Issue& issue, const device::KernelCall& call) {
              if (!issue.op->def->host_stall) return;
              for (size_t i = 0; i < call.out.size(); ++i) {
                rows_[r][{issue.listing, issue.op_index, issue.microbatch, i}] = comm::counted_rows(i, call.out[i]);
              }
            });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  simulate::RowsRead read() const {
    return [this](int rank, const ir::Issue& issue, size_t output) {
      return rows_[static_cast<size_t>(rank)].at({issue.listing, issue.op_index, issue.microbatch, output});
    };
  }

 private:
  std::vector<std::map<std::tuple<int, uint32_t, int, size_t>, int64_t>> rows_;
};

/// Scratch as the executor's kernels ask for it.
inline simulate::ScratchBytes scratch_of(TinyRun& tiny) {
  return [&tiny](int listing, uint32_t op, const ir::RowCounts& rows) -> int64_t {
    const ir::Listing& text = tiny.lowered().program.listings[static_cast<size_t>(listing)];
    for (int r = 0; r < tiny.plan().ranks(); ++r) {
      if (tiny.listing_of(r) != listing) continue;
      const comm::Collective* collective = comm::find_collective(comm::host_collectives(), text.ops[op].kind());
      if (collective && collective->scratch_bytes) return collective->scratch_bytes(text, text.ops[op], rows);
      const kernels::KernelEntry* kernel = tiny.executor(r).kernel(listing, op);
      return kernel && kernel->scratch_bytes ? kernel->scratch_bytes(text, text.ops[op], rows) : 0;
    }
    return 0;
  };
}

}  // namespace heddle::test
