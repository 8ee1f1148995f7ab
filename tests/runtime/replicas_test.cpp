// Replicas of hot experts, and experts that change their homes from microbatch to microbatch, against none: to the
// last bit on whole numbers, op by op in poisoned memory, while the hot experts change.
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "heddle/ir/placed_figures.h"
#include "tests/runtime/exchange_group.h"

namespace heddle::test {
namespace {

double whole_number(uint64_t of, int64_t i) {
  return static_cast<double>(RandomKey(of).bits(static_cast<uint64_t>(i)) % 5) - 2;
}

/// One rank of a layer with one product an expert: forward and backward of one microbatch after the other.
class ExpertsRank : public ExchangeRank {
 public:
  ExpertsRank(const Routed& routed, int64_t rank, const ir::Attributes& exchange, int64_t copies, Dtype dtype,
              comm::ThreadWorlds& thread_worlds, bool moves)
      : ExchangeRank(routed, rank, dtype, exchange, thread_worlds),
        copies_(copies),
        moves_(moves),
        placing_(none_cost(routed, copies)) {
    if (copies > 0 || moves) attributes_.set("copies", copies);
    const int64_t N = routed.width + 1, K = routed.width, P = routed.experts_each;
    weight_ = make(dtype, {P, N, K}, ir::Role::weight);
    sum_ = make(wide_, {P, N, K}, ir::Role::accumulator);
    placed_ = make(Dtype::f64, {routed.ranks() / routed.slices + kPlacedFigures}, ir::Role::statistic);
    const int64_t first = rank / routed.slices * P * N * K;
    for (int64_t i = 0; i < P * N * K; ++i)
      set(weight_, i, whole_number(17 + static_cast<uint64_t>(rank % routed.slices), first + i));
  }
  /// Everything that comes of a microbatch and lies where it does without copies: c, dx, dg. With `recent`, rows of
  /// each expert, copies are chosen by those, and else by the microbatch's own.
  std::vector<double> step(const std::vector<int32_t>& chosen, uint64_t seed, bool first,
                           const std::vector<double>& recent) {
    std::copy(chosen.begin(), chosen.end(), data<int32_t>(experts_));
    ir::ValueId slots = experts_, placement = ir::none;
    if (copies_ > 0 && !recent.empty()) {
      const ir::ValueId expert_rows = given(recent);
      ir::Attributes recalled = placing_;
      const auto ahead = run("recall_copies", with_homes({expert_rows}), recalled.set("rows", 12 * routed_.top_k));
      placement = ahead[0];
      slots = run("place_rows", with_homes({experts_, placement, ahead[1], expert_rows}),
                  {{"ranks", routed_.ranks()},
                   {"slices", routed_.slices},
                   {"experts", routed_.all_experts()},
                   {"copies", copies_}},
                  {placed_}, first)[0];
    } else if (copies_ > 0) {
      const auto chosen_slots = run("place_copies", with_homes({experts_}), placing_, {placed_}, first);
      slots = chosen_slots[0];
      placement = chosen_slots[1];
    }
    ir::ValueId told = placement;
    if (moves_ && copies_ == 0) {
      const auto placed_experts = run("place_experts", {experts_, given(homes())},
                                      {{"ranks", routed_.ranks()},
                                       {"slices", routed_.slices},
                                       {"experts", routed_.all_experts()},
                                       {"copies", int64_t{0}}});
      slots = placed_experts[0];
      told = placed_experts[1];
    }
    if (placement != ir::none) {
      for (int64_t i = 0; i < listing_.elements(placement, rows_); ++i) {
        const int64_t each = routed_.experts_each + copies_;
        copied += i % each >= routed_.experts_each && data<int32_t>(placement)[i] >= 0 ? 1 : 0;
      }
    }
    const auto counts = run("share_counts", told == ir::none ? std::vector{slots} : std::vector{slots, told});
    lists_ = run("counts_to_host", counts);
    for (size_t i = 0; i < lists_.size(); ++i) rows_.of[lists_[i]] = comm::counted_rows(i, view(lists_[i]));
    most = std::max(most, rows_.of[lists_[0]]);
    received += rows_.of[lists_[0]];
    const auto number = [&](uint64_t what) {
      return [=, this](int64_t i, int64_t j) { return whole_number(seed * 8 + what, (rank_ * 1000 + i) * 64 + j); };
    };
    const ir::ValueId x = filled(dtype_, tokens(), routed_.width, number(0));
    const ir::ValueId g = filled(wide_, tokens(), routed_.top_k, number(1));
    const auto rows = run("dispatch", {x, g, slots, lists_[0], lists_[1], lists_[2]});
    const ir::Attributes moved{{"ranks", routed_.ranks()}, {"slices", routed_.slices}};
    if (placement != ir::none && recent.empty()) placement = lists_[1];  // as the host has read it
    const auto with_copies = [&](std::vector<ir::ValueId> in) {
      if (placement == ir::none) return in;
      ir::Attributes fetch = moved;
      in.push_back(run("fetch_copies", {weight_, placement}, fetch.set("copies", copies_))[0]);
      return in;
    };
    const ir::ValueId e = run("grouped_linear", with_copies({rows[0], weight_, lists_[3]}), {})[0];
    std::vector<double> all =
        values(run("combine", {e, rows[1], g, slots, lists_[0], lists_[1], lists_[2], rows[2], rows[3]})[0]);
    const ir::ValueId dc = filled(dtype_, tokens(), routed_.width + 1, number(2));
    const ir::ValueId dr = run("combine_dgrad", {dc, slots, lists_[0], lists_[1], lists_[2], rows[2], rows[3]})[0];
    const auto weighed = run("weigh_dgrad", {dr, e, rows[1]}, {});
    const ir::ValueId dq = run("grouped_linear_dgrad", with_copies({weighed[0], weight_, lists_[3]}), {})[0];
    const ir::Attributes beside = copies_ > 0 ? ir::Attributes{{"copies", copies_}} : ir::Attributes();
    const auto partial = run("grouped_linear_wgrad", {rows[0], weighed[0], lists_[3]}, beside, {sum_}, first);
    if (copies_ > 0) run("return_copies", {partial[0], placement}, moved, {sum_});
    const auto home =
        run("dispatch_dgrad", {dq, weighed[1], slots, lists_[0], lists_[1], lists_[2], rows[2], rows[3]});
    for (const ir::ValueId id : home) {
      const std::vector<double> more = values(id);
      all.insert(all.end(), more.begin(), more.end());
    }
    if (moves_) move();
    return all;
  }
  std::vector<double> weight_gradient() { return values(sum_); }
  /// Of an expert: where it has come to.
  int64_t home_of(int64_t expert) const { return homes_.empty() ? expert : homes_[static_cast<size_t>(expert)]; }
  std::vector<double> placed() { return values(placed_); }

  int64_t copied = 0, most = 0, received = 0;

 private:
  /// The experts of each place number go to other holders, those of most numbers: with weights, and sums of
  /// gradients instead of state.
  void move() {
    const int64_t P = routed_.experts_each, holders = routed_.ranks() / routed_.slices;
    std::vector<int32_t> next;
    for (int64_t e = 0; e < routed_.all_experts(); ++e) {
      const int64_t home = home_of(e), place = home % P;
      next.push_back(static_cast<int32_t>((home / P + (place == 1 ? 0 : 1 + place)) % holders * P + place));
    }
    std::vector<int32_t> moves = homes();
    moves.insert(moves.end(), next.begin(), next.end());
    run("move_experts", {given(moves, {2, routed_.all_experts()})},
        {{"ranks", routed_.ranks()},
         {"slices", routed_.slices},
         {"experts", routed_.all_experts()},
         {"numbers", (routed_.width + 1) * routed_.width}},
        {weight_, sum_});
    homes_ = std::move(next);
  }
  static ir::Attributes none_cost(const Routed& routed, int64_t copies) {
    return {{"ranks", routed.ranks()},
            {"slices", routed.slices},
            {"experts", routed.all_experts()},
            {"copies", copies},
            {"whole", int64_t{0}},
            {"row_ps", int64_t{1}},
            {"row_within_ps", int64_t{0}},
            {"row_across_ps", int64_t{0}},
            {"copy_within_ps", int64_t{0}},
            {"copy_across_ps", int64_t{0}}};
  }
  /// An input of these numbers, as the host has it.
  template <class Number>
  ir::ValueId given(const std::vector<Number>& numbers, std::vector<int64_t> shape = {}) {
    if (shape.empty()) shape = {std::ssize(numbers)};
    const ir::ValueId id = make(dtype_of<Number>, std::move(shape), ir::Role::input);
    std::copy(numbers.begin(), numbers.end(), data<Number>(id));
    const auto bytes = std::as_bytes(std::span(numbers));
    host_copies_.of(view(id).data).assign(bytes.begin(), bytes.end());
    return id;
  }
  std::vector<int32_t> homes() const {
    std::vector<int32_t> all;
    for (int64_t e = 0; e < routed_.all_experts(); ++e) all.push_back(static_cast<int32_t>(home_of(e)));
    return all;
  }
  /// Homes are an operand where experts move.
  std::vector<ir::ValueId> with_homes(std::vector<ir::ValueId> in) {
    if (moves_) in.push_back(given(homes()));
    return in;
  }

  std::vector<int32_t> homes_;  // empty: in the order of the experts' numbers
  int64_t copies_;
  bool moves_;
  ir::Attributes placing_;
  ir::ValueId weight_, sum_, placed_;
};

struct Stepped {
  std::vector<std::vector<double>> values, gradients;  // by rank
  int64_t copied = 0;
  std::vector<int64_t> most, received;  // rows of a rank: in a microbatch, in all
  std::vector<double> placed;           // as the ops have counted, all ranks' together
};

constexpr int kMicrobatchesReplicas = 4;

/// Experts of a microbatch: most choices fall on two that change, sometimes all on one, and a rank may have none.
std::vector<int32_t> hot_choice(const Routed& routed, int64_t rank, int m) {
  std::vector<int32_t> chosen;
  const RandomKey key = RandomKey(31).with(static_cast<uint64_t>(m)).with(static_cast<uint64_t>(rank));
  const auto experts = static_cast<uint64_t>(routed.all_experts());
  for (int64_t t = 0; t < routed.tokens(rank); ++t) {
    std::set<int32_t> of;
    const uint64_t hot = (static_cast<uint64_t>(m) * 5 + 1) % experts;
    if (m == 2 || key.bits(static_cast<uint64_t>(t)) % 4 != 0) of.insert(static_cast<int32_t>(hot));
    for (uint64_t i = 0; std::ssize(of) < routed.top_k; ++i) {
      of.insert(static_cast<int32_t>(key.bits(1000 + static_cast<uint64_t>(t) * 64 + i) % experts));
    }
    chosen.insert(chosen.end(), of.begin(), of.end());
  }
  return chosen;
}

// What all ranks choose in a microbatch.
std::vector<double> rows_of(const Routed& routed, int m) {
  std::vector<double> rows(static_cast<size_t>(routed.all_experts()), 0);
  for (int64_t r = 0; r < routed.ranks(); ++r) {
    for (const int32_t e : hot_choice(routed, r, m)) ++rows[static_cast<size_t>(e)];
  }
  return rows;
}

// Where copies are recalled, the loads that choose them are those of the microbatch before, or of itself.
Stepped stepped(const Routed& routed, const std::string& topology, int64_t copies, Dtype dtype,
                std::optional<int> recalled = std::nullopt, bool moves = false) {
  Stepped all;
  const auto ranks = static_cast<size_t>(routed.ranks());
  all.values.resize(ranks);
  all.gradients.resize(ranks);
  all.most.resize(ranks);
  all.received.resize(ranks);
  const int64_t N = routed.width + 1, K = routed.width, P = routed.experts_each;
  for (std::vector<double>& of_rank : all.gradients) of_rank.resize(static_cast<size_t>(P * N * K));
  all.placed.assign(static_cast<size_t>(routed.ranks() / routed.slices + kPlacedFigures), 0);
  comm::ThreadWorlds thread_worlds(routed.node_of);
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> failures(ranks);
  std::mutex mutex;
  for (size_t p = 0; p < ranks; ++p) {
    threads.emplace_back([&, p] {
      try {
        const auto rank_number = static_cast<int64_t>(p);
        ExpertsRank rank(routed, rank_number, exchange_attributes(routed, topology), copies, dtype, thread_worlds,
                         moves);
        for (int m = 0; m < kMicrobatchesReplicas; ++m) {
          const auto recent = recalled ? rows_of(routed, m - *recalled) : std::vector<double>();
          const auto more = rank.step(hot_choice(routed, rank_number, m), static_cast<uint64_t>(m), m == 0, recent);
          all.values[p].insert(all.values[p].end(), more.begin(), more.end());
        }
        all.most[p] = rank.most;
        const std::lock_guard lock(mutex);
        const std::vector<double> gradient = rank.weight_gradient();
        for (int64_t e = 0; e < routed.all_experts(); ++e) {  // by the homes of the experts' numbers
          const int64_t home = rank.home_of(e);
          if (home / P != rank_number / routed.slices) continue;
          const auto owner = static_cast<size_t>(e / P * routed.slices + rank_number % routed.slices);
          std::copy_n(gradient.begin() + home % P * N * K, N * K, all.gradients[owner].begin() + e % P * N * K);
        }
        all.copied += rank.copied;
        all.received[p] = rank.received;
        const std::vector<double> placed = rank.placed();
        for (size_t i = 0; copies > 0 && i < placed.size(); ++i) all.placed[i] += placed[i];
      } catch (const std::exception& error) {
        failures[p] = std::current_exception();
        thread_worlds.abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return all;
}

// What the ops count is what ranks have computed, and every choice has an end.
void expect_counted(const Routed& routed, const Stepped& with, PlacedFigure copied_by) {
  const auto holders = routed.ranks() / routed.slices;
  const auto figure = [&](PlacedFigure what) {
    return with.placed[static_cast<size_t>(holders + static_cast<int64_t>(what))];
  };
  for (int64_t r = 0; r < routed.ranks(); ++r)
    EXPECT_EQ(with.placed[static_cast<size_t>(r / routed.slices)],
              static_cast<double>(with.received[static_cast<size_t>(r)]));
  EXPECT_GT(figure(PlacedFigure::rows_moved), 0);
  EXPECT_EQ(figure(PlacedFigure::replicas) * static_cast<double>(holders), static_cast<double>(with.copied));
  EXPECT_GT(figure(copied_by), 0);
  EXPECT_EQ(figure(copied_by) + figure(PlacedFigure::even) + figure(PlacedFigure::not_worth),
            kMicrobatchesReplicas);
  if (std::set<int>(routed.node_of.begin(), routed.node_of.end()).size() == 1) {
    EXPECT_EQ(figure(PlacedFigure::crossings_saved), 0);
  }
}

TEST(Replicas, ChangeNoWholeNumberInAnyTopology) {
  const auto group = [](std::vector<int> nodes, int64_t slices, int64_t each, int64_t k,
                        std::vector<int64_t> tokens) {
    return Routed::random(std::move(nodes), slices, each, k, 3, tokens, 1);
  };
  const std::vector<Routed> groups{group({0, 0, 0, 0}, 1, 2, 1, {9}), group({0, 0, 1, 1}, 1, 3, 3, {24}),
                                   group({0, 0, 0, 1, 1, 2}, 1, 2, 2, {0, 17, 1, 6}),
                                   group({0, 0, 1, 1, 0, 0, 1, 1}, 2, 2, 3, {11})};
  // Kernels in an emulator take their time.
  const bool emulated = kWidest == Dtype::f32;
  std::vector<const char*> topologies{"plain", "merge"};
  if (!emulated) topologies.insert(topologies.end(), {"rank", "node", "auto"});
  for (const Routed& routed : groups) {
    for (const char* topology : topologies) {
      for (const Dtype dtype : std::set{kWidest, Dtype::f32}) {
        const Stepped without = stepped(routed, topology, 0, dtype);
        const Stepped moved = stepped(routed, topology, 0, dtype, std::nullopt, true);
        EXPECT_EQ(moved.values, without.values) << topology << " on " << routed.ranks() << ", moved";
        EXPECT_EQ(moved.gradients, without.gradients) << topology << " on " << routed.ranks() << ", moved";
        for (const std::optional<int> before : {std::optional<int>(), std::optional<int>(1)}) {
          const Stepped both = stepped(routed, topology, 2, dtype, before, true);
          EXPECT_EQ(both.values, without.values) << topology << " on " << routed.ranks() << ", copied and moved";
          EXPECT_EQ(both.gradients, without.gradients) << topology << " on " << routed.ranks() << ", both";
          EXPECT_GT(both.copied, 0);
          expect_counted(routed, both, before ? PlacedFigure::by_history : PlacedFigure::by_counts);
        }
        for (const int64_t copies : emulated ? std::vector<int64_t>{3} : std::vector<int64_t>{1, 3}) {
          const Stepped with = stepped(routed, topology, copies, dtype);
          EXPECT_EQ(with.values, without.values) << topology << " on " << routed.ranks() << ", " << copies;
          EXPECT_EQ(with.gradients, without.gradients) << topology << " on " << routed.ranks() << ", " << copies;
          for (const int before : {0, 1}) {
            const Stepped ahead = stepped(routed, topology, copies, dtype, before);
            EXPECT_EQ(ahead.values, without.values) << topology << ", chosen " << before << " microbatches before";
            EXPECT_EQ(ahead.gradients, without.gradients) << topology << ", chosen " << before << " before";
            EXPECT_GT(ahead.copied, 0);
            expect_counted(routed, ahead, PlacedFigure::by_history);
            if (before == 0) {
              EXPECT_LT(*std::max_element(ahead.most.begin(), ahead.most.end()),
                        *std::max_element(without.most.begin(), without.most.end()));
            }
          }
          EXPECT_GT(with.copied, 0);
          expect_counted(routed, with, PlacedFigure::by_counts);
          EXPECT_LT(*std::max_element(with.most.begin(), with.most.end()),
                    *std::max_element(without.most.begin(), without.most.end()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::test
