// The experts' exchange in every topology, against an oracle that knows all ranks: which rows arrive and in which
// order, the sums to the bit, adjointness, and the bytes on the wire.
#include <cmath>
#include <mutex>

#include "tests/runtime/exchange_group.h"

namespace heddle::test {
namespace {

const std::vector<std::string> kTopologies{"plain", "rank", "node", "merge"};

/// Rows that rank r receives, in order: (source, token, slot).
struct Arrival {
  int64_t source, token, slot, expert;
};
std::vector<Arrival> arrivals(const Routed& routed, int64_t r) {
  std::vector<Arrival> rows;
  for (int64_t e = r / routed.slices * routed.experts_each; e < (r / routed.slices + 1) * routed.experts_each;
       ++e) {
    for (int64_t p = 0; p < routed.ranks(); ++p) {
      for (int64_t t = 0; t < routed.tokens(p); ++t) {
        for (int64_t j = 0; j < routed.top_k; ++j) {
          if (routed.expert(p, t, j) == e) rows.push_back({p, t, j, e});
        }
      }
    }
  }
  return rows;
}

/// (node, slot of the rank, expert of the rank), packed as comm/places.h says, by other means.
int64_t key_of(const Routed& routed, int64_t rank, int64_t expert) {
  std::vector<int> seen;
  std::map<int, int64_t> members;
  int64_t slot = 0, most = 1;
  for (int64_t r = 0; r < routed.ranks(); ++r) {
    const int n = routed.node(r);
    if (std::find(seen.begin(), seen.end(), n) == seen.end()) seen.push_back(n);
    if (r == rank) slot = members[n];
    most = std::max(most, ++members[n]);
  }
  const int64_t node = std::find(seen.begin(), seen.end(), routed.node(rank)) - seen.begin();
  int64_t slots = 1, each = 1;
  while (slots < most) slots *= 2;
  while (each < routed.experts_each) each *= 2;
  return (node * slots + slot) * each + expert % routed.experts_each;
}

/// The sum of leaves in the trie of their keys, written as the law states it: cut at the highest bit that differs.
template <class A>
A tree_sum(const std::vector<std::pair<int64_t, A>>& leaves) {
  if (leaves.empty()) return A(0);
  if (leaves.size() == 1) return leaves[0].second;
  int64_t bit = 1;
  while (((leaves.front().first ^ leaves.back().first) >> 1) >= bit) bit *= 2;
  std::vector<std::pair<int64_t, A>> low, high;
  for (const auto& leaf : leaves) ((leaf.first & bit) ? high : low).push_back(leaf);
  return tree_sum(low) + tree_sum(high);
}

struct Case {
  std::string name;
  Routed routed;
};

std::vector<Case> cases() {
  const auto random = [](std::vector<int> nodes, int64_t slices, int64_t each, int64_t k,
                         std::vector<int64_t> tokens, int64_t without = 0) {
    static uint64_t seed = 100;
    return Routed::random(std::move(nodes), slices, each, k, 5, tokens, seed++, without);
  };
  std::vector<Case> all{
      {"one_node", random({0, 0, 0, 0}, 1, 2, 3, {9})},
      {"two_by_two", random({0, 0, 1, 1}, 1, 4, 5, {9})},
      {"four_by_one", random({0, 1, 2, 3}, 1, 3, 4, {9})},
      {"two_by_four", random({0, 0, 0, 0, 1, 1, 1, 1}, 1, 4, 6, {13})},
      {"uneven_nodes", random({0, 0, 0, 1, 1, 2}, 1, 2, 5, {11})},
      {"interleaved_nodes", random({3, 1, 3, 1, 3}, 1, 3, 4, {7})},
      {"slices_in_a_node", random({0, 0, 0, 0, 1, 1, 1, 1}, 2, 2, 3, {10})},
      {"slices_across_nodes", random({0, 1, 0, 1}, 2, 4, 3, {10})},
      {"uneven_tokens", random({0, 0, 1, 1}, 1, 2, 3, {0, 17, 1, 6})},
      {"no_tokens_at_all", random({0, 0, 1, 1}, 1, 2, 2, {0})},
      {"one_expert_a_rank", random({0, 0, 1, 1, 2, 2, 3, 3}, 1, 1, 8, {5})},
      {"some_without_rows", random({0, 0, 1, 1}, 1, 2, 3, {11}, 5)},
      {"slices_some_without_rows", random({0, 1, 0, 1}, 2, 2, 2, {9}, 7)},
      {"one_rank_some_without_rows", random({0}, 1, 4, 3, {9}, 4)},
  };
  Routed greedy = random({0, 0, 1, 1}, 1, 2, 1, {8});
  for (auto& chosen : greedy.experts) std::fill(chosen.begin(), chosen.end(), 5);
  all.push_back({"one_expert_takes_everything", greedy});
  // The emulator takes its time: there wide groups are for the full campaign.
  if (kWidest == Dtype::f32 && std::getenv("HEDDLE_PARITY_DRAWS") == nullptr) {
    std::erase_if(all, [](const Case& c) { return c.routed.node_of.size() > 4; });
  }
  return all;
}

class Exchange : public testing::TestWithParam<Case> {};

// Every (source, token) has its own integers, so each row's way can be told from its numbers.
double x_of(int64_t p, int64_t t, int64_t h) { return static_cast<double>((p * 1000 + t) * 8 + h); }
double gate_of(int64_t p, int64_t t, int64_t j) {
  return j == 1 ? 0 : 0.25 * static_cast<double>(1 + (p + t + j) % 7);
}

TEST_P(Exchange, RowsArriveByExpertSourceAndToken) {
  const Routed& routed = GetParam().routed;
  for (const std::string& topology : kTopologies) {
    run_group(routed, kWidest, exchange_attributes(routed, topology), [&](ExchangeRank& rank, int64_t p) {
      rank.lists();
      rank.dispatch([p](int64_t t, int64_t h) { return x_of(p, t, h); },
                    [p](int64_t t, int64_t j) { return gate_of(p, t, j); });
      const auto again = rank.combine_dgrad([p](int64_t t, int64_t h) { return -x_of(p, t, h); });
      std::vector<double> rows, gates, negated;
      for (const Arrival& a : arrivals(routed, p)) {
        for (int64_t h = 0; h < routed.width; ++h) rows.push_back(x_of(a.source, a.token, h));
        gates.push_back(gate_of(a.source, a.token, a.slot));
      }
      for (const double v : rows) negated.push_back(-v);
      EXPECT_EQ(rank.arrived(), rows) << topology << " rank " << p;
      EXPECT_EQ(rank.arrived_gates(), gates) << topology << " rank " << p;
      EXPECT_EQ(again, negated) << topology << " rank " << p;
    });
  }
}

// Random numbers: every bit of every sum is the oracle's, whatever the topology.
template <class A>
void expect_sums(const Routed& routed, Dtype dtype) {
  const auto made = [&](int64_t p, int64_t t, int64_t expert, int64_t slice, int64_t h) {
    const double v = RandomKey(5)
                         .with(static_cast<uint64_t>(((p * 64 + t) * 64 + expert) * 2 + slice))
                         .normal(static_cast<uint64_t>(h));
    return dtype == Dtype::f64 ? v : static_cast<double>(static_cast<float>(bf16(static_cast<float>(v))));
  };
  const auto gate = [](int64_t p, int64_t t, int64_t j) {
    return static_cast<double>(
        static_cast<float>(RandomKey(6).uniform(static_cast<uint64_t>((p * 64 + t) * 64 + j))));
  };
  const auto rounded = [&](A v) {
    return dtype == Dtype::bf16 ? static_cast<double>(static_cast<float>(bf16(static_cast<float>(v))))
                                : static_cast<double>(v);
  };
  for (const std::string& topology : kTopologies) {
    run_group(routed, dtype, exchange_attributes(routed, topology), [&](ExchangeRank& rank, int64_t p) {
      rank.lists();
      rank.dispatch([p](int64_t t, int64_t h) { return x_of(p, t, h); },
                    [&](int64_t t, int64_t j) { return gate(p, t, j); });
      const std::vector<Arrival> here = arrivals(routed, p);
      const auto e = [&](int64_t s, int64_t h) {
        const Arrival& a = here[static_cast<size_t>(s)];
        return made(a.source, a.token, a.expert, p % routed.slices, h);
      };
      const auto residual = [](int64_t t, int64_t h) { return static_cast<double>(t - h); };
      const std::vector<double> sums = rank.combine(e), with_residual = rank.combine(e, residual);
      const auto [dx, dg] = rank.dispatch_dgrad(e, [&](int64_t s) { return e(s, 0); });
      std::vector<double> expected, expected_residual, expected_dx, expected_dg;
      for (int64_t t = 0; t < routed.tokens(p); ++t) {
        for (int64_t h = 0; h < routed.width; ++h) {
          std::vector<std::pair<int64_t, A>> leaves, plain;
          for (int64_t j = 0; j < routed.top_k; ++j) {
            const int64_t expert = routed.expert(p, t, j);
            if (expert >= routed.all_experts()) continue;
            for (int64_t s = 0; s < routed.slices; ++s) {
              const int64_t key = key_of(routed, expert / routed.experts_each * routed.slices + s, expert);
              const A value = static_cast<A>(made(p, t, expert, s, h));
              leaves.emplace_back(key, static_cast<A>(gate(p, t, j)) * value);
              plain.emplace_back(key, value);
            }
          }
          std::sort(leaves.begin(), leaves.end());
          std::sort(plain.begin(), plain.end());
          const A sum = tree_sum(leaves);
          expected.push_back(rounded(sum));
          expected_residual.push_back(rounded(sum + static_cast<A>(residual(t, h))));
          expected_dx.push_back(rounded(tree_sum(plain)));
        }
        for (int64_t j = 0; j < routed.top_k; ++j) {
          A sum = 0;
          for (int64_t s = 0; s < routed.slices && routed.expert(p, t, j) < routed.all_experts(); ++s)
            sum += static_cast<A>(made(p, t, routed.expert(p, t, j), s, 0));
          expected_dg.push_back(static_cast<double>(sum));
        }
      }
      EXPECT_EQ(sums, expected) << topology << " rank " << p;
      EXPECT_EQ(with_residual, expected_residual) << topology << " rank " << p;
      EXPECT_EQ(dx, expected_dx) << topology << " rank " << p;
      EXPECT_EQ(dg, expected_dg) << topology << " rank " << p;
    });
  }
}
#ifndef HEDDLE_FIXTURES_ON_CUDA
TEST_P(Exchange, SumsAreTheTreesInF64) { expect_sums<double>(GetParam().routed, Dtype::f64); }
#endif
TEST_P(Exchange, SumsAreTheTreesInF32) { expect_sums<float>(GetParam().routed, Dtype::f32); }
TEST_P(Exchange, SumsAreTheTreesInBf16) { expect_sums<float>(GetParam().routed, Dtype::bf16); }

#ifndef HEDDLE_FIXTURES_ON_CUDA
// <D x, y> = <x, Dᵀ y> over the whole group, with integers: exactly.
TEST_P(Exchange, BackwardIsTheAdjoint) {
  const Routed& routed = GetParam().routed;
  for (const std::string& topology : kTopologies) {
    std::mutex mutex;
    double there = 0, back = 0;
    run_group(routed, kWidest, exchange_attributes(routed, topology), [&](ExchangeRank& rank, int64_t p) {
      rank.lists();
      const auto x = [p](int64_t t, int64_t h) { return static_cast<double>((p + 3 * t + 5 * h) % 11) - 5; };
      const auto y = [p](int64_t s, int64_t h) { return static_cast<double>((7 * p + s + 2 * h) % 13) - 6; };
      rank.dispatch(x, [](int64_t, int64_t) { return 1.0; });
      const std::vector<double> q = rank.arrived(), dx = rank.dispatch_dgrad(y, [](int64_t) { return 0.0; }).first;
      const std::lock_guard lock(mutex);
      for (int64_t i = 0; i < std::ssize(q); ++i)
        there += q[static_cast<size_t>(i)] * y(i / routed.width, i % routed.width);
      for (int64_t i = 0; i < std::ssize(dx); ++i)
        back += dx[static_cast<size_t>(i)] * x(i / routed.width, i % routed.width);
    });
    EXPECT_EQ(there, back) << topology;
  }
}

#endif

// What an exchange of rows may send, from the routing alone: (bytes within nodes, bytes across).
struct Bytes {
  int64_t within = 0, across = 0;
  bool operator==(const Bytes&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Bytes& b) {
  return out << b.within << " within, " << b.across << " across";
}

class Wire {
 public:
  explicit Wire(const Routed& routed) : routed_(routed) {}
  void add(int64_t from, int64_t to, int64_t bytes) {
    if (from != to) (routed_.node(from) == routed_.node(to) ? total.within : total.across) += bytes;
  }
  Bytes total;

 private:
  const Routed& routed_;
};

/// `sum_bytes`: of what goes back where several rows make a sum; one row alone goes as it is, but for merge.
Bytes rows_there(const Routed& routed, const std::string& topology, int64_t row_bytes, int64_t sum_bytes = 0) {
  Wire wire(routed);
  for (int64_t p = 0; p < routed.ranks(); ++p) {
    std::map<int, std::vector<int64_t>> nodes;
    for (int64_t r = 0; r < routed.ranks(); ++r) nodes[routed.node(r)].push_back(r);
    const auto& own = nodes[routed.node(p)];
    const auto slot = static_cast<size_t>(std::find(own.begin(), own.end(), p) - own.begin());
    for (int64_t t = 0; t < routed.tokens(p); ++t) {
      for (const auto& [n, members] : nodes) {
        const int64_t gate = members[slot % members.size()];
        bool any = false;
        int64_t on_node = 0;
        for (const int64_t r : members) {
          for (int64_t j = 0; j < routed.top_k; ++j) on_node += routed.on(r, routed.expert(p, t, j));
        }
        const int64_t by_node = sum_bytes > 0 && (on_node != 1 || topology == "merge") ? sum_bytes : row_bytes;
        for (const int64_t r : members) {
          int64_t experts = 0;
          for (int64_t j = 0; j < routed.top_k; ++j) experts += routed.on(r, routed.expert(p, t, j));
          any = any || experts > 0;
          if (topology == "plain") wire.add(p, r, experts * row_bytes);
          if (topology == "rank" && experts > 0)
            wire.add(p, r, sum_bytes > 0 && experts > 1 ? sum_bytes : row_bytes);
          if ((topology == "node" || topology == "merge") && experts > 0) wire.add(gate, r, by_node);
        }
        if (topology == "merge" || (topology == "node" && any)) wire.add(p, gate, by_node);
      }
    }
  }
  return wire.total;
}

TEST_P(Exchange, MovesWhatTheRoutingNeedsAndNoMore) {
  const Routed& routed = GetParam().routed;
  std::vector<int> nodes = routed.node_of;
  std::sort(nodes.begin(), nodes.end());
  const bool one_node = nodes.front() == nodes.back();
  for (const std::string& topology : kTopologies) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      if (kWidest == Dtype::f32 && dtype == Dtype::f32) continue;
      std::mutex mutex;
      Bytes there, back;
      run_group(routed, dtype, exchange_attributes(routed, topology), [&](ExchangeRank& rank, int64_t) {
        rank.lists();
        rank.dispatch([](int64_t, int64_t) { return 1.0; }, [](int64_t, int64_t) { return 1.0; });
        const comm::Traffic before = rank.traffic();
        rank.combine_dgrad([](int64_t, int64_t) { return 1.0; });
        const comm::Traffic between = rank.traffic();
        rank.combine([](int64_t, int64_t) { return 1.0; });
        const comm::Traffic after = rank.traffic();
        const std::lock_guard lock(mutex);
        there.within += between.within_node_bytes - before.within_node_bytes;
        there.across += between.across_nodes_bytes - before.across_nodes_bytes;
        back.within += after.within_node_bytes - between.within_node_bytes;
        back.across += after.across_nodes_bytes - between.across_nodes_bytes;
      });
      // On one node, to go by node is to go by rank.
      const std::string as = one_node && topology != "plain" ? "rank" : topology;
      EXPECT_EQ(there, rows_there(routed, as, routed.width * size_of(dtype))) << topology;
      EXPECT_EQ(back, rows_there(routed, as, routed.width * size_of(dtype), routed.width * 4)) << topology;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, Exchange, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(ExchangeDrawn, AnyGroupSumsInTheTree) {
  const uint64_t draws = kWidest == Dtype::f64 ? 60 : 6;  // the emulator takes its time
  for (uint64_t draw = 0; draw < draws; ++draw) {
    const RandomKey key = RandomKey(11).with(draw);
    auto pick = [&, n = uint64_t{0}](int64_t least, int64_t most) mutable {
      return least + static_cast<int64_t>(key.bits(n++) % static_cast<uint64_t>(most - least + 1));
    };
    const int64_t slices = pick(1, 3), ranks = slices * pick(1, 4), each = pick(1, 5);
    std::vector<int> node_of;
    for (int64_t r = 0; r < ranks; ++r) node_of.push_back(static_cast<int>(pick(0, 3)));
    std::vector<int64_t> tokens;
    for (int64_t r = 0; r < ranks; ++r) tokens.push_back(std::max<int64_t>(0, pick(-3, 12)));
    const int64_t k = pick(1, std::min<int64_t>(ranks / slices * each, 8));
    const int64_t width = pick(1, 9), without = draw % 3 == 2 ? pick(1, 6) : 0;
    const Routed routed = Routed::random(node_of, slices, each, k, width, tokens, draw, without);
    SCOPED_TRACE(fmt::format("draw {}", draw));
    expect_sums<float>(routed, draw % 2 == 0 ? Dtype::bf16 : Dtype::f32);
  }
}

#ifndef HEDDLE_FIXTURES_ON_CUDA  // 64 ranks of fibers take minutes
// Copies of a row that cross nodes, a token, where experts are chosen uniformly: n nodes of 8 ranks, 256 experts, 8
// a token. The chance that none of a rank's (a node's) m experts is among the 8 is C(256−m, 8) ÷ C(256, 8).
TEST(ExchangeVolume, IsTheExpectedOneUnderUniformRouting) {
  const auto missed = [](int64_t m) {
    double chance = 1;
    for (int64_t j = 0; j < 8; ++j) chance *= static_cast<double>(256 - m - j) / static_cast<double>(256 - j);
    return chance;
  };
  for (const int64_t n : {2, 4, 8}) {
    std::vector<int> node_of;
    for (int64_t r = 0; r < 8 * n; ++r) node_of.push_back(static_cast<int>(r / 8));
    const Routed routed = Routed::random(node_of, 1, 256 / (8 * n), 8, 1, {40}, static_cast<uint64_t>(n));
    const double tokens = static_cast<double>(40 * 8 * n), nodes = static_cast<double>(n);
    const std::map<std::string, double> expected{{"plain", 8 * (nodes - 1) / nodes},
                                                 {"rank", 8 * (nodes - 1) * (1 - missed(256 / (8 * n)))},
                                                 {"node", (nodes - 1) * (1 - missed(256 / n))},
                                                 {"merge", nodes - 1}};
    for (const auto& [topology, copies] : expected) {
      std::mutex mutex;
      int64_t bytes = 0;
      run_group(routed, Dtype::f32, exchange_attributes(routed, topology), [&](ExchangeRank& rank, int64_t) {
        rank.lists();
        rank.dispatch([](int64_t, int64_t) { return 1.0; }, [](int64_t, int64_t) { return 1.0; });
        const int64_t before = rank.traffic().across_nodes_bytes;
        rank.combine_dgrad([](int64_t, int64_t) { return 1.0; });
        const std::lock_guard lock(mutex);
        bytes += rank.traffic().across_nodes_bytes - before;
      });
      EXPECT_EQ(bytes, rows_there(routed, topology, 4).across) << topology << " over " << n << " nodes";
      // A token's count has a deviation below 1.4 (plain); four of the mean's.
      EXPECT_NEAR(static_cast<double>(bytes) / 4 / tokens, copies, 4 * 1.4 / std::sqrt(tokens))
          << topology << " over " << n << " nodes";
      RecordProperty(fmt::format("{}_{}_nodes", topology, n),
                     fmt::format("{:.3f}", static_cast<double>(bytes) / 4 / tokens));
    }
  }
}

#endif

// Auto: every rank makes the same choice, and the cheapest by the bytes of the busiest links.
TEST(ExchangeAuto, ChoosesTheCheapest) {
  const auto chosen = [](const Routed& routed, double across_rate, double latency_us) {
    std::mutex mutex;
    std::vector<ir::Topology> all;
    run_group(routed, kWidest, exchange_attributes(routed, "auto", across_rate, latency_us),
              [&](ExchangeRank& rank, int64_t p) {
                rank.lists();
                rank.dispatch([p](int64_t t, int64_t h) { return x_of(p, t, h); },
                              [p](int64_t t, int64_t j) { return gate_of(p, t, j); });
                std::vector<double> rows;
                for (const Arrival& a : arrivals(routed, p)) {
                  for (int64_t h = 0; h < routed.width; ++h) rows.push_back(x_of(a.source, a.token, h));
                }
                EXPECT_EQ(rank.arrived(), rows);
                const std::lock_guard lock(mutex);
                all.push_back(rank.topology);
              });
    for (const ir::Topology topology : all) EXPECT_EQ(topology, all[0]);
    return all[0];
  };
  using enum ir::Topology;
  // Two nodes, 8 of 32 experts: nearly every token goes to both nodes, several times.
  const Routed wide = Routed::random({0, 0, 0, 0, 1, 1, 1, 1}, 1, 4, 8, 64, {32}, 1);
  const ir::Topology across = chosen(wide, 10, 0);
  EXPECT_TRUE(across == node || across == merge);
  // One expert a token: every topology moves the same rows across; the fewest hops win.
  EXPECT_EQ(chosen(Routed::random({0, 0, 1, 1}, 1, 2, 1, 64, {32}, 2), 10, 5), plain);
  // Links across as fast as within, one node: no second hop pays, but a row need not go twice to a rank.
  EXPECT_EQ(chosen(Routed::random({0, 0, 0, 0}, 1, 4, 8, 64, {32}, 3), 1000, 0), rank);
  // Everything stays at home: plain, which needs no headers.
  Routed local = Routed::random({0, 0, 1, 1}, 1, 2, 2, 64, {16}, 4);
  for (int64_t p = 0; p < 4; ++p) {
    for (int64_t t = 0; t < 16; ++t) {
      for (int64_t j = 0; j < 2; ++j)
        local.experts[static_cast<size_t>(p)][static_cast<size_t>(2 * t + j)] = static_cast<int32_t>(2 * p + j);
    }
  }
  EXPECT_EQ(chosen(local, 10, 5), plain);
}

}  // namespace
}  // namespace heddle::test
