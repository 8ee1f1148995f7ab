// Weak and strong scaling by data, tensor, context, expert and pipeline parallelism, on 1, 2, 4 and 8 ranks, as
// threads in the paced mode (bench/paced_training.h): an op that computes lasts as long as on a device of the
// stated rate, one that communicates as long as its bytes on a link of the stated rate. Dependencies, overlap,
// bubbles and waits are real.
//
// Rates stand in the proportion of a large model on large devices: what a byte costs against an operation is that
// of 400 TFLOP/s and 200 GB/s a rank at hidden size 7168, carried over to this model's hidden size (operations a
// byte grow in proportion to it). Efficiency is the work of the step, as one rank would do it, by rank and second,
// over that of one rank: for strong scaling at one problem, for weak scaling at one that grows with the ranks.
//
// Of what a layout leaves open it takes what the simulator predicts the shortest step of: the three ways of context
// parallelism, tensor parallelism's products whole and in panels. Buckets of gradients are as long as the stated
// links want them.
//
//   build/bench_scaling [--json] [--rounds N] [--step-seconds S] [--axis dp]
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/paced_training.h"
#include "bench/support/believable.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/observe/table.h"

namespace heddle {
namespace {

struct Options {
  bool json = false;
  int rounds = 1;
  double step_seconds = 12;  // of one rank; what starting an op and waking take then weighs little
  std::vector<std::string> axes{"dp", "tp", "cp", "ep", "pp"};
};

constexpr int kLayers = 8;
constexpr int64_t kHidden = 128;
constexpr double kOpsAByte = 400e12 / 200e9 * kHidden / 7168;
constexpr double kLatencyShare = 2e-5;  // of a hop, in steps of one rank: 10 us of half a second

model::ModelConfig model_config() {
  model::ModelConfig c;
  c.vocab_size = 512;
  c.hidden_size = kHidden;
  c.num_hidden_layers = kLayers;
  c.first_k_dense_replace = 0;
  c.num_attention_heads = 8;
  c.q_lora_rank = 48;
  c.kv_lora_rank = 32;
  c.qk_nope_head_dim = 16;
  c.qk_rope_head_dim = 8;
  c.v_head_dim = 16;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 2;
  c.n_shared_experts = 1;
  c.moe_intermediate_size = 64;
  c.max_position_embeddings = 4096;
  return c;
}

// The problem: sequences of a length; and how it is laid on ranks.
struct Case {
  std::string axis;
  bool weak = false;
  int ranks = 1;
  plan::Plan plan(int ranks_of_axis) const {
    plan::Plan p;
    const int grown = weak ? ranks : 1;
    p.dtype = Dtype::bf16;
    p.sequence_length = axis == "cp" ? 256 * grown : 128;
    const int batch = axis == "cp" ? 4 : 8 * grown;  // sequences of a step
    p.microbatches = axis == "pp" ? batch : 1;
    p.sequences = axis == "pp" ? 1 : batch;
    if (axis == "dp" || axis == "ep") {
      p.mesh.dp = ranks_of_axis;
      p.sequences = batch / ranks_of_axis;
    }
    if (axis == "ep") p.mesh.ep = ranks_of_axis;
    if (axis == "tp") p.mesh.tp = ranks_of_axis;
    if (axis == "cp") p.mesh.cp = ranks_of_axis;
    if (axis == "pp") p.mesh.pp = ranks_of_axis;
    return p;
  }
};

// Operations of an op at balanced rows; one without products counts its bytes as 30 each.
double work(const plan::Plan& plan, const model::ModelConfig& c, const ir::Listing& listing, const ir::Op& op) {
  const int64_t tokens = plan.sequences * plan.sequence_length / (plan.mesh.tp * plan.mesh.cp);
  const ir::Cost cost = op.def->cost(listing, op, ir::FixedRows(tokens * c.num_experts_per_tok));
  return cost.flops + 30 * cost.bytes;
}

// The links as passes reckon with them, and the durations of ops at balanced rows.
plan::Plan paced(const model::ModelConfig& c, plan::Plan plan, double work_per_s, double step_seconds) {
  const plan::Plan at_balance = plan;
  plan.rates.message_bytes_per_us = work_per_s / kOpsAByte * 1e-6;
  plan.rates.message_latency_us = kLatencyShare * step_seconds * 1e6;
  plan.durations = [=](const ir::Listing& listing, const ir::Op& op) -> double {
    if (op.def->stream == ir::StreamKind::compute) return work(at_balance, c, listing, op) / work_per_s * 1e6;
    if (op.def->stream != ir::StreamKind::comm) return 0;
    const int64_t tokens =
        at_balance.sequences * at_balance.sequence_length / (at_balance.mesh.tp * at_balance.mesh.cp);
    const double bytes = op.def->cost(listing, op, ir::FixedRows(tokens * c.num_experts_per_tok)).message_bytes;
    return bytes * kOpsAByte / work_per_s * 1e6 + kLatencyShare * step_seconds * 1e6;
  };
  return plan;
}

// Of the plans that a layout leaves open the one with the shortest step, and its word.
std::pair<plan::Plan, std::string> quickest(const model::ModelConfig& c, const plan::Plan& plan) {
  std::vector<std::pair<plan::Plan, std::string>> open;
  if (plan.mesh.cp > 1) {
    for (const model::Context context : {model::Context::gather, model::Context::ring, model::Context::ulysses}) {
      open.emplace_back(plan, word_of(context));
      open.back().first.parallel.context = context;
    }
  } else if (plan.mesh.tp > 1) {
    for (const plan::TpOverlap overlap : {plan::TpOverlap::off, plan::TpOverlap::tiles}) {
      open.emplace_back(plan, word_of(overlap));
      open.back().first.parallel.tp_overlap = overlap;
    }
  } else {
    return {plan, ""};
  }
  return *std::ranges::min_element(open, {}, [&](const auto& one) { return bench::simulated_us(c, one.first); });
}

// Of the whole step of one rank, every microbatch.
double step_work(const model::ModelConfig& c, const plan::Plan& plan) {
  const plan::Lowered lowered = plan::lower(c, plan);
  double sum = 0;
  for (const ir::Action& action : lowered.program.actions_of(0)) {
    const ir::Block& block = lowered.program.blocks[static_cast<size_t>(action.block)];
    for (const ir::Step& step : block.steps) {
      const ir::Listing& listing = lowered.program.listings[static_cast<size_t>(block.listings[step.slot])];
      sum += work(plan, c, listing, listing.ops[step.op]);
    }
  }
  return sum;
}

class Variant {
 public:
  Variant(const model::ModelConfig& c, const Case& of, double work_per_s, double step_seconds) : of_(of) {
    plan::Plan plan;
    std::tie(plan, word_) = quickest(c, paced(c, of.plan(of.ranks), work_per_s, step_seconds));
    run_ = std::make_unique<bench::PacedTraining>(c, plan, int64_t{256} << 20);
    step_work_ = step_work(c, of.plan(1));
    predicted_s_ = bench::simulated_us(c, plan) * 1e-6;
    free_s_ = bench::simulated_us(c, plan, true) * 1e-6;
  }

  void step() { run_->step(); }
  const Case& of() const { return of_; }
  double use() const { return run_->use(); }
  const std::string& word() const { return word_; }
  double seconds() const { return run_->seconds(); }
  double predicted_seconds() const { return predicted_s_; }
  /// As predicted with messages that take no time: what computing alone leaves.
  double free_seconds() const { return free_s_; }
  /// Work a rank and second.
  double rate() const { return step_work_ / of_.ranks / seconds(); }

 private:
  Case of_;
  std::string word_;  // of what its layout left open
  std::unique_ptr<bench::PacedTraining> run_;
  double step_work_ = 0, predicted_s_ = 0, free_s_ = 0;
};

// One axis: a rank alone, then strong and weak scaling, taking turns.
struct Measured {
  nlohmann::ordered_json json;
  std::vector<std::vector<std::string>> rows;
  double use = 0;  // of the cores, in the busiest step
};
Measured measure(const Options& options, const std::string& axis) {
  const model::ModelConfig c = model_config();
  const double work_per_s = step_work(c, Case{"dp"}.plan(1)) / options.step_seconds;
  std::vector<std::unique_ptr<Variant>> variants;
  const auto add = [&](bool weak, int ranks) {
    variants.push_back(std::make_unique<Variant>(c, Case{axis, weak, ranks}, work_per_s, options.step_seconds));
  };
  add(false, 1);
  for (const bool weak : {false, true}) {
    for (const int ranks : {2, 4, 8}) add(weak, ranks);
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (const auto& variant : variants) variant->step();
    if (axis != options.axes[0]) continue;  // what came before it stands there
    nlohmann::ordered_json unfinished{{"axis", axis}, {"rounds", round + 1}};
    for (const auto& variant : variants) {
      const Case& of = variant->of();
      unfinished["step_seconds"][fmt::format("{} {}", of.weak ? "weak" : "strong", of.ranks)] = variant->seconds();
    }
    bench::so_far(unfinished.dump(2));
  }
  Measured found;
  const Variant& alone = *variants[0];
  found.json["one_rank_step_seconds"] = alone.seconds();
  for (const auto& variant : variants) {
    found.use = std::max(found.use, variant->use());
    if (variant == variants[0]) continue;
    const Case& of = variant->of();
    const char* name = of.weak ? "weak" : "strong";
    const double efficiency = variant->rate() / alone.rate(),
                 free = efficiency * variant->seconds() / variant->free_seconds();
    found.json[name][fmt::format("{}", of.ranks)] = {{"efficiency", efficiency},
                                                     {"step_seconds", variant->seconds()},
                                                     {"step_seconds_foretold", variant->predicted_seconds()},
                                                     {"efficiency_of_free_messages", free},
                                                     {"taken", variant->word()}};
    if (of.ranks == 2) found.rows.push_back({axis, name, fmt::format("{:.2f}", alone.seconds())});
    found.rows.back().push_back(fmt::format("{:.2f} {}", efficiency, variant->word()));
    if (of.ranks == 8) found.rows.back().push_back(fmt::format("{:.2f}", free));
  }
  return found;
}

int run(const Options& options) {
  nlohmann::ordered_json json;
  json["operations_a_byte"] = kOpsAByte;
  observe::Table table({{"axis"},
                        {"scaling"},
                        {"1 rank, s", observe::Align::right},
                        {"2", observe::Align::right},
                        {"4", observe::Align::right},
                        {"8", observe::Align::right},
                        {"messages free", observe::Align::right}});
  double use = 0;
  for (const std::string& axis : options.axes) {
    const Measured found = measure(options, axis);
    json["axes"][axis] = found.json;
    for (const std::vector<std::string>& row : found.rows) table.row(row);
    use = std::max(use, found.use);
    bench::so_far(options.json ? json.dump() : table.text(false));
  }
  return bench::tell_paced(options.json, std::move(json),
                           "efficiency: work by rank and second, over that of one rank\n" + table.text(false), use,
                           ": give a larger --step-seconds");
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  std::string axis;
  arguments.flag("--json", options.json);
  arguments.number("--rounds", options.rounds);
  arguments.number("--step-seconds", options.step_seconds, 0.01);
  arguments.word("--axis", "dp|tp|cp|ep|pp", axis, {"dp", "tp", "cp", "ep", "pp"});
  arguments.read();
  if (!axis.empty()) options.axes = {axis};
  return heddle::run(options);
}

}  // namespace heddle
