// Sharded gradients and weights against cut optimizer state and against pipelines, on 8 ranks: whole steps as
// threads in the paced mode (bench/paced_training.h), and the simulator's steps beside them.
//
// Models have the proportions of Llama-3-70B and Qwen3-30B-A3B at a hidden size of 128. A sequence of 4,096 tokens
// shrinks as the hidden size does, and so do the operations that a byte of a link costs: 400 TFLOP/s a rank, and
// 360 GB/s (NVLink) or 50 GB/s (a card of 400 Gbit/s). So a gathered weight, a gradient and an activation take the
// shares of a step that they have there.
//
//   build/bench_sharding [--json] [--rounds N] [--step-seconds S] [--model llama] [--link card]
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/paced_training.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/observe/table.h"

namespace heddle {
namespace {

constexpr int kRanks = 8;
constexpr int64_t kHidden = 128;
constexpr double kRankFlops = 400e12, kOpsOfAByte = 30;  // of memory
constexpr double kLatencyShare = 2e-6;                   // of a message, in steps

struct Options {
  bool json = false;
  int rounds = 1;
  double step_seconds = 4;  // that a rank computes
  std::string model, link;  // "": both
};

struct Shape {
  std::string name;
  model::ModelConfig config;
  int64_t real_hidden = 0;
};

std::vector<Shape> shapes() {
  model::ModelConfig llama;
  llama.vocab_size = 2048;
  llama.hidden_size = kHidden;
  llama.num_hidden_layers = llama.first_k_dense_replace = 16;
  llama.intermediate_size = 448;
  llama.attention = model::ModelConfig::Attention::grouped;
  llama.num_attention_heads = 8;
  llama.num_key_value_heads = 1;
  llama.head_dim = 16;
  llama.qk_norm = false;
  model::ModelConfig qwen = llama;
  qwen.num_hidden_layers = 8;
  qwen.first_k_dense_replace = 0;
  qwen.head_dim = 32;
  qwen.qk_norm = true;
  qwen.n_routed_experts = 32;
  qwen.num_experts_per_tok = 2;
  qwen.n_shared_experts = 0;
  qwen.moe_intermediate_size = 48;
  qwen.sigmoid_scores = qwen.topk_bias = false;
  return {{"llama", llama, 8192}, {"qwen", qwen, 2048}};
}

struct Case {
  std::string name;
  int dp = kRanks, pp = 1;
  passes::Shard shard = passes::Shard::state;
};
std::vector<Case> cases() {
  using passes::Shard;
  return {{"state"},
          {"gradients", 8, 1, Shard::gradients},
          {"weights", 8, 1, Shard::weights},
          {"pp 2, dp 4", 4, 2},
          {"pp 8", 1, 8}};
}

/// `sequences` of a step; a microbatch has one in a pipeline, else at most two.
plan::Plan plan_of(const Shape& shape, const Case& of, int sequences) {
  plan::Plan p;
  p.dtype = Dtype::bf16;
  p.sequence_length = 4096 * kHidden / shape.real_hidden;
  p.mesh.dp = of.dp;
  p.mesh.pp = of.pp;
  if (shape.config.first_k_dense_replace < shape.config.num_hidden_layers) p.mesh.ep = of.dp;
  p.sequences = of.pp > 1 ? 1 : std::min<int64_t>(2, sequences / of.dp);
  p.microbatches = static_cast<int>(sequences / of.dp / p.sequences);
  p.parallel.shard = of.shard;
  return p;
}

double work(const plan::Plan& plan, const model::ModelConfig& c, const ir::Listing& listing, const ir::Op& op) {
  const int64_t rows = plan.sequences * plan.sequence_length * c.num_experts_per_tok;
  const ir::Cost cost = op.def->cost(listing, op, ir::FixedRows(rows));
  return cost.flops + kOpsOfAByte * cost.bytes;
}

double step_work(const model::ModelConfig& c, const plan::Plan& plan) {
  const plan::Lowered lowered = plan::lower(c, plan);
  double sum = 0;
  for (const ir::Action& action : lowered.program.actions_of(0)) {
    const ir::Block& block = lowered.program.blocks[static_cast<size_t>(action.block)];
    for (const ir::Step& step : block.steps) {
      const ir::Listing& listing = lowered.program.listings[static_cast<size_t>(block.listings[step.slot])];
      const ir::Op& op = listing.ops[step.op];
      if (op.def->stream == ir::StreamKind::compute) sum += work(plan, c, listing, op);
    }
  }
  return sum;
}

plan::Plan paced(const Shape& shape, plan::Plan plan, double link_rate, double work_per_s, double step_seconds) {
  const plan::Plan at_balance = plan;
  const model::ModelConfig c = shape.config;
  const double ops_a_byte =
      kRankFlops / link_rate * static_cast<double>(kHidden) / static_cast<double>(shape.real_hidden);
  const double latency_us = kLatencyShare * step_seconds * 1e6;
  plan.rates.message_bytes_per_us = work_per_s / ops_a_byte * 1e-6;
  plan.rates.message_latency_us = latency_us;
  plan.durations = [=](const ir::Listing& listing, const ir::Op& op) -> double {
    if (op.def->stream == ir::StreamKind::compute) return work(at_balance, c, listing, op) / work_per_s * 1e6;
    if (op.def->stream != ir::StreamKind::comm) return 0;
    const int64_t rows = at_balance.sequences * at_balance.sequence_length * c.num_experts_per_tok;
    const double bytes = op.def->cost(listing, op, ir::FixedRows(rows)).message_bytes;
    return bytes * ops_a_byte / work_per_s * 1e6 + latency_us;
  };
  return plan;
}

int run(const Options& options) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  constexpr auto kRight = observe::Align::right;
  observe::Table table({{"model"},
                        {"link"},
                        {"sequences", kRight},
                        {"plan"},
                        {"step, s", kRight},
                        {"simulated", kRight},
                        {"over state", kRight},
                        {"live, MB", kRight}});
  double use = 0;
  for (const Shape& shape : shapes()) {
    if (!options.model.empty() && options.model != shape.name) continue;
    for (const auto& [link, rate] : {std::pair{"nvlink", 360e9}, {"card", 50e9}}) {
      if (!options.link.empty() && options.link != link) continue;
      for (const int sequences : {16, 64}) {
        const double work_per_s =
            step_work(shape.config, plan_of(shape, cases()[0], sequences)) / options.step_seconds;
        double of_state = 0;
        for (const Case& of : cases()) {
          const plan::Plan plan =
              paced(shape, plan_of(shape, of, sequences), rate, work_per_s, options.step_seconds);
          bench::PacedTraining training(shape.config, plan, int64_t{512} << 20);
          const double simulated_s = bench::simulated_us(shape.config, plan) * 1e-6;
          for (int round = 0; round < options.rounds; ++round) training.step();
          if (of_state == 0) of_state = training.seconds();
          use = std::max(use, training.use());
          rows.push_back({{"model", shape.name},
                          {"link", link},
                          {"sequences", sequences},
                          {"plan", of.name},
                          {"step_s", training.seconds()},
                          {"simulated_s", simulated_s},
                          {"over_state", training.seconds() / of_state},
                          {"live_bytes", training.live_bytes()},
                          {"processor_use", training.use()}});
          table.row({shape.name, link, fmt::format("{}", sequences), of.name,
                     fmt::format("{:.2f}", training.seconds()), fmt::format("{:.2f}", simulated_s),
                     fmt::format("{:.2f}", training.seconds() / of_state),
                     fmt::format("{:.1f}", static_cast<double>(training.live_bytes()) * 1e-6)});
          bench::so_far(options.json ? rows.dump() : table.text(false));
        }
      }
    }
  }
  const bool believable = use <= kMostPacedUse;
  if (options.json) {
    fmt::print("{}\n",
               nlohmann::ordered_json{{"plans", rows}, {"processor_use", use}, {"believable", believable}}.dump());
  } else {
    fmt::print("{}busiest step: {:.0f} % of the cores{}\n", table.text(false), 100 * use,
               believable ? "" : "; above 70 % the figures say nothing: give a larger --step-seconds");
  }
  return believable ? 0 : 1;
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
  arguments.number("--rounds", options.rounds);
  arguments.number("--step-seconds", options.step_seconds, 0.01);
  arguments.word("--model", "llama|qwen", options.model, {"llama", "qwen"});
  arguments.word("--link", "nvlink|card", options.link, {"nvlink", "card"});
  arguments.read();
  return heddle::run(options);
}

}  // namespace heddle
