// Sharded gradients and weights against cut optimizer state and against pipelines: whole steps of ranks as threads
// in the paced mode (bench/paced_training.h), and the simulator's steps beside them.
//
// Models have the proportions of Llama-3-70B and Qwen3-30B-A3B at a hidden size of 128. A sequence of 4,096 tokens
// shrinks as the hidden size does, and so do the operations that a byte of a link costs: 400 TFLOP/s a rank, and
// 360 GB/s (NVLink) or 50 GB/s (a card of 400 Gbit/s). So a gathered weight, a gradient and an activation take the
// shares of a step that they have there.
//
// With --wide the models have their own widths and layers, on 64 H100 in nodes of 8, and are simulated alone: the
// program of all ranks, 256 sequences of 4,096 tokens, layers computed again. An op lasts as long as on a device
// that reaches 40 % of its products and 80 % of its memory's rate; links reach 80 %. Each rank sends to every other
// of a group: over NVLink within its node, over its own card beyond it.
//
//   build/bench_sharding [--json] [--schedules] [--wide] [--ranks N] [--layers N] [--rounds N] [--step-seconds S]
//                        [--model llama] [--link card]
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/paced_training.h"
#include "bench/support/believable.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/observe/table.h"
#include "heddle/passes/recompute.h"
#include "heddle/plan/costs/durations.h"

namespace heddle {
namespace {

constexpr int64_t kHidden = 128;
constexpr double kRankFlops = 400e12, kOpsOfAByte = 30;  // of memory
constexpr double kLatencyShare = 2e-6;                   // of a message, in steps

struct Options {
  bool json = false, schedules = false, wide = false;
  int rounds = 1, ranks = 8, layers = 0;  // 0: the model's
  double step_seconds = 4;                // that a rank computes
  std::string model, link;                // "": both
};

struct Shape {
  std::string name;
  model::ModelConfig config;
  int64_t real_hidden = 0;
};

std::vector<Shape> shapes(const Options& options) {
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
  std::vector<Shape> all{{"llama", llama, 8192}, {"qwen", qwen, 2048}};
  for (Shape& shape : all) {
    const bool dense = shape.config.first_k_dense_replace > 0;
    if (options.layers > 0) shape.config.num_hidden_layers = options.layers;
    if (dense) shape.config.first_k_dense_replace = shape.config.num_hidden_layers;
  }
  return all;
}

/// Llama-3-70B (arXiv 2407.21783) and Qwen3-30B-A3B (arXiv 2505.09388) whole.
std::vector<Shape> wide_shapes(const Options& options) {
  std::vector<Shape> all = shapes(options);
  for (Shape& shape : all) {
    model::ModelConfig& c = shape.config;
    const bool dense = c.first_k_dense_replace > 0;
    c.hidden_size = shape.real_hidden;
    c.vocab_size = dense ? 128256 : 151936;
    c.intermediate_size = dense ? 28672 : 6144;
    c.num_attention_heads = dense ? 64 : 32;
    c.num_key_value_heads = dense ? 8 : 4;
    c.head_dim = 128;
    if (options.layers == 0) c.num_hidden_layers = dense ? 80 : 48;
    c.first_k_dense_replace = dense ? c.num_hidden_layers : 0;
    c.max_position_embeddings = 4096;
    if (dense) continue;
    c.n_routed_experts = 128;
    c.num_experts_per_tok = 8;
    c.moe_intermediate_size = 768;
  }
  return all;
}

struct Case {
  std::string name;
  int dp = 1, pp = 1;
  passes::Shard shard = passes::Shard::state;
  std::string schedule = "1f1b";
  int shard_ranks = 0;
};
/// Sharding without a pipeline, and pipelines: 1F1B, or with `schedules` the others at 2 and 4 stages.
std::vector<Case> cases(const Options& o) {
  using passes::Shard;
  const int n = o.ranks;
  if (o.wide) {
    return {{"state", n},
            {"gradients", n, 1, Shard::gradients},
            {"weights", n, 1, Shard::weights},
            {"weights, shard_ranks 8", n, 1, Shard::weights, "1f1b", 8},
            {"pp 4, 1f1b", n / 4, 4},
            {"pp 4, interleaved", n / 4, 4, Shard::state, "interleaved"},
            {"pp 4, interleaved, weights", n / 4, 4, Shard::weights, "interleaved"},
            {"pp 8, 1f1b", n / 8, 8},
            {"pp 8, interleaved", n / 8, 8, Shard::state, "interleaved"},
            {"pp 8, zb_h1", n / 8, 8, Shard::state, "zb_h1"},
            {"pp 8, dual_pipe_v", n / 8, 8, Shard::state, "dual_pipe_v"}};
  }
  if (!o.schedules) {
    return {{"state", n},
            {"gradients", n, 1, Shard::gradients},
            {"weights", n, 1, Shard::weights},
            {fmt::format("pp 2, dp {}", n / 2), n / 2, 2},
            {fmt::format("pp 8{}", n > 8 ? fmt::format(", dp {}", n / 8) : ""), n / 8, 8}};
  }
  std::vector<Case> all{{"state", n}, {"weights", n, 1, Shard::weights}};
  for (const int pp : {2, 4}) {
    const int dp = n / pp;
    for (const char* schedule : {"1f1b", "interleaved", "zb_h1", "dual_pipe_v"})
      all.push_back({fmt::format("pp {}, dp {}, {}", pp, dp, schedule), dp, pp, Shard::state, schedule});
  }
  all.push_back({fmt::format("pp 2, dp {}, interleaved, weights", n / 2), n / 2, 2, Shard::weights, "interleaved"});
  return all;
}

/// `sequences` of a step; a microbatch has one in a pipeline, else at most two.
plan::Plan plan_of(const Shape& shape, const Case& of, int sequences) {
  plan::Plan p;
  p.dtype = Dtype::bf16;
  p.sequence_length = 4096 * kHidden / shape.real_hidden;
  p.mesh.dp = of.dp;
  p.mesh.pp = of.pp;
  if (shape.config.first_k_dense_replace < shape.config.num_hidden_layers) p.mesh.ep = std::min(of.dp, 8);
  p.sequences = of.pp > 1 ? 1 : std::min<int64_t>(2, sequences / of.dp);
  p.microbatches = static_cast<int>(sequences / of.dp / p.sequences);
  p.parallel.shard = of.shard;
  p.parallel.shard_ranks = of.shard_ranks;
  p.parallel.schedule = of.schedule;
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

constexpr int kNode = 8;
constexpr double kReached = 0.8, kFlopsReached = 0.4, kLinkGBs = 450, kCardGBs = 50;

/// On the H100s of a node's NVLink (450 GB/s each way) and a card of 400 Gbit/s each.
plan::Plan on_h100(plan::Plan plan) {
  plan.sequence_length = 4096;
  plan.sequences = 1;
  plan.memory.recompute = passes::recompute_groups("layer");
  plan.rates.flops_per_us = kFlopsReached * 989e6;
  plan.rates.bytes_per_us = kReached * 3350e3;
  const plan::Mesh mesh(plan.mesh);
  const auto rate_of = [mesh](const std::string& group) {
    const std::vector<int> ranks = mesh.group(group, 0);
    const auto inside =
        static_cast<double>(std::count_if(ranks.begin(), ranks.end(), [](int r) { return r < kNode; }));
    const double all = static_cast<double>(ranks.size()), others = std::max(1.0, all - 1);
    const double us_of_kb = std::max((inside - 1) / others / kLinkGBs, (all - inside) / others / kCardGBs);
    return us_of_kb > 0 ? 1e3 * kReached / us_of_kb : 1e3 * kReached * kLinkGBs;
  };
  // Gathers are placed by the rate of the weights' own.
  plan.rates.message_bytes_per_us = plan.parallel.shard_ranks > 0 ? 1e3 * kReached * kLinkGBs : rate_of("dense");
  plan.rates.message_latency_us = 10;
  const passes::Durations computing = plan::nominal_durations(plan.parallel.exchange, plan.rates);
  const int64_t rows = plan.sequences * plan.sequence_length * 8;
  plan.durations = [=](const ir::Listing& listing, const ir::Op& op) -> double {
    if (op.def->stream == ir::StreamKind::compute) return computing(listing, op);
    if (op.def->stream != ir::StreamKind::comm) return 0;
    return 10 + op.def->cost(listing, op, ir::FixedRows(rows)).message_bytes / rate_of(std::string(op.group));
  };
  return plan;
}

int run_wide(const Options& options) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  constexpr auto kRight = observe::Align::right;
  observe::Table table({{"model"}, {"plan"}, {"step, s", kRight}, {"over state", kRight}, {"live, GiB", kRight}});
  for (const Shape& shape : wide_shapes(options)) {
    if (!options.model.empty() && options.model != shape.name) continue;
    double of_state = 0;
    for (const Case& of : cases(options)) {
      constexpr int kSequences = 256;
      plan::Plan plan = plan_of(shape, of, kSequences);
      plan.microbatches = kSequences / of.dp;
      plan = on_h100(plan);
      const bench::SimulatedStep step = bench::simulated_step(shape.config, plan);
      if (of_state == 0) of_state = step.us;
      const double live_gib = static_cast<double>(step.live_bytes) / (1 << 30);
      rows.push_back({{"model", shape.name},
                      {"plan", of.name},
                      {"simulated_s", step.us * 1e-6},
                      {"over_state", step.us / of_state},
                      {"live_bytes", step.live_bytes}});
      table.row({shape.name, of.name, fmt::format("{:.2f}", step.us * 1e-6),
                 fmt::format("{:.2f}", step.us / of_state), fmt::format("{:.1f}", live_gib)});
      bench::so_far(options.json ? rows.dump() : table.text(false));
    }
  }
  if (options.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"plans", rows}}.dump());
  else
    fmt::print("{}", table.text(false));
  return 0;
}

int run(const Options& options) {
  if (options.wide) return run_wide(options);
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
  for (const Shape& shape : shapes(options)) {
    if (!options.model.empty() && options.model != shape.name) continue;
    for (const auto& [link, rate] : {std::pair{"nvlink", 360e9}, {"card", 50e9}}) {
      if (!options.link.empty() && options.link != link) continue;
      std::vector<int> batches{2 * options.ranks};
      if (options.ranks <= kNode) batches.push_back(8 * options.ranks);
      for (const int sequences : batches) {
        const double work_per_s =
            step_work(shape.config, plan_of(shape, {"state", options.ranks}, sequences)) / options.step_seconds;
        double of_state = 0;
        for (const Case& of : cases(options)) {
          const plan::Plan plan =
              paced(shape, plan_of(shape, of, sequences), rate, work_per_s, options.step_seconds);
          bench::PacedTraining training(shape.config, plan, (int64_t{4} << 30) / options.ranks);
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
  return bench::tell_paced(options.json, {{"plans", rows}}, table.text(false), use,
                           ": give a larger --step-seconds");
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
  arguments.flag("--schedules", options.schedules);
  arguments.flag("--wide", options.wide);
  arguments.number("--ranks", options.ranks);
  arguments.number("--layers", options.layers);
  arguments.number("--rounds", options.rounds);
  arguments.number("--step-seconds", options.step_seconds, 0.01);
  arguments.word("--model", "llama|qwen", options.model, {"llama", "qwen"});
  arguments.word("--link", "nvlink|card", options.link, {"nvlink", "card"});
  arguments.read();
  if (options.wide && options.ranks == kNode) options.ranks = 64;
  if (options.ranks % kNode != 0) config_error("--ranks is {}, accepted: multiples of {}", options.ranks, kNode);
  return heddle::run(options);
}

}  // namespace heddle
