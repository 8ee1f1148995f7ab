#include "heddle/observe/plans/plan_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

using search::Explanation;

void fill(PlanFigures& f, const search::Job& job, const search::Exact& e, double scale) {
  const double step_s = e.step_s * scale;
  f.step = duration_text(step_s);
  f.tokens_per_s_per_device = device_rate_text(search::tokens_per_s_per_device(job, step_s));
  f.utilization = percent_text(search::model_flops_utilization(job, step_s));
  f.peak = bytes_text(e.peak_bytes);
  f.exposed = percent_text(e.exposed_s / e.step_s);
  f.bubble = percent_text(e.time.bubble / e.step_s);
}

}  // namespace

std::string percent_text(double part) { return fmt::format("{:.1f} %", 100 * part); }

std::string change_text(double ratio) {
  const double change = 100 * (ratio - 1);
  return std::abs(change) < 0.05 ? "0.0 %" : fmt::format("{:+.1f} %", change);
}

std::string device_rate_text(double tokens_per_s) { return fmt::format("{:.0f}", tokens_per_s); }

PlanFigures figures_of(const search::Job& job, const search::Exact& step, double scale) {
  PlanFigures f;
  fill(f, job, step, scale);
  return f;
}

PlanFiguresInFull figures_of(const Explanation& x) {
  PlanFiguresInFull f;
  fill(f, x.launch.job, x.plan.exact, x.scale.scale);
  f.low = duration_text(x.plan.exact.step_s * x.scale.low);
  f.high = duration_text(x.plan.exact.step_s * x.scale.high);
  f.memory = bytes_text(x.memory_bytes);
  return f;
}

PlanTable step_table(const Explanation& x) {
  PlanTable t{"Where the step goes", {"step", "time", "part"}, false, {}};
  for (const search::StepPart& p : x.parts)
    if (p.seconds > 0)
      t.rows.push_back(
          {p.name, duration_text(p.seconds * x.scale.scale), percent_text(p.seconds / x.plan.exact.step_s)});
  return t;
}

PlanTable sensitivity_table(const Explanation& x) {
  PlanTable t{"The step when something is slower or faster",
              {"the step when there is", "20 % less", "20 % more"},
              false,
              {}};
  for (const search::Sensitivity& s : x.sensitivities)
    t.rows.push_back({s.what, change_text(s.less), change_text(s.more)});
  return t;
}

PlanTable memory_table(const Explanation& x) {
  PlanTable t{"Memory of the fullest rank", {"memory of the fullest rank", "bytes", "part"}, false, {}};
  for (const search::MemoryPart& p : x.memory)
    t.rows.push_back({p.name, bytes_text(p.bytes), percent_text(p.bytes / x.peak_bytes())});
  t.rows.push_back({"together", bytes_text(x.peak_bytes()), percent_text(1)});
  return t;
}

PlanTable remedy_table(const Explanation& x, size_t most) {
  PlanTable t{"What would free memory", {"to free memory", "frees", "step", "fits"}, true, {}};
  for (size_t i = 0; i < std::min(most, x.remedies.size()); ++i) {
    const search::Remedy& r = x.remedies[i];
    t.rows.push_back({r.what, bytes_text(r.frees_bytes), change_text(1 + r.costs_s / x.plan.exact.step_s),
                      r.peak_bytes <= x.memory_bytes ? "yes" : "no"});
  }
  return t;
}

PlanTable neighbour_table(const Explanation& x, size_t most) {
  PlanTable t{"Plans one step away", {"one step away", "step", "why not"}, true, {}};
  for (size_t i = 0; i < std::min(most, x.neighbours.size()); ++i) {
    const search::Neighbour& n = x.neighbours[i];
    t.rows.push_back({n.change, n.ratio > 0 ? change_text(n.ratio) : "", n.better ? "better: " + n.why : n.why});
  }
  return t;
}

std::string json_of(const std::vector<Explanation>& plans) {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  for (const Explanation& x : plans) {
    Json parts, memory;
    for (const search::StepPart& p : x.parts) parts[p.name] = p.seconds * x.scale.scale;
    for (const search::MemoryPart& p : x.memory) memory[p.name] = p.bytes;
    Json sensitivities = Json::array();
    for (const search::Sensitivity& s : x.sensitivities)
      sensitivities.push_back({{"what", s.what}, {"less", s.less}, {"more", s.more}});
    Json json{{"step_s", x.step_s()},
              {"tokens_per_s_per_device", search::tokens_per_s_per_device(x.launch.job, x.step_s())},
              {"model_flops_utilization", search::model_flops_utilization(x.launch.job, x.step_s())},
              {"peak_bytes", x.peak_bytes()},
              {"memory_bytes", x.memory_bytes},
              {"fits", x.fits},
              {"bubble_s", x.plan.exact.time.bubble * x.scale.scale},
              {"exposed_communication_s", x.plan.exact.exposed_s * x.scale.scale},
              {"step_parts_s", parts},
              {"memory_parts_bytes", memory},
              {"sensitivities", sensitivities}};
    if (x.plan.run) json["pipeline_s"] = x.plan.run->timing.makespan * x.scale.scale;
    all.push_back(std::move(json));
  }
  return all.dump();
}

}  // namespace heddle::observe
