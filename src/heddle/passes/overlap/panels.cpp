#include "heddle/passes/overlap/panels.h"

#include <algorithm>

namespace heddle::passes {

namespace {

class Chooser {
 public:
  Chooser(const Panels& panels, const Durations& durations) : panels_(panels), durations_(durations) {}

  /// The collectives of which that many panels are still long enough.
  WorthCutting worth(int panels) const {
    if (panels_.stated > 0) return [](const ir::Listing&, const ir::Op&) { return true; };
    // Cut, each panel has the latency that the whole has once.
    const double least_us = panels * kLatencies * panels_.latency_us + panels_.latency_us;
    return [this, least_us, panels](const ir::Listing& listing, const ir::Op& op) {
      return durations_(listing, op) >= least_us && rows_of_panel(listing, op, panels) >= kFewestRows;
    };
  }

  int most(const ir::Listing& listing) const { return panels_.stated > 0 ? panels_.stated : most_panels(listing); }

  int choose(const ir::Listing& listing) const {
    const int most = this->most(listing);
    if (!panels_.by_cost || most == 1) return most;
    double shortest_us = (1 - kLeastGain) * forward_and_backward_us(listing, durations_, panels_.woven);
    int best = 1;
    for (int count = panels_.stated > 0 ? most : 2; count <= most; count *= 2) {
      ir::Listing cut = listing;
      tiles(cut, count, worth(count));
      const double us = forward_and_backward_us(cut, durations_, panels_.woven);
      if (us >= shortest_us) continue;
      shortest_us = us;
      best = count;
    }
    return best;
  }

 private:
  int most_panels(const ir::Listing& listing) const {
    int most = 1;
    while (2 * most <= kMostPanels && !collectives_to_cut(listing, worth(2 * most)).empty()) most *= 2;
    return most;
  }

  const Panels& panels_;
  const Durations& durations_;
};

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
  if (count > 1) tiles(listing, count, Chooser(panels, durations).worth(count));
}

int most_panels(const ir::Listing& listing, const Panels& panels, const Durations& durations) {
  return Chooser(panels, durations).most(listing);
}

void tiles_by_rates(ir::Listing& listing, const Panels& panels, const Durations& durations) {
  const Chooser chooser(panels, durations);
  const int count = chooser.choose(listing);
  if (count > 1) tiles(listing, count, chooser.worth(count));
}

}  // namespace heddle::passes
