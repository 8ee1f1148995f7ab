#include "synthesis/capped_greedy.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::schedule {

namespace {

struct Counts {
  int f = 0, i = 0, w = 0;
};

struct Candidate {
  double start = Orders::kNever;
  int rank = 0;
  Token token;
};

class Run {
 public:
  Run(const Orders& orders, const std::vector<GreedyRules>& rules)
      : orders_(orders), rules_(rules), task_(orders.task()), ranks_(task_.placement.ranks) {
    for (int r = 0; r < ranks_; ++r) {
      counts_.emplace_back(static_cast<size_t>(orders.chunks(r)));
      held_.emplace_back(static_cast<size_t>(orders.chunks(r)), 0);
    }
    now_.assign(counts_.size(), 0);
    words_.resize(counts_.size());
    const auto stages = static_cast<size_t>(task_.placement.stages);
    ends_f_.resize(stages);
    ends_i_.resize(stages);
  }

  Words words() {
    std::vector<Candidate> best(counts_.size());
    for (int r = 0; r < ranks_; ++r) best[r] = candidate(r);
    while (true) {
      const auto next = std::min_element(best.begin(), best.end(), [](const Candidate& a, const Candidate& b) {
        return std::pair(a.start, a.rank) < std::pair(b.start, b.rank);
      });
      if (next->start == Orders::kNever) break;
      const Candidate chosen = *next;
      begin(chosen);
      // Only this rank and those to which it has sent something have new choices.
      best[chosen.rank] = candidate(chosen.rank);
      const int stage = orders_.stage(chosen.rank, std::max(chosen.token.forward, chosen.token.backward));
      for (const int to : {orders_.gradient_from(stage), orders_.forward_from(stage)}) {
        if (to >= 0) best[to] = candidate(to);
      }
    }
    for (size_t r = 0; r < words_.size(); ++r) {
      for (const Counts& counts : counts_[r])
        HEDDLE_CHECK(counts.w == task_.microbatches, "greedy order: rank {} stops", r);
    }
    return std::move(words_);
  }

 private:
  /// The time when the F or I could begin, as far as its other stage is concerned; kNever while that isn't known.
  double arrival(int rank, int chunk, Kind kind, int m) const {
    const int stage = orders_.stage(rank, chunk);
    const int from = kind == Kind::F ? orders_.forward_from(stage) : orders_.gradient_from(stage);
    if (from < 0) return 0;
    const auto& ends =
        kind == Kind::F ? ends_f_[static_cast<size_t>(stage) - 1] : ends_i_[static_cast<size_t>(stage) + 1];
    if (m >= std::ssize(ends)) return Orders::kNever;
    return ends[m] + (from == rank ? 0 : task_.times.hop);
  }

  bool room(size_t r, size_t chunk) const {
    const std::vector<double>& held = held_[r];
    double then = 0;
    for (size_t c = 0; c < held.size(); ++c) {
      const double one = task_.activation_bytes(orders_.stage(static_cast<int>(r), static_cast<int>(c)));
      then += c < chunk ? held[c] : c == chunk ? held[c] + one : std::max(held[c], one);
    }
    return then <= task_.cap_bytes[r] * (1 + 1e-9);
  }

  Candidate candidate(int rank) const {
    const auto r = static_cast<size_t>(rank);
    const GreedyRules& rules = rules_[r];
    Candidate best{Orders::kNever, rank, {}};
    const auto consider = [&](double arrives, Token token) {
      const double start = std::max(now_[r], arrives);
      if (start < best.start) best = {start, rank, token};
    };
    const auto forwards = [&] {
      for (const int c : rules.priority) {
        const Counts& counts = counts_[r][c];
        if (counts.f < task_.microbatches && counts.f - counts.w < rules.holds[c] &&
            room(r, static_cast<size_t>(c)))
          consider(arrival(rank, c, Kind::F, counts.f), {static_cast<int8_t>(c), -1, Kind::F});
      }
    };
    const auto backwards = [&] {
      for (const int c : rules.priority) {
        const Counts& counts = counts_[r][c];
        if (counts.i < counts.f)
          consider(arrival(rank, c, Kind::I, counts.i), {-1, static_cast<int8_t>(c), Kind::I});
      }
    };
    if (!rules.backward_first) forwards();
    backwards();
    if (rules.backward_first) forwards();
    if (best.start <= now_[r] + rules.patience) return best;
    for (const int c : rules.priority) {
      const Counts& counts = counts_[r][c];
      if (counts.w < counts.i) return {now_[r], rank, {-1, static_cast<int8_t>(c), Kind::W}};
    }
    return best;
  }

  void begin(const Candidate& chosen) {
    const auto r = static_cast<size_t>(chosen.rank);
    const Token token = chosen.token;
    now_[r] = chosen.start + orders_.duration(chosen.rank, token);
    words_[r].push_back(token);
    const int chunk = std::max(token.forward, token.backward);
    Counts& counts = counts_[r][chunk];
    const auto stage = static_cast<size_t>(orders_.stage(chosen.rank, chunk));
    const StageBytes& bytes = task_.bytes[stage];
    double& held = held_[r][chunk];
    if (token.kind == Kind::W) {
      ++counts.w;
      held -= bytes.until_weight_grad;
    } else if (token.kind == Kind::F) {
      ++counts.f;
      held += task_.activation_bytes(static_cast<int>(stage));
      ends_f_[stage].push_back(now_[r]);
    } else {
      ++counts.i;
      held -= bytes.until_input_grad;
      ends_i_[stage].push_back(now_[r]);
    }
  }

  const Orders& orders_;
  const std::vector<GreedyRules>& rules_;
  const OrderTask& task_;
  int ranks_;
  std::vector<std::vector<Counts>> counts_;
  std::vector<double> now_;
  std::vector<std::vector<double>> held_;             // bytes, of each rank and chunk
  std::vector<std::vector<double>> ends_f_, ends_i_;  // by stage, of the microbatches so far
  Words words_;
};

}  // namespace

Words capped_greedy(const Orders& orders, const std::vector<GreedyRules>& rules) {
  return Run(orders, rules).words();
}

}  // namespace heddle::schedule
