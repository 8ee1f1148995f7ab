#include "heddle/cost/collective.h"

#include <algorithm>
#include <cmath>

namespace heddle::cost {

namespace {

enum class Pattern { ring, all_to_all, message };

// The part of a tier's rate that so many ranks get from its links.
double wired(const Tier& tier, Pattern pattern, int ranks) {
  const double all = tier.ranks > 0 ? tier.ranks : ranks;
  if (ranks <= 1 || all <= 1) return 1;
  if (tier.wiring == Wiring::full) {
    // Collectives of a node's part are written for powers of two: five, six and seven ranks pass one ring around.
    const bool one_ring = ranks > 4 && ranks < all && (ranks & (ranks - 1)) != 0;
    // Such a ring reaches 0.7 of a link (MI355X, five to seven ranks).
    if (one_ring && pattern != Pattern::message) return 0.7 / (all - 1);
    return pattern == Pattern::message ? 1 / (all - 1) : (ranks - 1) / (all - 1);
  }
  if (tier.wiring == Wiring::switched) return 1;
  const double rows = std::clamp(tier.rows, 1, static_cast<int>(all)), columns = std::ceil(all / rows);
  // One link of four, and both of the line's directions where it is passed around.
  if (pattern == Pattern::message) return 0.25;
  const bool line = ranks <= columns || rows == 1;
  if (pattern == Pattern::ring) return line ? 0.25 : 0.5;
  // Half of the ranks send half of their bytes over the cut across the longer side, which has a link a row.
  const double across = line ? ranks : std::max(ranks / std::min(rows, columns), std::min(rows, columns));
  return std::min(line ? 0.25 : 0.5, 1 / across);
}

double inner_rate(const Accelerator& a, const NetworkEfficiency& net, Pattern pattern = Pattern::ring,
                  int ranks = 2) {
  return a.inner.bytes_per_s * net.inner * wired(a.inner, pattern, ranks);
}
double outer_rate(const Accelerator& a, const NetworkEfficiency& net) { return a.outer.bytes_per_s * net.outer; }

// Ranks of the group within a tier.
int ranks_within(const Tier& tier, Group g) {
  const int domain = tier.ranks > 0 ? tier.ranks : g.size * g.stride;
  return std::clamp(domain / std::max(1, g.stride), 1, g.size);
}

// For each tier beyond the outer one that the group needs: `each(tier, ranks within the tier below it)`.
template <class Each>
void for_farther(const Accelerator& a, Group g, const Each& each) {
  const Tier* below = &a.outer;
  for (const Tier& tier : a.farther) {
    const int reached = ranks_within(*below, g);
    if (reached >= g.size) return;
    each(tier, reached);
    below = &tier;
  }
}

// Fixed cost: a step inside a domain for each doubling, a step outside for each doubling of nodes.
double fixed_s(const Accelerator& a, Group g, int inside) {
  const double nodes = std::ceil(static_cast<double>(g.size) / inside);
  double us = a.inner.latency_us * std::log2(std::max(2, inside)) +
              (nodes > 1 ? a.outer.latency_us * std::log2(2 * nodes) : 0);
  for_farther(a, g, [&](const Tier& tier, int) { us += tier.latency_us; });
  return 1e-6 * us;
}

}  // namespace

int ranks_inside(const Accelerator& a, Group g) { return ranks_within(a.inner, g); }

double gather_s(const Accelerator& a, const NetworkEfficiency& net, Group g, double bytes) {
  if (g.size <= 1 || bytes <= 0) return 0;
  const int inside = ranks_inside(a, g);
  const double share = bytes * (g.size - 1) / g.size;
  double moving = share / inner_rate(a, net, Pattern::ring, inside);
  // Each of the `reached` ranks of a domain brings its part of what lies outside over its own link, and the domain
  // shares it.
  const auto outside = [&](double rate, int reached) {
    moving = std::max(moving, bytes * (1 - static_cast<double>(reached) / g.size) / reached / rate);
  };
  if (inside < g.size) outside(outer_rate(a, net), inside);
  for_farther(a, g, [&](const Tier& tier, int reached) { outside(tier.bytes_per_s * net.outer, reached); });
  return fixed_s(a, g, inside) + moving;
}

double all_reduce_s(const Accelerator& a, const NetworkEfficiency& net, Group g, double bytes) {
  return 2 * gather_s(a, net, g, bytes);
}

double send_s(const Accelerator& a, const NetworkEfficiency& net, int stride, double bytes) {
  if (a.inner.ranks == 0 || stride < a.inner.ranks)
    return 1e-6 * a.inner.latency_us + bytes / inner_rate(a, net, Pattern::message, 2);
  const Tier* tier = &a.outer;
  for (size_t i = 0; i < a.farther.size() && tier->ranks > 0 && stride >= tier->ranks; ++i) tier = &a.farther[i];
  return 1e-6 * tier->latency_us + bytes / (tier->bytes_per_s * net.send);
}

double hop_s(const Accelerator& a, const NetworkEfficiency& net, Group g, double bytes) {
  if (g.size <= 1 || bytes <= 0) return 0;
  const int inside = ranks_inside(a, g);
  const double within = 1e-6 * a.inner.latency_us + bytes / inner_rate(a, net, Pattern::ring, inside);
  return inside == g.size ? within : std::max(within, send_s(a, net, g.size * g.stride - 1, bytes));
}

double all_to_all_s(const Accelerator& a, const NetworkEfficiency& net, Group g, double bytes) {
  if (g.size <= 1 || bytes <= 0) return 0;
  const int inside = ranks_inside(a, g);
  double moving = bytes * (inside - 1) / g.size / inner_rate(a, net, Pattern::all_to_all, inside);
  const auto outside = [&](double rate, int reached) {
    moving = std::max(moving, bytes * (g.size - reached) / g.size / rate);
  };
  outside(outer_rate(a, net), inside);
  for_farther(a, g, [&](const Tier& tier, int reached) { outside(tier.bytes_per_s * net.outer, reached); });
  return fixed_s(a, g, inside) + moving;
}

double exchange_s(const Accelerator& a, const NetworkEfficiency& net, Group g, const ExchangeLoad& x) {
  if (g.size <= 1 || x.tokens <= 0) return 0;
  const int inside = ranks_inside(a, g);
  const double nodes = static_cast<double>(g.size) / inside;
  const double rows = x.tokens * x.chosen;
  // A rank that holds several of a token's experts still gets its row once.
  const double distinct = g.size * (1 - std::pow(1 - 1.0 / g.size, x.chosen)) * (g.size - 1) / g.size;
  const double near_rows = x.once_a_node ? x.tokens * distinct : rows * (g.size - 1) / g.size;
  double moving = near_rows * x.row_bytes / inner_rate(a, net, Pattern::all_to_all, inside);
  if (nodes <= 1) return fixed_s(a, g, inside) + moving;
  double touched = nodes * (1 - std::pow(1 - 1 / nodes, x.chosen));
  if (x.most_nodes > 0) touched = std::min(touched, static_cast<double>(x.most_nodes));
  const double far_rows = x.once_a_node ? x.tokens * touched * (nodes - 1) / nodes : rows * (nodes - 1) / nodes;
  const double part = x.once_a_node ? net.exchange : net.outer;
  moving = std::max(moving, far_rows * x.row_bytes / (a.outer.bytes_per_s * part));
  for_farther(a, g, [&](const Tier& tier, int reached) {
    const double beyond = far_rows * (g.size - reached) / (g.size - inside);
    moving = std::max(moving, beyond * x.row_bytes / (tier.bytes_per_s * part));
  });
  return fixed_s(a, g, inside) + moving;
}

}  // namespace heddle::cost
