#include "synthesis/synthesis.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/schedule/generators/generators.h"
#include "synthesis/anneal.h"
#include "synthesis/rule_search.h"

namespace heddle::schedule {

namespace {

struct Seed {
  std::string name;
  double makespan = Orders::kNever;
  Words words;
};

class Synthesiser {
 public:
  Synthesiser(const OrderTask& task, const SynthesisOptions& options)
      : task_(task),
        options_(options),
        orders_(task),
        work_(std::max<int64_t>(options.work, 0)),
        watch_(options.work, options.ask) {
    result_.bounds = bounds_of(task, options.pairs);
  }

  Synthesis run() {
    named_seeds();
    int rules = 0;
    for (Words& words : search_rules(task_, work_ / 4, options_.seed, kRuleSeeds, watch_))
      take_seed(fmt::format("rules {}", ++rules), std::move(words));
    work_ -= work_ / 4;
    if (options_.pairs && watch_.goes_on()) fuse_seeds();
    by_time();
    if (seeds_.size() > kSeeds) seeds_.resize(kSeeds);
    HEDDLE_CHECK(!seeds_.empty(), "no seed for a synthesis");
    anneal_seeds();

    const Seed& best = seeds_.front();
    result_.seed = best.name;
    if (!watch_.goes_on()) result_.searched = watch_.share();
    result_.schedule = schedule_of(task_, best.words, "synthesis");
    result_.timing = timing_of(result_.schedule, task_.times);
    result_.certificate = validate(result_.schedule, {task_.bytes, 0, true});
    for (size_t r = 0; r < task_.cap_bytes.size(); ++r) {
      HEDDLE_CHECK(result_.certificate.peaks[r].bytes <= task_.cap_bytes[r] * (1 + 1e-6),
                   "synthesis: rank {} holds {} bytes of {}", r, result_.certificate.peaks[r].bytes,
                   task_.cap_bytes[r]);
    }
    return std::move(result_);
  }

 private:
  static constexpr int kRuleSeeds = 4;
  static constexpr size_t kSeeds = 3;

  int64_t tokens() const { return 3LL * task_.placement.stages * task_.microbatches; }
  void by_time() {
    std::stable_sort(seeds_.begin(), seeds_.end(),
                     [](const Seed& a, const Seed& b) { return a.makespan < b.makespan; });
  }
  bool reached() const {
    return std::any_of(seeds_.begin(), seeds_.end(),
                       [&](const Seed& seed) { return seed.makespan <= result_.bounds.makespan() * (1 + 1e-9); });
  }

  void take_seed(std::string name, Words words) {
    for (int r = 0; r < orders_.ranks(); ++r) {
      if (!orders_.legal(r, words[r])) return;
    }
    const double makespan = orders_.time(words);
    if (makespan == Orders::kNever) return;
    watch_.found(makespan);
    seeds_.push_back({std::move(name), makespan, std::move(words)});
  }

  void named_seeds() {
    const Placement& placement = task_.placement;
    GeneratorOptions options;
    options.ranks = placement.ranks;
    options.microbatches = task_.microbatches;
    options.hop = task_.times.hop;
    options.rank = {0, 0, 0, 0};
    double whole = 0, until_weight_grad = 0;
    for (const StageBytes& of : task_.bytes) {
      whole += of.until_input_grad + of.until_weight_grad;
      until_weight_grad += of.until_weight_grad;
    }
    options.kept_for_w = whole > 0 ? until_weight_grad / whole : 1;
    for (const StageTimes& of : task_.times.stages) {  // for those made from durations, the mean of a rank
      options.rank.forward += of.forward / placement.ranks;
      options.rank.input_grad += of.input_grad / placement.ranks;
      options.rank.weight_grad += of.weight_grad / placement.ranks;
      options.rank.all_to_all += of.all_to_all / placement.ranks;
    }
    for (const Generator& generator : generators()) {
      options.chunks = generator.any_chunks ? placement.stages / placement.ranks : 0;
      Schedule schedule;
      try {
        schedule = make_schedule(generator.name, options);
      } catch (const ConfigError&) {
        continue;  // not for this number of ranks, chunks or microbatches
      }
      if (schedule.placement != placement) continue;
      const Words words = words_of(schedule);
      NamedOrder named{generator.name, orders_.time(words), 0, true};
      double worst = -1;
      for (int r = 0; r < orders_.ranks(); ++r) {
        const auto at = static_cast<size_t>(r);
        const double peak = orders_.peak_bytes(r, words[at]);
        named.fits &= orders_.legal(r, words[at]);
        if (peak > worst * task_.cap_bytes[at]) {
          worst = task_.cap_bytes[at] > 0 ? peak / task_.cap_bytes[at] : 1;
          named.peak_bytes = peak;
        }
      }
      result_.named.push_back(named);
      if (!named.fits) continue;
      take_seed(generator.name, taken_apart(words, options_.pairs));
    }
    std::stable_sort(result_.named.begin(), result_.named.end(),
                     [](const NamedOrder& a, const NamedOrder& b) { return a.makespan < b.makespan; });
  }

  void fuse_seeds() {
    by_time();
    const size_t seeds = std::min(seeds_.size(), kSeeds);
    for (size_t s = 0; s < seeds; ++s) {
      const int64_t tries = tokens() / 3;
      if (tries * tokens() > work_ / (4 * static_cast<int64_t>(seeds))) return;  // too long; annealing fuses some
      work_ -= tries * tokens();
      if (!watch_.goes_on(tries * tokens())) return;
      take_seed(seeds_[s].name + ", fused", fused(orders_, seeds_[s].words));
    }
  }

  /// From each seed, slowly rather than often; then from the best again.
  void anneal_seeds() {
    const auto rounds = static_cast<int64_t>(seeds_.size()) + 1;
    const int64_t steps = work_ / std::max<int64_t>(1, tokens()) / rounds;
    for (int64_t round = 0; round < rounds && !reached() && watch_.goes_on(); ++round) {
      if (round + 1 == rounds) by_time();
      Seed& seed = seeds_[round + 1 == rounds ? 0 : static_cast<size_t>(round)];
      seed.words = anneal(orders_, std::move(seed.words),
                          {steps, options_.seed + static_cast<uint64_t>(round), options_.pairs, &watch_});
      seed.makespan = orders_.time(seed.words);
    }
    by_time();
  }

  const OrderTask& task_;
  const SynthesisOptions& options_;
  Orders orders_;
  int64_t work_;
  SearchWatch watch_;
  std::vector<Seed> seeds_;
  Synthesis result_;
};

}  // namespace

const NamedOrder* Synthesis::best_named() const {
  for (const NamedOrder& order : named) {
    if (order.fits) return &order;
  }
  return nullptr;
}

Synthesis synthesise(const OrderTask& task, const SynthesisOptions& options) {
  return Synthesiser(task, options).run();
}

}  // namespace heddle::schedule
