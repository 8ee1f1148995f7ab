#include "heddle/planner/choose_plan.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/observe/units.h"
#include "heddle/planner/budget/memory_budget.h"
#include "heddle/planner/budget/state_residencies.h"
#include "heddle/search/space.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

namespace {

// Small is better.
double cost_of(const Candidate& c, PlanMode mode) {
  switch (mode) {
    case PlanMode::automatic: return c.step_us;
    case PlanMode::save_memory: return static_cast<double>(c.reserved_bytes);
    case PlanMode::overlap: return c.exposed_us + 1e-3 * c.step_us;  // the shorter of two that expose as much
  }
  return 0;
}

std::vector<std::string> differences(const config::RunConfig& from, const config::RunConfig& to) {
  std::vector<std::string> set;
  for (const config::Setting& s : config::settings()) {
    if (s.present && (!s.present(from) || !s.present(to))) continue;
    if (s.get(from) != s.get(to)) set.push_back(s.key + "=" + plan::text_of(s.get(to)));
  }
  return set;
}

bool sets(const std::vector<std::string>& settings, const std::string& key) {
  return std::any_of(settings.begin(), settings.end(), [&](const auto& s) { return s.starts_with(key + "="); });
}

std::string set_text(const std::vector<std::string>& set) {
  std::string text;
  for (const std::string& one : set) {  // as a shell takes it
    const char* quote = one.find(' ') == std::string::npos ? "" : "'";
    text += fmt::format(" --set {0}{1}{0}", quote, one);
  }
  return text;
}

template <class... Lists>
std::vector<std::string> joined(const Lists&... lists) {
  std::vector<std::string> all;
  (all.insert(all.end(), lists.begin(), lists.end()), ...);
  return all;
}

class PlanChooser {
 public:
  PlanChooser(const std::string& path, const std::vector<std::string>& set, const PredictFn& predict, PlanMode mode,
              double seconds)
      : path_(path),
        set_(set),
        predict_(predict),
        mode_(mode),
        began_s_(now_s()),
        seconds_(seconds),
        base_(base_settings(path, set)),
        configured_(config::read_run_config(path, joined(set, base_))) {
    for (const std::string& one : set) {
      const std::string key = one.substr(0, one.find('='));
      if (key != "mesh.ranks") fixed_.insert(key);
    }
  }

  std::vector<Candidate> all;
  int refused = 0;
  bool time_left() const { return now_s() < began_s_ + kVarying * seconds_; }
  /// Keys that the user has set.
  const std::set<std::string>& fixed() const { return fixed_; }
  const config::RunConfig& configured() const { return configured_; }
  PlanMode mode() const { return mode_; }

  // Simulates the plan that these settings make, unless it is known, can't be, or sets what the user has set.
  void attempt(std::vector<std::string> settings) {
    std::erase_if(settings, [&](const std::string& s) { return fixed_.contains(s.substr(0, s.find('='))); });
    try {
      settings = differences(configured_, config::read_run_config(path_, joined(set_, base_, settings)));
      if (!base_.empty() && !sets(settings, "train.microbatch")) settings.push_back(base_[0]);
      if (!seen_.insert(settings).second) return;
      all.push_back(predicted(path_, set_, settings, predict_, false));
      refused += !all.back().fits();
    } catch (const ConfigError&) {  // no plan: the axes don't fit the model, a schedule wants other microbatches
      if (all.empty()) throw;
    }
  }

  // The best few with each of these words in turn, and each choice of what goes beside them.
  void vary(const std::string& key, const std::vector<std::string>& words,
            const std::vector<std::vector<std::string>>& choices = {{}}) {
    for (const Candidate& c : best_few()) {
      for (size_t i = 0; i < words.size() * choices.size(); ++i) {
        if (!time_left()) return;
        const std::string& word = words[i / choices.size()];
        const std::vector<std::string>& beside = choices[i % choices.size()];
        std::vector<std::string> settings = c.set;
        const auto drop = [&](const std::string& of) {
          std::erase_if(settings, [&](const std::string& s) { return s.starts_with(of + "="); });
        };
        drop(key);
        settings.push_back(key + "=" + word);
        for (const std::string& setting : beside) {
          drop(setting.substr(0, setting.find('=')));
          settings.push_back(setting);
        }
        attempt(std::move(settings));
      }
    }
  }

  // The best few with less memory each.
  void keep_less() {
    for (const Candidate& c : best_few()) {
      if (!c.fits()) continue;
      for (const double share : {0.85, 0.7, 0.55}) {
        if (!time_left() || !keep_within(c.set, share * static_cast<double>(c.reserved_bytes))) break;
      }
    }
  }

  // The most promising of the plans that are too large, each within the memory that there is.
  void make_fit() {
    constexpr size_t kMost = 4;
    std::vector<std::vector<std::string>> too_large;
    for (const Candidate& c : all) {
      if (!c.fits() && too_large.size() < kMost) too_large.push_back(c.set);
    }
    const auto limit_bytes =
        static_cast<double>(train::memory_limit_of(configured_, {.memory = static_cast<int>(configured_.ranks())}));
    for (const std::vector<std::string>& plan : too_large) {
      if (!time_left()) return;
      keep_within(plan, limit_bytes);
    }
  }

  // The best without each of its settings in turn, until none of them makes it worse than the plan without it.
  void drop_each() {
    for (const Candidate* best = best_of(all, mode_); best != nullptr;) {
      const std::vector<std::string> settings = best->set;
      for (const std::string& one : settings) {
        if (now_s() > began_s_ + seconds_) return;
        std::vector<std::string> rest = settings;
        std::erase(rest, one);
        attempt(std::move(rest));
      }
      best = best_of(all, mode_);
      if (best->set == settings) return;
    }
  }

  // The best of all that were attempted, with its arena tried: it may need more than it seemed to. Null: none fits.
  const Candidate* best(PlanMode mode) {
    std::set<std::vector<std::string>> tried;
    while (const Candidate* found = best_of(all, mode)) {
      if (!tried.insert(found->set).second) return found;
      Candidate& candidate = all[static_cast<size_t>(found - all.data())];
      candidate = predicted(path_, set_, candidate.set, predict_);
      refused += !candidate.fits();
    }
    return nullptr;
  }

 private:
  // The best by the mode's aim, and the shortest two, for the aim is bounded by them.
  std::vector<Candidate> best_few() const {
    constexpr size_t kKept = 4, kShortest = 2;
    std::vector<Candidate> left, few;
    for (const Candidate& c : all) {
      if (c.fits()) left.push_back(c);
    }
    if (left.empty()) {  // nothing fits yet
      few = all;
      few.resize(std::min(few.size(), 2 * kKept));
    }
    while (!left.empty() && few.size() < kKept + kShortest) {
      const Candidate* best = best_of(left, few.size() < kKept ? mode_ : PlanMode::automatic);
      few.push_back(*best);
      left.erase(left.begin() + (best - left.data()));
    }
    return few;
  }

  // Attempts the plan with the dropped values that memory.budget chooses for it. False: it needs more bytes.
  bool keep_within(std::vector<std::string> plan, double bytes) {
    std::erase_if(plan, [](const std::string& s) { return s.starts_with("memory."); });
    config::RunConfig config = config::read_run_config(path_, joined(set_, base_, plan));
    config.plan.memory.crowding = 1;  // as the simulation has it
    config.plan.memory.budget_share = 0;
    config.plan.memory.budget_bytes = static_cast<int64_t>(bytes);
    try {
      const std::optional<BudgetChoice> choice = within_budget(config);
      if (choice) attempt(joined(plan, choice->settings));
      return choice.has_value();
    } catch (const ConfigError&) {
      return false;
    }
  }

  const std::string& path_;
  const std::vector<std::string>& set_;
  const PredictFn& predict_;
  const PlanMode mode_;
  static constexpr double kVarying = 0.85;  // of the time; the rest is for dropping settings
  const double began_s_, seconds_;
  const std::vector<std::string> base_;
  const config::RunConfig configured_;
  std::set<std::string> fixed_;
  std::set<std::vector<std::string>> seen_;
};

void attempt_all(PlanChooser& chooser, const Propose& propose) {
  const config::RunConfig& config = chooser.configured();
  chooser.attempt({});
  for (std::vector<std::string>& settings : propose(config, chooser.fixed())) {
    if (!chooser.time_left()) break;
    chooser.attempt(std::move(settings));
  }
  chooser.make_fit();
  const std::vector<std::string> sizes =
      search::microbatch_words(config.train.global_batch, 4 * config.train.microbatch);
  chooser.vary("train.microbatch", sizes);
  for (const config::Setting& s : config::settings()) {
    if (!s.as_switch || !s.as_switch->planned || !matters(*s.as_switch->planned, config, has_own_memory(config)))
      continue;
    std::vector<std::string> words;
    for (const plan::Value& value : s.planned_values()) words.push_back(plan::text_of(value));
    chooser.vary(s.key, words, s.as_switch->planned->beside);
  }
  chooser.vary("train.microbatch", sizes);
  if (chooser.mode() == PlanMode::save_memory) chooser.keep_less();
  chooser.drop_each();
}

const std::vector<std::string> kUnlimited{fmt::format("device.memory_bytes={}", int64_t{1} << 50)};

std::string longer_text(double us, double than_us) {
  return fmt::format("a step of {}, {:+.0f} % against", observe::duration_text(us * 1e-6),
                     100 * (us / than_us - 1));
}

// The memory that the smallest of these needs where memory has no limit, and its price.
std::string least_memory(const std::string& path, const std::vector<std::string>& set, const PredictFn& predict,
                         const std::vector<Candidate>& candidates, double seconds) {
  const std::vector<std::string> unlimited = joined(set, kUnlimited);
  const double until_s = now_s() + seconds;
  std::vector<Candidate> all;
  for (const Candidate& c : candidates) {
    if (!all.empty() && now_s() > until_s) break;
    all.push_back(predicted(path, unlimited, c.set, predict, false));
    if (!all.back().fits()) all.pop_back();
  }
  if (all.empty()) return "the cheapest remedy: a smaller model";  // beyond what a machine can address
  const auto smallest = std::min_element(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.reserved_bytes < b.reserved_bytes;
  });
  return fmt::format(
      "the cheapest remedy: memory of {} MiB a rank (device.memory_bytes){}{}: {} the shortest plan's",
      (smallest->reserved_bytes >> 20) + 1, smallest->set.empty() ? "" : " with", set_text(smallest->set),
      longer_text(smallest->step_us, best_of(all, PlanMode::automatic)->step_us));
}

}  // namespace

PlanMode plan_mode_named(const std::string& name) {
  if (name == "auto") return PlanMode::automatic;
  if (name == "save-memory") return PlanMode::save_memory;
  if (name == "overlap") return PlanMode::overlap;
  config_error("--mode is '{}', accepted: auto, save-memory, overlap", name.substr(0, 40));
}

const Candidate* best_of(const std::vector<Candidate>& candidates, PlanMode mode) {
  constexpr double kAlike = 1.001;
  double shortest_us = std::numeric_limits<double>::infinity(), least = shortest_us;
  for (const Candidate& c : candidates) {
    if (c.fits()) shortest_us = std::min(shortest_us, c.step_us);
  }
  const auto may_be = [&](const Candidate& c) { return c.fits() && c.step_us <= kMostSlower * shortest_us; };
  for (const Candidate& c : candidates) {
    if (may_be(c)) least = std::min(least, cost_of(c, mode));
  }
  const auto weight = [](const Candidate& c) { return std::pair(c.reserved_bytes, c.set.size()); };
  const Candidate* best = nullptr;
  for (const Candidate& c : candidates) {
    if (!may_be(c) || cost_of(c, mode) > kAlike * least) continue;
    if (best == nullptr || weight(c) < weight(*best)) best = &c;
  }
  return best;
}

std::vector<std::string> base_settings(const std::string& path, const std::vector<std::string>& set) {
  try {
    config::read_run_config(path, set);
    return {};
  } catch (const ConfigError&) {
    const std::vector<std::string> least{"train.microbatch=1"};
    if (sets(set, "train.microbatch")) throw;
    config::read_run_config(path, joined(set, least));
    return least;
  }
}

Candidate predicted(const std::string& path, const std::vector<std::string>& set,
                    const std::vector<std::string>& more, const PredictFn& predict, bool tried) {
  Candidate c;
  c.set = more;
  const config::RunConfig config = config::read_run_config(path, joined(set, more));
  try {
    const ConfigPrediction found = predict(config, tried);
    c.step_us = found.prediction.step_us;
    c.exposed_us = found.prediction.exposed_total_us();
    c.reserved_bytes = found.prediction.reserved_bytes;
  } catch (const ir::OutOfMemory& error) {
    c.refusal = error.what();
  }
  return c;
}

PlanChoice choose_plan(const std::string& path, const std::vector<std::string>& set, const PredictFn& predict,
                       const Propose& propose, PlanMode mode, double seconds) {
  PlanChooser chooser(path, set, predict, mode, seconds);
  attempt_all(chooser, propose);
  const Candidate* best = chooser.best(mode);
  const Candidate& configured = chooser.all.at(0);
  if (best == nullptr) {
    config_error("{}: none of {} plans of {} ranks fits the memory limit; the configured one: {}\n{}", path,
                 chooser.all.size(), chooser.configured().ranks(), configured.refusal,
                 least_memory(path, set, predict, chooser.all, seconds));
  }
  return {*best, configured, chooser.all, chooser.refused};
}

std::string cheapest_remedy(const std::string& path, const std::vector<std::string>& set, const PredictFn& predict,
                            const Propose& propose, double seconds) {
  PlanChooser chooser(path, set, predict, PlanMode::automatic, seconds);
  attempt_all(chooser, propose);
  const Candidate* best = chooser.best(PlanMode::automatic);
  if (best == nullptr) return least_memory(path, set, predict, chooser.all, seconds);
  const Candidate configured = predicted(path, joined(set, kUnlimited), {}, predict);
  return fmt::format("the cheapest remedy:{}: {} the configured plan's, if it had the memory", set_text(best->set),
                     longer_text(best->step_us, configured.step_us));
}

}  // namespace heddle::planner
