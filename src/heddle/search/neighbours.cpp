#include "heddle/search/neighbours.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "heddle/search/launch/launch.h"
#include "heddle/search/plan_memory.h"

namespace heddle::search {

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kWorthTelling = 0.003;  // of the step

std::string percent(double ratio) { return fmt::format("{:.1f} %", 100 * std::abs(ratio - 1)); }

// The parts that changed most, against the direction of the whole last.
std::string difference(const Exact& base, const Exact& other) {
  const std::vector<StepPart> a = parts_of(base.time), b = parts_of(other.time);
  std::vector<std::pair<double, std::string>> changes;
  for (size_t i = 0; i < a.size(); ++i)
    if (const double more = b[i].seconds - a[i].seconds; std::abs(more) > kWorthTelling * base.step_s)
      changes.emplace_back(more, a[i].name);
  const double sign = other.step_s >= base.step_s ? 1 : -1;
  std::stable_sort(changes.begin(), changes.end(),
                   [&](const auto& x, const auto& y) { return sign * x.first > sign * y.first; });
  std::string text;
  if (changes.size() > 4) changes.erase(changes.begin() + 3, changes.end() - 1);
  for (const auto& [more, name] : changes)
    text += fmt::format("{}{} {:+.1f} %", text.empty() ? "" : ", ", name, 100 * more / base.step_s);
  return text;
}

std::string why_not(const TimedPlan& plan, const Neighbour& n, double memory, PlanTimer& timer) {
  const Exact& base = plan.exact;
  if (!n.reason.empty()) return "impossible: " + n.reason;
  if (n.fits) {
    const std::string parts = difference(base, n.exact);
    return fmt::format("{} {}{}", percent(n.ratio), n.ratio >= 1 ? "slower" : "faster",
                       parts.empty() ? "" : ": " + parts);
  }
  std::string text = fmt::format("needs {:.1f} GiB of {:.1f}", n.exact.peak_bytes / kGiB, memory / kGiB);
  // What grew most is to blame; where the plan itself is as large, what is largest.
  std::map<std::string, double> before;
  for (const MemoryPart& p : memory_parts(plan, timer.behaviour())) before[p.name] = p.bytes;
  const std::vector<MemoryPart> parts =
      memory_parts(timer.timed(launch_of(n.job, n.exact.layers)), timer.behaviour());
  const auto grown = std::max_element(parts.begin(), parts.end(), [&](const MemoryPart& a, const MemoryPart& b) {
    return a.bytes - before[a.name] < b.bytes - before[b.name];
  });
  if (grown != parts.end()) {
    const double more = grown->bytes - before[grown->name];
    text += more > 0.01 * kGiB ? fmt::format(": {} {:+.1f} GiB", grown->name, more / kGiB)
                               : fmt::format(": {} {:.1f} GiB", parts.front().name, parts.front().bytes / kGiB);
  }
  std::vector<Remedy> remedies = remedies_of(n.job, n.exact, memory, timer);
  std::erase_if(remedies, [&](const Remedy& r) { return r.job == plan.launch.job; });
  if (!remedies.empty() && remedies.front().peak_bytes <= memory) {
    const double ratio = (n.exact.step_s + remedies.front().costs_s) / base.step_s;
    text += fmt::format("; with {} it fits, {} {} than this plan", remedies.front().what, percent(ratio),
                        ratio >= 1 ? "slower" : "faster");
  } else {
    text += "; no recomputation makes it fit";
  }
  return text;
}

// The largest divisor of `of` that is at most `most`.
int64_t divisor_up_to(int64_t of, int64_t most) {
  for (int64_t n = std::min(of, most); n > 1; --n)
    if (of % n == 0) return n;
  return 1;
}

class Steps {
 public:
  explicit Steps(const Job& job) : base_(job) {}

  // Tries values of a degree upwards and downwards from its own until one is possible. The data degree takes what
  // the devices leave, and the experts' degree shrinks to what divides a stage.
  void degree(const char* name, int Layout::*which, int64_t most, const std::function<bool(int)>& accepted) {
    const int own = base_.layout.*which;
    for (const int sign : {-1, 1}) {
      for (int n = own + sign; n >= 1 && n <= most && n <= own * 4; n += sign) {
        if (!accepted(n)) continue;
        Job other = base_;
        other.layout.*which = n;
        if (!settle(other)) continue;
        out.push_back(
            {fmt::format("{} {} → {}{}", name, own, n, beside(other, which)), other, "", {}, false, 0, ""});
        break;
      }
    }
  }

  void change(const std::string& text, const std::function<void(Job&)>& apply) {
    Job other = base_;
    apply(other);
    if (!(other == base_)) out.push_back({text, other, "", {}, false, 0, ""});
  }

  std::vector<Neighbour> out;

 private:
  bool settle(Job& j) const {
    Layout& l = j.layout;
    const int64_t ranks = int64_t{l.tp} * l.pp * l.cp;
    if (l.devices % ranks != 0) return false;
    l.dp = static_cast<int>(l.devices / ranks);
    if (int64_t{l.dp} * j.microbatch > j.global_batch || j.global_batch % (int64_t{l.dp} * j.microbatch) != 0)
      return false;
    if (j.shape.moe.count > 0) {
      const int64_t stage = int64_t{l.tp} * l.cp * l.dp;
      if (stage % l.etp != 0) return false;
      int64_t ep = l.ep;
      while (ep > 1 && (stage / l.etp % ep != 0 || j.shape.moe.count % ep != 0)) --ep;
      l.ep = static_cast<int>(ep);
    }
    if (l.pp == 1) l.vpp = 1;
    // Chunks make 1F1B interleaved and the other way round.
    const Pipeline p = j.pipeline;
    if (p == one_f_one_b() || p == interleaved() || p == interleaved_fused()) {
      const bool fused = p == interleaved_fused();
      j.pipeline = l.vpp == 1 ? one_f_one_b() : fused ? p : interleaved();
      if (fused && l.vpp == 1 && l.pp > 1) j.software.overlap_exchange = false;
    }
    return true;
  }

  std::string beside(const Job& other, int Layout::*which) const {
    std::string text;
    const auto add = [&](const char* name, int Layout::*m) {
      if (m == which || other.layout.*m == base_.layout.*m) return;
      text += fmt::format("{}{} {} → {}", text.empty() ? "" : ", ", name, base_.layout.*m, other.layout.*m);
    };
    add("dp", &Layout::dp);
    add("ep", &Layout::ep);
    add("vpp", &Layout::vpp);
    return text.empty() ? "" : " (" + text + ")";
  }

  const Job& base_;
};

}  // namespace

std::vector<StepPart> parts_of(const Waterfall& t) {
  return {{"products", t.products},          {"attention", t.attention},
          {"memory traffic", t.traffic},     {"launches and host", t.launches},
          {"tensor collectives", t.tensor},  {"experts' exchange", t.exchange},
          {"context exchange", t.context},   {"pipeline messages", t.pipeline},
          {"gradients and weights", t.data}, {"bubble", t.bubble},
          {"optimizer", t.optimizer},        {"jitter", t.jitter}};
}

std::vector<Neighbour> neighbours_of(const TimedPlan& plan, double memory, PlanTimer& timer) {
  const Job& job = plan.launch.job;
  Steps steps(job);
  const model::Shape& s = job.shape;
  const Layout& l = job.layout;
  const auto divides = [](int64_t whole) { return [whole](int n) { return whole % n == 0; }; };
  const bool plain = pipeline_of(job) == one_f_one_b() || pipeline_of(job) == interleaved();
  steps.degree("tp", &Layout::tp, std::min<int64_t>(s.heads, 64), divides(s.heads));
  steps.degree("cp", &Layout::cp, 64, [&](int n) { return std::fmod(job.sequence, 2.0 * n) == 0; });
  steps.degree("pp", &Layout::pp, s.layers + 2, [](int) { return true; });
  if (l.pp > 1 && (plain ? interleaved() : pipeline_of(job))->chunks() == 0)
    steps.degree("vpp", &Layout::vpp, std::max<int64_t>(1, s.layers / l.pp), [](int) { return true; });
  if (s.moe.count > 0) {
    const int64_t stage = int64_t{l.tp} * l.cp * l.dp;
    steps.degree("ep", &Layout::ep, s.moe.count,
                 [&](int n) { return s.moe.count % n == 0 && stage % (int64_t{n} * l.etp) == 0; });
    steps.degree("etp", &Layout::etp, 8,
                 [&](int n) { return s.moe.ffn % n == 0 && stage % (int64_t{n} * l.ep) == 0; });
  }
  const int64_t sequences = job.global_batch / l.dp;
  if (job.microbatch > 1)
    steps.change(fmt::format("microbatch {} → {}", job.microbatch, divisor_up_to(sequences, job.microbatch - 1)),
                 [&](Job& j) { j.microbatch = static_cast<int>(divisor_up_to(sequences, job.microbatch - 1)); });
  if (sequences % (2 * job.microbatch) == 0)
    steps.change(fmt::format("microbatch {} → {}", job.microbatch, 2 * job.microbatch),
                 [](Job& j) { j.microbatch *= 2; });
  using R = model::Recompute;
  if (job.recompute != R{}) steps.change("nothing recomputed", [](Job& j) { j.recompute = {}; });
  if (!job.recompute.full) {
    steps.change("recompute of norms and activation functions too",
                 [](Job& j) { j.recompute.norms = j.recompute.activations = true; });
    steps.change("all layers recomputed", [](Job& j) { j.recompute = {.full = true}; });
  }
  if (s.moe.count > 0 && l.ep > 1) {
    steps.change(job.software.overlap_exchange ? "no overlap of the exchange" : "overlap of the exchange",
                 [](Job& j) {
                   j.software.overlap_exchange = !j.software.overlap_exchange;
                   // In a pipeline that takes pairs of two microbatches.
                   if (j.layout.pp > 1 && j.layout.vpp > 1)
                     j.pipeline = j.software.overlap_exchange ? interleaved_fused() : interleaved();
                 });
    steps.change(job.software.once_a_node ? "a row for each expert crosses nodes" : "rows cross to a node once",
                 [](Job& j) { j.software.once_a_node = !j.software.once_a_node; });
  }
  if (s.moe.count > 0 && l.ep > 1 && s.moe.capacity == 0 && job.software.lowered != nullptr) {
    steps.change(s.moe.replicas != 0 ? "no copies of hot experts" : "copies of hot experts", [](Job& j) {
      j.shape.moe.replicas = j.shape.moe.replicas != 0 ? 0 : model::Dispatcher::kReplicasByCost;
    });
  }
  if (!job.software.sharded_states)
    steps.change("optimizer states sharded over data ranks",
                 [](Job& j) { j.software.sharded_states = j.software.reduce_scatter = true; });

  if (job.residency != Residency{})
    steps.change("all that persists on the device, whole masters", [](Job& j) { j.residency = {}; });

  for (Neighbour& n : steps.out) {
    n.reason = estimate(n.job, timer.behaviour()).reason;
    if (n.reason.empty()) n.reason = misfit_of(n.job);
    if (n.reason.empty()) {
      n.exact = timer.step_of(n.job);
      n.fits = fits(n.exact, n.job, memory);
      n.ratio = n.exact.step_s / plan.exact.step_s;
    }
    n.why = why_not(plan, n, memory, timer);
    if (!plan.launch.by_stage.empty()) n.change += ", all stages keep alike";
  }
  const auto rank = [](const Neighbour& n) { return !n.reason.empty() ? 2 : n.fits && n.ratio < 1 ? 0 : 1; };
  std::stable_sort(steps.out.begin(), steps.out.end(), [&](const Neighbour& a, const Neighbour& b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.ratio < b.ratio;
  });
  return std::move(steps.out);
}

}  // namespace heddle::search
