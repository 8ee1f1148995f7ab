// Step time of a DeepSeek-V3-shaped model whose experts are spread over hosts, by exchange topology: whole training
// steps in the paced mode, the topologies taking turns in one run. Each rank is a process of MPI; `./dev bench
// exchange` starts it on emulated hosts whose links hold 1 Gbit/s.
//
// Paced: an op that computes lasts as long as on a device of the stated rates, asleep, so that ranks which share
// cores do not slow each other down; the exchanges are real. The rates are chosen so that computing takes
// `compute_over_plain` times what the plain exchange's bytes need on the links. The arithmetic itself is left out
// once a real step has said where rows go: the figures are the exchange's, whatever kernels the processor has.
//
//   tools/hosts --hosts 2 --ranks-per-host 2 --rate 1gbit -- build/bench_exchange [--json] [--rounds N] [--link
//   BYTES_PER_S]
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/paced_run.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/statistics.h"
#include "heddle/device/host/allowed_cores.h"
#include "heddle/planner/measure_machine.h"
#include "heddle/planner/profile_file.h"
#include "heddle/runtime/step_prediction.h"

namespace heddle {
namespace {

using bench::Gather, bench::PacedRun, bench::processor_seconds;

struct Options {
  bool json = false;
  int rounds = 5;
  double link_bytes_per_s = 125e6;  // of a host, each way
  std::string profile;              // also foretell the steps, from what `heddle profile` measured on such links
  double compute_over_plain = 1.2;
};

model::ModelConfig model_config() {
  model::ModelConfig c;
  c.vocab_size = 512;
  c.hidden_size = 1024;
  c.num_hidden_layers = 2;
  c.first_k_dense_replace = 0;
  c.num_attention_heads = 4;
  c.q_lora_rank = 96;
  c.kv_lora_rank = 64;
  c.qk_nope_head_dim = 32;
  c.qk_rope_head_dim = 16;
  c.v_head_dim = 32;
  c.n_routed_experts = 32;
  c.num_experts_per_tok = 8;
  c.n_shared_experts = 1;
  c.moe_intermediate_size = 128;
  return c;
}

plan::Plan plan_of(int ranks, const Options& options) {
  plan::Plan plan;
  plan.mesh.dp = plan.mesh.ep = ranks;
  plan.microbatches = 1;
  plan.sequences = 2;
  plan.sequence_length = 512;
  plan.dtype = Dtype::bf16;
  plan.packed_bytes = backends::named("host").packed_bytes;
  plan.parallel.exchange.across_rate = (options.link_bytes_per_s * 1e-6) / 1000;
  plan.parallel.exchange.within_rate = 3;
  plan.parallel.exchange.across_latency_us = 100;
  plan.parallel.exchange.within_latency_us = 20;
  return plan;
}

/// Bytes of rows that the plain exchange of one step sends to other nodes from this rank, from the routing itself:
/// two ways forward, two backward.
double analytic_plain_bytes(PacedRun& variant, const model::ModelConfig& config, comm::World& world) {
  double rows_out = 0;
  const int64_t each = config.n_routed_experts / world.size();
  variant.look([&](const ir::Issue& issue, const device::KernelCall& call) {
    for (size_t i = 0; i < issue.op->out.size(); ++i) {
      const ir::Listing& listing = variant.program().listings[static_cast<size_t>(issue.listing)];
      const std::string& name = listing.value(issue.op->out[i]).name;
      if (!name.ends_with(".experts") || issue.op->phase != ir::Phase::F) continue;
      for (int64_t k = 0; k < call.out[i].elements(); ++k) {
        const int owner = static_cast<int>(call.out[i].as<const int32_t>()[k] / each);
        rows_out += world.node_of(owner) != world.node_of(world.rank());
      }
    }
  });
  // Rows go out once to the experts in either direction of the step, and come back as many times from here to
  // others; over all ranks both are equal, which is what is compared.
  return rows_out * 4 * static_cast<double>(config.hidden_size) * 2;
}

int run(const Options& options) {
  const auto world = comm::mpi_world();
  Gather gather(*world);
  const model::ModelConfig config = model_config();
  int nodes = 0;
  for (int r = 0; r < world->size(); ++r) nodes = std::max(nodes, world->node_of(r) + 1);

  const std::vector<std::string> names{"plain", "merge", "rank", "node", "auto", "plain_four_lists"};
  std::map<std::string, std::unique_ptr<PacedRun>> variants;
  for (const std::string& name : names) {
    plan::Plan plan = plan_of(world->size(), options);
    plan.parallel.exchange.topology = from_word<ir::Topology>(name == "plain_four_lists" ? "plain" : name);
    plan.parallel.reuse_lists = name != "plain_four_lists";
    variants[name] = std::make_unique<PacedRun>(config, plan, *world);
  }
  PacedRun& plain = *variants.at("plain");
  const double analytic = gather.sum(analytic_plain_bytes(plain, config, *world));
  const comm::Traffic before = plain.traffic();
  plain.step();
  const double counted =
      gather.sum(static_cast<double>(plain.traffic().across_nodes_bytes - before.across_nodes_bytes));
  const double link_seconds = analytic / nodes / options.link_bytes_per_s;
  const double work_per_s = plain.work() / (link_seconds * options.compute_over_plain);
  for (auto& [name, variant] : variants) {
    variant->stand_in();
    variant->pace(work_per_s);
    variant->executor().set_trace(true);
    variant->step();
    variant->exchange_seconds();
  }

  std::map<std::string, std::vector<double>> seconds, exchange;
  const double cpu = processor_seconds();
  const planner::OthersWatch others;
  const double began = now_s();
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string& name = names[(i + static_cast<size_t>(round)) % names.size()];
      gather.sum(0);  // together
      const double took = gather.most(variants.at(name)->step());
      seconds[name].push_back(took);
      exchange[name].push_back(gather.most(variants.at(name)->exchange_seconds()));
    }
    if (world->rank() != 0) continue;
    nlohmann::ordered_json unfinished{{"rounds", round + 1}};
    for (const std::string& name : names) unfinished["step_seconds"][name] = median(seconds.at(name));
    bench::so_far(unfinished.dump(options.json ? -1 : 2));
  }
  const double wall = now_s() - began;
  const double use = gather.sum(processor_seconds() - cpu) / (wall * device::allowed_cores());
  // Of all programs that are not this rank; the other ranks are counted with the run.
  const double others_share =
      std::max(0.0, gather.sum(others.share()) / world->size() - use * (world->size() - 1) / world->size());
  if (world->rank() != 0) return 0;

  const auto over = [&](const std::string& name) {
    std::vector<double> ratios;
    for (size_t i = 0; i < seconds.at(name).size(); ++i)
      ratios.push_back(seconds.at("plain")[i] / seconds.at(name)[i]);
    return median(ratios);
  };
  nlohmann::ordered_json found;
  found["ranks"] = world->size();
  found["hosts"] = nodes;
  found["link_bytes_per_s"] = options.link_bytes_per_s;
  for (const std::string& name : names) found["step_seconds"][name] = median(seconds.at(name));
  if (!options.profile.empty()) {
    const cost::MachineProfile profile = planner::read_profile(options.profile);
    for (const std::string& name : names) {
      runtime::PredictionInput input;
      input.over = cost::Link::nodes;
      for (int r = 0; r < world->size(); ++r) input.node_of.push_back(world->node_of(r));
      input.pace_ns = variants.at(name)->pace_ns();
      const runtime::StepPrediction f =
          runtime::predict_step(config, variants.at(name)->plan(), variants.at(name)->lowered(), profile, input);
      found["foretold_seconds"][name] = f.step_us * 1e-6;
    }
  }
  found["plain_over_merged"] = over("merge");
  found["plain_over_rank_dedup"] = over("rank");
  found["plain_over_dedup"] = over("node");
  found["plain_over_auto"] = over("auto");
  found["auto_over_best"] = std::max({over("merge"), over("rank"), over("node"), 1.0}) / over("auto");
  found["four_lists_over_one"] = 1 / over("plain_four_lists");
  found["plain_exchange_share"] = median(exchange.at("plain")) / median(seconds.at("plain"));
  found["plain_bytes_across"] = counted;
  found["plain_bytes_across_analytic_rows"] = analytic;
  found["plain_link_use"] = counted / nodes / median(exchange.at("plain")) / options.link_bytes_per_s;
  found["processor_use"] = use;
  found["others_share"] = others_share;
  found["believable"] = use <= 0.7;
  fmt::print("{}\n", found.dump(options.json ? -1 : 2));
  return use <= 0.7 ? 0 : 1;
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
  arguments.number("--rounds", options.rounds);
  arguments.number("--link", options.link_bytes_per_s);
  arguments.word("--profile", "FILE", options.profile);
  arguments.read();
  check_launched();
  return heddle::run(options);
}

}  // namespace heddle
