#include "heddle/cli/schedule_print.h"

#include <algorithm>

#include "heddle/base/say.h"
#include "heddle/cli/line/prose.h"
#include "heddle/observe/text_schedule.h"
#include "heddle/observe/units.h"

namespace heddle::cli {

using schedule::Action, schedule::Certificate, schedule::NamedOrder, schedule::Peak, schedule::Placement;
using schedule::Schedule, schedule::Timing;

namespace {

// "8 on ranks 0-3, 4.5 on rank 4": runs of equal numbers.
std::string runs_text(const std::vector<double>& values) {
  std::string text;
  for (size_t i = 0, end = 0; i < values.size(); i = end) {
    for (end = i + 1; end < values.size() && values[end] == values[i];) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", observe::number_text(values[i]));
    if (i == 0 && end == values.size()) return text + (end > 1 ? " on every rank" : "");
    text += end - i == 1 ? fmt::format(" on rank {}", i) : fmt::format(" on ranks {}-{}", i, end - 1);
  }
  return text;
}

bool has_pairs(const Schedule& schedule) {
  return std::any_of(schedule.order.begin(), schedule.order.end(), [](const std::vector<Action>& list) {
    return std::any_of(list.begin(), list.end(), [](const Action& action) { return action.with.has_value(); });
  });
}

}  // namespace

std::string percent(double rate) { return fmt::format("{:.1f} %", 100 * std::max(rate, 0.0)); }

std::string line_of(const Timing& t) {
  return fmt::format("bubble {} synchronous, {} staggered; makespan {}, {} of it work; efficiency {}",
                     percent(t.synchronous_rate()), percent(t.staggered_rate()),
                     observe::number_text(t.makespan, 6), observe::number_text(t.work, 6), percent(t.efficiency()));
}

void print(const ScheduleResult& r, const Given& given) {
  const Placement& placement = r.schedule.placement;
  say("{}: {}{}\n", r.schedule.name, r.what, r.source.empty() ? "" : fmt::format(" ({})", r.source));
  say("{} rank{}, {} stages, {} microbatches\n", placement.ranks, placement.ranks == 1 ? "" : "s", placement.stages,
      r.schedule.microbatches);
  std::string times =
      fmt::format("times of a rank's layers: F (forward) {}, I (input gradient) {}, W (weight gradient) {}",
                  observe::number_text(given.rank.forward, 6), observe::number_text(given.rank.input_grad, 6),
                  observe::number_text(given.rank.weight_grad, 6));
  const bool pairs = has_pairs(r.schedule);
  if (pairs)
    times += fmt::format(", [F|B] (a forward fused with a backward) {}", observe::number_text(given.pair, 6));
  if (given.hop > 0) times += fmt::format(", a message between stages {}", observe::number_text(given.hop));
  if (given.rank.all_to_all > 0) {
    times += fmt::format(", all-to-all {} in F and again in I{}", observe::number_text(given.rank.all_to_all),
                         pairs ? ", hidden in [F|B]" : "");
  }
  print_prose(times);
  say("\n");
  const observe::Terminal terminal = observe::describe_terminal(1);
  say("{}\n", observe::text_schedule(r.schedule, r.timing, observe::terminal_columns(1, 160), terminal));
  const Certificate& c = r.certificate;
  say("bubble       synchronous {} ({}), staggered {} ({})\n", percent(r.timing.synchronous_rate()),
      observe::number_text(r.timing.synchronous()), percent(r.timing.staggered_rate()),
      observe::number_text(r.timing.staggered()));
  say("time         {}, of it {} work of the busiest rank; efficiency {}\n",
      observe::number_text(r.timing.makespan, 6), observe::number_text(r.timing.work, 6),
      percent(r.timing.efficiency()));
  say("peak         {}\n", runs_text(numbers(c.peaks, &Peak::bytes)));
  say("  for W      {}\n", runs_text(numbers(c.peaks, &Peak::for_weight_grad)));
  if (r.synthesis && r.synthesis->searched < 1)
    say("search       stopped at {} of its work\n", percent(r.synthesis->searched));
  if (r.synthesis) {
    const NamedOrder* best = r.synthesis->best_named();
    say("bound        no order is faster than {}; at most {} can be gained\n",
        observe::number_text(r.synthesis->bounds.makespan(), 6), percent(r.synthesis->gap()));
    say("named        {}\n",
        best == nullptr ? "none of this placement fits"
                        : fmt::format("{} takes {}, {} more", best->name, observe::number_text(best->makespan, 6),
                                      percent(best->makespan / r.timing.makespan - 1)));
  }
  say("weights      {}\n", placement.routes == 1 ? "once" : "twice, every stage on two ranks");
  say("messages     {}\n", c.channels.empty()
                               ? "none"
                               : fmt::format("room for {} between two ranks suffices; at most {} received before "
                                             "they are needed",
                                             c.least_buffers, most_early(c)));
  say("sums         {}\n",
      c.out_of_order.empty() ? "weight gradients in increasing order of microbatches" : c.out_of_order);
}

}  // namespace heddle::cli
