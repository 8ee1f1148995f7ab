// Which copies there are, and what they take: nothing is lost, ranks agree, the busiest one ends sooner, and copies
// are made where they pay only.
#include "heddle/comm/placement/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "heddle/base/random.h"
#include "heddle/comm/placement/relay.h"

namespace heddle::comm {
namespace {

struct Case {
  Holders holders;
  int64_t experts = 0;
  std::vector<int32_t> rows_SE;
  Loads loads() const { return {std::ssize(holders.node_of), experts, rows_SE}; }
};

std::vector<int> nodes_of_placement(int64_t ranks, int64_t each) {
  std::vector<int> nodes;
  for (int64_t r = 0; r < ranks; ++r) nodes.push_back(static_cast<int>(r / each));
  return nodes;
}

/// Experts in random order with loads like 1 ÷ place^steepness, each source its own noise.
Case zipf_placement(int64_t ranks, int64_t node_ranks, int64_t slices, int64_t replicas, int64_t experts,
                    double steepness, uint64_t seed) {
  Case c{{slices, replicas, nodes_of_placement(ranks, node_ranks)}, experts, {}};
  const RandomKey key(seed);
  std::vector<size_t> place(static_cast<size_t>(experts));
  std::iota(place.begin(), place.end(), size_t{0});
  for (size_t i = place.size(); i-- > 1;) std::swap(place[i], place[key.bits(i) % (i + 1)]);
  for (int64_t s = 0; s < ranks; ++s) {
    for (int64_t e = 0; e < experts; ++e) {
      const double share = std::pow(1.0 + static_cast<double>(place[static_cast<size_t>(e)]), -steepness);
      const double noise = 0.5 + key.with(static_cast<uint64_t>(s)).uniform(static_cast<uint64_t>(e));
      c.rows_SE.push_back(static_cast<int32_t>(4000 * share * noise));
    }
  }
  return c;
}

double imbalance_placement(const std::vector<int64_t>& rows) {
  const auto all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  return static_cast<double>(*std::max_element(rows.begin(), rows.end())) * static_cast<double>(rows.size()) / all;
}

/// What holds of every placement; returns the rows of each slot's source.
void expect_sound(const Case& c, const Placement& p, bool whole) {
  const Loads loads = c.loads();
  std::set<std::pair<int64_t, int64_t>> held;
  std::vector<int64_t> used(static_cast<size_t>(c.holders.count()), 0);
  std::vector<int64_t> taken(c.rows_SE.size(), 0);
  int64_t expert_before = 0;
  for (const Placement::Replica& replica : p.replicas()) {
    EXPECT_GE(replica.expert, expert_before);
    expert_before = replica.expert;
    EXPECT_NE(replica.holder, p.owner(replica.expert));
    EXPECT_TRUE(held.insert({replica.expert, replica.holder}).second) << "two copies in one place";
    EXPECT_LE(++used[static_cast<size_t>(replica.holder)], c.holders.replicas);
    EXPECT_EQ(replica.slot / p.slots_each(), replica.holder);
    EXPECT_EQ(p.expert_of_slot()[static_cast<size_t>(replica.slot)], replica.expert);
    EXPECT_GT(replica.rows(), 0);
    for (int64_t s = 0; s < loads.sources; ++s) {
      const int64_t rows = replica.rows_S[static_cast<size_t>(s)];
      EXPECT_GE(rows, 0);
      if (whole) {
        EXPECT_TRUE(rows == 0 || rows == loads.at(s, replica.expert));
      }
      taken[static_cast<size_t>(s * c.experts + replica.expert)] += rows;
    }
  }
  for (size_t i = 0; i < taken.size(); ++i) EXPECT_LE(taken[i], c.rows_SE[i]);
  for (int64_t e = 0; e < c.experts; ++e) EXPECT_EQ(p.expert_of_slot()[static_cast<size_t>(p.slot_of(e))], e);
  const std::vector<int64_t> rows = p.rows_of(loads);
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{0}),
            std::accumulate(c.rows_SE.begin(), c.rows_SE.end(), int64_t{0}));
  const std::vector<int64_t> before = Placement(c.holders, c.experts).rows_of(loads);
  EXPECT_LE(imbalance_placement(rows), imbalance_placement(before));
}

TEST(Placement, DrawnLoadsAreEvenedOut) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const double steepness : {0.5, 1.0, 1.5}) {
      const Case c = zipf_placement(16, 8, 1, 2, 128, steepness, seed);
      const Placement p = choose_placement(c.loads(), c.holders, {});
      expect_sound(c, p, false);
      EXPECT_LE(imbalance_placement(p.rows_of(c.loads())), 1.03) << "seed " << seed << " steepness " << steepness;
      const Placement whole = choose_placement(c.loads(), c.holders, {.whole_sources = true});
      expect_sound(c, whole, true);
      EXPECT_LE(imbalance_placement(whole.rows_of(c.loads())), steepness > 1 ? 1.3 : 1.05)
          << "seed " << seed << " steepness " << steepness;
    }
  }
}

// A layer of `bench experts` whose fullest rank has four times the even share: rank 3's experts are as hot as they
// can be, and rank 5 is a little over the share. Its rows need the slots that rank 3 would fill with scraps.
TEST(Placement, LittleAboveTheShareFindsASlotBesideMuch) {
  const std::vector<int32_t> rows_E{1,  11, 10, 8, 1, 1,  5,   1, 3,   2,  27,  2,  15,  4,   9,   3,
                                    12, 2,  7,  5, 5, 19, 32,  6, 512, 52, 512, 77, 227, 506, 125, 37,
                                    3,  21, 17, 2, 8, 63, 97,  3, 24,  1,  512, 3,  1,   6,   2,   1,
                                    2,  4,  2,  4, 7, 13, 165, 4, 512, 1,  2,   1,  327, 2,   43,  2};
  for (const int64_t node_ranks : {8, 4}) {
    Case c{{1, 2, nodes_of_placement(8, node_ranks)}, 64, {}};
    for (int s = 0; s < 8; ++s) c.rows_SE.insert(c.rows_SE.end(), rows_E.begin(), rows_E.end());
    // Of an H100 at 400 TFLOP/s, 360 GB/s within the node and 40 beyond; in units of a row's products.
    const CopyCosts costs{.row_ps = 1000,
                          .row_within_ps = 241,
                          .row_across_ps = 543,
                          .replica_within_ps = 92592,
                          .replica_across_ps = 208333};
    const Placement p = choose_placement(c.loads(), c.holders, {costs});
    expect_sound(c, p, false);
    EXPECT_LE(imbalance_placement(p.rows_of(c.loads())), 1.03) << node_ranks << " ranks a node";
  }
}

TEST(Placement, OddLoadsAreTaken) {
  for (const int64_t slices : {1, 2}) {
    for (const int64_t replicas : {1, 3}) {
      for (uint64_t seed = 0; seed < 20; ++seed) {
        Case c{{slices, replicas, nodes_of_placement(6 * slices, 2)}, 12, {}};
        const RandomKey key = RandomKey(seed).with("loads");
        for (int64_t i = 0; i < 6 * slices * c.experts; ++i) {
          const auto at = static_cast<uint64_t>(i);
          c.rows_SE.push_back(key.bits(at) % 3 == 0 ? static_cast<int32_t>(key.bits(at) / 64 % 50) : 0);
        }
        for (const bool whole : {false, true})
          expect_sound(c, choose_placement(c.loads(), c.holders, {.whole_sources = whole}), whole);
        std::fill(c.rows_SE.begin(), c.rows_SE.end(), 0);  // nothing at all
        EXPECT_TRUE(choose_placement(c.loads(), c.holders, {}).replicas().empty());
        for (int64_t s = 0; s < 6 * slices; ++s)
          c.rows_SE[static_cast<size_t>(s * c.experts + 7)] = 30;  // one takes all
        const Placement one = choose_placement(c.loads(), c.holders, {});
        expect_sound(c, one, false);
        EXPECT_EQ(one.replicas().size(), 5u) << "every other holder has a copy";
        EXPECT_LE(imbalance_placement(one.rows_of(c.loads())), 1.1);
      }
    }
  }
}

TEST(Placement, RowsStayWhereTheyAreIfTheyCan) {
  Case c{{1, 1, nodes_of_placement(4, 2)}, 4, {}};
  c.rows_SE = {10, 0, 0, 0, 10, 0, 0, 0, 10, 0, 0, 0, 10, 0, 0, 0};  // all of expert 0
  const Placement p = choose_placement(c.loads(), c.holders, {});
  ASSERT_EQ(p.replicas().size(), 3u);
  for (const Placement::Replica& replica : p.replicas()) {
    std::vector<int64_t> own(4, 0);
    own[static_cast<size_t>(replica.holder)] = 10;
    EXPECT_EQ(replica.rows_S, own);
  }
}

// Every holder gets every byte once, and from one who has it; an owner's link carries an expert once a node.
TEST(Placement, OwnersHandANodeAnExpertOnce) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Case c = zipf_placement(16, 4, 1, 3, 64, 1.5, seed);
    const Placement p = choose_placement(c.loads(), c.holders, {});
    ASSERT_FALSE(p.replicas().empty());
    constexpr int64_t kBytes = 1000;
    std::map<std::pair<int64_t, int64_t>, int64_t> received, first;  // by expert and holder
    std::map<std::pair<int64_t, int>, int64_t> handed;               // by the owner: expert and node
    for (const Handover& h : handovers(p.expert_of_slot(), c.holders)) {
      const PartBytes part = part_of(kBytes, h.part, h.parts);
      received[{h.expert, h.to}] += part.bytes;
      if (h.relayed) {
        EXPECT_TRUE(c.holders.near(h.from, h.to));
        EXPECT_EQ(first.at({h.expert, h.from}), part.offset) << "hands on what it has";
      } else {
        EXPECT_EQ(h.from, p.owner(h.expert));
        first[{h.expert, h.to}] = part.offset;
        handed[{h.expert, c.holders.node_of[static_cast<size_t>(h.to)]}] += part.bytes;
      }
    }
    EXPECT_EQ(received.size(), p.replicas().size());
    for (const auto& [of, bytes] : received) EXPECT_EQ(bytes, kBytes);
    for (const auto& [of, bytes] : handed) EXPECT_EQ(bytes, kBytes);
  }
}

TEST(Placement, CopiesAreMadeWhereTheyPay) {
  const Case c = zipf_placement(8, 4, 1, 2, 64, 1.0, 3);
  CopyCosts costs{.row_ps = 1000, .row_within_ps = 10, .row_across_ps = 100};
  const auto replicas = [&](const CopyCosts& at) {
    return choose_placement(c.loads(), c.holders, {at}).replicas();
  };
  EXPECT_FALSE(replicas(costs).empty());
  costs.replica_within_ps = costs.replica_across_ps = int64_t{1} << 50;
  EXPECT_TRUE(replicas(costs).empty()) << "no row is worth that";
  costs.replica_within_ps = 0;  // within a node only
  const auto near = replicas(costs);
  EXPECT_FALSE(near.empty());
  for (const Placement::Replica& replica : near) EXPECT_EQ(replica.expert / 8 / 4, replica.holder / 4);
  // An even load has none, whatever they cost.
  Case even = c;
  std::fill(even.rows_SE.begin(), even.rows_SE.end(), 100);
  EXPECT_TRUE(choose_placement(even.loads(), even.holders, {}).replicas().empty());
}

// By hand: rows that one rank sheds save so much of its time; a copy costs the link as much as its break-even,
// beyond what the even share's products hide.
TEST(Placement, TheBreakEvenIsWhereItIsByHand) {
  Case c{{1, 1, {0, 0}}, 2, {}};
  c.rows_SE = {100, 0, 100, 0};  // holder 0 has 200 rows, 1 none; 100 of them would come from where they'd stay
  // Without: 200 rows of 10, and 100 rows cross. With: 100 rows, none crosses, but a copy does.
  CopyCosts costs{.row_ps = 10, .row_within_ps = 3};
  const int64_t saved = 100 * 10 + 100 * 3, hidden = 100 * 10;
  costs.replica_within_ps = 2 * (saved + hidden) - 2;  // half of it each way
  EXPECT_EQ(choose_placement(c.loads(), c.holders, {costs}).replicas().size(), 1u);
  costs.replica_within_ps += 2;
  EXPECT_TRUE(choose_placement(c.loads(), c.holders, {costs}).replicas().empty());
  // Rows that are worth little: then a sixth of the copy, which is awaited, is more than they save.
  Case few{{1, 1, {0, 0}}, 4, {}};
  few.rows_SE = {600, 600, 500, 500, 600, 600, 500, 500};  // 2400 rows and 2000
  costs = {.row_ps = 10};
  costs.replica_within_ps = 6 * 200 * 10 - 6;
  EXPECT_EQ(choose_placement(few.loads(), few.holders, {costs}).replicas().size(), 1u);
  costs.replica_within_ps = 6 * 200 * 10;
  EXPECT_TRUE(choose_placement(few.loads(), few.holders, {costs}).replicas().empty());
}

}  // namespace
}  // namespace heddle::comm
