// How much of the expert exchange hides beside computation, by schedule: whole training steps of a
// DeepSeek-V3-shaped model on 4 pipeline ranks × 2 expert ranks, every rank a host of its own with a link of its
// own, paced, the schedules taking turns in one run.
//
//   hidden = 1 − (step time − step time with free exchanges) ÷ time that the exchanges need on the link
//
// The time that exchanges need is their bytes ÷ the link's rate: latencies and headers count as not hidden. With
// free exchanges, the same program runs and rows stay where they are. Rates of the paced device are chosen so that
// a rank's exchanges of a forward take `ratio` times its computation. Per phase, on the average of the ranks:
// warm-up until the first input gradient begins, steady until the last forward ends, cool-down after it.
//
// The bound comes from the dependencies alone: each action of the schedule by itself, exchanges in their order, at
// its shortest; timed as a schedule. Only what overlaps across actions could beat it.
//
//   tools/hosts --hosts 8 --ranks-per-host 1 --rate 400mbit -- build/bench_overlap [--json] [--rounds N] [--link
//   B/S]
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "bench/paced_run.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/statistics.h"
#include "heddle/device/host/allowed_cores.h"
#include "heddle/passes/weave.h"
#include "heddle/schedule/timing.h"
#include "heddle/simulate/simulate.h"
#include "tests/support/paced_time.h"

namespace heddle {
namespace {

using bench::Gather, bench::PacedRun, bench::processor_seconds;

constexpr int kPipelineRanks = 4, kExpertRanks = 2, kMicrobatches = 32;
constexpr int64_t kSmallBytes = 8192;  // what is free is larger: counts always go

struct Options {
  bool json = false;
  int rounds = 3;
  double link_bytes_per_s = 50e6;  // of a host, each way
  std::vector<double> ratios{0.25, 0.5, 1.0};
};

struct Entry {
  const char* name;
  const char* schedule;
  const char* weave;
};
constexpr Entry kEntries[] = {{"1f1b", "1f1b", "off"},
                              {"in_layer", "1f1b", "layers"},
                              {"interleaved_fused", "interleaved_fused", "pairs"},
                              {"dual_pipe_v", "dual_pipe_v", "pairs"}};

model::ModelConfig model_config() {
  model::ModelConfig c;
  c.vocab_size = 256;
  c.hidden_size = 512;
  c.num_hidden_layers = 8;
  c.first_k_dense_replace = 0;
  c.num_attention_heads = 4;
  c.q_lora_rank = 96;
  c.kv_lora_rank = 64;
  c.qk_nope_head_dim = 32;
  c.qk_rope_head_dim = 16;
  c.v_head_dim = 32;
  c.n_routed_experts = 16;
  c.num_experts_per_tok = 8;
  c.n_shared_experts = 1;
  c.moe_intermediate_size = 32;
  return c;
}

plan::Plan plan_of(const Entry& entry) {
  plan::Plan plan;
  plan.mesh.dp = plan.mesh.ep = kExpertRanks;
  plan.mesh.pp = kPipelineRanks;
  plan.parallel.schedule = entry.schedule;
  plan.parallel.weave = from_word<plan::Weave>(entry.weave);
  plan.microbatches = kMicrobatches;
  plan.sequences = 1;
  plan.sequence_length = 64;
  plan.dtype = Dtype::bf16;
  plan.packed_bytes = backends::named("host").packed_bytes;
  return plan;
}

bool is_exchange(const ir::Op& op) { return op.kind().starts_with("dispatch") || op.kind().starts_with("combine"); }

/// Rows stay where they are: what would come from others is zero, at once.
class FreeExchange : public comm::Communicator {
 public:
  explicit FreeExchange(comm::Communicator* own) : own_(own) {}
  int rank() const override { return own_->rank(); }
  int size() const override { return own_->size(); }
  int node_of(int rank) const override { return own_->node_of(rank); }
  void exchange(const void* send, std::span<const comm::Piece> sends, void* receive,
                std::span<const comm::Piece> receives) override {
    int64_t bytes = 0;
    for (const comm::Piece& piece : sends) bytes += piece.bytes;
    if (bytes < kSmallBytes) return own_->exchange(send, sends, receive, receives);
    for (const comm::Piece& piece : receives) {
      std::memset(static_cast<std::byte*>(receive) + piece.offset, 0, static_cast<size_t>(piece.bytes));
    }
  }
  void send(const void* data, int64_t bytes, int peer) override { own_->send(data, bytes, peer); }
  void receive(void* data, int64_t bytes, int peer) override { own_->receive(data, bytes, peer); }
  comm::Traffic traffic() const override { return own_->traffic(); }
  void abort(const std::string& reason) override { own_->abort(reason); }

 private:
  comm::Communicator* own_;
};

constexpr int kPhases = 3;
constexpr const char* kPhaseNames[kPhases] = {"warm_up", "steady", "cool_down"};
using Phases = std::array<double, kPhases>;

/// A step of one rank: how long each phase lasted, and how many exchanges began in each.
struct Seen {
  Phases seconds{}, exchanges{};
};

Seen look_at(PacedRun& run) {
  struct Event {
    const ir::Op* op;
    int64_t start_ns, end_ns;
  };
  std::vector<Event> events;
  runtime::Executor& executor = run.executor();
  for (size_t i = 0; i < executor.walk().streams().names().size(); ++i) {
    for (const device::Span& span : executor.stream(static_cast<int>(i)).take_spans()) {
      const ir::Op& op = run.program().listings[static_cast<size_t>(span.listing)].ops[span.op_index];
      if (!ir::once_a_step(op.phase)) {
        events.push_back({&op, span.start_ns, span.end_ns});
      }
    }
  }
  int64_t first = INT64_MAX, backward = INT64_MAX, forward = 0, last = 0;
  for (const Event& e : events) {
    if (e.op->def->stream != ir::StreamKind::compute) continue;
    first = std::min(first, e.start_ns);
    last = std::max(last, e.end_ns);
    if (e.op->phase == ir::Phase::F) forward = std::max(forward, e.end_ns);
    if (e.op->phase == ir::Phase::I) backward = std::min(backward, e.start_ns);
  }
  Seen seen;
  seen.seconds = {static_cast<double>(backward - first) * 1e-9, static_cast<double>(forward - backward) * 1e-9,
                  static_cast<double>(last - forward) * 1e-9};
  for (const Event& e : events) {
    if (!is_exchange(*e.op)) continue;
    ++seen.exchanges[e.start_ns < backward ? 0 : e.start_ns < forward ? 1 : 2];
  }
  return seen;
}

/// The shortest that an action can last whatever the order of its ops: the stream with most to do, or the longest
/// way through its dependencies.
double least_us(const ir::Listing& listing, const std::vector<std::vector<const ir::Op*>>& parts,
                const passes::Durations& us) {
  std::map<std::string, double> busy;
  double longest = 0;
  for (const std::vector<const ir::Op*>& ops : parts) {
    std::map<ir::ValueId, double> made;  // by this part: the other is another microbatch
    for (const ir::Op* op : ops) {
      double start = 0;
      for (const ir::ValueId id : op->in) {
        if (id == ir::none) continue;
        if (const auto at = made.find(id); at != made.end()) start = std::max(start, at->second);
        for (const ir::Dim& dim : listing.value(id).shape) {
          if (const auto at = made.find(dim.rows_of); at != made.end()) start = std::max(start, at->second);
        }
      }
      const double end = start + us(listing, *op);
      for (const ir::ValueId id : op->out) made[id] = end;
      longest = std::max(longest, end);
      busy[ir::stream_name(*op)] += us(listing, *op);
    }
  }
  for (const auto& [name, sum] : busy) longest = std::max(longest, sum);
  return longest;
}

/// Step time of the schedule with each action at its shortest, for durations `us` of ops.
double bound_us(const PacedRun& run, const passes::Durations& us) {
  schedule::Schedule s = plan::schedule_of(run.plan());
  const schedule::Links links = schedule::links_of(s);
  std::vector<double> end(static_cast<size_t>(links.actions()), 0),
      rank_free(static_cast<size_t>(s.placement.ranks), 0);
  std::map<std::tuple<int, int, int, int>, double> known;
  for (const int a : schedule::running_order(s, links)) {
    const auto at = static_cast<size_t>(a);
    const auto rank = static_cast<size_t>(links.rank_of[at]);
    const ir::Listing& listing = run.program().listings[rank];
    const std::vector<int> own = s.placement.stages_of(static_cast<int>(rank));
    const auto parts = schedule::parts_of(*links.at[at]);
    const auto chunk_of = [&](const schedule::Compute& c) {
      return static_cast<int>(std::find(own.begin(), own.end(), c.stage) - own.begin());
    };
    const schedule::Compute& one = parts.compute[0];
    const schedule::Compute& two = parts.compute[parts.count - 1];
    const auto key = std::tuple(static_cast<int>(rank), chunk_of(one) * 8 + static_cast<int>(one.kind), parts.count,
                                chunk_of(two) * 8 + static_cast<int>(two.kind));
    if (!known.contains(key)) {
      std::vector<std::vector<const ir::Op*>> ops;
      for (const schedule::Compute& c : parts) {
        ops.emplace_back();
        for (const ir::Op& op : listing.ops) {
          const bool of = c.kind == schedule::Kind::F   ? op.phase == ir::Phase::F
                          : c.kind == schedule::Kind::I ? op.phase == ir::Phase::I
                          : c.kind == schedule::Kind::W ? op.phase == ir::Phase::W
                                                        : op.phase == ir::Phase::I || op.phase == ir::Phase::W;
          if (of && op.chunk == chunk_of(c) && !op.attributes.has("step")) ops.back().push_back(&op);
        }
      }
      known[key] = least_us(listing, ops, us);
    }
    double start = rank_free[rank];
    for (int i = links.begin[at]; i < links.begin[at + 1]; ++i) {
      start = std::max(start, end[static_cast<size_t>(links.from[static_cast<size_t>(i)])]);
    }
    end[at] = rank_free[rank] = start + known[key];
  }
  return *std::max_element(end.begin(), end.end());
}

/// The step time that the simulator foretells for the program with these durations.
double predicted_us(const PacedRun& run, const passes::Durations& us) {
  simulate::SimulationInput input;
  input.groups = simulate::groups_of(run.program(), plan::Mesh(run.plan().mesh));
  input.enqueue_us = 2;
  input.duration_us = [&](int, const ir::Issue& issue) {
    return us(run.program().listings[static_cast<size_t>(issue.listing)], *issue.op);
  };
  input.rows = [&](int, const ir::Issue&, size_t output) {
    return output == 0 ? run.plan().sequences * run.plan().sequence_length * model_config().num_experts_per_tok : 0;
  };
  const simulate::Simulation simulation = simulate::simulate(run.program(), input);
  if (!simulation.deadlock.empty()) internal_error("the program can't go on:\n{}", simulation.deadlock);
  return simulation.step_us;
}

nlohmann::ordered_json bench_ratio(double ratio, const Options& options, comm::World& world, Gather& gather) {
  const model::ModelConfig config = model_config();
  const plan::Plan shape = plan_of(kEntries[0]);
  const int64_t tokens = shape.sequences * shape.sequence_length;
  // Half of the rows go to the other rank of the pair.
  const double row_bytes = static_cast<double>(config.hidden_size) * 2;
  const double exchange_bytes = static_cast<double>(tokens * config.num_experts_per_tok) / 2 * row_bytes;
  const double exchange_s = exchange_bytes / options.link_bytes_per_s;
  const double hop_s = static_cast<double>(tokens) * row_bytes / options.link_bytes_per_s;
  const int layers = static_cast<int>(config.num_hidden_layers) / kPipelineRanks;
  const double exchanges_of_forward_s = 2 * layers * exchange_s;
  const double exchanges_s = 2 * kMicrobatches * exchanges_of_forward_s;  // of a rank, a step

  const auto work = [&](const ir::Listing& listing, const ir::Op& op) {
    const ir::Cost cost = op.def->cost(listing, op, ir::FixedRows(tokens * config.num_experts_per_tok));
    return cost.flops + 30 * cost.bytes;
  };
  double forward_work = 0;
  const plan::Lowered lowered = plan::lower(config, shape);
  for (const ir::Listing& listing : lowered.program.listings) {
    for (const ir::Op& op : listing.ops) {
      if (op.def->stream == ir::StreamKind::compute && op.phase == ir::Phase::F) forward_work += work(listing, op);
    }
  }
  const double work_per_s = forward_work / kPipelineRanks / (exchanges_of_forward_s / ratio);
  const auto op_us = [&](const ir::Listing& listing, const ir::Op& op) {
    if (is_exchange(op)) return exchange_s * 1e6;
    if (op.attributes.has("step")) return hop_s * 1e6;
    return op.def->stream == ir::StreamKind::compute ? work(listing, op) / work_per_s * 1e6 : 300.0;
  };

  struct Pair {
    std::unique_ptr<PacedRun> real, free;
    std::vector<std::unique_ptr<FreeExchange>> wrapped;
    std::vector<double> seconds, hidden, hidden_of[kPhases];
  };
  std::map<std::string, Pair> pairs;
  for (const Entry& entry : kEntries) {
    Pair& pair = pairs[entry.name];
    plan::Plan plan = plan_of(entry);
    plan.durations = op_us;
    pair.real = std::make_unique<PacedRun>(config, plan, world);
    pair.free =
        std::make_unique<PacedRun>(config, plan, world, [&](const std::string& channel, comm::Communicator* own) {
          if (channel != "comm.experts") return own;
          pair.wrapped.push_back(std::make_unique<FreeExchange>(own));
          return static_cast<comm::Communicator*>(pair.wrapped.back().get());
        });
    (void)predicted_us(*pair.real, op_us);  // before any rank could hang
    for (PacedRun* run : {pair.real.get(), pair.free.get()}) {
      run->pace(work_per_s);
      run->executor().set_trace(true);
      run->step();
      look_at(*run);
    }
  }
  const comm::Traffic before = pairs.at("1f1b").real->traffic();
  const double cpu = processor_seconds();
  const double began = now_s();
  for (int round = 0; round < options.rounds; ++round) {
    for (const Entry& entry : kEntries) {
      Pair& pair = pairs.at(entry.name);
      Seen seen[2];
      double took[2];
      for (int i = 0; i < 2; ++i) {
        PacedRun& run = i == 0 ? *pair.real : *pair.free;
        gather.sum(0);  // together
        took[i] = gather.most(run.step());
        seen[i] = look_at(run);
        for (int p = 0; p < kPhases; ++p) {
          const auto at = static_cast<size_t>(p);
          seen[i].seconds[at] = gather.sum(seen[i].seconds[at]) / world.size();
          seen[i].exchanges[at] = gather.sum(seen[i].exchanges[at]) / world.size();
        }
      }
      pair.seconds.push_back(took[0]);
      pair.hidden.push_back(1 - (took[0] - took[1]) / exchanges_s);
      for (int p = 0; p < kPhases; ++p) {
        const auto at = static_cast<size_t>(p);
        const double needed = seen[0].exchanges[at] * exchange_s;
        if (needed > 0) pair.hidden_of[at].push_back(1 - (seen[0].seconds[at] - seen[1].seconds[at]) / needed);
      }
    }
    if (world.rank() != 0) continue;
    nlohmann::ordered_json unfinished{{"ratio", ratio}, {"rounds", round + 1}};
    for (const auto& [name, pair] : pairs) {
      unfinished["schedules"][name] = {{"step_seconds", median(pair.seconds)}, {"hidden", median(pair.hidden)}};
    }
    bench::so_far(unfinished.dump(options.json ? -1 : 2));
  }
  const double wall = now_s() - began;
  const double use = gather.sum(processor_seconds() - cpu) / (wall * device::allowed_cores());
  const double sent = gather.sum(static_cast<double>(pairs.at("1f1b").real->traffic().across_nodes_bytes -
                                                     before.across_nodes_bytes)) /
                      options.rounds;
  nlohmann::ordered_json found;
  found["ratio"] = ratio;
  found["exchange_seconds_of_a_rank"] = exchanges_s;
  found["exchange_bytes_over_analytic"] =
      sent / (exchange_bytes * 4 * static_cast<double>(config.num_hidden_layers) * kMicrobatches * kExpertRanks);
  for (const Entry& entry : kEntries) {
    Pair& pair = pairs.at(entry.name);
    const passes::Durations free_us = [&](const ir::Listing& listing, const ir::Op& op) {
      return is_exchange(op) ? 0 : op_us(listing, op);
    };
    const double real = bound_us(*pair.real, op_us);
    const double free = bound_us(*pair.real, free_us);
    nlohmann::ordered_json& s = found["schedules"][entry.name];
    s["step_seconds"] = median(pair.seconds);
    s["over_1f1b"] = median(pair.seconds) / median(pairs.at("1f1b").seconds);
    s["hidden"] = median(pair.hidden);
    for (int p = 0; p < kPhases; ++p) {
      const std::vector<double>& of = pair.hidden_of[static_cast<size_t>(p)];
      if (!of.empty()) s[fmt::format("hidden_{}", kPhaseNames[p])] = median(of);
    }
    s["hidden_bound"] = 1 - (real - free) * 1e-6 / exchanges_s;
    const double predicted = predicted_us(*pair.real, op_us);
    s["step_seconds_predicted"] = predicted * 1e-6;
    s["hidden_predicted"] = 1 - (predicted - predicted_us(*pair.real, free_us)) * 1e-6 / exchanges_s;
  }
  found["processor_use"] = use;
  found["believable"] = use <= kMostPacedUse;
  return found;
}

int run(const Options& options) {
  const auto world = comm::mpi_world();
  if (world->size() != kPipelineRanks * kExpertRanks) {
    config_error("bench_overlap needs {} ranks, {} are running", kPipelineRanks * kExpertRanks, world->size());
  }
  Gather gather(*world);
  bool believable = true;
  for (const double ratio : options.ratios) {
    const nlohmann::ordered_json found = bench_ratio(ratio, options, *world, gather);
    believable = believable && found["believable"];
    if (world->rank() == 0) fmt::print("{}\n", found.dump(options.json ? -1 : 2));
    std::fflush(stdout);
  }
  return believable ? 0 : 1;
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  double ratio = 0;
  arguments.flag("--json", options.json);
  arguments.number("--rounds", options.rounds);
  arguments.number("--link", options.link_bytes_per_s);
  arguments.number("--ratio", ratio);
  arguments.read();
  if (ratio > 0) options.ratios = {ratio};
  check_launched();
  return heddle::run(options);
}

}  // namespace heddle
