// Whether the plan that a mode chooses is the one to take: it runs beside others that it was chosen from.
//
//   bench_modes --profile FILE [--ranks N] [--paced] [--case NAME] [--plans N] [--rounds N] [--json]
//
// Of each case (a model and its batch) the chooser of `heddle train --mode` names a plan for each mode. Those
// plans, the configured one, the best few by forecast and others drawn from all that it simulated take steps in
// turn, in one process. Regret: what the chosen plan takes over the least that any of them took, of steps as
// measured; for save-memory of the arena, for overlap of the exposed communication, among those within the mode's
// bound on time.
//
// --paced: on a device of stated rates (bench/stated_device.h), asleep, so that ranks which share cores do not slow
// each other. Exposed is what the compute stream waits while a collective runs for which all its ranks are there.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/paced_run.h"
#include "bench/stated_device.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/base/clock.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/statistics.h"
#include "heddle/planner/choose_plan.h"
#include "heddle/planner/measure_machine.h"
#include "heddle/planner/measure_ops.h"
#include "heddle/planner/profile_file.h"
#include "heddle/planner/searched_plans.h"
#include "tests/support/paced_time.h"
#include "tests/support/set_pace.h"
#include "tests/train/rank_trainers.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;
using planner::Candidate;
using planner::PlanMode;
constexpr double kPaced_s = 0.3;  // of computation of the configured plan's busiest rank

struct Case {
  std::string name;
  std::vector<std::string> set;  // over examples/demo.toml
};
const std::vector<Case> kCases{
    {"demo", {}},
    {"deep",
     {"model.hidden_size=128", "model.num_hidden_layers=8", "model.first_k_dense_replace=0",
      "model.vocab_size=2048", "model.intermediate_size=384", "model.n_routed_experts=8",
      "model.num_experts_per_tok=2", "model.moe_intermediate_size=192", "model.num_nextn_predict_layers=0",
      "train.sequence_length=128", "train.microbatch=2"}},
    {"wide",
     {"model.hidden_size=512", "model.num_hidden_layers=2", "model.num_attention_heads=8",
      "model.intermediate_size=1536", "model.n_routed_experts=32", "model.num_experts_per_tok=6",
      "model.moe_intermediate_size=64", "model.vocab_size=4096", "train.global_batch=8", "train.microbatch=4"}},
    {"long",
     {"model.hidden_size=192", "model.num_hidden_layers=4", "model.num_attention_heads=8",
      "model.intermediate_size=512", "model.n_routed_experts=8", "model.num_experts_per_tok=2",
      "model.vocab_size=4096", "train.sequence_length=1024", "train.global_batch=8", "train.microbatch=1"}},
};

struct Options {
  std::string profile, config = "examples/demo.toml", only;
  int ranks = 1, plans = 12, rounds = 6;
  bool paced = false, json = false;
};

struct Span {
  double start_s, end_s;
};

// Length of what any of them covers. Sorts them.
double covered(std::vector<Span>& spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start_s < b.start_s; });
  double sum = 0, at = -1e300;
  for (const Span& s : spans) {
    sum += std::max(0.0, s.end_s - std::max(at, s.start_s));
    at = std::max(at, s.end_s);
  }
  return sum;
}

// A plan that runs.
class Running {
 public:
  Running(Candidate candidate, const config::RunConfig& config, const planner::JobPlaces& places)
      : predicted(std::move(candidate)) {
    const int ranks = static_cast<int>(config.ranks());
    train::TrainerOptions options = train::trainer_options_of(config, 0, {.memory = ranks, .cores = ranks});
    for (int r = 1; r < ranks; ++r) {
      options.memory_bytes =
          std::max(options.memory_bytes, train::arena_bytes_of(config, r, {.memory = ranks, .cores = ranks}));
    }
    trainers_ = std::make_unique<train::RankTrainers>(options);
    trainers_->each([](train::Trainer& t) { t.initialise(); });
    sequences_ = planner::random_sequences((*trainers_)[0], 1);
    trainers_->step(sequences_);
    train::Trainer& first = (*trainers_)[0];
    for (int r = 0; r < ranks; ++r) {
      runtime::Executor& executor = (*trainers_)[r].executor();
      if (places.pace) set_pace(executor, places.pace(first.options().plan, first.lowered()));
      executor.set_trace(true);
    }
  }

  void step(bool paced) {
    // As fast as the machine is: again while other programs have it, and the quietest counts.
    train::StepResult result;
    double quietest = 1e9, step_use = 0;
    for (int i = 0; i < (paced ? 1 : 3) && quietest > planner::kQuiet; ++i) {
      const planner::OthersWatch others;
      const PacedTimer timer;
      train::StepResult found = trainers_->step(sequences_);
      if (const double share = others.share(); share < quietest) {
        quietest = share;
        step_use = timer.elapsed().processor_use();
        result = std::move(found);
      }
    }
    took_s.push_back(result.seconds);
    reserved_bytes = std::max(reserved_bytes, result.reserved_bytes);
    exposed_s.push_back(measure_exposed_s());
    use = std::max(use, step_use);
  }
  double step_s() const { return median(took_s); }
  double exposed() const { return median(exposed_s); }

  Candidate predicted;
  std::vector<double> took_s, exposed_s;
  int64_t reserved_bytes = 0;
  double use = 0;

 private:
  double measure_exposed_s() {
    struct Seen {
      int rank;
      const ir::Op* op;
      Span span;
    };
    using Key = std::tuple<int, uint32_t, int>;  // stage, op, microbatch
    std::map<std::pair<int, Key>, double> arrived_s;
    std::vector<std::pair<Key, Seen>> collectives;
    std::vector<std::vector<Span>> busy(static_cast<size_t>(trainers_->size()));
    const plan::Mesh& mesh = (*trainers_)[0].mesh();
    const ir::StepProgram& program = (*trainers_)[0].lowered().program;
    for (int r = 0; r < trainers_->size(); ++r) {
      runtime::Executor& executor = (*trainers_)[r].executor();
      for (size_t i = 0; i < executor.walk().streams().names().size(); ++i) {
        for (const device::Span& s : executor.stream(static_cast<int>(i)).take_spans()) {
          const ir::Op& op = program.listings[static_cast<size_t>(s.listing)].ops[s.op_index];
          const Span span{static_cast<double>(s.start_ns) * 1e-9, static_cast<double>(s.end_ns) * 1e-9};
          if (op.def->stream == ir::StreamKind::compute) busy[static_cast<size_t>(r)].push_back(span);
          if (op.def->stream != ir::StreamKind::comm || !op.def->collective) continue;
          const Key key{s.listing, s.op_index, s.microbatch};
          arrived_s[{r, key}] = span.start_s;
          collectives.push_back({key, {r, &op, span}});
        }
      }
    }
    std::vector<std::vector<Span>> messages(busy.size());
    for (auto& [key, seen] : collectives) {
      double start_s = seen.span.start_s;
      for (const int other : mesh.group(seen.op->group, seen.rank)) {
        if (const auto at = arrived_s.find({other, key}); at != arrived_s.end())
          start_s = std::max(start_s, at->second);
      }
      if (start_s < seen.span.end_s) messages[static_cast<size_t>(seen.rank)].push_back({start_s, seen.span.end_s});
    }
    double sum = 0;
    for (size_t r = 0; r < busy.size(); ++r) {
      const double computing = covered(busy[r]);
      busy[r].insert(busy[r].end(), messages[r].begin(), messages[r].end());
      sum += covered(busy[r]) - computing;
    }
    return sum / static_cast<double>(busy.size());
  }

  std::unique_ptr<train::RankTrainers> trainers_;
  std::vector<std::vector<int32_t>> sequences_;
};

// A configuration of its own, in which nothing counts as set by the user.
class CaseFile {
 public:
  CaseFile(const Case& c, const std::string& config)
      : path_((std::filesystem::temp_directory_path() / fmt::format("heddle-{}-{}.toml", getpid(), c.name))
                  .string()) {
    write_file(path_, config::toml_of(config::read_run_config(config, c.set)));
  }
  ~CaseFile() { std::remove(path_.c_str()); }
  CaseFile(const CaseFile&) = delete;
  CaseFile& operator=(const CaseFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

ordered_json run_case(const Case& c, const Options& o, const cost::MachineProfile& profile) {
  Case paced = c;  // of short sequences, so that their real work leaves the cores idle
  if (o.paced) paced.set.push_back("train.sequence_length=64");
  const CaseFile file(o.paced ? paced : c, o.config);
  std::vector<std::string> set{fmt::format("mesh.ranks={}", o.ranks)};
  if (o.paced) set.push_back("device.threads=1");
  // What the case file leaves to be no plan of so many ranks.
  const std::vector<std::string> base = planner::base_settings(file.path(), set);
  planner::JobPlaces places;
  if (o.paced) {
    const config::RunConfig config = config::read_run_config(file.path(), [&] {
      std::vector<std::string> all = set;
      all.insert(all.end(), base.begin(), base.end());
      return all;
    }());
    const plan::Plan plan = train::plan_of(config);
    const double rate = bench::most_work(plan, plan::lower(config.model, plan)) / kPaced_s;
    places.pace = [rate](const plan::Plan& p, const plan::Lowered& l) {
      return bench::stated_pace(p, l, rate, true);
    };
    places.threads = 1;
  }
  const planner::PredictFn predict = [&](const config::RunConfig& config, bool tried) {
    return planner::predict_config(config, profile, places, tried);
  };
  const planner::Propose propose = [&](const config::RunConfig& config, const std::set<std::string>& fixed) {
    return planner::searched_plans(config, fixed, profile, places);
  };
  const std::vector<std::pair<std::string, PlanMode>> modes{
      {"auto", PlanMode::automatic}, {"save-memory", PlanMode::save_memory}, {"overlap", PlanMode::overlap}};
  std::map<std::vector<std::string>, Candidate> all;
  std::vector<Candidate> chosen, wanted;
  double chose_s = 0;
  for (const auto& [name, mode] : modes) {
    if (o.ranks == 1 && mode == PlanMode::overlap) continue;
    const double began = now_s();
    const planner::PlanChoice choice = planner::choose_plan(file.path(), set, predict, propose, mode, 10);
    chose_s = std::max(chose_s, now_s() - began);
    chosen.push_back(choice.chosen);
    for (const Candidate& candidate : choice.all) {
      if (candidate.fits()) all.try_emplace(candidate.set, candidate);
    }
  }
  std::set<std::vector<std::string>> taken;
  const auto take = [&](const Candidate& candidate) {
    if (std::ssize(wanted) < o.plans && taken.insert(candidate.set).second) wanted.push_back(candidate);
  };
  for (const Candidate& candidate : chosen) take(candidate);
  take(all.begin()->second);  // as configured: the least of sets is the empty one
  std::vector<Candidate> left;
  for (const auto& [key, candidate] : all) left.push_back(candidate);
  const size_t best_few = wanted.size() + static_cast<size_t>(o.plans) / 3;
  while (!left.empty() && wanted.size() < best_few) {
    const Candidate* best = planner::best_of(left, modes[wanted.size() % chosen.size()].second);
    take(*best);
    left.erase(left.begin() + (best - left.data()));
  }
  const RandomKey key = RandomKey(7).with(c.name);
  for (uint64_t i = 0; std::ssize(wanted) < o.plans && i < 1000 && !left.empty(); ++i) {
    take(left[key.bits(i) % left.size()]);
  }
  std::vector<std::unique_ptr<Running>> plans;
  for (const Candidate& candidate : wanted) {
    std::vector<std::string> every = set;
    every.insert(every.end(), candidate.set.begin(), candidate.set.end());
    plans.push_back(std::make_unique<Running>(candidate, config::read_run_config(file.path(), every), places));
  }
  for (int round = 0; round < o.rounds; ++round) {
    for (const auto& plan : plans) plan->step(o.paced);
    ordered_json unfinished{{"case", c.name}, {"rounds", round + 1}, {"plans", ordered_json::array()}};
    for (const auto& plan : plans) {
      unfinished["plans"].push_back({{"set", plan->predicted.set}, {"measured_s", median(plan->took_s)}});
    }
    bench::so_far(unfinished.dump(2));
  }
  // The machine wanders: a plan's step is taken over the median of its round, and the best of many noisy figures
  // is sought in the even rounds but judged by the odd ones, else it would seem better than it is.
  std::vector<double> round_s;
  for (int round = 0; round < o.rounds; ++round) {
    std::vector<double> took;
    for (const auto& plan : plans) took.push_back(plan->took_s[static_cast<size_t>(round)]);
    round_s.push_back(median(took));
  }
  const auto relative = [&](const Running& plan, int first) {
    std::vector<double> steps;
    for (int round = first; round < o.rounds; round += 2) {
      steps.push_back(plan.took_s[static_cast<size_t>(round)] / round_s[static_cast<size_t>(round)]);
    }
    return median(steps);
  };
  const Running* shortest = plans[0].get();
  double use = 0;
  for (const auto& plan : plans) {
    if (relative(*plan, 0) < relative(*shortest, 0)) shortest = plan.get();
    use = std::max(use, plan->use);
  }
  const auto over_shortest = [&](const Running& plan) { return relative(plan, 1) / relative(*shortest, 1); };
  double least_bytes = 1e300, least_exposed = 1e300;
  for (const auto& plan : plans) {
    if (over_shortest(*plan) > planner::kMostSlower) continue;
    least_bytes = std::min(least_bytes, static_cast<double>(plan->reserved_bytes));
    least_exposed = std::min(least_exposed, plan->exposed());
  }
  ordered_json result{{"case", c.name},
                      {"ranks", o.ranks},
                      {"paced", o.paced},
                      {"simulated", all.size()},
                      {"chosen_in_s", chose_s},
                      {"processor_use", use},
                      {"modes", ordered_json::array()},
                      {"plans", ordered_json::array()}};
  for (size_t m = 0; m < chosen.size(); ++m) {
    const Running& plan = **std::find_if(plans.begin(), plans.end(),
                                         [&](const auto& p) { return p->predicted.set == chosen[m].set; });
    const double regret = modes[m].second == PlanMode::automatic ? over_shortest(plan) - 1
                          : modes[m].second == PlanMode::save_memory
                              ? static_cast<double>(plan.reserved_bytes) / least_bytes - 1
                              : (plan.exposed() - least_exposed) / plan.step_s();
    result["modes"].push_back({{"mode", modes[m].first},
                               {"set", plan.predicted.set},
                               {"regret", regret},
                               {"step_over_shortest", over_shortest(plan)}});
  }
  for (const auto& plan : plans) {
    result["plans"].push_back({{"set", plan->predicted.set},
                               {"foretold_s", plan->predicted.step_us * 1e-6},
                               {"measured_s", plan->step_s()},
                               {"foretold_bytes", plan->predicted.reserved_bytes},
                               {"bytes", plan->reserved_bytes},
                               {"foretold_exposed_s", plan->predicted.exposed_us * 1e-6},
                               {"exposed_s", plan->exposed()}});
  }
  return result;
}

void print(const ordered_json& r) {
  fmt::print("{} on {} ranks{}: {} plans simulated in {:.1f} s, {} run; use of the cores {:.0f} %\n",
             r["case"].get<std::string>(), r["ranks"].get<int>(), r["paced"].get<bool>() ? ", paced" : "",
             r["simulated"].get<int>(), r["chosen_in_s"].get<double>(), r["plans"].size(),
             100 * r["processor_use"].get<double>());
  for (const ordered_json& p : r["plans"]) {
    fmt::print(
        "  {:8.2f} ms foretold {:8.2f} ms measured  {:7.1f} MiB {:7.1f} MiB  exposed {:7.2f} {:7.2f} ms  {}\n",
        1e3 * p["foretold_s"].get<double>(), 1e3 * p["measured_s"].get<double>(),
        p["foretold_bytes"].get<double>() / (1 << 20), p["bytes"].get<double>() / (1 << 20),
        1e3 * p["foretold_exposed_s"].get<double>(), 1e3 * p["exposed_s"].get<double>(),
        fmt::join(p["set"].get<std::vector<std::string>>(), " "));
  }
  for (const ordered_json& m : r["modes"]) {
    fmt::print("  {:<12} regret {:5.1f} %, step {:.3f} of the shortest\n", m["mode"].get<std::string>(),
               100 * m["regret"].get<double>(), m["step_over_shortest"].get<double>());
  }
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options o;
  arguments.word("--profile", "FILE", o.profile);
  arguments.word("--config", "FILE", o.config);
  arguments.word("--case", "NAME", o.only);
  arguments.number("--ranks", o.ranks);
  arguments.flag("--paced", o.paced);
  arguments.number("--plans", o.plans, 4);
  arguments.number("--rounds", o.rounds, 2);
  arguments.flag("--json", o.json);
  arguments.read();
  const cost::MachineProfile profile = planner::read_profile(o.profile);
  ordered_json results = ordered_json::array();
  for (const Case& c : kCases) {
    if (!o.only.empty() && c.name != o.only) continue;
    results.push_back(run_case(c, o, profile));
    if (!o.json) print(results.back());
    bench::so_far(o.json ? results.dump(2) : "");
  }
  if (o.json) fmt::print("{}\n", results.dump(2));
  return 0;
}

}  // namespace heddle
