#include "heddle/search/neighbours.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "heddle/search/launch.h"
#include "heddle/search/plan_memory.h"
#include "heddle/search/units.h"

namespace heddle::search {

namespace {

constexpr double kWorthTelling = 0.003;  // part of the step

constexpr double kShown = 0.0005;  // part of the step: less is no difference in a table

// "41.9 % less time".
std::string time_text(double ratio) {
  if (std::abs(ratio - 1) < kShown) return "as much time";
  return fmt::format("{:.1f} % {} time", 100 * std::abs(ratio - 1), ratio > 1 ? "more" : "less");
}

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
    return fmt::format("{}{}", time_text(n.ratio), parts.empty() ? "" : ": " + parts);
  }
  std::string text = fmt::format("needs {:.1f} GiB of {:.1f}", n.exact.peak_bytes / kGiB, memory / kGiB);
  // The part that grew most is to blame; where the plan itself is as large, the largest part.
  std::map<std::string, double> before;
  for (const MemoryPart& p : memory_parts(plan, timer.behaviour())) before[p.name] = p.bytes;
  const std::vector<MemoryPart> parts = memory_parts(timer.timed(n.launch), timer.behaviour());
  const auto grown = std::max_element(parts.begin(), parts.end(), [&](const MemoryPart& a, const MemoryPart& b) {
    return a.bytes - before[a.name] < b.bytes - before[b.name];
  });
  if (grown != parts.end()) {
    const double more = grown->bytes - before[grown->name];
    text += more > 0.01 * kGiB ? fmt::format(": {} {:+.1f} GiB", grown->name, more / kGiB)
                               : fmt::format(": {} {:.1f} GiB", parts.front().name, parts.front().bytes / kGiB);
  }
  std::vector<Remedy> remedies = remedies_of(n.launch, n.exact, memory, timer);
  std::erase_if(remedies, [&](const Remedy& r) { return r.job == plan.launch.job; });
  if (!remedies.empty() && remedies.front().peak_bytes <= memory) {
    const double ratio = (n.exact.step_s + remedies.front().costs_s) / base.step_s;
    text += fmt::format("; with {} it fits and takes {}", remedies.front().what, time_text(ratio));
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

// A degree of a job.
using Degree = int& (*)(Job& job);
template <int plan::Degrees::*member>
int& of_mesh(Job& job) {
  return job.mesh.*member;
}
int& chunks(Job& job) { return job.chunks; }

class Steps {
 public:
  Steps(const Launch& launch, const std::optional<cost::Routing>& routing)
      : launch_(launch), base_(launch.job), routing_(routing) {}

  // Tries values of a degree upwards and downwards from its own until one is possible. The data degree takes what
  // the devices leave, and the experts' degree shrinks to what divides a stage.
  void degree(const char* name, Degree which, int64_t most, const std::function<bool(int)>& accepted) {
    Job other = base_;
    const int own = which(other);
    for (const int sign : {-1, 1}) {
      for (int n = own + sign; n >= 1 && n <= most && n <= own * 4; n += sign) {
        if (!accepted(n)) continue;
        other = base_;
        which(other) = n;
        if (!settle(other)) continue;
        add(fmt::format("{} {} → {}{}", name, own, n, beside(other, which)), other);
        break;
      }
    }
  }

  void change(const std::string& text, const std::function<void(Job&)>& apply) {
    Job other = base_;
    apply(other);
    if (!(other == base_)) add(text, other);
  }

  std::vector<Neighbour> out;

 private:
  // The plan with another job: its stages as they are, where there are as many.
  void add(std::string text, Job job) {
    if (routing_ && job.mesh.ep != base_.mesh.ep) {
      const int64_t experts = job.shape.moe_blocks() > 0 ? job.shape.n_routed_experts : 0;
      job.imbalance = routing_->fullest(0.5, experts, job.mesh.ep);
      job.memory_imbalance = routing_->fullest(0.99, experts, job.mesh.ep);
    }
    Launch launch = with_job(launch_, job);
    if (!launch_.by_stage.empty() && launch.by_stage.empty()) text += ", all stages keep alike";
    out.push_back({std::move(text), std::move(launch), "", {}, false, 0, false, ""});
  }

  bool settle(Job& j) const {
    plan::Degrees& l = j.mesh;
    const int64_t ranks = int64_t{l.tp} * l.pp * l.cp;
    const int devices = base_.mesh.ranks();
    if (devices % ranks != 0) return false;
    l.dp = static_cast<int>(devices / ranks);
    if (int64_t{l.dp} * j.microbatch > j.global_batch || j.global_batch % (int64_t{l.dp} * j.microbatch) != 0)
      return false;
    if (j.shape.n_routed_experts > 0) {
      const int64_t stage = int64_t{l.tp} * l.cp * l.dp;
      if (stage % l.etp != 0) return false;
      int64_t ep = l.ep;
      while (ep > 1 && (stage / l.etp % ep != 0 || j.shape.n_routed_experts % ep != 0)) --ep;
      l.ep = static_cast<int>(ep);
    }
    if (l.pp == 1) j.chunks = 1;
    // Chunks make 1F1B interleaved and the other way round.
    const Pipeline p = j.pipeline;
    if (p == one_f_one_b() || p == interleaved() || p == interleaved_fused()) {
      const bool fused = p == interleaved_fused();
      j.pipeline = j.chunks == 1 ? one_f_one_b() : fused ? p : interleaved();
      if (fused && j.chunks == 1 && l.pp > 1) j.software.overlap_exchange = false;
    }
    return true;
  }

  std::string beside(Job other, Degree which) const {
    std::string text;
    Job own = base_;
    const auto add = [&](const char* name, Degree degree) {
      if (degree == which || degree(other) == degree(own)) return;
      text += fmt::format("{}{} {} → {}", text.empty() ? "" : ", ", name, degree(own), degree(other));
    };
    add("dp", of_mesh<&plan::Degrees::dp>);
    add("ep", of_mesh<&plan::Degrees::ep>);
    add("vpp", chunks);
    return text.empty() ? "" : " (" + text + ")";
  }

  const Launch& launch_;
  const Job& base_;
  const std::optional<cost::Routing>& routing_;
};

// Returns why a switch can't be thrown by itself: the exchange is overlapped with another microbatch of the same
// rank.
std::string lacks_microbatches(const Job& job, const Job& base) {
  const auto lone_one = [](const Job& j) { return j.software.overlap_exchange && microbatches(j) < 2; };
  if (lone_one(job) && !lone_one(base)) return "overlap of the exchange takes two microbatches or more";
  const bool lone = job.mesh.pp > 1 && pipeline_of(job) == one_f_one_b() && job.software.overlap_exchange;
  return lone ? "overlap of the exchange in a pipeline takes two chunks a rank or more" : "";
}

}  // namespace

std::vector<StepPart> parts_of(const Waterfall& t) {
  return {{"products", t.products},          {"attention", t.attention},
          {"memory traffic", t.traffic},     {"launches and host", t.launches},
          {"tensor collectives", t.tensor},  {"experts' exchange", t.exchange},
          {"context exchange", t.context},   {"pipeline messages", t.pipeline},
          {"gradients and weights", t.data}, {"bubble", t.bubble},
          {"optimizer", t.optimizer},        {"jitter", t.jitter}};
}

std::vector<Neighbour> neighbours_of(const TimedPlan& plan, double memory, PlanTimer& timer,
                                     const std::optional<cost::Routing>& routing) {
  const Job& job = plan.launch.job;
  Steps steps(plan.launch, routing);
  const model::Shape& s = job.shape;
  const plan::Degrees& l = job.mesh;
  const auto divides = [](int64_t whole) { return [whole](int n) { return whole % n == 0; }; };
  const bool plain = pipeline_of(job) == one_f_one_b() || pipeline_of(job) == interleaved();
  steps.degree("tp", of_mesh<&plan::Degrees::tp>, std::min<int64_t>(s.num_attention_heads, 64),
               divides(s.num_attention_heads));
  steps.degree("cp", of_mesh<&plan::Degrees::cp>, 64, [&](int n) { return std::fmod(job.sequence, 2.0 * n) == 0; });
  steps.degree("pp", of_mesh<&plan::Degrees::pp>, s.num_hidden_layers + 2, [](int) { return true; });
  if (l.pp > 1 && (plain ? interleaved() : pipeline_of(job))->chunks() == 0)
    steps.degree("vpp", chunks, std::max<int64_t>(1, s.num_hidden_layers / l.pp), [](int) { return true; });
  if (s.n_routed_experts > 0) {
    const int64_t stage = int64_t{l.tp} * l.cp * l.dp;
    steps.degree("ep", of_mesh<&plan::Degrees::ep>, s.n_routed_experts,
                 [&](int n) { return s.n_routed_experts % n == 0 && stage % (int64_t{n} * l.etp) == 0; });
    steps.degree("etp", of_mesh<&plan::Degrees::etp>, 8,
                 [&](int n) { return s.moe_intermediate_size % n == 0 && stage % (int64_t{n} * l.ep) == 0; });
  }
  const int64_t sequences = job.global_batch / l.dp;
  if (job.microbatch > 1)
    steps.change(fmt::format("microbatch {} → {}", job.microbatch, divisor_up_to(sequences, job.microbatch - 1)),
                 [&](Job& j) { j.microbatch = static_cast<int>(divisor_up_to(sequences, job.microbatch - 1)); });
  if (sequences % (2 * job.microbatch) == 0)
    steps.change(fmt::format("microbatch {} → {}", job.microbatch, 2 * job.microbatch),
                 [](Job& j) { j.microbatch *= 2; });
  using R = Recompute;
  if (job.recompute != R{}) steps.change("nothing recomputed", [](Job& j) { j.recompute = {}; });
  if (!job.recompute.has(GroupName::layer)) {
    steps.change("recompute of norms and activation functions too",
                 [](Job& j) { j.recompute.set(GroupName::norm), j.recompute.set(GroupName::activation); });
    steps.change("all layers recomputed", [](Job& j) { j.recompute = {GroupName::layer}; });
  }
  if (s.n_routed_experts > 0 && l.ep > 1) {
    // A schedule that hides it leaves nothing to choose.
    if (!pipeline_of(job)->outline().hides_exchange)
      steps.change(job.software.overlap_exchange ? "no overlap of the exchange" : "overlap of the exchange",
                   [](Job& j) {
                     j.software.overlap_exchange = !j.software.overlap_exchange;
                     // In a pipeline that takes pairs of two microbatches.
                     if (j.mesh.pp > 1 && j.chunks > 1)
                       j.pipeline = j.software.overlap_exchange ? interleaved_fused() : interleaved();
                   });
    steps.change(once_a_node(job) ? "a row for each expert crosses nodes" : "rows cross to a node once",
                 [](Job& j) { j.exchange.topology = once_a_node(j) ? ir::Topology::plain : ir::Topology::node; });
  }
  if (s.n_routed_experts > 0 && l.ep > 1 && job.exchange.capacity_factor == 0 && job.software.lowered != nullptr) {
    steps.change(job.exchange.replicas != 0 ? "no replicas of hot experts" : "replicas of hot experts", [](Job& j) {
      j.exchange.replicas = j.exchange.replicas != 0 ? 0 : model::Dispatcher::kReplicasByCost;
    });
  }
  if (!job.software.sharded_states)
    steps.change("optimizer states sharded over data ranks",
                 [](Job& j) { j.software.sharded_states = j.software.reduce_scatter = true; });

  if (job.software.lowered != nullptr)
    steps.change(job.sharding == Sharding{} ? "weights sharded over data ranks" : "optimizer states alone sharded",
                 [](Job& j) {
                   j.sharding = j.sharding == Sharding{} ? Sharding{passes::Shard::weights} : Sharding{};
                   if (!shards(j)) j.sharding = {};
                 });

  if (job.residency != PricedResidency{})
    steps.change("all that persists on the device, whole masters", [](Job& j) { j.residency = {}; });

  for (Neighbour& n : steps.out) {
    n.reason = estimate(n.launch.job, timer.behaviour()).reason;
    if (n.reason.empty()) n.reason = misfit_of(n.launch.job);
    if (n.reason.empty()) n.reason = lacks_microbatches(n.launch.job, job);
    if (n.reason.empty()) {
      n.exact = timer.timed(n.launch).exact;
      n.fits = fits(n.exact, n.launch.job, memory);
      n.ratio = n.exact.step_s / plan.exact.step_s;
      n.better = n.fits && n.ratio < 1 - kShown;
    }
    n.why = why_not(plan, n, memory, timer);
  }
  const auto rank = [](const Neighbour& n) { return !n.reason.empty() ? 2 : n.better ? 0 : 1; };
  std::stable_sort(steps.out.begin(), steps.out.end(), [&](const Neighbour& a, const Neighbour& b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.ratio < b.ratio;
  });
  return std::move(steps.out);
}

}  // namespace heddle::search
