#include "heddle/passes/overlap/choice.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "heddle/passes/overlap/fused.h"

namespace heddle::passes {

namespace {

using ir::Listing;
using ir::Op;

// The properties of a pair whose size is the same in every layer.
using Kind = std::tuple<ir::Phase, bool, std::string_view, int64_t, int64_t, bool>;
Kind kind_of(const Listing& listing, const Pair& pair) {
  const Op& product = listing.ops[pair.product];
  const ir::Shape& weight = listing.value(product.in[1]).shape;
  return {product.phase, pair.gathers, product.kind(), weight[0].count, weight[1].count, product.again};
}

class Fuser {
 public:
  /// Pairs that aren't fused are cut into `cut` panels.
  Fuser(const Listing& listing, const Panels& panels, const Durations& durations, int cut)
      : listing_(listing), panels_(panels), durations_(durations), cut_(cut) {
    for (const Pair& pair : pairs_to_fuse(listing)) {
      const auto [at, fresh] = pieces_.try_emplace(kind_of(listing, pair), 0);
      if (fresh) at->second = best_pieces(pair);
    }
    std::erase_if(pieces_, [](const auto& kind) { return kind.second == 0; });
  }

  struct Found {
    Listing listing;
    double us = 0;
    std::set<Kind> kinds;
  };
  /// Looked for from none of the kinds on, from all, or from those.
  Found shortest(const std::set<Kind>& from) const {
    std::set<Kind> all;
    for (const auto& [kind, count] : pieces_) all.insert(kind);
    std::set<Kind> best;
    double best_us = us(fused(best));
    const auto better = [&](const std::set<Kind>& kinds) {
      const double found = us(fused(kinds));
      if (found >= best_us * (1 - kCounts)) return;
      best_us = found;
      best = kinds;
    };
    better(all);
    better(from);
    for (int round = 0; round < kRounds; ++round) {  // one kind more or less at a time
      const double before = best_us;
      for (const Kind& kind : all) {
        std::set<Kind> other = best;
        if (other.erase(kind) == 0) other.insert(kind);
        better(other);
      }
      if (best_us == before) break;
    }
    return {fused(best), best_us, best};
  }

 private:
  static constexpr double kCounts = 1e-4;  // what is less is left alone
  static constexpr int kRounds = 2;

  int best_pieces(const Pair& pair) const {
    if (panels_.stated > 0) return panels_.stated;
    const double message_us = durations_(listing_, listing_.ops[pair.collective]);
    double best_us = message_us + durations_(listing_, listing_.ops[pair.product]);
    int best = 0;
    for (int count = 1; count <= kMostPanels; count *= 2) {
      if (count > 1 &&
          (pair.rows / count < kFewestRows || message_us < (count * kLatencies + 1) * panels_.latency_us)) {
        break;
      }
      const double us = durations_(listing_, fused_op(listing_, pair, count, false));
      if (us >= best_us) continue;
      best_us = us;
      best = count;
    }
    return best;
  }

  Listing fused(const std::set<Kind>& kinds) const {
    Listing copy = listing_;
    fuse_with_collectives(copy, [&](const Listing& listing, const Pair& pair) {
      const Kind kind = kind_of(listing, pair);
      return kinds.contains(kind) ? pieces_.at(kind) : 0;
    });
    cut_into(copy, cut_, panels_, durations_);
    return copy;
  }
  double us(const Listing& listing) const { return forward_and_backward_us(listing, durations_, panels_.woven); }

  const Listing& listing_;
  const Panels& panels_;
  const Durations& durations_;
  const int cut_;
  std::map<Kind, int> pieces_;  // of those that are shorter in one op
};

}  // namespace

void fuse_by_rates(Listing& listing, const Panels& panels, const Durations& durations) {
  if (panels.stated > 0) {
    fuse_with_collectives(listing, [&](const Listing&, const Pair&) { return panels.stated; });
    return;
  }
  listing = Fuser(listing, panels, durations, 1).shortest({}).listing;
}

void overlap_by_cost(Listing& listing, const Panels& panels, const Durations& durations) {
  const int most = most_panels(listing, panels, durations);
  double best_us = forward_and_backward_us(listing, durations, panels.woven) * (1 - kLeastGain);
  Listing best = listing;
  std::set<Kind> kinds;
  for (int cut = 1; cut <= most; cut = panels.stated > 0 && cut == 1 ? std::max(2, most) : 2 * cut) {
    Fuser::Found found = Fuser(listing, panels, durations, cut).shortest(kinds);
    kinds = found.kinds;
    if (found.us >= best_us) continue;
    best_us = found.us;
    best = std::move(found.listing);
  }
  listing = std::move(best);
}

}  // namespace heddle::passes
