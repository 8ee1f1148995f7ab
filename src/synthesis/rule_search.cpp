#include "synthesis/rule_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace heddle::schedule {

namespace {

using Rules = std::vector<GreedyRules>;  // of each rank

struct Scored {
  double cost = 0;
  Rules rules;
};

class RuleSearch {
 public:
  RuleSearch(const OrderTask& task, int64_t work, uint64_t seed, SearchWatch& watch)
      : orders_(task), work_(work), random_(seed), watch_(watch) {
    double time = 0, tokens = 0;
    for (int r = 0; r < orders_.ranks(); ++r) {
      std::vector<int>& most = most_.emplace_back();
      double room = task.cap_bytes[r];
      for (int c = 0; c < orders_.chunks(r); ++c) {
        for (const Token& token :
             {Token{static_cast<int8_t>(c), -1, Kind::F}, Token{-1, static_cast<int8_t>(c), Kind::B}})
          time += orders_.duration(r, token);
        const double bytes = task.activation_bytes(orders_.stage(r, c));
        const double fit = bytes > 0 ? std::floor(room / bytes * (1 + 1e-9)) : task.microbatches;
        most.push_back(static_cast<int>(std::clamp<double>(fit, 1, task.microbatches)));
      }
      tokens += 3.0 * orders_.chunks(r);
    }
    token_ = time / tokens;
    constexpr int64_t kPlacing = 25;  // times the work of timing a token that is there
    per_run_ = kPlacing * static_cast<int64_t>(tokens) * task.microbatches;
  }

  std::vector<Scored> run() {
    std::vector<Scored> found = grid();
    const size_t starts = std::min<size_t>(3, found.size());
    const int64_t rounds = (work_ / static_cast<int64_t>(starts) - 1) / per_run_ + 1;
    const int64_t spent = work_;
    for (size_t s = 0; s < starts; ++s) {
      work_ = spent;
      found.push_back(anneal(found[s * found.size() / (4 * starts)], rounds));
    }
    sort(found);
    return found;
  }

 private:
  double cost(const Rules& rules) {
    work_ -= per_run_;
    watch_.goes_on(per_run_);
    const double makespan = orders_.time(capped_greedy(orders_, rules));
    return makespan + .05 * orders_.sum_of_ends() / orders_.ranks();
  }
  static void sort(std::vector<Scored>& found) {
    std::stable_sort(found.begin(), found.end(), [](const Scored& a, const Scored& b) { return a.cost < b.cost; });
  }

  std::vector<Scored> grid() {
    std::vector<Scored> found;
    const int64_t enough = work_ / 2;
    // From what named schedules do outwards: all the room shared, first chunks near the whole of it.
    for (const double first : {.75, 1.0, .5, .625, .875}) {
      for (const double slope : {.5, 0.0, 1.0, .25, .75, 1.5}) {
        for (const bool backward_first : {true, false}) {
          for (const bool last_chunk_first : {true, false}) {
            for (const double patience : {0.0, .3}) {
              for (const bool shared : {true, false}) {
                if ((work_ < enough || !watch_.goes_on()) && !found.empty()) break;
                Rules rules;
                for (int r = 0; r < orders_.ranks(); ++r)
                  rules.push_back(rules_of(r, first, slope, backward_first, last_chunk_first, patience, shared));
                found.push_back({cost(rules), rules});
              }
            }
          }
        }
      }
    }
    sort(found);
    return found;
  }

  GreedyRules rules_of(int r, double first, double slope, bool backward_first, bool last_chunk_first,
                       double patience, bool shared) {
    const std::vector<int>& most = most_[r];
    const auto chunks = static_cast<int>(most.size());
    GreedyRules rules{most, std::vector<int>(most.size()), backward_first, patience * token_};
    std::iota(rules.priority.begin(), rules.priority.end(), 0);
    if (last_chunk_first) std::reverse(rules.priority.begin(), rules.priority.end());
    for (int c = 0; c < chunks; ++c) {
      int& holds = rules.holds[c];
      const int all = holds;
      if (c == 0) {
        holds = static_cast<int>(std::lround(first * all - slope * r));
      } else if (!shared) {
        holds = (all - rules.holds[0]) / (chunks - 1);
      }
      holds = std::clamp(holds, 1, std::max(1, all - (c == 0 ? chunks - 1 : 0)));
    }
    return rules;
  }

  Scored anneal(Scored now, int64_t rounds) {
    Scored best = now;
    for (int64_t round = 0; round < rounds && watch_.goes_on(); ++round) {
      Rules rules = now.rules;
      for (int changes = 1 + below(3); changes > 0; --changes) change(rules);
      const double then = cost(rules);
      const double heat = .3 * token_ * (1 - static_cast<double>(round) / static_cast<double>(rounds));
      if (then > now.cost - heat * std::log(1 - static_cast<double>(random_() >> 11) * 0x1p-53)) continue;
      now = {then, std::move(rules)};
      if (now.cost < best.cost) best = now;
    }
    return best;
  }
  int below(size_t n) { return static_cast<int>(random_() % n); }
  void change(Rules& rules) {
    const int r = below(rules.size());
    GreedyRules& own = rules[r];
    const size_t chunks = own.holds.size();
    switch (chunks == 0 ? 5 : below(6)) {
      case 0:
      case 1:
      case 2: {
        const auto c = static_cast<size_t>(below(2) ? 0 : below(chunks));
        own.holds[c] = std::clamp(own.holds[c] + (below(2) ? 1 : -1), 1, most_[r][c]);
        break;
      }
      case 3: own.backward_first = !own.backward_first; break;
      case 4: std::swap(own.priority[0], own.priority[below(chunks)]); break;
      default: own.patience = token_ * below(6) / 5;
    }
  }

  Orders orders_;
  int64_t work_;
  std::mt19937_64 random_;
  SearchWatch& watch_;
  std::vector<std::vector<int>> most_;  // of each rank and chunk, what its cap could hold of it alone
  double token_ = 0;                    // mean time of one
  int64_t per_run_ = 0;
};

}  // namespace

std::vector<Words> search_rules(const OrderTask& task, int64_t work, uint64_t seed, int most, SearchWatch& watch) {
  OrderTask few = task;
  few.microbatches = std::min(task.microbatches, std::max(8, 3 * task.placement.ranks));
  std::vector<Scored> found = RuleSearch(few, work, seed, watch).run();
  if (found.size() > 4 * static_cast<size_t>(most)) found.resize(4 * static_cast<size_t>(most));

  Orders orders(task);
  std::vector<std::pair<double, Words>> orders_found;
  for (Scored& scored : found) {
    for (GreedyRules& rules : scored.rules) {
      for (int& holds : rules.holds) holds = holds == few.microbatches ? task.microbatches : holds;
    }
    Words words = capped_greedy(orders, scored.rules);
    const double time = orders.time(words);
    if (std::none_of(orders_found.begin(), orders_found.end(),
                     [&](const auto& other) { return other.second == words; }))
      orders_found.emplace_back(time, std::move(words));
  }
  std::stable_sort(orders_found.begin(), orders_found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Words> best;
  for (auto& [time, words] : orders_found) {
    if (std::ssize(best) < most) best.push_back(std::move(words));
  }
  return best;
}

}  // namespace heddle::schedule
