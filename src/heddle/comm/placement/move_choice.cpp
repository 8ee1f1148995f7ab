#include "heddle/comm/placement/move_choice.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/comm/placement/expert_placement.h"
#include "heddle/comm/placement/trial.h"

namespace heddle::comm {

namespace {

constexpr int64_t kLeastPart = 64;  // of what a microbatch takes: a smaller gain is within what loads do anyway

/// Rows of experts by their homes, and what exchanging two of them makes of holders and nodes.
class Exchanges {
 public:
  Exchanges(std::vector<int64_t> rows_at, const Holders& holders)
      : holders_(holders), places_(std::ssize(rows_at) / holders.count()), rows_at_(std::move(rows_at)) {
    rows_H_.assign(static_cast<size_t>(holders.count()), 0);
    for (size_t position = 0; position < rows_at_.size(); ++position)
      rows_H_[position / static_cast<size_t>(places_)] += rows_at_[position];
    std::vector<int64_t> ranks_N;
    for (int64_t h = 0; h < holders.count(); ++h) {
      const auto node = static_cast<size_t>(node_of(h));
      if (node >= rows_N_.size()) {
        rows_N_.resize(node + 1, 0);
        ranks_N.resize(node + 1, 0);
      }
      rows_N_[node] += rows_H_[h];
      ++ranks_N[node];
    }
    alike_nodes_ = std::all_of(ranks_N.begin(), ranks_N.end(), [&](int64_t n) { return n == ranks_N.front(); });
  }

  struct Of {
    int64_t a = 0, b = 0;  // homes, of the same place on two holders
  };
  /// The best swap, after which the fuller of the two nodes (where replicas even out what is within one) and the
  /// fuller of the two holders have least. One of them is the fullest. None where no swap leaves less than now.
  /// Others may be as full: their turn comes.
  std::optional<Of> best() const {
    const bool by_nodes = holders_.replicas > 0 && rows_N_.size() > 1 && alike_nodes_;
    using Key = std::tuple<int64_t, int64_t, bool>;  // node, holder, whether it crosses nodes
    std::optional<Of> best;
    Key least;
    const auto fullest_node = std::max_element(rows_N_.begin(), rows_N_.end()) - rows_N_.begin();
    const auto fullest = std::max_element(rows_H_.begin(), rows_H_.end()) - rows_H_.begin();
    for (int64_t h = 0; h < holders_.count(); ++h) {
      const bool of_fullest_node = by_nodes && node_of(h) == fullest_node;
      if (h != fullest && !of_fullest_node) continue;
      for (int64_t g = 0; g < holders_.count(); ++g) {
        if (g == h) continue;
        const bool crosses = node_of(h) != node_of(g);
        for (int64_t place = 0; place < places_; ++place) {
          const Of of{h * places_ + place, g * places_ + place};
          const int64_t less = rows_at_[at(of.a)] - rows_at_[at(of.b)];
          if (less <= 0) continue;
          const int64_t node_now = by_nodes ? rows_N_[at(node_of(h))] : 0;
          const int64_t node =
              by_nodes && crosses ? std::max(node_now - less, rows_N_[at(node_of(g))] + less) : node_now;
          const Key key{node, std::max(rows_H_[at(h)] - less, rows_H_[at(g)] + less), crosses};
          const bool helps = (of_fullest_node && node < node_now) ||
                             (h == fullest && node <= node_now && std::get<1>(key) < rows_H_[at(h)]);
          if (!helps || (best && !(key < least))) continue;
          least = key;
          best = of;
        }
      }
    }
    return best;
  }
  void make(const Of& of) {
    const int64_t less = rows_at_[at(of.a)] - rows_at_[at(of.b)];
    shift(rows_H_, of.a / places_, of.b / places_, less);
    shift(rows_N_, node_of(of.a / places_), node_of(of.b / places_), less);
    std::swap(rows_at_[at(of.a)], rows_at_[at(of.b)]);
  }
  const std::vector<int64_t>& rows_H() const { return rows_H_; }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  static void shift(std::vector<int64_t>& rows, int64_t from, int64_t to, int64_t count) {
    rows[at(from)] -= count;
    rows[at(to)] += count;
  }
  int64_t node_of(int64_t holder) const { return holders_.node_of[at(holder * holders_.slices)]; }

  const Holders& holders_;
  int64_t places_;
  std::vector<int64_t> rows_at_, rows_H_, rows_N_;
  bool alike_nodes_ = false;
};

}  // namespace

int64_t moving_ps(const std::vector<int32_t>& before_E, const std::vector<int32_t>& after_E, const Holders& holders,
                  const MoveRules& rules) {
  const int64_t places = std::ssize(before_E) / holders.count();
  LinkTimes::Carried carried(holders.node_of);
  for (size_t e = 0; e < before_E.size(); ++e) {
    const int64_t from = before_E[e] / places, to = after_E[e] / places;
    if (from == to) continue;
    for (int64_t s = 0; s < holders.slices; ++s)
      carried.add(from * holders.slices + s, to * holders.slices + s, rules.expert_within_ps,
                  rules.expert_across_ps);
  }
  return carried.busiest();
}

MoveChoice choose_moves(const std::vector<double>& rows_E, const std::vector<int32_t>& position_of_E,
                        const Holders& holders, const MoveRules& rules) {
  const int64_t experts = std::ssize(rows_E);
  HEDDLE_CHECK(is_expert_placement(position_of_E, experts) && experts % holders.count() == 0,
               "{} homes of {} experts on {} holders", position_of_E.size(), experts, holders.count());
  MoveChoice choice{.position_of_E = position_of_E};
  if (holders.count() == 1) return choice;
  const int64_t sources = std::ssize(holders.node_of);
  const std::vector<int32_t> share_E = alike_sources(rows_E, 1, rules.rows);
  std::vector<int32_t> positions = position_of_E;
  const auto rows_at = [&] {
    std::vector<int32_t> rows(share_E.size());
    for (size_t e = 0; e < share_E.size(); ++e) rows[positions[e]] = share_E[e];
    return rows;
  };
  const auto predict = [&] {
    const std::vector<int32_t> own = rows_at();
    std::vector<int32_t> rows_SH;
    for (int64_t s = 0; s < sources; ++s) rows_SH.insert(rows_SH.end(), own.begin(), own.end());
    return predicted_ps({sources, experts, rows_SH}, holders, rules.placing);
  };
  std::vector<int64_t> of_all;
  for (const int32_t rows : rows_at()) of_all.push_back(rows * sources);
  Exchanges exchanges(of_all, holders);
  if (!is_uneven(exchanges.rows_H())) return choice;
  choice.outcome = MoveOutcome::not_worth;
  const int64_t now_ps = predict();
  double best = 0;
  // After as many exchanges as there are experts each has had its turn.
  for (int64_t made = 0; made < experts; ++made) {
    const std::optional<Exchanges::Of> next = exchanges.best();
    if (!next) break;
    exchanges.make(*next);
    const auto a = std::find(positions.begin(), positions.end(), static_cast<int32_t>(next->a));
    const auto b = std::find(positions.begin(), positions.end(), static_cast<int32_t>(next->b));
    std::swap(*a, *b);
    const int64_t gain = now_ps - predict(), cost = moving_ps(position_of_E, positions, holders, rules);
    const double net = static_cast<double>(gain) * rules.microbatches - static_cast<double>(cost);
    if (net <= best || gain < now_ps / kLeastPart) continue;
    best = net;
    choice.outcome = MoveOutcome::moved;
    choice.position_of_E = positions;
    choice.gain_ps = gain;
    choice.cost_ps = cost;
  }
  for (size_t e = 0; e < positions.size(); ++e) choice.moved += choice.position_of_E[e] != position_of_E[e] ? 1 : 0;
  return choice;
}

}  // namespace heddle::comm
