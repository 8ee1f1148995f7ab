// Everything on, and what each part of it adds: whole steps in the paced mode (bench/paced_ranks.h), at the widths
// of published models and the proportions of stated clusters.
//
//   bench_everything [--json] [--minutes X] [--smoke] [--simulated] [--model deepseek|llama|qwen]
//                    [--cluster h100|910c|commodity] [--ranks N] [--layers N] [--rounds N] [--seconds X] [--stretch
//                    X]
//
// off       The defaults of Megatron-LM: 1F1B, optimizer state sharded over replicas, fused kernels, a plain
//           all-to-all that nothing runs beside, no block rearranged. It has the quickest of the layouts that the
//           chooser found, and computes again as little as lets it fit. Row counts are reused.
// streams   `off`, with the all-to-all on a stream of its own.
// auto, save-memory, overlap
//           The plans that the chooser of `heddle train --mode` takes, among those that it simulates in --seconds.
// equal-memory, less-memory
//           The plan of `auto` in the memory that `off` takes, and in 0.7 of it.
// without   The plan of `auto` with one feature taken away: `adds` is the step without it over the step with it,
//           less 1.
//
// Each row is printed as soon as it is known, with --json as an object a line. What --minutes leaves no time for is
// not run, and the summary counts it. An op lasts as long as on a device that reaches 40 % of its products and 80 %
// of its memory's rate; links reach 80 %. Messages of tp and cp stay in a node, all others go between nodes. Update
// and gradients are part of a step. Hidden is the part of the messages' own time that does not lengthen the step;
// it is left out where messages run inside products (parallel.tp_overlap), which have no time of their own. Losses
// and norms are those of a narrow model with the same layers and plan, trained for two steps in fp64.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/everything_cases.h"
#include "bench/paced_ranks.h"
#include "bench/support/main.h"
#include "heddle/base/clock.h"
#include "heddle/planner/choose_plan.h"
#include "heddle/planner/measure_machine.h"
#include "heddle/planner/measure_ops.h"
#include "heddle/planner/searched_plans.h"
#include "tests/train/rank_trainers.h"

namespace heddle {
namespace {

using bench::Case, bench::Cluster, bench::ConfigFile, bench::Options, bench::Simulated;
using Json = nlohmann::ordered_json;
using planner::Candidate, planner::PlanMode;
using Settings = std::vector<std::string>;

std::string key_of(const std::string& setting) { return setting.substr(0, setting.find('=')); }
void drop(Settings& set, const std::string& key) {
  std::erase_if(set, [&](const std::string& one) { return key_of(one) == key; });
}
bool is_layout(const std::string& setting) { return setting.starts_with("mesh.") || setting.starts_with("train."); }

// Features that Heddle has on, or that a plan chooses among, and what Megatron-LM has.
const Settings kOff{"parallel.schedule=1f1b", "parallel.weave=off", "parallel.exchange=plain",
                    "parallel.tp_overlap=off"};

// One model on one cluster, until a time.
class Bench {
 public:
  Bench(const Case& of, const Cluster& cluster, const Options& options, double until_s)
      : case_(of),
        cluster_(cluster),
        options_(options),
        until_s_(until_s),
        wide_(of.config, options, bench::kTokens, limit_bytes()),
        narrow_(bench::narrow(of.config), options, 64, 0) {}

  void run() {
    try {
      measure_all();
    } catch (const ConfigError& error) {  // nothing fits that was found in time
      summary_["impossible"] = error.what();
    }
    if (options_.json) {
      summary_.update({{"summary", true}, {"model", case_.name}, {"cluster", cluster_.word}});
      say(summary_);
    } else {
      fmt::print("{}\n", summary_.dump());
    }
    std::fflush(stdout);
  }

 private:
  void measure_all() {
    if (!options_.json)
      fmt::print("\n{} on {}, {} ranks, {} layers\n{:<34} {:>8} {:>9} {:>9} {:>7} {:>7} {:>6}  {}\n", case_.name,
                 cluster_.name, options_.ranks, options_.layers, "plan", "paced s", "simulated", "tokens/s", "GB",
                 "hidden", "adds", "loss and norm, settings");
    const int64_t limit = limit_bytes();
    const planner::PlanChoice choice = choose(PlanMode::automatic, limit);
    const Candidate& full = choice.chosen;
    const Settings base = off(choice);
    const auto bytes = static_cast<double>(row("off", base)["peak_bytes"].get<int64_t>());
    row("streams", base);
    const Json with = row("auto", full.set);
    struct Aim {
      const char* name;
      PlanMode mode;
      int64_t limit;
    };
    for (const Aim& aim : {Aim{"equal-memory", PlanMode::automatic, static_cast<int64_t>(bytes)},
                           {"less-memory", PlanMode::automatic, static_cast<int64_t>(kLess * bytes)},
                           {"save-memory", PlanMode::save_memory, limit},
                           {"overlap", PlanMode::overlap, limit}}) {
      try {
        row(aim.name, time_left() ? choose(aim.mode, aim.limit).chosen.set : Settings());
      } catch (const ConfigError& error) {
        summary_["impossible"][aim.name] = error.what();
      }
    }
    for (const auto& [name, set] : without_each(full.set)) row("without " + name, set, &with);
  }

  static constexpr double kLess = 0.7;     // of the memory of `off`
  static constexpr double kAlike = 0.001;  // of a step: the chooser holds no more apart
  static Settings given() { return {"moe.replicas=off"}; }
  static config::RunConfig config(const ConfigFile& file, const Settings& set) {
    Settings all = given();
    all.insert(all.end(), set.begin(), set.end());
    return config::read_run_config(file.path(), all);
  }
  int64_t limit_bytes() const { return static_cast<int64_t>(0.92e9 * cluster_.memory_GB); }
  bool time_left(double for_s = 0) const { return now_s() + for_s < until_s_; }

  // A profile for the search that proposes plans: it has the cluster's rates, and no measured op.
  cost::MachineProfile profile() const {
    cost::MachineProfile p;
    p.cores = options_.ranks;
    p.bf16_flops_per_s = 0.4e12 * cluster_.tflops * p.cores;
    p.f32_flops_per_s = p.f64_flops_per_s = p.bf16_flops_per_s / 4;
    p.copy_bytes_per_s = bench::kAttained * 1e9 * cluster_.memory_GB_s * p.cores;
    p.launch_us = p.enqueue_us = bench::kEnqueueUs;
    for (int ranks = 2; ranks <= options_.ranks; ranks *= 2) {
      for (const double bytes : {1e4, 1e6, 1e8})
        p.links.push_back({cost::Link::threads, ranks, bytes,
                           cluster_.latency_us + bytes / (bench::kAttained * 1e3 * cluster_.across_GB_s)});
    }
    return p;
  }

  static plan::Lowered lowered(const config::RunConfig& config, const plan::Plan& plan, bool blocking) {
    plan::Lowered whole = plan::lower(config.model, plan);
    return blocking ? bench::blocking(std::move(whole)) : whole;
  }

  // A plan's figures, computed at its first call.
  const Simulated& figures(const config::RunConfig& config, bool blocking = false) {
    const std::pair key{blocking, config::toml_of(config)};
    if (const auto at = known_.find(key); at != known_.end()) return at->second;
    const plan::Plan plan = bench::plan_on(cluster_, config);
    return known_[key] = bench::simulated(plan, lowered(config, plan, blocking));
  }

  planner::PlanChoice choose(PlanMode mode, int64_t limit) {
    const planner::PredictFn predict = [&](const config::RunConfig& config, bool) {
      const Simulated& found = figures(config);
      if (found.bytes > limit) throw ir::OutOfMemory(fmt::format("it takes {} bytes", found.bytes));
      planner::ConfigPrediction p;
      p.prediction.step_us = found.step_us;
      p.prediction.reserved_bytes = found.bytes;
      p.prediction.exposed_us["messages"] = found.step_us - found.free_us;
      p.limit_bytes = limit;
      return p;
    };
    // Plans of the search, and the state of the best few on the host: this process' memory is not the device's.
    const planner::Propose propose = [&](const config::RunConfig& config, const std::set<std::string>& fixed) {
      std::vector<Settings>& plans = proposed_[limit];
      if (!plans.empty()) return plans;
      const cost::MachineProfile searched = profile();
      plans = planner::searched_plans(config, fixed, searched, {});
      constexpr size_t kWithStateAway = 4;
      const size_t few = std::min(plans.size(), kWithStateAway);
      for (size_t i = 0; i < few; ++i) {
        Settings away = plans[2 * i];
        away.emplace_back("memory.optimizer=swap");
        plans.insert(plans.begin() + static_cast<std::ptrdiff_t>(2 * i + 1), std::move(away));
      }
      return plans;
    };
    const double seconds = std::clamp((until_s_ - now_s()) / 7, 1.0, options_.seconds);
    Settings set = given();
    set.push_back(fmt::format("device.memory_bytes={}", limit));
    return planner::choose_plan(wide_.path(), set, predict, propose, mode, seconds);
  }

  // The quickest of the layouts found that fits without the features.
  Settings off(const planner::PlanChoice& choice) {
    std::vector<const Candidate*> fastest;
    for (const Candidate& c : choice.all) {
      if (c.fits()) fastest.push_back(&c);
    }
    std::stable_sort(fastest.begin(), fastest.end(),
                     [](const Candidate* a, const Candidate* b) { return a->step_us < b->step_us; });
    std::vector<Settings> layouts;
    for (const Candidate* c : fastest) {
      Settings layout;
      std::copy_if(c->set.begin(), c->set.end(), std::back_inserter(layout), is_layout);
      if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end()) layouts.push_back(layout);
    }
    constexpr size_t kLayouts = 6;
    if (layouts.size() > kLayouts) layouts.resize(kLayouts);
    Settings best;
    double best_us = 0;
    for (const Settings& layout : layouts) {
      for (const char* recompute : {"", "norm, activation", "norm, activation, mla_up, permute", "full", "layer"}) {
        Settings set = layout;
        set.insert(set.end(), kOff.begin(), kOff.end());
        if (*recompute != 0) set.push_back(fmt::format("memory.recompute={}", recompute));
        try {
          const Simulated& found = figures(config(wide_, set), true);
          if (found.bytes > limit_bytes()) continue;
          if (best.empty() || found.step_us < best_us) {
            best_us = found.step_us;
            best = set;
          }
          break;
        } catch (const ConfigError&) {  // no plan of 1F1B, or words of other layers
        }
      }
    }
    if (best.empty()) config_error("{} on {}: no layout fits without features", case_.name, cluster_.word);
    return best;
  }

  // Each feature that the plan has, named, and the plan's settings without it.
  static std::vector<std::pair<std::string, Settings>> without_each(const Settings& full) {
    std::vector<std::pair<std::string, Settings>> all;
    Settings off = kOff;
    off.insert(off.end(), {"parallel.reuse_lists=false", "fusions.norm=false", "fusions.swiglu=false"});
    for (const std::string& one : off) {
      Settings rest = full;
      drop(rest, key_of(one));
      if (one == kOff[0]) {
        drop(rest, "parallel.chunks");
        drop(rest, "parallel.layout");
      }
      rest.push_back(one);
      all.emplace_back(key_of(one), rest);
    }
    for (const std::string& one : full) {
      const std::string key = key_of(one);
      if (is_layout(one) || key == "parallel.chunks" || key == "parallel.layout") continue;
      if (std::any_of(off.begin(), off.end(), [&](const std::string& o) { return key_of(o) == key; })) continue;
      Settings rest = full;
      std::erase(rest, one);
      all.emplace_back(one, rest);
    }
    return all;
  }

  Json row(const std::string& name, const Settings& set, const Json* full = nullptr) {
    Json of{{"model", case_.name}, {"cluster", cluster_.word}, {"plan", name}, {"set", set}};
    const bool blocking = name == "off";
    if (!time_left() && !blocking && name != "auto") {
      summary_["left_out"].push_back(name);
      return of;
    }
    try {
      measure(of, set, blocking, full);
    } catch (const ConfigError& error) {  // no plan without that feature
      of["impossible"] = error.what();
      say(of);
      return of;
    }
    if (first_.is_null()) first_ = of;
    of["step_over_off"] = over(of, first_);
    of["bytes_over_off"] = of["peak_bytes"].get<double>() / first_["peak_bytes"].get<double>();
    double differs = 0;
    for (size_t i = 0; i < of["losses"].size(); ++i)
      differs = std::max(differs, std::abs(of["losses"][i].get<double>() / first_["losses"][i].get<double>() - 1));
    of["maths_differ"] = differs;
    if (full != nullptr && full->contains("simulated_s")) {
      of["adds"] = over(of, *full) - 1;
      of["saves_bytes"] = of["peak_bytes"].get<double>() / (*full)["peak_bytes"].get<double>() - 1;
      if (of["adds"].get<double>() < -kAlike) summary_["quicker_without"].push_back(name);
    } else {
      summary_["step_over_off"][name] = of["step_over_off"];
      summary_["bytes_over_off"][name] = of["bytes_over_off"];
    }
    const auto worst = [&](const char* key, double value) {
      summary_[key] = std::max(summary_.value(key, 0.0), value);
    };
    worst("maths_differ", differs);
    if (of.contains("paced_over_simulated"))
      worst("simulator_off_by", std::abs(of["paced_over_simulated"].get<double>() - 1));
    say(of);
    return of;
  }

  // The ratio of paced steps where both rows have them, else of simulated ones.
  static double over(const Json& of, const Json& than) {
    const char* step = of.contains("step_s") && than.contains("step_s") ? "step_s" : "simulated_s";
    return of[step].get<double>() / than[step].get<double>();
  }

  void measure(Json& of, const Settings& set, bool blocking, const Json* full) {
    const config::RunConfig config = Bench::config(wide_, set);
    const Simulated found = figures(config, blocking);
    if (found.bytes > limit_bytes())
      of["over_memory"] = static_cast<double>(found.bytes) / static_cast<double>(limit_bytes());
    const double tokens = static_cast<double>(config.train.global_batch * bench::kTokens);
    const double step_s = found.step_us * 1e-6;
    of["simulated_s"] = step_s;
    of["tokens_per_s"] = tokens / step_s;
    of["peak_bytes"] = found.bytes;
    const double hidden = found.hidden(found.step_us - found.free_us);
    if (hidden >= 0) of["hidden"] = of["hidden_simulated"] = hidden;
    const bool same =
        full != nullptr && full->value("simulated_s", 0.0) == step_s && (*full)["peak_bytes"] == found.bytes;
    if (same) {
      of["same_as"] = "auto";
      for (const char* key : {"step_s", "tokens_per_s", "hidden", "paced_over_simulated"})
        if (full->contains(key)) of[key] = (*full)[key];
    } else if (!options_.simulated && time_left(2 * (options_.rounds + 1) * step_s * options_.stretch + 5)) {
      pace(of, config, blocking, found);
    }
    of["losses"] = losses(set);
  }

  void pace(Json& of, const config::RunConfig& config, bool blocking, const Simulated& found) {
    const plan::Plan plan = bench::plan_on(cluster_, config);
    const plan::Lowered whole = lowered(config, plan, blocking);
    bench::PacedRanks real(whole, plan, options_.stretch, false, nullptr, true),
        free(whole, plan, options_.stretch, true, nullptr, true);
    const planner::OthersWatch others;
    for (int round = 0; round <= options_.rounds; ++round) {
      real.step(round > 0);
      free.step(round > 0);
    }
    of["step_s"] = real.ms() * 1e-3;
    of["tokens_per_s"] = of["tokens_per_s"].get<double>() * found.step_us * 1e-3 / real.ms();
    if (of.contains("hidden")) of["hidden"] = found.hidden((real.ms() - free.ms()) * 1e3);
    of["paced_over_simulated"] = real.ms() * 1e3 / found.step_us;
    const double use = std::max(real.use(), free.use());
    of["processor_use"] = use;
    of["others_share"] = others.share();
    of["believable"] = use <= kMostPacedUse && others.share() <= planner::kQuiet;
  }

  // Loss and gradient norm of two steps.
  std::vector<double> losses(const Settings& set) const {
    Settings wide = set;
    wide.insert(wide.end(), {"device.backend=reference", "device.dtype=f64"});
    drop(wide, "memory.master");  // of narrow weights
    const config::RunConfig config = Bench::config(narrow_, wide);
    const int ranks = static_cast<int>(config.ranks());
    train::TrainerOptions options = train::trainer_options_of(config, 0, {.memory = ranks, .cores = ranks});
    for (int r = 1; r < ranks; ++r)
      options.memory_bytes =
          std::max(options.memory_bytes, train::arena_bytes_of(config, r, {.memory = ranks, .cores = ranks}));
    train::RankTrainers trainers(options);
    trainers.each([](train::Trainer& t) { t.initialise(); });
    std::vector<double> found;
    for (uint64_t step = 1; step <= 2; ++step) {
      const train::StepResult result = trainers.step(planner::random_sequences(trainers[0], step));
      found.push_back(result.loss());
      found.push_back(result.gradient_norm());
    }
    return found;
  }

  void say(const Json& of) const {
    if (options_.json) {
      fmt::print("{}\n", of.dump());
    } else if (of.contains("impossible")) {
      fmt::print("{:<34} {}\n", of["plan"].get<std::string>(), of["impossible"].get<std::string>());
    } else {
      const auto number = [&](const char* key, const char* format, double unit) {
        return of.contains(key) ? fmt::format(fmt::runtime(format), of[key].get<double>() / unit) : std::string();
      };
      std::string digest;
      for (const Json& one : of["losses"]) digest += fmt::format("{:.9g} ", one.get<double>());
      fmt::print("{:<34} {:>8} {:>9} {:>9} {:>7} {:>7} {:>6}  {}{}\n", of["plan"].get<std::string>(),
                 number("step_s", "{:.3f}", 1), number("simulated_s", "{:.3f}", 1),
                 number("tokens_per_s", "{:.0f}", 1), number("peak_bytes", "{:.1f}", 1e9),
                 number("hidden", "{:.2f}", 1), number("adds", "{:+.1f} %", 0.01), digest,
                 fmt::join(of["set"].get<Settings>(), " "));
    }
    std::fflush(stdout);
  }

  const Case& case_;
  const Cluster& cluster_;
  const Options& options_;
  const double until_s_;
  ConfigFile wide_, narrow_;
  std::map<std::pair<bool, std::string>, Simulated> known_;  // by whether exchanges block, and the configuration
  std::map<int64_t, std::vector<Settings>> proposed_;        // by the memory's limit
  Json first_, summary_;
};

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
  arguments.flag("--smoke", options.smoke);
  arguments.flag("--simulated", options.simulated);
  arguments.word("--model", "deepseek|llama|qwen", options.model, {"deepseek", "llama", "qwen"});
  arguments.word("--cluster", "h100|910c|commodity", options.cluster, {"h100", "910c", "commodity"});
  arguments.number("--ranks", options.ranks, 2);
  arguments.number("--layers", options.layers);
  arguments.number("--rounds", options.rounds);
  arguments.number("--minutes", options.minutes, 0.1);
  arguments.number("--seconds", options.seconds, 0.1);
  arguments.number("--stretch", options.stretch, 0.01);
  arguments.read();
  if (options.smoke) {
    if (options.model.empty()) options.model = "deepseek";
    if (options.cluster.empty()) options.cluster = "h100";
    options.ranks = options.layers = 2;
    options.rounds = 1;
    options.seconds = std::min(options.seconds, 3.0);
    options.minutes = std::min(options.minutes, 0.75);
  }
  const double until_s = now_s() + 60 * options.minutes;
  const std::vector<Case> models = bench::cases(options);
  std::vector<const Cluster*> clusters;
  for (const Cluster& cluster : bench::kClusters) {
    if (options.cluster.empty() || options.cluster == cluster.word) clusters.push_back(&cluster);
  }
  auto left = static_cast<double>(models.size() * clusters.size());
  for (const Case& of : models) {
    for (const Cluster* cluster : clusters) {
      const double now = now_s();
      Bench(of, *cluster, options, now + std::max(0.0, until_s - now) / left--).run();
    }
  }
  return 0;
}

}  // namespace heddle
