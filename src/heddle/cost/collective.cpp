#include "heddle/cost/collective.h"

#include <algorithm>
#include <cmath>

namespace heddle::cost {

namespace {

double inner_rate(const Accelerator& a, const NetworkEfficiency& net) { return a.inner.bytes_per_s * net.inner; }
double outer_rate(const Accelerator& a, const NetworkEfficiency& net) { return a.outer.bytes_per_s * net.outer; }

// Fixed cost: a step inside a domain for each doubling, a step outside for each doubling of nodes.
double fixed_s(const Accelerator& a, Group g, int inside) {
  const double nodes = std::ceil(static_cast<double>(g.size) / inside);
  return 1e-6 * (a.inner.latency_us * std::log2(std::max(2, inside)) +
                 (nodes > 1 ? a.outer.latency_us * std::log2(2 * nodes) : 0));
}

}  // namespace

int ranks_inside(const Accelerator& a, Group g) {
  const int domain = a.inner.ranks > 0 ? a.inner.ranks : g.size * g.stride;
  return std::clamp(domain / std::max(1, g.stride), 1, g.size);
}

double gather_s(const Accelerator& a, const NetworkEfficiency& net, Group g, double bytes) {
  if (g.size <= 1 || bytes <= 0) return 0;
  const int inside = ranks_inside(a, g);
  const double share = bytes * (g.size - 1) / g.size;
  if (inside == g.size) return fixed_s(a, g, inside) + share / inner_rate(a, net);
  // Each of the `inside` ranks of a node brings its part of what lies outside over its own NIC, and the node shares
  // it.
  const double outside = bytes * (1 - static_cast<double>(inside) / g.size) / inside;
  return fixed_s(a, g, inside) + std::max(outside / outer_rate(a, net), share / inner_rate(a, net));
}

double all_reduce_s(const Accelerator& a, const NetworkEfficiency& net, Group g, double bytes) {
  return 2 * gather_s(a, net, g, bytes);
}

double send_s(const Accelerator& a, const NetworkEfficiency& net, int stride, double bytes) {
  const bool inside = a.inner.ranks == 0 || stride < a.inner.ranks;
  const double latency_us = inside ? a.inner.latency_us : a.outer.latency_us;
  return 1e-6 * latency_us + bytes / (inside ? inner_rate(a, net) : a.outer.bytes_per_s * net.send);
}

double all_to_all_s(const Accelerator& a, const NetworkEfficiency& net, Group g, double bytes) {
  if (g.size <= 1 || bytes <= 0) return 0;
  const int inside = ranks_inside(a, g);
  const double near = bytes * (inside - 1) / g.size, far = bytes * (g.size - inside) / g.size;
  return fixed_s(a, g, inside) + std::max(near / inner_rate(a, net), far / outer_rate(a, net));
}

double exchange_s(const Accelerator& a, const NetworkEfficiency& net, Group g, const Exchange& x) {
  if (g.size <= 1 || x.tokens <= 0) return 0;
  const int inside = ranks_inside(a, g);
  const double nodes = static_cast<double>(g.size) / inside;
  const double rows = x.tokens * x.chosen;
  // A rank that holds several of a token's experts still gets its row once.
  const double distinct = g.size * (1 - std::pow(1 - 1.0 / g.size, x.chosen)) * (g.size - 1) / g.size;
  const double near_rows = x.once_a_node ? x.tokens * distinct : rows * (g.size - 1) / g.size;
  if (nodes <= 1) return fixed_s(a, g, inside) + near_rows * x.row_bytes / inner_rate(a, net);
  double touched = nodes * (1 - std::pow(1 - 1 / nodes, x.chosen));
  if (x.most_nodes > 0) touched = std::min(touched, static_cast<double>(x.most_nodes));
  const double far_rows = x.once_a_node ? x.tokens * touched * (nodes - 1) / nodes : rows * (nodes - 1) / nodes;
  return fixed_s(a, g, inside) +
         std::max(far_rows * x.row_bytes / outer_rate(a, net), near_rows * x.row_bytes / inner_rate(a, net));
}

}  // namespace heddle::cost
