#include <fmt/format.h>

#include <cmath>

#include "heddle/observe/plan_page.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

constexpr size_t kMostNeighbours = 12, kMostRemedies = 5;

std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

std::string signed_percent(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

}  // namespace

std::string plan_text(const search::Explanation& x, const Terminal& terminal) {
  const search::Job& j = x.launch.job;
  const double step = x.estimate.step_s;
  std::string out = fmt::format("{} on {} x {}: {}, {}\n", j.shape.name.empty() ? "model" : j.shape.name,
                                j.layout.devices, j.device.name, search::layout_line(j), x.launch.schedule);
  if (!x.launch.layout.empty()) out += fmt::format("stages {}\n", x.launch.layout);
  out += fmt::format("step {} ({} to {}, nine of ten; from {}), {:.0f} tokens/s a device, MFU {}\n",
                     duration_text(x.step_s()), duration_text(step * x.scale.low),
                     duration_text(step * x.scale.high), x.scale.from, x.tokens_per_s_per_device(),
                     percent(x.estimate.model_flops_utilization / x.scale.scale));
  out += fmt::format("peak {} of {}{}\nbound by {}: {}\n\n", bytes_text(x.estimate.peak_bytes),
                     bytes_text(x.memory_bytes), x.fits ? "" : ", does not fit", x.binding, x.binding_why);

  Table parts({{"step"}, {"time", Align::right}, {"part", Align::right}});
  for (const search::StepPart& p : x.parts)
    if (p.seconds > 0) parts.row({p.name, duration_text(p.seconds * x.scale.scale), percent(p.seconds / step)});
  out += parts.text(terminal) + "\n";

  Table answers({{"what if"}, {"20 % less", Align::right}, {"20 % more", Align::right}});
  for (const search::Sensitivity& s : x.sensitivities)
    answers.row({s.what, signed_percent(s.less), signed_percent(s.more)});
  out += answers.text(terminal) + "\n";

  Table memory({{"memory of the fullest rank"}, {"bytes", Align::right}, {"part", Align::right}});
  for (const search::MemoryPart& p : x.memory)
    memory.row({p.name, bytes_text(p.bytes), percent(p.bytes / x.estimate.peak_bytes)});
  out += memory.text(terminal) + "\n";

  Table remedies({{"to free memory"}, {"bytes", Align::right}, {"step", Align::right}, {"fits"}});
  for (size_t i = 0; i < std::min(kMostRemedies, x.remedies.size()); ++i) {
    const search::Remedy& r = x.remedies[i];
    remedies.row({r.what, bytes_text(r.frees_bytes), signed_percent(1 + r.costs_s / step),
                  r.peak_bytes <= x.memory_bytes ? "yes" : "no"});
  }
  if (!x.remedies.empty()) out += remedies.text(terminal) + "\n";

  Table neighbours({{"one step away"}, {"step", Align::right}, {"why not"}});
  size_t shown = 0;
  for (const search::Neighbour& n : x.neighbours) {
    if (++shown > kMostNeighbours) break;
    neighbours.row(
        {n.change, n.ratio > 0 ? signed_percent(n.ratio) : "", n.fits && n.ratio < 1 ? "better: " + n.why : n.why});
  }
  return out + neighbours.text(terminal);
}

}  // namespace heddle::observe
