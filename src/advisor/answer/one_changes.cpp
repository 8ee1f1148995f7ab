#include "advisor/answer/one_changes.h"

#include <fmt/format.h>

#include <algorithm>

#include "advisor/advice/targets.h"
#include "advisor/answer/typed_words.h"
#include "advisor/script/schedule_words.h"
#include "heddle/base/error.h"
#include "heddle/search/search.h"

namespace heddle::advisor {

namespace {

struct Candidate {
  std::string change;
  Launch launch;
  double step_s = 0;  // as calibrated
  double peak_bytes = 0;
};

class Candidates {
 public:
  Candidates(const search::Explanation& plan, std::string_view target,
             const std::function<double(const Launch&)>& scale)
      : plan_(plan), target_(target), scale_(scale) {}

  void add(std::string change, Launch launch, const search::Exact& exact) {
    if (!fits(exact, launch.job, plan_.memory_bytes)) return;
    if (!refusals_of(launch, target_).empty()) return;
    const double step_s = exact.step_s * scale_(launch);
    all.push_back({std::move(change), std::move(launch), step_s, exact.peak_bytes});
  }

  // Another job of the same launch, where it has an estimate.
  void attempt(const std::string& change, const Job& job) {
    const Launch launch = with_job(plan_.launch, job);
    if (!search::impossible(launch).empty()) return;
    try {
      add(change, launch, timer_.timed(launch).exact);
    } catch (const ConfigError&) {  // its schedule can't be made
    }
  }

  std::vector<Candidate> all;

 private:
  const search::Explanation& plan_;
  const std::string_view target_;
  const std::function<double(const Launch&)>& scale_;
  search::PlanTimer timer_;
};

void add_precision(const Job& job, std::string_view target, Candidates& into) {
  if (target == "heddle" || job.precision != cost::Precision::bf16 || job.device.fp8_flops <= job.device.bf16_flops)
    return;
  Job other = job;
  other.precision = cost::Precision::fp8;
  into.attempt("matrix products in fp8", other);
}

// Schedules of the target that leave the degrees and the chunks as they are.
void add_schedules(const Job& job, std::string_view target, Candidates& into) {
  if (job.mesh.pp == 1) return;
  std::vector<Pipeline> known;
  if (target == "heddle") {
    for (const std::string& name : schedule::searched_names()) known.push_back(schedule::find_pipeline(name));
  } else {
    known = schedules_of(target == "mindspeed" ? Dialect::mindspeed : Dialect::megatron);
  }
  const Pipeline own = pipeline_of(job);
  for (const Pipeline p : known) {
    if (p == own) continue;
    Job other = job;
    other.pipeline = p;
    other.chunks = p->chunks() > 0 ? 1 : std::max(job.chunks, p->least_chunks());
    if (p->pairs() && job.mesh.ep > 1) other.software.overlap_exchange = true;
    if (!p->pairs() && !p->outline().hides_exchange) other.software.overlap_exchange = false;
    into.attempt(fmt::format("schedule {} → {}", own->name(), p->name()), other);
  }
}

}  // namespace

std::vector<PlanChange> one_changes(const search::Explanation& plan, std::string_view target,
                                    const LaunchScript* script, const std::function<double(const Launch&)>& scale,
                                    size_t most) {
  const Job& job = plan.launch.job;
  Candidates found(plan, target, scale);
  if (plan.fits) {
    for (const search::Neighbour& n : plan.neighbours)
      if (n.reason.empty() && n.fits) found.add(n.change, n.launch, n.exact);
    add_precision(job, target, found);
    add_schedules(job, target, found);
  } else {
    for (const search::Remedy& r : plan.remedies)
      if (r.peak_bytes <= plan.memory_bytes) found.attempt(r.what, r.job);
    for (const search::Neighbour& n : plan.neighbours)
      if (n.reason.empty() && n.fits) found.add(n.change, n.launch, n.exact);
  }
  std::stable_sort(found.all.begin(), found.all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.step_s < b.step_s; });
  std::vector<PlanChange> changes;
  for (const Candidate& c : found.all) {
    WordChanges words = word_changes(plan.launch, c.launch, target, script);
    if (words.add.empty() && words.remove.empty()) continue;  // the trainer already runs it so
    if (std::any_of(changes.begin(), changes.end(), [&](const PlanChange& known) {
          return known.add == words.add && known.remove == words.remove;
        }))
      continue;
    changes.push_back(
        {c.change, plan.step_s() / c.step_s, c.peak_bytes, true, std::move(words.add), std::move(words.remove)});
    if (changes.size() == most) break;
  }
  return changes;
}

}  // namespace heddle::advisor
