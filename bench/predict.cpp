// Step time and memory of random plans, foretold from a machine's profile before they run, against real runs.
//
//   bench_predict --profile FILE [--one N] [--threads N] [--first NUMBER] [--results FILE] [--json]
//   tools/hosts … -- build/bench_predict --profile FILE [--hosts N] …
//
// --one: plans of one rank that run as fast as they can, sizes that the profile has not seen. --threads: plans of
// two to eight ranks as threads (tests/parity/draw: layouts, schedules, dispatchers, recompute words, weaving,
// microbatches), paced: an op lasts as long as on a device of a stated rate, asleep, so that ranks which share
// cores don't slow each other; what goes between ranks is real. --hosts: the same under MPI, for as many ranks as
// run, over the links that the profile has measured there.
//
// Runs of one rank are taken again, up to four times, while other programs take more than a twentieth of the cores;
// the quietest counts, and `others` is what they took of it. They are bracketed by a reference program: `drift` is
// what it took around the run over what it took when the bench began, so that a machine that others disturb is
// seen. Each plan is one line of --results, to which later runs add theirs; the summary is of the whole file.
#include "heddle/runtime/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/paced_run.h"
#include "bench/stated_device.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/backends/backend.h"
#include "heddle/base/statistics.h"
#include "heddle/passes/op_groups.h"
#include "heddle/planner/measure_machine.h"
#include "heddle/planner/measure_ops.h"
#include "heddle/planner/profile_file.h"
#include "heddle/runtime/step_prediction.h"
#include "tests/parity/draw.h"
#include "tests/support/paced_time.h"
#include "tests/support/set_pace.h"
#include "tests/train/rank_trainers.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;
constexpr double kPaced_s = 0.8;  // of computation of the rank that has most
constexpr int64_t kLimit_bytes = int64_t{4} << 30;

struct Drawn {
  train::TrainerOptions options;
  std::vector<int> node_of;
  std::string text;
};

// One rank, of sizes between those that `heddle profile` draws.
Drawn draw_one(uint64_t number, int cores) {
  const RandomKey key = RandomKey(number).with("bench predict");
  uint64_t at = 0;
  const auto of = [&](std::initializer_list<int64_t> choices) {
    return choices.begin()[key.bits(at++) % choices.size()];
  };
  Drawn d;
  model::ModelConfig& c = d.options.model;
  plan::Plan& p = d.options.plan;
  for (;;) {
    c.vocab_size = of({700, 3000, 6000, 10000});
    c.hidden_size = of({160, 224, 320, 448, 640, 896});
    c.num_hidden_layers = of({2, 3, 4, 6});
    c.first_k_dense_replace = of({0, 1});
    c.intermediate_size = c.hidden_size * of({2, 3});
    c.num_attention_heads = of({4, 6, 10});
    c.q_lora_rank = of({0, 48, 96});
    c.kv_lora_rank = of({48, 96, 160});
    c.qk_nope_head_dim = of({24, 48, 64});
    c.qk_rope_head_dim = of({16, 32});
    c.v_head_dim = of({32, 48, 64});
    c.n_routed_experts = of({6, 12, 24, 48});
    c.num_experts_per_tok = of({2, 3, 5});
    c.n_shared_experts = of({0, 1});
    c.moe_intermediate_size = of({48, 96, 192, 320});
    c.sigmoid_scores = c.topk_bias = of({0, 1}) == 1;
    c.num_nextn_predict_layers = of({0, 0, 1});
    p.sequence_length = of({96, 192, 320, 640});
    p.sequences = of({1, 2, 3, 6});
    p.microbatches = static_cast<int>(of({1, 2, 3}));
    const auto tokens = static_cast<double>(p.microbatches * p.sequences * p.sequence_length);
    const double flops = 6 * tokens *
                         static_cast<double>(c.hidden_size * c.num_hidden_layers *
                                             (4 * c.num_attention_heads * c.v_head_dim +
                                              3 * c.moe_intermediate_size * (1 + c.num_experts_per_tok)));
    if (flops > 5e8 && flops < 1e11) break;
  }
  p.dtype = of({0, 1}) == 1 ? Dtype::bf16 : Dtype::f32;
  if (of({0, 1, 2}) == 0) p.fusions.clear();
  if (of({0, 1}) == 1) {
    const auto& words = passes::group_words();
    p.memory.recompute = {{words[static_cast<size_t>(key.bits(at++) % words.size())].name}};
  }
  d.options.threads = of({0, 1}) == 1 ? cores : 1;
  d.options.seed = number;
  d.text = fmt::format(
      "one rank, {} threads, {}, {} layers of {}, {} x {} x {} tokens, {} of {} experts of {}, {} "
      "fusions, recomputed '{}'",
      d.options.threads, name_of(p.dtype), c.num_hidden_layers, c.hidden_size, p.microbatches, p.sequences,
      p.sequence_length, c.num_experts_per_tok, c.n_routed_experts, c.moe_intermediate_size, p.fusions.size(),
      passes::text_of(p.memory.recompute));
  return d;
}

Drawn draw_many(uint64_t number, int ranks) {
  const parity::Draw from = parity::draw(number, 8, ranks);
  Drawn d;
  d.options.model = from.model;
  d.options.plan = from.plan;
  d.options.plan.dtype = Dtype::f32;
  d.options.seed = number;
  d.options.threads = 1;
  d.node_of = from.node_of;
  d.text = from.text();
  return d;
}

struct Predicted {
  runtime::PredictionInput input;
  runtime::StepPrediction prediction;
};

Predicted predict(Drawn& d, const cost::MachineProfile& profile, bool paced, bool hosts) {
  // As the trainer lowers it.
  d.options.plan.evaluates = d.options.plan.predicts = true;
  d.options.plan.packed_bytes = backends::named("host").packed_bytes;
  const plan::Lowered lowered = plan::lower(d.options.model, d.options.plan);
  Predicted f;
  f.input.threads = d.options.threads;
  f.input.over = hosts ? cost::Link::nodes : cost::Link::threads;
  f.input.node_of = d.node_of;
  for (int s = 0; s < d.options.plan.mesh.pp; ++s) {
    const auto& classes = lowered.program.class_of_rank;
    const auto rank = static_cast<int>(std::find(classes.begin(), classes.end(), s) - classes.begin());
    f.input.capacity_bytes =
        std::max(f.input.capacity_bytes, runtime::arena_bytes(lowered.program, rank, "host", kLimit_bytes));
  }
  // Kernels' scratch dwarfs models as small as the drawn ones: room for what fragments.
  if (paced) f.input.capacity_bytes *= 4;
  d.options.memory_bytes = f.input.capacity_bytes;
  if (paced) {
    const double work_per_s = bench::most_work(d.options.plan, lowered) / kPaced_s;
    f.input.pace_ns = bench::stated_pace(d.options.plan, lowered, work_per_s, !hosts);
  }
  f.prediction = runtime::predict_step(d.options.model, d.options.plan, lowered, profile, f.input);
  return f;
}

struct Measured {
  double step_s = 0;
  int64_t peak_live_bytes = 0, reserved_bytes = 0;
  double processor_use = 0;  // paced
  double others_share = 0;   // of the cores, by other programs; unpaced
};

Measured measure(train::Trainer& trainer, const std::vector<std::vector<int64_t>>& pace, int steps) {
  trainer.initialise();
  const auto sequences = planner::random_sequences(trainer, trainer.options().seed);
  trainer.step(sequences);
  set_pace(trainer.executor(), pace);
  Measured m;
  const auto median_step_s = [&](double seconds) {
    std::vector<double> took;
    for (double spent_s = 0; std::ssize(took) < steps || spent_s < seconds; spent_s += took.back()) {
      const PacedTimer timer;
      const train::StepResult result = trainer.step(sequences);
      const double use = timer.elapsed().processor_use();
      took.push_back(result.seconds);
      m.peak_live_bytes = std::max(m.peak_live_bytes, result.peak_live_bytes);
      m.reserved_bytes = std::max(m.reserved_bytes, result.reserved_bytes);
      if (!pace.empty()) m.processor_use = std::max(m.processor_use, use);
    }
    return median(took);
  };
  if (!pace.empty()) {
    m.step_s = median_step_s(0);
    return m;
  }
  // As fast as the machine is: of a few stretches the one that other programs disturbed least.
  constexpr int kStretches = 4;
  constexpr double kStretch_s = 1.5;
  m.others_share = 1e9;
  for (int i = 0; i < kStretches && m.others_share > planner::kQuiet; ++i) {
    const planner::OthersWatch others;
    const double step_s = median_step_s(kStretch_s);
    if (const double share = others.share(); share < m.others_share) {
      m.others_share = share;
      m.step_s = step_s;
    }
  }
  return m;
}

class Results {
 public:
  explicit Results(const std::string& path) : path_(path) {
    std::ifstream file(path);
    for (std::string line; !path.empty() && std::getline(file, line);) lines_.push_back(ordered_json::parse(line));
  }
  void add(const std::string& kind, uint64_t number, const Drawn& d, const Predicted& f, const Measured& m,
           double drift) {
    const auto ratio = [](double a, double b) { return a / b - 1; };
    ordered_json line{{"kind", kind},
                      {"number", number},
                      {"ranks", d.options.plan.ranks()},
                      {"predicted_s", f.prediction.step_us * 1e-6},
                      {"measured_s", m.step_s},
                      {"time_error", ratio(f.prediction.step_us * 1e-6, m.step_s)},
                      {"predicted_bytes", f.prediction.peak_live_bytes},
                      {"measured_bytes", m.peak_live_bytes},
                      {"memory_error", ratio(static_cast<double>(f.prediction.peak_live_bytes),
                                             static_cast<double>(m.peak_live_bytes))},
                      {"predicted_reserved_bytes", f.prediction.reserved_bytes},
                      {"reserved_bytes", m.reserved_bytes},
                      {"drift", drift},
                      {"processor_use", m.processor_use},
                      {"others_share", m.others_share},
                      {"plan", d.text}};
    fmt::print(stderr,
               "{} {}: {:.4f} s foretold, {:.4f} s measured ({:+.1f} %), memory {:+.2f} %, drift {:.2f}, use "
               "{:.2f}, others {:.2f}\n",
               kind, number, f.prediction.step_us * 1e-6, m.step_s, 100 * line["time_error"].get<double>(),
               100 * line["memory_error"].get<double>(), drift, m.processor_use, m.others_share);
    if (!path_.empty()) std::ofstream(path_, std::ios::app) << line.dump() << "\n";
    lines_.push_back(std::move(line));
    bench::so_far(summary().dump(2));
  }

  ordered_json summary() const {
    ordered_json s;
    for (const std::string& kind :
         {std::string("one"), std::string("threads"), std::string("hosts"), std::string("all")}) {
      std::vector<double> errors, memory, predicted, measured;
      for (const ordered_json& l : lines_) {
        if (kind != "all" && l["kind"] != kind) continue;
        errors.push_back(std::abs(l["time_error"].get<double>()));
        memory.push_back(std::abs(l["memory_error"].get<double>()));
        predicted.push_back(l["predicted_s"]);
        measured.push_back(l["measured_s"]);
      }
      if (errors.empty()) continue;
      std::sort(errors.begin(), errors.end());
      std::sort(memory.begin(), memory.end());
      const size_t p90 = errors.size() * 9 / 10;
      s[kind] = {{"plans", errors.size()},
                 {"time_error_median", median(errors)},
                 {"time_error_p90", errors[std::min(p90, errors.size() - 1)]},
                 {"memory_error_median", median(memory)},
                 {"memory_error_p90", memory[std::min(p90, memory.size() - 1)]},
                 {"spearman", spearman(predicted, measured)}};
    }
    return s;
  }

 private:
  static double spearman(const std::vector<double>& a, const std::vector<double>& b) {
    const auto ranks = [](const std::vector<double>& x) {
      std::vector<size_t> order(x.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return x[i] < x[j]; });
      std::vector<double> rank(x.size());
      for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<double>(i);
      return rank;
    };
    const auto ra = ranks(a), rb = ranks(b);
    const auto n = static_cast<double>(a.size());
    double sum = 0;
    for (size_t i = 0; i < ra.size(); ++i) sum += (ra[i] - rb[i]) * (ra[i] - rb[i]);
    return n < 2 ? 1 : 1 - 6 * sum / (n * (n * n - 1));
  }

  std::string path_;
  std::vector<ordered_json> lines_;
};

struct Options {
  std::string profile, results;
  int one = 0, threads = 0, hosts = 0;
  uint64_t first = 1;
  bool json = false;
};

void bench_one(const Options& o, const cost::MachineProfile& profile, Results& results) {
  if (o.one == 0) return;
  Drawn reference = draw_one(1'000'000, 1);
  reference.options.threads = profile.cores;  // what holds one core only holds it up, too
  predict(reference, profile, false, false);
  train::Trainer probe(reference.options);
  probe.initialise();
  const auto sequences = planner::random_sequences(probe, 1);
  const auto probe_s = [&] {
    std::vector<double> took;
    for (int i = 0; i < 5; ++i) took.push_back(probe.step(sequences).seconds);
    return median(took);
  };
  probe_s();
  const double first_s = probe_s();
  for (int i = 0; i < o.one; ++i) {
    const uint64_t number = o.first + static_cast<uint64_t>(i);
    Drawn d = draw_one(number, profile.cores);
    const Predicted f = predict(d, profile, false, false);
    const double before_s = probe_s();
    train::Trainer trainer(d.options);
    const Measured m = measure(trainer, {}, 5);
    results.add("one", number, d, f, m, (before_s + probe_s()) / 2 / first_s);
  }
}

void bench_threads(const Options& o, const cost::MachineProfile& profile, Results& results) {
  for (int i = 0; i < o.threads; ++i) {
    const uint64_t number = o.first + static_cast<uint64_t>(i);
    Drawn d = draw_many(number, 0);
    const Predicted f = predict(d, profile, true, false);
    train::RankTrainers ranks(d.options, d.node_of);
    std::vector<Measured> all(static_cast<size_t>(ranks.size()));
    ranks.each([&](train::Trainer& trainer) {
      all[static_cast<size_t>(trainer.ranks().rank())] = measure(trainer, f.input.pace_ns, 3);
    });
    results.add("threads", number, d, f, all[0], 1);
  }
}

void bench_hosts(const Options& o, const cost::MachineProfile& profile, Results& results) {
  const auto world = comm::mpi_world();
  for (int i = 0; i < o.hosts; ++i) {
    const uint64_t number = o.first + static_cast<uint64_t>(i);
    Drawn d = draw_many(number, world->size());
    d.node_of.clear();
    for (int r = 0; r < world->size(); ++r) d.node_of.push_back(world->node_of(r));
    const Predicted f = predict(d, profile, true, true);
    train::Trainer trainer(d.options, world.get());
    const Measured m = measure(trainer, f.input.pace_ns, 3);
    if (world->rank() == 0) results.add("hosts", number, d, f, m, 1);
  }
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options o;
  int64_t first = 1;
  arguments.word("--profile", "FILE", o.profile);
  arguments.number("--one", o.one);
  arguments.number("--threads", o.threads);
  arguments.number("--hosts", o.hosts);
  arguments.number("--first", first);
  arguments.word("--results", "FILE", o.results);
  arguments.flag("--json", o.json);
  arguments.read();
  o.first = static_cast<uint64_t>(first);
  const cost::MachineProfile profile = planner::read_profile(o.profile);
  const bool mpi = comm::launched_by_mpi();
  Results results(mpi && comm::launched_rank() > 0 ? "" : o.results);
  if (mpi) {
    bench_hosts(o, profile, results);
    if (comm::launched_rank() > 0) return 0;
  } else {
    bench_one(o, profile, results);
    bench_threads(o, profile, results);
  }
  const ordered_json s = results.summary();
  if (o.json) {
    fmt::print("{}\n", s.dump(2));
    return 0;
  }
  fmt::print("{:<10} {:>5} {:>12} {:>8} {:>14} {:>8} {:>9}\n", "plans", "count", "time median", "p90",
             "memory median", "p90", "Spearman");
  for (const auto& [kind, v] : s.items()) {
    fmt::print("{:<10} {:>5} {:>10.1f} % {:>6.1f} % {:>12.2f} % {:>6.2f} % {:>9.3f}\n", kind, v["plans"].get<int>(),
               100 * v["time_error_median"].get<double>(), 100 * v["time_error_p90"].get<double>(),
               100 * v["memory_error_median"].get<double>(), 100 * v["memory_error_p90"].get<double>(),
               v["spearman"].get<double>());
  }
  return 0;
}

}  // namespace heddle
