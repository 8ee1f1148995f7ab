// Ring attention over gathered keys (parallel.context), at cp 2 and 4 and sequences of 8k and 32k tokens: time of
// attention on the host's kernels, a whole layer's forward and backward with its messages, and memory of a rank.
//
// host: a layer with the heads of DeepSeek-V3 (192 and 128 wide, latent of 512 and 64) and few of them. The kernels
// of one rank run for real, on one thread (bench/lone_rank.h); a causal mask gives every rank as much. The ranks
// then run together in the paced mode (bench/paced_ranks.h), each op as long as it has lasted, each message as long
// as its bytes on a link of 100 Gbit/s.
// H100: a whole layer of DeepSeek-V3 at the rates of bench/linked_device.h and two links, ulysses beside the
// others. hybrid, at cp 4, has runs of two ranks.
// nodes: layers of Llama-2-70B on two nodes of eight H100s, cp 16. A hop inside a node has NVLink, one that leaves
// it the card of one device, 400 Gbit/s. hybrid and double_ring have runs of a node.
//
//   exposed = step time − step time with messages that take no time
//
//   build/bench_ring_attention [--json] [--rounds N] [--sequence N] [--cp N] [--on host|h100|nodes]
//     [--dtype bf16|f32]
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "bench/lone_rank.h"
#include "bench/paced_ranks.h"
#include "bench/published_models.h"
#include "bench/support/believable.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/observe/table.h"

namespace heddle {
namespace {

struct Options {
  bool json = false;
  int rounds = 3;
  int64_t sequence = 0, cp = 0;  // 0: both
  std::string on;
  Dtype dtype = Dtype::bf16;
};

struct Link {
  const char* name;
  double rate_GB, latency_us;  // of a rank, each way
};
constexpr double kStretch = 10;  // of what a device takes
constexpr Link kHostLink{"100 Gbit/s", 12.5, 5};
constexpr Link kCard{"400 Gbit/s between nodes", 47.5, 8};
constexpr Link kDeviceLinks[] = {{"NVLink", 360, 3}, {"PCIe Gen 5", 51, 6}};

// A dense layer; but for its heads it weighs little.
model::ModelConfig few_heads(int64_t tokens) {
  model::ModelConfig c = bench::deepseek_v3(tokens);
  c.vocab_size = 512;
  c.hidden_size = 512;
  c.num_hidden_layers = c.first_k_dense_replace = 1;
  c.intermediate_size = 512;
  c.num_attention_heads = 2;
  c.q_lora_rank = 0;
  return c;
}
// Dense too: no exchange of rows is to hide what is measured.
model::ModelConfig layer_of_deepseek_v3(int64_t tokens) {
  model::ModelConfig c = bench::deepseek_v3(tokens);
  c.vocab_size = 2112;
  c.num_hidden_layers = c.first_k_dense_replace = 1;
  return c;
}

plan::Plan plan_of(int cp, int64_t sequence, const char* context, const Link& link, Dtype dtype) {
  plan::Plan plan;
  plan.mesh.cp = cp;
  plan.sequence_length = sequence;
  plan.dtype = dtype;
  plan.rates = bench::rates_of(bench::kLinkedDevices[0]);
  plan.rates.message_bytes_per_us = link.rate_GB * 1e3;
  plan.rates.message_latency_us = link.latency_us;
  plan.parallel.context = from_word<model::Context>(context);
  return plan;
}

// One way of context parallelism.
struct Way {
  std::unique_ptr<bench::PacedRanks> ranks, free;
  std::optional<double> forward_ms, backward_ms;  // of attention's kernels
  std::string kernel;
  int64_t memory_bytes = 0;

  double exposed_ms() const { return ranks->ms() - free->ms(); }
};

Way host_way(const model::ModelConfig& c, plan::Plan plan, int rounds) {
  plan.packed_bytes = backends::named("host").packed_bytes;
  const std::vector<std::vector<double>> us = bench::kernel_us(c, plan, rounds);
  const plan::Lowered lowered = plan::lower(c, plan);
  Way way;
  way.memory_bytes = runtime::predict_memory(lowered.program, 0, "host").peak_live_bytes;
  const ir::Listing& listing = lowered.program.listings[0];
  double forward_us = 0, backward_us = 0;
  for (size_t i = 0; i < listing.ops.size(); ++i) {
    const ir::Op& op = listing.ops[i];
    if (!op.kind().starts_with("attention")) continue;
    (op.phase == ir::Phase::F ? forward_us : backward_us) += us[0][i];
    if (op.kind() == "attention" || op.kind() == "attention_part")
      way.kernel = backends::named("host").select_kernel(listing, op).name;
  }
  way.forward_ms = forward_us * 1e-3;
  way.backward_ms = backward_us * 1e-3;
  const auto messages = plan::nominal_durations(plan.parallel.exchange, plan.rates);
  const auto lasts = [us, messages, lowered](int of, uint32_t op) {
    const ir::Listing& text = lowered.program.listings[static_cast<size_t>(of)];
    return ir::communicates(*text.ops[op].def) ? messages(text, text.ops[op]) : us[static_cast<size_t>(of)][op];
  };
  way.ranks = std::make_unique<bench::PacedRanks>(c, plan, 1, false, lasts);
  way.free = std::make_unique<bench::PacedRanks>(c, plan, 1, true, lasts);
  return way;
}

Way device_way(const model::ModelConfig& c, const plan::Plan& plan, double stretch,
               const bench::PacedRanks::LastsUs& lasts = nullptr) {
  Way way;
  way.memory_bytes = runtime::predict_memory(plan::lower(c, plan).program, 0, "host").peak_live_bytes;
  way.ranks = std::make_unique<bench::PacedRanks>(c, plan, stretch, false, lasts);
  way.free = std::make_unique<bench::PacedRanks>(c, plan, stretch, true, lasts);
  return way;
}

// What is said in a run of neighbours stays in their node.
Way way_between_nodes(const model::ModelConfig& c, const plan::Plan& plan, double stretch) {
  plan::DeviceRates outside = plan.rates;
  outside.message_bytes_per_us = kCard.rate_GB * 1e3;
  outside.message_latency_us = kCard.latency_us;
  const auto near = plan::nominal_durations(plan.parallel.exchange, plan.rates),
             far = plan::nominal_durations(plan.parallel.exchange, outside);
  return device_way(c, plan, stretch, [near, far, lowered = plan::lower(c, plan)](int of, uint32_t op) {
    const ir::Listing& text = lowered.program.listings[static_cast<size_t>(of)];
    return (text.ops[op].group.starts_with("cp_in") ? near : far)(text, text.ops[op]);
  });
}

struct Table {
  observe::Table text{{{"on"},
                       {"link"},
                       {"tokens", observe::Align::right},
                       {"cp", observe::Align::right},
                       {"context"},
                       {"attention, ms", observe::Align::right},
                       {"backward, ms", observe::Align::right},
                       {"of the first", observe::Align::right},
                       {"step, ms", observe::Align::right},
                       {"foretold", observe::Align::right},
                       {"of the first", observe::Align::right},
                       {"exposed, ms", observe::Align::right},
                       {"MiB a rank", observe::Align::right}}};
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  double use = 0;
  bool as_json = false;
};

/// The ways in turn; the first is what the others are told in.
void compare(const char* on, const Link& link, int64_t sequence, int cp, int rounds,
             std::vector<std::pair<const char*, Way>> ways, Table& table) {
  for (int round = 0; round <= rounds; ++round) {  // the first finds its threads
    for (auto& [name, way] : ways) {
      way.ranks->step(round > 0);
      way.free->step(round > 0);
    }
  }
  const Way& first = ways[0].second;
  const auto attention_ms = [](const Way& way) { return *way.forward_ms + *way.backward_ms; };
  for (const auto& [name, way] : ways) {
    nlohmann::ordered_json found{
        {"on", on},
        {"link", link.name},
        {"sequence", sequence},
        {"cp", cp},
        {"context", name},
        {"step_ms", way.ranks->ms()},
        {"step_ms_foretold", way.ranks->predicted_ms()},
        {"step_ratio", way.ranks->ms() / first.ranks->ms()},
        {"exposed_ms", way.exposed_ms()},
        {"exposed_ms_foretold", way.ranks->predicted_ms() - way.free->predicted_ms()},
        {"peak_bytes", way.memory_bytes},
        {"memory_ratio", static_cast<double>(way.memory_bytes) / static_cast<double>(first.memory_bytes)}};
    std::string forward, backward, ratio;
    if (way.forward_ms) {
      found["kernel"] = way.kernel;
      found["forward_ms"] = *way.forward_ms;
      found["backward_ms"] = *way.backward_ms;
      found["attention_ratio"] = attention_ms(way) / attention_ms(first);
      forward = fmt::format("{:.1f}", *way.forward_ms);
      backward = fmt::format("{:.1f}", *way.backward_ms);
      ratio = fmt::format("{:.3f}", attention_ms(way) / attention_ms(first));
    }
    table.text.row({on, link.name, fmt::format("{}", sequence), fmt::format("{}", cp), name, forward, backward,
                    ratio, fmt::format("{:.2f}", way.ranks->ms()), fmt::format("{:.2f}", way.ranks->predicted_ms()),
                    fmt::format("{:.3f}", way.ranks->ms() / first.ranks->ms()),
                    fmt::format("{:.2f}", way.exposed_ms()),
                    fmt::format("{:.0f}", static_cast<double>(way.memory_bytes) / (1 << 20))});
    table.json.push_back(std::move(found));
    table.use = std::max({table.use, way.ranks->use(), way.free->use()});
  }
  bench::so_far(table.as_json ? table.json.dump() : table.text.text(false));
}

int run(const Options& options) {
  Table table;
  table.as_json = options.json;
  const auto wanted = [](int64_t of, int64_t asked) { return asked == 0 || asked == of; };
  for (const int64_t sequence : {8192, 32768}) {
    for (const int cp : {2, 4}) {
      if (!wanted(sequence, options.sequence) || !wanted(cp, options.cp)) continue;
      if (options.on.empty() || options.on == "host") {
        const model::ModelConfig c = few_heads(sequence);
        std::vector<std::pair<const char*, Way>> ways;
        for (const char* context : {"gather", "ring", "hybrid"}) {
          if (cp == 2 && std::string_view(context) == "hybrid") continue;  // two ranks are no runs of several
          const plan::Plan plan = plan_of(cp, sequence, context, kHostLink, options.dtype);
          ways.emplace_back(context, host_way(c, plan, options.rounds));
        }
        compare("host", kHostLink, sequence, cp, 1, std::move(ways), table);
      }
      if (!options.on.empty() && options.on != "h100") continue;
      for (const Link& link : kDeviceLinks) {
        const model::ModelConfig c = layer_of_deepseek_v3(sequence);
        std::vector<std::pair<const char*, Way>> ways;
        for (const char* context : {"gather", "ring", "ulysses", "hybrid"}) {
          if (cp == 2 && std::string_view(context) == "hybrid") continue;
          const plan::Plan plan = plan_of(cp, sequence, context, link, Dtype::bf16);
          ways.emplace_back(context, device_way(c, plan, kStretch));
        }
        compare("H100", link, sequence, cp, options.rounds, std::move(ways), table);
      }
    }
    constexpr int kNode = 8, kBoth = 16;
    if ((!options.on.empty() && options.on != "nodes") || !wanted(sequence, options.sequence) ||
        !wanted(kBoth, options.cp))
      continue;
    const model::ModelConfig c = bench::layers_of_llama_2_70b(sequence);
    std::vector<std::pair<const char*, Way>> ways;
    for (const char* context : {"ring", "hybrid", "double_ring"}) {
      plan::Plan plan = plan_of(kBoth, sequence, context, kDeviceLinks[0], Dtype::bf16);
      plan.parallel.context_inner = kNode;
      ways.emplace_back(context, way_between_nodes(c, plan, kStretch));
    }
    compare("H100", kCard, sequence, kBoth, options.rounds, std::move(ways), table);
  }
  return bench::tell_paced(options.json, {{"cases", table.json}}, table.text.text(false), table.use);
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
  arguments.number("--rounds", options.rounds);
  arguments.number("--sequence", options.sequence);
  arguments.number("--cp", options.cp);
  arguments.word("--on", "host|h100|nodes", options.on, {"host", "h100", "nodes"});
  arguments.dtype("--dtype", options.dtype);
  arguments.read();
  return heddle::run(options);
}

}  // namespace heddle
