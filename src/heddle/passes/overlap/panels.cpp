#include "heddle/passes/overlap/panels.h"

namespace heddle::passes {

namespace {

// The collectives of which that many panels are still long enough.
WorthCutting worth(int count, const Panels& panels, const Durations& durations) {
  if (panels.stated > 0) return [](const ir::Listing&, const ir::Op&) { return true; };
  // Cut, each panel has the latency that the whole has once.
  const double least_us = count * kLatencies * panels.latency_us + panels.latency_us;
  return [&durations, least_us, count](const ir::Listing& listing, const ir::Op& op) {
    return durations(listing, op) >= least_us && rows_of_panel(listing, op, count) >= kFewestRows;
  };
}

}  // namespace

double forward_and_backward_us(const ir::Listing& listing, const Durations& durations, bool woven) {
  ir::StepProgram program;
  program.listings.push_back(listing);
  double sum = 0;
  for (int chunk = 0; chunk < std::ssize(listing.chunks); ++chunk) {
    for (const ir::BlockKind kind : {ir::BlockKind::F, ir::BlockKind::IW})
      sum += lasts_us(program, ir::make_block(program, 0, kind, chunk), durations, woven);
  }
  return sum;
}

void cut_into(ir::Listing& listing, int count, const Panels& panels, const Durations& durations) {
  if (count > 1) tiles(listing, count, worth(count, panels, durations));
}

int most_panels(const ir::Listing& listing, const Panels& panels, const Durations& durations) {
  if (panels.stated > 0) return panels.stated;
  int most = 1;
  while (2 * most <= kMostPanels && !collectives_to_cut(listing, worth(2 * most, panels, durations)).empty())
    most *= 2;
  return most;
}

void tiles_by_rates(ir::Listing& listing, const Panels& panels, const Durations& durations) {
  cut_into(listing, most_panels(listing, panels, durations), panels, durations);
}

}  // namespace heddle::passes
