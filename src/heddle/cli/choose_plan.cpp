#include "heddle/cli/choose_plan.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "heddle/base/error.h"

namespace heddle::cli {

namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Small is better.
double cost_of(const Candidate& c, PlanMode mode) {
  switch (mode) {
    case PlanMode::automatic: return c.step_us;
    case PlanMode::save_memory: return static_cast<double>(c.reserved_bytes);
    case PlanMode::overlap: return c.exposed_us + 1e-3 * c.step_us;  // of two that expose as much the shorter
  }
  return 0;
}

class Chooser {
 public:
  Chooser(const std::string& path, const std::vector<std::string>& set, const cost::MachineProfile& profile,
          double seconds)
      : path_(path), set_(set), profile_(profile), until_s_(now_s() + seconds) {
    for (const std::string& one : set) {
      const std::string key = one.substr(0, one.find('='));
      if (key != "mesh.ranks") fixed_.insert(key);
    }
  }

  std::vector<Candidate> all;
  int simulated = 0, refused = 0;
  bool time_left() const { return now_s() < until_s_; }

  // Simulates the plan that these settings make, unless it is known, can't be, or sets what the user has set.
  void attempt(std::vector<std::string> settings) {
    std::erase_if(settings, [&](const std::string& s) { return fixed_.contains(s.substr(0, s.find('='))); });
    std::sort(settings.begin(), settings.end());
    if (!seen_.insert(settings).second) return;
    Candidate c;
    c.set = settings;
    std::vector<std::string> every = set_;
    every.insert(every.end(), settings.begin(), settings.end());
    try {
      const ConfigForecast found = forecast_config(train::read_run_config(path_, every), profile_);
      c.step_us = found.forecast.step_us;
      c.exposed_us = found.forecast.exposed_total_us();
      c.reserved_bytes = found.forecast.reserved_bytes;
    } catch (const ir::OutOfMemory& error) {
      c.refusal = error.what();
      ++refused;
    } catch (const ConfigError&) {  // no plan: the axes don't fit the model, a schedule wants other microbatches
      if (settings.empty()) throw;
      return;
    }
    ++simulated;
    all.push_back(std::move(c));
  }

  // The best few with each of these words in turn.
  void vary(const std::string& key, const std::vector<std::string>& words, PlanMode mode) {
    std::vector<Candidate> best;
    for (const Candidate& c : all) {
      if (c.refusal.empty()) best.push_back(c);
    }
    std::sort(best.begin(), best.end(),
              [&](const Candidate& a, const Candidate& b) { return cost_of(a, mode) < cost_of(b, mode); });
    constexpr size_t kKept = 4;
    if (best.size() > kKept) best.resize(kKept);
    if (best.empty()) best = all;  // nothing fits yet
    if (best.size() > 2 * kKept) best.resize(2 * kKept);
    for (const Candidate& c : best) {
      for (const std::string& word : words) {
        if (!time_left()) return;
        std::vector<std::string> settings = c.set;
        std::erase_if(settings, [&](const std::string& s) { return s.starts_with(key + "="); });
        settings.push_back(key + "=" + word);
        attempt(std::move(settings));
      }
    }
  }

 private:
  const std::string& path_;
  const std::vector<std::string>& set_;
  const cost::MachineProfile& profile_;
  const double until_s_;
  std::set<std::string> fixed_;
  std::set<std::vector<std::string>> seen_;
};

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) found.push_back(d);
  }
  return found;
}

}  // namespace

PlanMode plan_mode_named(const std::string& name) {
  if (name == "auto") return PlanMode::automatic;
  if (name == "save-memory") return PlanMode::save_memory;
  if (name == "overlap") return PlanMode::overlap;
  config_error("--mode is '{}', accepted: auto, save-memory, overlap", name.substr(0, 40));
}

const Candidate* best_of(const std::vector<Candidate>& candidates, PlanMode mode) {
  double shortest_us = 0;
  for (const Candidate& c : candidates) {
    if (c.refusal.empty() && (shortest_us == 0 || c.step_us < shortest_us)) shortest_us = c.step_us;
  }
  const Candidate* best = nullptr;
  for (const Candidate& c : candidates) {
    if (!c.refusal.empty() || c.step_us > kMostSlower * shortest_us) continue;
    if (best == nullptr || cost_of(c, mode) < cost_of(*best, mode)) best = &c;
  }
  return best;
}

PlanChoice choose_plan(const std::string& path, const std::vector<std::string>& set,
                       const cost::MachineProfile& profile, PlanMode mode, double seconds) {
  const train::RunConfig config = train::read_run_config(path, set);
  Chooser chooser(path, set, profile, seconds);
  chooser.attempt({});
  const Candidate configured = chooser.all.at(0);
  const int64_t ranks = config.ranks();
  constexpr int64_t kMostTp = 8;
  for (const int64_t pp : divisors(ranks)) {
    for (const int64_t tp : divisors(ranks / pp)) {
      for (const int64_t cp : divisors(ranks / pp / tp)) {
        if (tp * cp > kMostTp) continue;
        for (const int64_t ep : divisors(ranks / pp)) {
          if (!chooser.time_left()) break;
          if (config.model.n_routed_experts == 0 && ep > 1) continue;
          std::vector<std::string> settings{fmt::format("mesh.pp={}", pp),
                                            fmt::format("mesh.tp={}", tp),
                                            fmt::format("mesh.cp={}", cp),
                                            fmt::format("mesh.ep={}", ep),
                                            "mesh.dp=0",
                                            "mesh.etp=1"};
          // The configured microbatch may be too large for so many data ranks.
          const int64_t share = config.train.global_batch / std::max<int64_t>(1, ranks / (pp * tp * cp));
          const int64_t most = std::min(config.train.microbatch, share);
          int64_t microbatch = 1;
          for (const int64_t d : divisors(std::max<int64_t>(1, share))) {
            if (d <= most) microbatch = d;
          }
          settings.push_back(fmt::format("train.microbatch={}", microbatch));
          chooser.attempt(std::move(settings));
        }
      }
    }
  }
  std::vector<std::string> sizes;
  for (const int64_t d : divisors(config.train.global_batch)) {
    if (d <= 4 * config.train.microbatch) sizes.push_back(fmt::format("{}", d));
  }
  chooser.vary("train.microbatch", sizes, mode);
  if (ranks > 1) {
    chooser.vary("parallel.schedule", {"1f1b", "interleaved", "interleaved_fused", "zb_h1", "zb_v", "dual_pipe_v"},
                 mode);
    chooser.vary("parallel.exchange", {"plain", "rank"}, mode);
    chooser.vary("parallel.weave", {"off", "layers", "pairs"}, mode);
  }
  chooser.vary("memory.recompute", {"norm,activation", "medium", "moe", "full"}, mode);
  chooser.vary("train.microbatch", sizes, mode);
  const Candidate* best = best_of(chooser.all, mode);
  if (best == nullptr) {
    // What the smallest of all would need.
    std::vector<std::string> unlimited = set;
    unlimited.push_back(fmt::format("device.memory_bytes={}", int64_t{1} << 50));
    Chooser least(path, unlimited, profile, seconds);
    for (const Candidate& c : chooser.all) {
      if (least.time_left()) least.attempt(c.set);
    }
    const Candidate* smallest = nullptr;
    for (const Candidate& c : least.all) {
      if (c.refusal.empty() && (smallest == nullptr || c.reserved_bytes < smallest->reserved_bytes)) smallest = &c;
    }
    config_error("{}: none of {} plans of {} ranks fits the memory limit; the configured one: {}; {}", path,
                 chooser.all.size(), ranks, configured.refusal.empty() ? "fits" : configured.refusal,
                 smallest == nullptr
                     ? "a smaller train.microbatch or model would help"
                     : fmt::format("the smallest ({}) needs device.memory_bytes={}MiB",
                                   fmt::join(smallest->set, " "), (smallest->reserved_bytes >> 20) + 1));
  }
  return {*best, configured, chooser.simulated, chooser.refused};
}

}  // namespace heddle::cli
