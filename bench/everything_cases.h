// What `./dev bench everything` runs: layers of published models, on clusters of stated rates.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/published_models.h"
#include "heddle/base/files/output_file.h"
#include "heddle/config/run_config.h"
#include "heddle/plan/costs/durations.h"
#include "heddle/runtime/dry_run.h"
#include "heddle/simulate/simulate.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::bench {

constexpr int64_t kTokens = 4096;
constexpr double kAttained = 0.8;  // of a link's rate, and of a memory's
constexpr double kEnqueueUs = 2;

struct Cluster {
  const char* word;
  const char* name;
  double tflops, memory_GB_s, memory_GB, host_GB_s;  // rated, of a device
  double within_GB_s, across_GB_s, latency_us;       // of a device, each way; of a message between nodes
};
constexpr Cluster kClusters[] = {
    {"h100", "H100 with InfiniBand", 989, 3350, 80, 55, 450, 50, 10},
    {"910c", "Ascend 910C super-node", 353.9, 1600, 64, 196, 196, 196, 10},
    {"commodity", "A100 with PCIe and 100 Gbit/s Ethernet", 312, 1935, 80, 25, 25, 12.5, 30},
};

struct Options {
  bool json = false, smoke = false, simulated = false;
  std::string model, cluster;
  int ranks = 8, layers = 8, rounds = 2;
  double minutes = 60, seconds = 80, stretch = 1;
};

struct Case {
  std::string name;
  model::ModelConfig config;
};

// Layers as a rank of the published layouts has them: with four experts for each of the ranks here.
inline std::vector<Case> cases(const Options& o) {
  std::vector<Case> all{
      {"deepseek", deepseek_v3(kTokens)}, {"llama", layers_of_llama_2_70b(kTokens)}, {"qwen", qwen3_235b(kTokens)}};
  std::erase_if(all, [&](const Case& c) { return !o.model.empty() && c.name != o.model; });
  for (Case& c : all) {
    c.config.vocab_size = c.config.vocab_size / 64 * 8;  // an eighth
    c.config.num_hidden_layers = o.layers;
    if (c.name == "llama") {
      c.config.first_k_dense_replace = o.layers;
      continue;
    }
    c.config.first_k_dense_replace = 0;
    c.config.n_routed_experts = std::max<int64_t>(4 * o.ranks, c.config.num_experts_per_tok);
    c.config.n_group = c.config.topk_group = 1;
  }
  return all;
}

// The same layers, narrow enough to be trained here.
inline model::ModelConfig narrow(model::ModelConfig c) {
  c.vocab_size = 512;
  c.hidden_size = 64;
  c.intermediate_size = 128;
  c.moe_intermediate_size = 32;
  c.num_attention_heads = c.num_key_value_heads = 8;
  if (c.attention == model::ModelConfig::Attention::grouped) {
    c.head_dim = 16;
  } else {
    c.q_lora_rank = 32;
    c.kv_lora_rank = 16;
    c.qk_nope_head_dim = c.qk_rope_head_dim = c.v_head_dim = 16;
  }
  return c;
}

class ConfigFile {
 public:
  ConfigFile(const model::ModelConfig& model, const Options& o, int64_t sequence, int64_t memory_bytes)
      : path_((std::filesystem::temp_directory_path() /
               fmt::format("heddle-everything-{}-{}.toml", getpid(), sequence))
                  .string()) {
    config::RunConfig config;
    config.model = model;
    config.train.sequence_length = sequence;
    config.train.global_batch = 4 * o.ranks;
    config.train.microbatch = 1;
    config.train.steps = 2;
    config.train.warmup_steps = config.train.decay_steps = 0;
    config.mesh_ranks = o.ranks;
    config.device.dtype = Dtype::bf16;
    config.device.threads = 1;
    config.device.memory_bytes = memory_bytes;  // 0: the machine's
    write_file(path_, config::toml_of(config));
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline plan::Plan plan_on(const Cluster& cluster, const config::RunConfig& config) {
  plan::Plan plan = train::plan_of(config);
  plan.evaluates = plan.predicts = false;
  plan.packed_bytes = nullptr;
  plan.rates.flops_per_us = 0.4 * cluster.tflops * 1e6;
  plan.rates.bytes_per_us = kAttained * cluster.memory_GB_s * 1e3;
  plan.rates.host_bytes_per_us = cluster.host_GB_s * 1e3;
  model::Dispatcher& near = plan.parallel.exchange;
  near.within_rate = kAttained * cluster.within_GB_s;
  near.across_rate = kAttained * cluster.across_GB_s;
  near.within_latency_us = 3;
  near.across_latency_us = cluster.latency_us;
  model::Dispatcher far = near;
  far.within_rate = far.across_rate;
  far.within_latency_us = far.across_latency_us;
  plan.durations = [near = plan::nominal_durations(near, plan.rates),
                    far = plan::nominal_durations(far, plan.rates)](const ir::Listing& listing, const ir::Op& op) {
    return op.group == "tp" || op.group == "cp" ? near(listing, op) : far(listing, op);
  };
  return plan;
}

/// The program with its exchanges on the stream that computes: nothing runs beside them, as in Megatron-LM without
/// --overlap-moe-expert-parallel-comm and --moe-shared-expert-overlap.
inline plan::Lowered blocking(plan::Lowered lowered) {
  for (ir::Listing& listing : lowered.program.listings) {
    for (ir::Op& op : listing.ops) {
      if (ir::is_exchange(op.def->moves)) op.stream = "compute";
    }
  }
  return lowered;
}

struct Simulated {
  double step_us = 0, free_us = 0, messages_us = 0;  // free: with messages that take no time
  int64_t bytes = 0;                                 // of the rank that holds most
  double hidden(double exposed_us) const { return messages_us > 0 ? 1 - exposed_us / messages_us : 1; }
};

inline Simulated simulated(const plan::Plan& plan, const plan::Lowered& lowered) {
  Simulated found;
  simulate::SimulationInput input;
  input.groups = simulate::groups_of(lowered.program, plan::Mesh(plan.mesh));
  input.scratch_bytes = runtime::kernel_scratch(lowered.program, "host");
  input.enqueue_us = kEnqueueUs;
  input.ranks_differ = false;
  input.rows = runtime::balanced_rows(lowered.program);
  const auto us = [&](int listing, const ir::Op& op) {
    return plan.durations(lowered.program.listings[static_cast<size_t>(listing)], op);
  };
  input.duration_us = [&](int, const ir::Issue& issue) { return us(issue.listing, *issue.op); };
  const simulate::Simulation whole = simulate::simulate(lowered.program, input);
  found.step_us = whole.step_us;
  for (const simulate::RankResult& rank : whole.ranks) {
    found.bytes = std::max(found.bytes, rank.reserved_bytes);
    for (const simulate::SimulatedOp& ran : rank.ops) {
      const ir::Op& op = lowered.program.listings[static_cast<size_t>(ran.listing)].ops[ran.op];
      if (op.def->stream == ir::StreamKind::comm && op.def->moves != ir::Moves::from_neighbour)
        found.messages_us += us(ran.listing, op) * rank.count / plan.ranks();
    }
  }
  input.duration_us = [&](int, const ir::Issue& issue) {
    return ir::communicates(*issue.op->def) ? 0.0 : us(issue.listing, *issue.op);
  };
  found.free_us = simulate::simulate(lowered.program, input).step_us;
  return found;
}

}  // namespace heddle::bench
