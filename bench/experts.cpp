// Replicas of hot experts in whole training steps: MoE layers on emulated hosts, ranks as threads, with copies,
// without, and with the load forced to be even, in turn in one run; beside each the step that the simulator
// foretells. And experts that change ranks, where those of one node are hot for good: steps before, the step that
// moves them, and steps after.
//
// Paced: an op that computes lasts as long as its products, of the rows that really came, would on a device of the
// stated rate; a channel of the experts lasts as long as its bytes would on links of stated rates (paced_links.h).
// What memory alone bounds takes no time, and gradients of dense weights cross for nothing. The proportions are
// those of a node of H100s at what they attain: 400 TFLOP/s, 360 GB/s a device within the node, 40 GB/s a device
// between nodes. Microbatches stand for ones of `kTokensFor` times the tokens, and an expert's width for as many
// times more: then a row's products, its messages and an expert's weights have the times to each other that they
// have at full size, for widths of rows play no part in them.
//
//   build/bench_experts [--json] [--rounds N] [--hosts N] [--layers N] [--microbatches M] [--layer-seconds S]
//                       [--foretell]
#include <fmt/format.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "bench/expert_loads.h"
#include "bench/paced_links.h"
#include "bench/paced_run.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/backends/backend.h"
#include "heddle/base/parallel.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/observe/table.h"
#include "heddle/runtime/step_prediction.h"
#include "heddle/train/step/expert_moves.h"
#include "tests/support/paced_time.h"

namespace heddle {
namespace {

using bench::ExpertRows, bench::ExpertSizes, bench::PacedRun, bench::zipf_rows;
using Json = nlohmann::ordered_json;

constexpr int kRanks = 8;
constexpr double kFlopsPerByteWithin = 400e12 / 360e9, kFlopsPerByteAcross = 400e12 / 40e9;  // of one device
constexpr double kTokensFor = 16;

struct Options {
  bool json = false, predict = false;  // foretell: no step is run
  int rounds = 3, hosts = 2, layers = 3, microbatches = 2;
  double layer_seconds = 0.25;  // of one microbatch's layer, forward and backward, at even load, about
};

model::ModelConfig model_config(const ExpertSizes& sizes, const Options& options) {
  model::ModelConfig c;
  c.vocab_size = 128;
  c.hidden_size = 64;
  c.num_hidden_layers = options.layers;
  c.first_k_dense_replace = 0;
  // Attention has three quarters of the routed experts' products, as in DeepSeek-V3 at sequences of 4096.
  c.num_attention_heads = 4;
  c.q_lora_rank = 48;
  c.kv_lora_rank = 32;
  c.qk_nope_head_dim = 16;
  c.qk_rope_head_dim = 16;
  c.v_head_dim = 32;
  c.n_routed_experts = sizes.experts;
  c.num_experts_per_tok = sizes.chosen;
  c.n_shared_experts = 1;
  c.moe_intermediate_size = 2048 / static_cast<int64_t>(kTokensFor) * 8 / sizes.chosen;
  return c;
}

/// Products and links of the emulated machine, in time here.
struct Machine {
  double flops_per_s = 0;
  bench::LinkRates links;
};

Machine machine_of(const ExpertSizes& sizes, const Options& options) {
  const model::ModelConfig c = model_config(sizes, options);
  const double row_flops = 18.0 * static_cast<double>(c.hidden_size * c.moe_intermediate_size);
  Machine m;
  // The routed experts are about half of a layer's products.
  m.flops_per_s = 2 * row_flops * static_cast<double>(sizes.rows()) / options.layer_seconds;
  const auto per_node = static_cast<double>(kRanks / options.hosts);
  m.links.within_bytes_per_s = m.flops_per_s / (kFlopsPerByteWithin / kTokensFor);
  m.links.across_bytes_per_s = per_node * m.flops_per_s / (kFlopsPerByteAcross / kTokensFor);
  return m;
}

enum class With : uint8_t { nothing, copies, moves };
constexpr int kLookEvery = 100;  // steps, where experts move

plan::Plan plan_of(const ExpertSizes& sizes, const Options& options, const Machine& machine, With with) {
  plan::Plan plan;
  plan.mesh.dp = plan.mesh.ep = kRanks;
  plan.microbatches = options.microbatches;
  plan.sequence_length = sizes.tokens;
  plan.dtype = Dtype::bf16;
  plan.packed_bytes = backends::named("host").packed_bytes;
  plan.parallel.exchange.topology = options.hosts > 1 ? ir::Topology::node : ir::Topology::rank;
  plan.parallel.exchange.replicas = with == With::copies ? model::Dispatcher::kReplicasByCost : 0;
  plan.parallel.exchange.migrate_every = with == With::moves ? kLookEvery : 0;
  plan.parallel.exchange.within_rate = machine.links.within_bytes_per_s / 1e9;
  plan.parallel.exchange.across_rate = machine.links.across_bytes_per_s / 1e9;
  plan.parallel.exchange.within_latency_us = plan.parallel.exchange.across_latency_us = 0;
  plan.rates.flops_per_us = machine.flops_per_s / 1e6;
  plan.rates.bytes_per_us = 1e9;
  return plan;
}

// ---- kernels that only last

/// What an op that computes does instead: sleeps, by the rows of its first operand, and puts out zeros where they
/// are sent; the router's says what the load has.
struct Stand {
  double seconds = 0, seconds_of_row = 0;
  bool zeros = false, counts = false;
};
std::unordered_map<const ir::Op*, Stand>& stands() {
  static std::unordered_map<const ir::Op*, Stand> all;
  return all;
}
/// [T, k] of each layer and microbatch, of the load that runs now.
std::map<std::pair<int, int>, std::vector<int32_t>>& choices() {
  static std::map<std::pair<int, int>, std::vector<int32_t>> all;
  return all;
}
/// Rows that the first products of an expert had, by layer, microbatch and rank.
std::map<std::pair<int, int>, std::array<std::atomic<int64_t>, kRanks>>& rows_seen() {
  static std::map<std::pair<int, int>, std::array<std::atomic<int64_t>, kRanks>> all;
  return all;
}

void last(const device::KernelCall& call) {
  const auto began = bench::Clock::now();
  const Stand& stand = stands().at(call.op);
  const int64_t rows = stand.seconds_of_row > 0 ? call.in[0].dim(0) : 0;
  if (stand.zeros) bench::put_zeros(call);
  if (stand.counts)
    rows_seen().at({call.op->layer, call.microbatch})[static_cast<size_t>(call.place->at(ir::Axis::ep))] = rows;
  const std::chrono::duration<double> lasts(stand.seconds + stand.seconds_of_row * static_cast<double>(rows));
  std::this_thread::sleep_until(began + std::chrono::duration_cast<bench::Clock::duration>(lasts));
}

void choose(const device::KernelCall& call) {
  bench::put_zeros(call);
  const std::vector<int32_t>& experts_Tk = choices().at({call.op->layer, call.microbatch});
  const auto at = static_cast<size_t>(ir::place_of("experts", call.op->def->results));
  HEDDLE_CHECK(call.out[at].elements() == std::ssize(experts_Tk), "{} choices are drawn, {} expected",
               experts_Tk.size(), call.out[at].elements());
  std::copy(experts_Tk.begin(), experts_Tk.end(), call.out[at].as<int32_t>());
}

void stand_in(PacedRun& run, int rank, const Machine& machine) {
  const ir::StepProgram& program = run.program();
  for (const int s : program.listings_of(rank)) {
    const ir::Listing& listing = program.listings[static_cast<size_t>(s)];
    const auto computes = [](const ir::Op& op) {
      return op.def->stream == ir::StreamKind::compute && !op.def->collective && ir::runs(*op.def) &&
             !op.in.empty() && backends::named("host").find_collective(op.kind()) == nullptr;  // which place rows
    };
    std::vector<bool> sent(listing.values.size(), false);
    for (const ir::Op& op : listing.ops) {
      if (computes(op)) continue;
      for (const ir::ValueId id : op.in)
        if (id != ir::none) sent[static_cast<size_t>(id)] = true;
    }
    for (uint32_t i = 0; i < listing.ops.size(); ++i) {
      const ir::Op& op = listing.ops[i];
      if (!computes(op)) continue;
      const auto seconds = [&](int64_t rows) {
        return op.def->cost(listing, op, ir::FixedRows(rows)).flops / machine.flops_per_s;
      };
      Stand& stand = stands()[&op];
      stand.seconds = seconds(0);
      stand.seconds_of_row = (seconds(1024) - seconds(0)) / 1024;
      stand.zeros = std::ranges::any_of(op.out, [&](ir::ValueId id) { return sent[static_cast<size_t>(id)]; });
      stand.counts = op.phase == ir::Phase::F && op.kind() == "grouped_linear" &&
                     listing.value(op.out[0]).name.ends_with(".u");
      run.executor().replace(s, i, op.def->chooses_experts ? choose : last);
    }
  }
}

// ---- one program on all ranks

class Variant {
 public:
  Variant(const ExpertSizes& sizes, const Options& options, With with)
      : sizes_(sizes),
        options_(options),
        machine_(machine_of(sizes, options)),
        config_(model_config(sizes, options)),
        plan_(plan_of(sizes, options, machine_, with)),
        node_of_(nodes(options.hosts)),
        board_(node_of_),
        links_(machine_.links, node_of_),
        rows_(links_),
        copies_(links_) {}

  double step() {
    if (runs_.empty()) {
      start();
      step();  // caches and memory are warm
    }
    copies_.take_sent_bytes();
    std::vector<double> took(kRanks);
    on_threads(kRanks, [&](int r) { took[static_cast<size_t>(r)] = runs_[static_cast<size_t>(r)]->step(); });
    copied_bytes_ = copies_.take_sent_bytes();
    return *std::max_element(took.begin(), took.end());
  }
  double copied_bytes() const { return copied_bytes_; }  // of the last step

  /// A step that ends with the moves which the run would choose by this load; what it chose.
  struct Moving {
    double seconds = 0;
    train::MoveFigures figures;
  };
  Moving move(const ExpertRows& rows) {
    const plan::Mesh mesh(plan_.mesh);
    train::ExpertHistory history;
    for (int l = 0; l < options_.layers; ++l) {
      const std::vector<int64_t>& of = rows.at({l, 0});
      history.layers[l].rows_E.assign(of.begin(), of.end());
    }
    const train::ExpertMoves moves(config_, plan_, runs_[0]->lowered(), mesh, node_of_);
    const auto next = moves.at(kLookEvery, history, {});
    if (!next) return {};
    const auto give = [&](int layer, const std::vector<int32_t>& before, const std::vector<int32_t>& after) {
      std::vector<int32_t> both = before;
      both.insert(both.end(), after.begin(), after.end());
      for (auto& run : runs_) {
        run->inputs().set(fmt::format("homes.{}", layer), before);
        run->inputs().set(fmt::format("moves.{}", layer), both);
      }
    };
    for (const auto& [layer, after] : next->placements) {
      std::vector<int32_t>& before = homes_[layer];
      if (before.empty()) {
        before.resize(after.size());
        std::iota(before.begin(), before.end(), 0);
      }
      give(layer, before, after);
    }
    const Moving moving{step(), next->figures};
    for (const auto& [layer, after] : next->placements) give(layer, homes_[layer] = after, after);
    return moving;
  }

  /// Steps of one microbatch's load after the other, as parts of one step.
  double predicted_s(const ExpertRows& rows) {
    if (!lowered_) lowered_ = std::make_unique<plan::Lowered>(plan::lower(config_, plan_));
    cost::MachineProfile profile;
    profile.bf16_flops_per_s = profile.f32_flops_per_s = profile.f64_flops_per_s = machine_.flops_per_s;
    profile.copy_bytes_per_s = 1e18;
    for (const double bytes : {1.0, 1e9}) {
      profile.links.push_back(
          {cost::Link::node, kRanks / options_.hosts, bytes, 1e6 * bytes / machine_.links.within_bytes_per_s});
      profile.links.push_back(
          {cost::Link::nodes, std::max(2, options_.hosts), bytes, 1e6 * bytes / machine_.links.across_bytes_per_s});
    }
    double seconds = 0;
    for (int m = 0; m < options_.microbatches; ++m) {
      runtime::PredictionInput input;
      input.over = cost::Link::nodes;
      input.node_of = node_of_;
      for (int l = 0; l < options_.layers; ++l) {
        const std::vector<int64_t>& of = rows.at({l, m});
        input.uncertainty.counted_LE.emplace_back(of.begin(), of.end());
      }
      input.uncertainty.counted_in = "the load";
      seconds +=
          runtime::predict_step(config_, plan_, *lowered_, profile, input).step_us * 1e-6 / options_.microbatches;
    }
    return seconds;
  }

 private:
  static std::vector<int> nodes(int hosts) {
    std::vector<int> of;
    for (int r = 0; r < kRanks; ++r) of.push_back(r * hosts / kRanks);
    return of;
  }
  void start() {
    runs_.resize(kRanks);
    worlds_.resize(kRanks);
    paced_.resize(kRanks);
    on_threads(kRanks, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      worlds_[r] = board_.world(rank);
      runs_[r] = std::make_unique<PacedRun>(
          config_, plan_, *worlds_[r], [&](const std::string& channel, comm::Communicator* own) {
            if (channel != "comm.experts" && channel != "comm.copies") return own;
            bench::PacedChannel& over = channel == "comm.copies" ? copies_ : rows_;
            paced_[r].push_back(std::make_unique<bench::PacedCommunicator>(*own, over));
            return static_cast<comm::Communicator*>(paced_[r].back().get());
          });
    });
    for (int r = 0; r < kRanks; ++r) stand_in(*runs_[static_cast<size_t>(r)], r, machine_);
  }

  const ExpertSizes sizes_;
  const Options options_;
  const Machine machine_;
  const model::ModelConfig config_;
  const plan::Plan plan_;
  const std::vector<int> node_of_;
  comm::ThreadWorlds board_;
  bench::PacedLinks links_;
  bench::PacedChannel rows_, copies_;
  std::vector<std::unique_ptr<comm::World>> worlds_;
  std::vector<std::vector<std::unique_ptr<bench::PacedCommunicator>>> paced_;
  std::vector<std::unique_ptr<PacedRun>> runs_;
  std::map<int, std::vector<int32_t>> homes_;  // by layer, of those whose experts have moved
  std::unique_ptr<plan::Lowered> lowered_;
  double copied_bytes_ = 0;
};

struct Measured {
  std::vector<double> seconds;
  double predicted_s = 0, copied_bytes = 0, imbalance = 1;
  /// Of the rounds: what else runs on the machine only adds to a step that sleeps.
  double least_s() const { return seconds.empty() ? 0 : *std::min_element(seconds.begin(), seconds.end()); }
};

/// Rows of the busiest rank over the mean in the last step, over its layers and microbatches.
double imbalance_seen() {
  double most = 0, even = 0;
  for (const auto& [of, rows] : rows_seen()) {
    int64_t busiest = 0, all = 0;
    for (const auto& r : rows) {
      busiest = std::max(busiest, r.load());
      all += r;
    }
    most += static_cast<double>(busiest);
    even += static_cast<double>(all) / kRanks;
  }
  return even > 0 ? most / even : 1;
}

/// One model's programs, without copies and with them, under several loads.
class Bench {
 public:
  Bench(const ExpertSizes& sizes, const Options& options)
      : sizes_(sizes),
        options_(options),
        without_(sizes, options, With::nothing),
        with_(sizes, options, With::copies) {
    for (int l = 0; l < options.layers; ++l)
      for (int m = 0; m < options.microbatches; ++m) rows_seen()[{l, m}];
    add("even", bench::even_rows(sizes, options.layers, options.microbatches));
  }
  void add(const std::string& name, ExpertRows rows) { loads_.emplace_back(name, std::move(rows)); }

  void predict() {
    for (const auto& [name, rows] : loads_) {
      found_[name].first.predicted_s = without_.predicted_s(rows);
      found_[name].second.predicted_s = with_.predicted_s(rows);
    }
  }
  void round(double& use) {
    for (const auto& [name, rows] : loads_) {
      choices().clear();
      for (const auto& [of, rows_E] : rows) choices()[of] = bench::choices_of(rows_E, sizes_);
      for (Variant* variant : {&without_, &with_}) {
        Measured& m = variant == &without_ ? found_[name].first : found_[name].second;
        const PacedTimer timer;
        m.seconds.push_back(variant->step());
        use = std::max(use, timer.elapsed().processor_use());
        m.copied_bytes = variant->copied_bytes();
        m.imbalance = imbalance_seen();
      }
    }
  }
  /// Of the rounds that are done.
  void tell(Json& seconds) const {
    for (const auto& [name, found] : found_) {
      if (found.first.seconds.empty()) continue;
      seconds[name] = {{"seconds_without", found.first.least_s()}, {"seconds_with", found.second.least_s()}};
    }
  }
  const std::vector<std::pair<std::string, ExpertRows>>& loads() const { return loads_; }
  const std::pair<Measured, Measured>& found(const std::string& name) const { return found_.at(name); }

 private:
  const ExpertSizes sizes_;
  const Options options_;
  Variant without_, with_;
  std::vector<std::pair<std::string, ExpertRows>> loads_;
  std::map<std::string, std::pair<Measured, Measured>> found_;  // without, with
};

// What the figures are, of steps measured or foretold.
struct Figures {
  double share = 1, gain = 0, cost_when_even = 0;
};

template <class Seconds>
Figures figures(const Bench& bench, const std::string& name, const Seconds& of) {
  const auto& [without, with] = bench.found(name);
  const auto& [even, even_with] = bench.found("even");
  return {of(even) / of(with), 1 - of(with) / of(without), of(even_with) / of(even) - 1};
}

/// Experts that move for good.
Json moved(const Options& options, double& use) {
  const ExpertSizes sizes;
  const ExpertRows rows = bench::half_hot_rows(sizes, 4, options.layers, options.microbatches);
  choices().clear();
  for (const auto& [of, rows_E] : rows) choices()[of] = bench::choices_of(rows_E, sizes);
  Variant variant(sizes, options, With::moves);
  const PacedTimer timer;
  const auto least = [&] {
    double seconds = variant.step();
    for (int i = 1; i < options.rounds; ++i) seconds = std::min(seconds, variant.step());
    return seconds;
  };
  const double before = least(), imbalance_before = imbalance_seen();
  const Variant::Moving moving = variant.move(rows);
  const double after = least();
  use = std::max(use, timer.elapsed().processor_use());
  return {{"seconds_before", before},
          {"seconds_moving", moving.seconds},
          {"seconds_after", after},
          {"imbalance_before", imbalance_before},
          {"imbalance_after", imbalance_seen()},
          {"experts", moving.figures.experts},
          {"bytes", moving.figures.bytes},
          {"gain_foretold_seconds", moving.figures.predicted_gain_s},
          {"cost_foretold_seconds", moving.figures.predicted_cost_s},
          {"gain", 1 - after / before},
          {"steps_to_pay", after < before ? std::ceil((moving.seconds - before) / (before - after)) : -1}};
}

int run(const Options& options) {
  Bench drawn({}, options);
  for (const char* kind : {"zipf", "rotating", "burst"}) {
    for (const double imbalance : {1.3, 2.0, 4.0})
      drawn.add(fmt::format("{} {}", kind, imbalance),
                bench::drawn_rows({}, kind, imbalance, options.layers, options.microbatches));
  }
  const ExpertSizes of_demo{.experts = 16, .chosen = 4};
  Bench early(of_demo, options);
  early.add("early", bench::recorded_rows(HEDDLE_SOURCE_DIR "/bench/early_load.json", of_demo, options.layers,
                                          options.microbatches));
  double use = 0;
  for (Bench* b : {&drawn, &early}) b->predict();
  for (int i = 0; i < options.rounds && !options.predict; ++i) {
    Json unfinished{{"rounds", i + 1}};
    for (Bench* b : {&drawn, &early}) {
      b->round(use);
      b->tell(unfinished["loads"][b == &drawn ? "drawn" : "recorded"]);
    }
    bench::so_far(unfinished.dump(2));
  }

  const auto measured = [](const Measured& m) { return m.least_s(); };
  const auto predicted = [](const Measured& m) { return m.predicted_s; };
  Json json{{"ranks", kRanks}, {"hosts", options.hosts}, {"loads", Json::object()}};
  observe::Table table({{"load"},
                        {"imbalance", observe::Align::right},
                        {"with copies", observe::Align::right},
                        {"copied", observe::Align::right},
                        {"gain", observe::Align::right},
                        {"foretold", observe::Align::right},
                        {"share of balanced", observe::Align::right},
                        {"foretold", observe::Align::right}});
  double share = 1, share_predicted = 1, after = 1, copied = 0;
  for (const Bench* b : {&drawn, &early}) {
    for (const auto& [name, rows] : b->loads()) {
      const auto& [without, with] = b->found(name);
      const Figures real = options.predict ? Figures{} : figures(*b, name, measured),
                    told = figures(*b, name, predicted);
      Json& of = json["loads"][b == &early && name == "even" ? "even, of early's model" : name];
      of = {{"seconds_without", without.least_s()},
            {"seconds_with", with.least_s()},
            {"seconds_without_foretold", without.predicted_s},
            {"seconds_with_foretold", with.predicted_s},
            {"imbalance_before", without.imbalance},
            {"imbalance_after", with.imbalance},
            {"copied_bytes", with.copied_bytes},
            {"gain", real.gain},
            {"gain_foretold", told.gain},
            {"share_of_balanced", real.share},
            {"share_of_balanced_foretold", told.share}};
      table.row({name, fmt::format("{:.2f}", without.imbalance), fmt::format("{:.3f}", with.imbalance),
                 fmt::format("{:.1f} MB", with.copied_bytes / 1e6), fmt::format("{:.3f}", real.gain),
                 fmt::format("{:.3f}", told.gain), fmt::format("{:.3f}", real.share),
                 fmt::format("{:.3f}", told.share)});
      if (name == "even") continue;
      share = std::min(share, real.share);
      share_predicted = std::min(share_predicted, told.share);
      after = std::max(after, with.imbalance);
      copied = std::max(copied, with.copied_bytes);
    }
  }
  json["share_of_balanced"] = share;
  json["share_of_balanced_foretold"] = share_predicted;
  json["gain_early"] = options.predict ? 0 : figures(early, "early", measured).gain;
  json["gain_early_foretold"] = figures(early, "early", predicted).gain;
  json["imbalance_after"] = after;
  json["copied_bytes"] = copied;
  json["cost_when_even"] = options.predict ? 0 : figures(drawn, "even", measured).cost_when_even;
  json["cost_when_even_foretold"] = figures(drawn, "even", predicted).cost_when_even;
  if (!options.predict) {
    json["migrated"] = moved(options, use);
    json["gain_migrated"] = json["migrated"]["gain"];
    json["steps_to_pay"] = json["migrated"]["steps_to_pay"];
  }
  json["processor_use"] = use;
  json["believable"] = use <= kMostPacedUse;
  if (options.json) {
    fmt::print("{}\n", json.dump());
  } else {
    json.erase("loads");
    fmt::print("{}{}\n", table.text(false), json.dump(2));
  }
  return use <= kMostPacedUse ? 0 : 1;
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
  arguments.flag("--foretell", options.predict);
  arguments.number("--rounds", options.rounds);
  arguments.number("--hosts", options.hosts);
  arguments.number("--layers", options.layers);
  arguments.number("--microbatches", options.microbatches);
  arguments.number("--layer-seconds", options.layer_seconds, 0.001);
  arguments.read();
  if (kRanks % options.hosts != 0)
    config_error("bench_experts: --hosts is {}, not a part of {}", options.hosts, kRanks);
  options.layers = std::min(options.layers, 4);  // as many as are recorded
  return heddle::run(options);
}

}  // namespace heddle
