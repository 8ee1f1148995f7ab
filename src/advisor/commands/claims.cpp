// heddle claims: the table, and those claims that estimates and schedules answer.
#include "advisor/commands/claims.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cost/collective.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/search/block_work.h"
#include "heddle/search/launch.h"

namespace heddle::cli {

namespace {

struct ClaimsOptions {
  std::string name;  // empty: all
  bool json = false;
};

using search::GroupName;
using search::Job;

Job job_of(const char* model, const char* device, const plan::Degrees& mesh, int global_batch, int chunks = 1) {
  Job j;
  j.shape = *model::find_shape(model);
  j.device = *cost::accelerator_named(device);
  j.mesh = mesh;
  j.chunks = chunks;
  j.global_batch = global_batch;
  return j;
}

search::Estimate possible(const Job& j) {
  search::Estimate e = search::estimate(j);
  HEDDLE_CHECK(e.reason.empty(), "a claim's job can't be: {}", e.reason);
  return e;
}

double speedup(const Job& with, const Job& without) { return possible(without).step_s / possible(with).step_s - 1; }

// DeepSeek-V3 as it was published: 2,048 H800, PP 16, EP 64.
Job published_deepseek() {
  Job j = job_of("DeepSeek-V3", "H800", {.dp = 128, .pp = 16, .ep = 64}, 15360);
  j.precision = cost::Precision::block8;
  return j;
}

// A token's row goes to the same slot of every node, then to the node's experts, and sums come back the same way.
double merging() {
  Job plain = job_of("DeepSeek-V3", "Ascend-910B", {.dp = 64, .pp = 16, .ep = 16}, 4096);
  plain.exchange.topology = ir::Topology::plain;
  const model::Shape& s = plain.shape;
  const search::Behaviour behaviour;
  const double tokens = plain.sequence, row = 2.0 * static_cast<double>(s.hidden_size);
  const int in_node = plain.device.inner.ranks, nodes = plain.mesh.ep / in_node;
  cost::ExchangeLoad one{tokens, row, static_cast<int>(s.num_experts_per_tok),
                         static_cast<int>(s.reachable_groups()), false};
  const double before = cost::exchange_s(plain.device, behaviour.net, {plain.mesh.ep, 1}, one);
  // All nodes' tokens of this slot are here; half of each one's experts (of two nodes) stand on this node.
  cost::ExchangeLoad inside{tokens * nodes, row, static_cast<int>(s.num_experts_per_tok) / nodes, 0, false};
  const double after = cost::gather_s(plain.device, behaviour.net, {nodes, in_node}, tokens * nodes * row) +
                       cost::exchange_s(plain.device, behaviour.net, {in_node, 1}, inside);
  const search::Estimate e = possible(plain);
  // The bubble is made of the same layers: it shrinks in proportion.
  const double saved = e.time.exchange * (1 - after / before);
  const double layers = e.step_s - e.time.bubble;
  return e.step_s / (e.step_s - saved * (1 + e.time.bubble / layers)) - 1;
}

// Efficiency of ZB-H1 over 1F1B's for the times that the Zero Bubble paper measured.
double zero_bubble(int ranks, int microbatches, double f, double b, double w, double hop) {
  schedule::GeneratorOptions options;
  options.ranks = ranks;
  options.microbatches = microbatches;
  const auto rate = [&](const char* name) {
    const schedule::Schedule s = schedule::make_schedule(name, options);
    return 1 - schedule::timing_of(s, schedule::even_times(s.placement, {f, b, w, 0}, 1, hop)).staggered_rate();
  };
  return rate("zb_h1") / rate("1f1b") - 1;
}

// 61 layers on eight ranks: two chunks of up to four layers each, three places empty, against one chunk of seven or
// eight, which needs no equal chunks.
double empty_layers(int microbatches) {
  const Job j = job_of("DeepSeek-V3", "C500", {.dp = 128, .pp = 8, .ep = 8}, 128 * microbatches);
  const search::Behaviour behaviour;
  const search::Layers of =
      search::layers_of(j, search::prices_of(j, model::parameters_of(j.shape), behaviour), behaviour);
  const auto step = [&](const char* name, int chunks, const std::vector<int>& layers) {
    schedule::GeneratorOptions options;
    options.ranks = j.mesh.pp;
    options.microbatches = microbatches;
    options.chunks = chunks;
    const schedule::Schedule s = schedule::make_schedule(name, options);
    schedule::Times times;
    for (const int n : layers)
      times.stages.push_back({n * of.forward_s, n * (of.layer_s - of.forward_s - of.weight_s), n * of.weight_s, 0});
    return schedule::timing_of(s, times).makespan;
  };
  std::vector<int> one(8, 8), two(16, 4);
  one[0] = one[6] = one[7] = 7;  // 61 of 64
  two[0] = two[14] = two[15] = 3;
  return step("1f1b", 1, one) / step("interleaved", 2, two) - 1;
}

double overlap() {
  Job j = job_of("Qwen3-30B-A3B", "H100", {.dp = 16, .ep = 16}, 512);
  Job on = j;
  on.software.overlap_exchange = true;
  on.exchange.topology = j.exchange.topology = ir::Topology::plain;
  return speedup(on, j);
}

double dual_pipe_v_speed(bool over_overlap) {
  Job plain = published_deepseek(), v = plain;
  plain.chunks = 2;
  plain.software.overlap_exchange = over_overlap;
  // MindSpeed's and MXMACA's exchange is an all-to-all: every expert gets a row of its own.
  plain.exchange.topology = v.exchange.topology = ir::Topology::plain;
  v.pipeline = schedule::find_pipeline("dual_pipe_v");
  return speedup(v, plain);
}

double dual_pipe_v_memory() {
  Job one = published_deepseek(), v = one;
  one.pipeline = schedule::find_pipeline("dual_pipe");
  v.pipeline = schedule::find_pipeline("dual_pipe_v");
  for (Job* j : {&one, &v}) j->recompute = {GroupName::norm, GroupName::mla_up, GroupName::activation};
  return possible(v).peak_bytes / possible(one).peak_bytes - 1;
}

// Gain of an even load over one whose fullest rank has `imbalance` of the mean.
double balance(double sequence, int cp, double imbalance) {
  Job j = job_of("Qwen3-235B-A22B", "H100", {.tp = 2, .cp = cp, .dp = 16 / cp, .pp = 8, .ep = 32}, 512, 4);
  j.sequence = sequence;
  j.software.overlap_exchange = true;
  Job uneven = j;
  uneven.imbalance = imbalance;
  return speedup(j, uneven);
}

// Gain of copies under the worst imbalance, over living with it. Products run at 0.45 of the peak; a node's links
// to others are those of all its devices.
double copies_of_hot_experts(double imbalance) {
  Job uneven = job_of("Qwen3-235B-A22B", "H100", {.tp = 2, .dp = 16, .pp = 8, .ep = 32}, 512, 4);
  uneven.software.overlap_exchange = true;
  const model::Shape& s = uneven.shape;
  const auto on_node = static_cast<int64_t>(uneven.device.inner.ranks);
  const double after =
      imbalance_with_replicas({.ranks = uneven.mesh.ep,
                               .ranks_on_node = on_node,
                               .experts = s.n_routed_experts,
                               .hidden = static_cast<int64_t>(s.hidden_size),
                               .width = s.moe_intermediate_size,
                               .rows = static_cast<int64_t>(uneven.sequence) * s.num_experts_per_tok,
                               .flops_per_s = 0.45 * uneven.device.flops(uneven.precision),
                               .within_bytes_per_s = uneven.device.inner.bytes_per_s,
                               .across_bytes_per_s = uneven.device.outer.bytes_per_s * static_cast<double>(on_node),
                               .imbalance = imbalance});
  Job copied = uneven;
  copied.imbalance = after;
  uneven.imbalance = imbalance;
  return speedup(copied, uneven);
}

}  // namespace

const std::vector<Claim>& claims() {
  static const std::vector<Claim> all{
      {"merging", "exchange merged across nodes over plain all-to-all",
       "DeepSeek-V3, EP 16; 1,024 Ascend 910B, PP 16 (ours)", 0.15, 0.15, "MindSpore's article: +15 % end to end",
       "estimate", merging},
      {"list_reuse", "one host stall a layer over four", "DeepSeek-V3's width, EP 16, 2 layers with experts (ours)",
       0.05, 0.05, "MindSpore's article: +5 %", "program", gain_of_list_reuse},
      {"in_layer_overlap", "exchanges under compute of the same layer over none",
       "DeepSeek-V3's width, EP 16, 2 layers with experts (ours)", 0.08, 0.10, "MXMACA's article: +8 to 10 %",
       "program", gain_of_weaving},
      {"dual_pipe_v", "DualPipeV over interleaved 1F1B with exchanges hidden in part",
       "DeepSeek-V3, 2,048 H800, PP 16, EP 64, all-to-all", 0.10, 0.10,
       "MindSpeed's documentation and MXMACA's article: +10 %", "estimate", [] { return dual_pipe_v_speed(true); }},
      {"dual_pipe_v_bare", "DualPipeV over interleaved 1F1B that hides no exchange",
       "DeepSeek-V3, 2,048 H800, PP 16, EP 64, all-to-all", 0.10, 0.10,
       "MXMACA's article, which doesn't say over what: +10 %", "estimate", [] { return dual_pipe_v_speed(false); }},
      {"dual_pipe_v_memory", "peak memory of DualPipeV over DualPipe", "DeepSeek-V3, 2,048 H800, PP 16, EP 64",
       -0.20, -0.20, "MXMACA's article: -20 %", "estimate", dual_pipe_v_memory},
      {"zb_h1", "ZB-H1 over 1F1B", "6.2B, 8 ranks, 24 microbatches, times of arXiv 2401.10241", 0.08, 0.12,
       "MXMACA's article: +8 to 12 %", "schedule",
       [] { return zero_bubble(8, 24, 29.718, 29.444, 19.927, 0.527); }},
      {"zb_h1_small", "ZB-1p over 1F1B", "1.5B, 8 ranks, 24 microbatches", 12.9 / 11.8 - 1, 12.9 / 11.8 - 1,
       "arXiv 2401.10241, table 4: 12.9 and 11.8 samples/s", "schedule",
       [] { return zero_bubble(8, 24, 18.522, 18.086, 9.337, 0.601); }},
      {"zb_h1_large", "ZB-1p over 1F1B", "28.3B, 32 ranks, 96 microbatches", 0.87 / 0.76 - 1, 0.87 / 0.76 - 1,
       "arXiv 2401.10241, table 4: .87 and .76 samples/s", "schedule",
       [] { return zero_bubble(32, 96, 10.419, 10.207, 7.715, 0.408); }},
      {"empty_layers", "61 layers on 64 places of two chunks over uneven 1F1B",
       "DeepSeek-V3, PP 8, 64 microbatches (ours)", 0.06, 0.06, "MXMACA's article: +6 %", "schedule",
       [] { return empty_layers(64); }},
      {"exchange_overlap", "exchange under another microbatch's compute over none", "Qwen3-30B-A3B, 16 H100, EP 16",
       41.25 / 31.31 - 1, 41.25 / 31.31 - 1, "Megatron-Bridge's documentation: 41.25 s to 31.31 s", "estimate",
       overlap},
      {"hot_experts_16k", "even over natural routing",
       "Qwen3-235B, 256 H100, sequence 16,384; fullest rank 1.15 (ours)", 295.0 / 237 - 1, 295.0 / 237 - 1,
       "Megatron-Bridge's tables: 295 and 237 TFLOP/s", "estimate", [] { return balance(16384, 1, 1.15); }},
      {"hot_experts_worst", "even over a fullest rank of 1.30 to 4.01 of the mean (here their mean, 2.65)",
       "Qwen3-235B, 256 H100, EP 32 (ours)", 0.49, 0.49, "UltraEP, arXiv 2606.04101: 1.49 times", "estimate",
       [] { return balance(4096, 1, 2.65); }},
      {"hot_experts_copies", "replicas of hot experts over none at 2.65 of the mean, as placed here",
       "Qwen3-235B, 256 H100, EP 32, 8 a node (ours)", 0.49, 0.49, "UltraEP, arXiv 2606.04101: 1.49 times",
       "estimate", [] { return copies_of_hot_experts(2.65); }},
  };
  return all;
}

namespace {

int print_claims(const ClaimsOptions& o) {
  using Json = nlohmann::ordered_json;
  std::vector<std::string> names;
  for (const Claim& c : claims()) names.push_back(c.name);
  if (!o.name.empty() && std::find(names.begin(), names.end(), o.name) == names.end())
    config_error("claims: '{}' is not known, accepted: {}{}", o.name.substr(0, 60), fmt::join(names, ", "),
                 did_you_mean(o.name, names));
  observe::Table table({{"claim"},
                        {"ours", observe::Align::right},
                        {"published", observe::Align::right},
                        {"of what"},
                        {"where"},
                        {"by"},
                        {"source"}});
  Json all = Json::array();
  auto doing = std::make_unique<observe::Doing>("computing");
  const auto percent = [](double part) { return fmt::format("{:+.1f} %", 100 * part); };
  for (const Claim& c : claims()) {
    if (!o.name.empty() && c.name != o.name) continue;
    doing->now("computing " + c.name);
    const double ours = c.ours();
    table.row({c.name, percent(ours), c.low == c.high ? percent(c.low) : percent(c.low) + " to " + percent(c.high),
               c.what, c.setting, c.by, c.source});
    all.push_back({{"claim", c.name},
                   {"ours", ours},
                   {"published_low", c.low},
                   {"published_high", c.high},
                   {"what", c.what},
                   {"setting", c.setting},
                   {"by", c.by},
                   {"source", c.source}});
  }
  doing.reset();  // the table has the terminal to itself
  say("{}", o.json ? all.dump(2) + "\n" : table.text(observe::describe_terminal(1)));
  return kDone;
}

}  // namespace

void add_claims(Commands& all) {
  auto [command, options] =
      add_command(all, "claims", "Published claims beside what is computed here for their settings", print_claims);
  command.option("NAME", options.name, "One claim, such as merging; without it, all");
  add_json(command, options.json);
}

}  // namespace heddle::cli
