// The validator: peaks from order alone, room between ranks, and that no mutation slips through.
#include "heddle/schedule/validate.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "heddle/base/error.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/schedule/generators/interleaved.h"
#include "heddle/schedule/text.h"
#include "heddle/schedule/timing.h"

namespace heddle::schedule {
namespace {

std::string refusal_validate(const Schedule& s, const Requirements& requirements = {}) {
  try {
    validate(s, requirements);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// Whether a schedule may be run, found without needs(), links or the validator: the definition, slowly.
bool legal(const Schedule& s) {
  const Placement& p = s.placement;
  if (std::ssize(s.order) != p.ranks) return false;
  std::map<std::tuple<char, int, int>, int> times;
  const auto count = [&](const Compute& c) {
    if (c.kind == Kind::B) {
      ++times[{'I', c.stage, c.microbatch}];
      ++times[{'W', c.stage, c.microbatch}];
    } else {
      ++times[{letter_of(c.kind), c.stage, c.microbatch}];
    }
  };
  std::map<int, int> last_sum;  // of each stage the microbatch of its latest weight gradient
  for (int r = 0; r < p.ranks; ++r) {
    for (const Action& a : s.order[static_cast<size_t>(r)]) {
      if (a.with && (a.first.kind != Kind::F || a.with->kind == Kind::F || a.with->kind == Kind::W)) return false;
      for (const Compute& c : parts_of(a)) {
        if (c.stage < 0 || c.stage >= std::ssize(p.rank_of) || p.rank_of[static_cast<size_t>(c.stage)] != r)
          return false;
        count(c);
        if (c.kind == Kind::W || c.kind == Kind::B) {
          const auto [at, fresh] = last_sum.try_emplace(c.stage, c.microbatch);
          if (!fresh && at->second > c.microbatch) return false;
          at->second = c.microbatch;
        }
      }
    }
  }
  size_t wanted = 0;
  for (int stage = 0; stage < std::ssize(p.rank_of); ++stage) {
    const int half = p.routes == 2 ? s.microbatches / 2 : s.microbatches;
    const int from = stage >= p.stages ? half : 0, to = stage >= p.stages ? s.microbatches : half;
    for (int m = from; m < to; ++m) {
      for (const char kind : {'F', 'I', 'W'}) {
        if (times[{kind, stage, m}] != 1) return false;
        ++wanted;
      }
    }
  }
  if (times.size() != wanted) return false;
  std::set<std::tuple<char, int, int>> done;
  std::vector<size_t> next(s.order.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < s.order.size(); ++r) {
      while (next[r] < s.order[r].size()) {
        bool ready = true;
        const Action& a = s.order[r][next[r]];
        for (const Compute& c : parts_of(a)) {
          const bool first = c.stage % p.stages == 0, last = c.stage % p.stages == p.stages - 1;
          if (c.kind == Kind::F) {
            ready &= first || done.contains({'F', c.stage - 1, c.microbatch});
          } else if (c.kind == Kind::W) {
            ready &= done.contains({'I', c.stage, c.microbatch});
          } else {
            ready &= done.contains({'F', c.stage, c.microbatch});
            ready &= last || done.contains({'I', c.stage + 1, c.microbatch});
          }
        }
        if (!ready) break;
        for (const Compute& c : parts_of(a)) {
          if (c.kind == Kind::B) {
            done.insert({'I', c.stage, c.microbatch});
            done.insert({'W', c.stage, c.microbatch});
          } else {
            done.insert({letter_of(c.kind), c.stage, c.microbatch});
          }
        }
        ++next[r];
        moved = true;
      }
    }
  }
  for (size_t r = 0; r < s.order.size(); ++r) {
    if (next[r] < s.order[r].size()) return false;
  }
  return true;
}

// From a to b − 1, all alike likely whatever the size of the case.
template <class Number = int>
Number draw(Number a, Number b) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<Number>(a, b));
}

// A schedule by name with drawn sizes; those that a generator refuses are drawn again.
Schedule drawn() {
  const auto& all = generators();
  for (;;) {
    const Generator& g = all[draw<size_t>(0, all.size())];
    GeneratorOptions options;
    options.ranks = draw(1, 6);
    options.microbatches = draw(1, 14);
    if (g.any_chunks) {
      options.chunks = draw(2, 4);
      options.group = options.ranks + draw(0, 3);
    }
    try {
      return make_schedule(g.name, options);
    } catch (const ConfigError&) {
    }
  }
}

RC_GTEST_PROP(Validate, AcceptsEveryGeneratedSchedule, ()) {
  const Schedule s = drawn();
  RC_ASSERT(refusal_validate(s).empty());
  RC_ASSERT(legal(s));
  RC_ASSERT(read_schedule(text_of(s)) == s);
}

void mutate(Schedule& s) {
  for (int changes = draw(1, 3); changes > 0; --changes) {
    auto& list = s.order[draw<size_t>(0, s.order.size())];
    if (list.empty()) continue;
    const size_t at = draw<size_t>(0, list.size());
    const auto position = static_cast<std::ptrdiff_t>(at);
    switch (draw(0, 7)) {
      case 0: {  // swap with a near one
        const size_t other = std::min(list.size() - 1, at + draw<size_t>(1, 4));
        std::swap(list[at], list[other]);
        break;
      }
      case 1: list.erase(list.begin() + position); break;
      case 2: {  // a copy somewhere
        const Action again = list[at];
        list.insert(list.begin() + draw<std::ptrdiff_t>(0, std::ssize(list) + 1), again);
        break;
      }
      case 3: {  // to another rank
        const Action moved = list[at];
        list.erase(list.begin() + position);
        auto& other = s.order[draw<size_t>(0, s.order.size())];
        other.insert(other.begin() + draw<std::ptrdiff_t>(0, std::ssize(other) + 1), moved);
        break;
      }
      case 4: list[at].first.kind = static_cast<Kind>(draw(0, 4)); break;
      case 5: {
        Compute& c = list[at].with ? *list[at].with : list[at].first;
        c.microbatch += draw(-1, 2);
        c.stage += draw(-1, 2) * s.placement.ranks;
        break;
      }
      case 6: {  // join with the next, or split
        if (list[at].with) {
          const Compute second = *list[at].with;
          list[at].with.reset();
          list.insert(list.begin() + position + 1, {second, {}});
        } else if (at + 1 < list.size() && !list[at + 1].with) {
          list[at].with = list[at + 1].first;
          list.erase(list.begin() + position + 1);
        }
        break;
      }
    }
  }
}

RC_GTEST_PROP(Validate, JudgesEveryMutationAsTheDefinitionDoes, ()) {
  const Schedule made = drawn();
  for (int i = 0; i < 10; ++i) {
    Schedule s = made;
    mutate(s);
    const bool accepted = refusal_validate(s).empty();
    RC_CLASSIFY(accepted && s != made, "legal");
    RC_ASSERT(accepted == legal(s));
  }
  RC_CLASSIFY(made.placement.ranks >= 4, "four ranks or more");
  RC_CLASSIFY(made.microbatches >= 8, "eight microbatches or more");
}

// Whether the ranks get through when a channel holds so many messages, by counting what each has sent and taken; at
// every moment a drawn rank goes on. Knows what moves between ranks by itself: F to the next stage, I to the one
// before.
bool gets_through(const Schedule& s, int room) {
  const Placement& p = s.placement;
  const size_t ranks = s.order.size();
  using Key = std::tuple<int, int, bool>;                  // from, to, forward
  std::map<Key, std::map<std::pair<int, int>, int>> sent;  // (stage, microbatch): how many were sent before it
  std::map<Key, int> taken;
  std::vector<std::vector<std::pair<Key, int>>> unplaced(ranks);  // of each rank's last action
  std::vector<size_t> next(ranks, 0);
  const auto rank_of = [&](int stage) { return p.rank_of[static_cast<size_t>(stage)]; };
  const auto step = [&](size_t r) {
    if (next[r] == s.order[r].size()) return false;
    for (const auto& [key, index] : unplaced[r]) {
      if (index >= taken[key] + room) return false;
    }
    const int here = static_cast<int>(r);
    const Parts parts = parts_of(s.order[r][next[r]]);
    std::vector<std::pair<Key, int>> takes;
    for (const Compute& c : parts) {
      const bool forward = c.kind == Kind::F;
      if (c.kind == Kind::W || (forward ? p.is_first(c.stage) : p.is_last(c.stage))) continue;
      const int from = c.stage + (forward ? -1 : 1);
      const Key key{rank_of(from), here, forward};
      const auto found = sent[key].find({from, c.microbatch});
      if (found == sent[key].end()) return false;
      if (rank_of(from) != here) takes.emplace_back(key, found->second);
    }
    for (const auto& [key, index] : takes) taken[key] = std::max(taken[key], index + 1);
    unplaced[r].clear();
    for (const Compute& c : parts) {
      const bool forward = c.kind == Kind::F;
      if (c.kind == Kind::W || (forward ? p.is_last(c.stage) : p.is_first(c.stage))) continue;
      const Key key{here, rank_of(c.stage + (forward ? 1 : -1)), forward};
      const int index = static_cast<int>(sent[key].size());
      sent[key][{c.stage, c.microbatch}] = index;
      if (std::get<1>(key) != here) unplaced[r].emplace_back(key, index);
    }
    ++next[r];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    const size_t first = draw<size_t>(0, ranks);
    for (size_t i = 0; i < ranks; ++i) moved |= step((first + i) % ranks);
  }
  for (size_t r = 0; r < ranks; ++r) {
    if (next[r] < s.order[r].size()) return false;
  }
  return true;
}

// The room that is printed suffices, one less does not; legal mutations need more than generated schedules do.
RC_GTEST_PROP(Validate, LeastBuffersSufficeAndOneLessDoesNot, ()) {
  Schedule s = drawn();
  for (int i = 0; i < 20; ++i) {
    Schedule other = s;
    mutate(other);
    if (refusal_validate(other).empty()) s = other;
  }
  const int least = validate(s).least_buffers;
  RC_CLASSIFY(least > 1, "one message is too few");
  if (least == 0) return;
  RC_ASSERT(gets_through(s, least));
  RC_ASSERT(refusal_validate(s, {.buffers = least}).empty());
  if (least == 1) return;
  RC_ASSERT(!gets_through(s, least - 1));
  RC_ASSERT(!refusal_validate(s, {.buffers = least - 1}).empty());
}

double peak_validate(const std::string& name, int P, int m, int rank, const StageBytes& of, int chunks = 0) {
  const Schedule s = make_schedule(name, {.ranks = P, .microbatches = m, .chunks = chunks});
  return validate(s, {.bytes = even_bytes(s.placement, of)}).peaks[static_cast<size_t>(rank)].bytes;
}

TEST(Validate, PeaksOfTheFormulas) {
  const StageBytes until_i{1, 0}, until_w{0, 1};
  for (const int P : {2, 3, 4, 8, 16}) {
    for (const int m : {2 * P - 1, 2 * P, 3 * P, 4 * P}) {
      for (int r = 0; r < P; ++r) {
        const std::string where = fmt::format("P {} m {} r {}", P, m, r);
        EXPECT_EQ(peak_validate("gpipe", P, m, r, until_w), m) << where;
        EXPECT_EQ(peak_validate("1f1b", P, m, r, until_w), P - r) << where;
        EXPECT_EQ(peak_validate("zb_h1", P, m, r, until_i), P - r) << where;
        EXPECT_EQ(peak_validate("zb_h1", P, m, r, until_w), P) << where;  // P − r whole ones and r for W alone
        EXPECT_EQ(peak_validate("zb_h2", P, m, r, until_i), 2 * P - 1 - 2 * r) << where;
        EXPECT_EQ(peak_validate("zb_h2", P, m, r, until_w), 2 * P - 1) << where;
        for (const int v : {2, 4}) {
          if (m % P != 0) continue;
          const double vpp = ((v - 1.0) * P + 2 * (P - 1 - r) + 1) / v;
          EXPECT_EQ(peak_validate("interleaved", P, m, r, until_w, v), vpp) << where;
          EXPECT_EQ(peak_validate("interleaved_fused", P, m, r, until_w, v), vpp + 1.0 / v) << where;
        }
      }
    }
  }
}

TEST(Validate, PeakTellsWhatOnlyWeightGradientsRead) {
  const Schedule s = make_schedule("zb_h1", {.ranks = 4, .microbatches = 12});
  const Certificate c = validate(s, {.bytes = even_bytes(s.placement, {10, 90})});
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(c.peaks[static_cast<size_t>(r)].bytes, (4 - r) * 100 + r * 90);
    EXPECT_EQ(c.peaks[static_cast<size_t>(r)].for_weight_grad, r * 90);
  }
}

TEST(Validate, SaysWhatIsWrong) {
  const std::string head = "x ranks=2 stages=2 microbatches=2 placement=loop\n";
  const auto of = [&](const std::string& lists) { return refusal_validate(read_schedule(head + lists)); };
  EXPECT_EQ(of("r0 F0 F1 B0 B1\nr1 F0 B0 F1 B1\n"), "");
  EXPECT_EQ(of("r0 F0 F1 B0 I1\nr1 F0 B0 F1 B1\n"), "schedule x: W of stage 0, microbatch 1 is missing");
  EXPECT_EQ(of("r0 F0 F1 B0 B1 W1\nr1 F0 B0 F1 B1\n"),
            "schedule x: rank 0, action 5: W of stage 0, microbatch 1 a second time");
  EXPECT_EQ(of("r0 F0 F1 B0 B1\nr1 F0 B0 B1\n"),
            "schedule x: B of stage 1, microbatch 1 needs F of stage 1, which no rank computes");
  EXPECT_EQ(
      of("r0 F0 F1 B1 B0\nr1 F0 F1 B1 B0\n"),
      "schedule x: the weight gradient of microbatch 1 before that of 0 on stage 0, accepted in increasing order");
  EXPECT_EQ(of("r0 F0 [F1|W0] I0 B1\nr1 F0 B0 F1 B1\n"),
            "schedule x: rank 0, action 2: a pair of F and W, accepted F and B, or F and I");
  EXPECT_EQ(of("r0 F0 B0 F1 B1\nr1 F0 F1 B0 B1\n"),
            "schedule x: it can't go on, every rank waits:\n"
            "r0 F0 >B0< F1 B1  waits for B0 of rank 1\n"
            "r1 F0 >F1< B0 B1  waits for F1 of rank 0\n");
  EXPECT_EQ(of("r0 F0 [F1|B1] B0\nr1 F0 F1 B0 B1\n"),
            "schedule x: it can't go on, every rank waits:\n"
            "r0 F0 >[F1|B1]< B0  waits for [F1|B1] of rank 0, B1 of rank 1\n"
            "r1 F0 >F1< B0 B1  waits for [F1|B1] of rank 0\n");
  Requirements any_sums;
  any_sums.same_sums = false;
  const Schedule backwards = read_schedule(head + "r0 F0 F1 B1 B0\nr1 F0 F1 B1 B0\n");
  EXPECT_EQ(validate(backwards, any_sums).out_of_order,
            "the weight gradient of microbatch 1 before that of 0 on stage 0");
}

// Rank 0 sends three forwards before the first comes back; rank 1 finishes one microbatch before it takes the next.
TEST(Validate, RoomBetweenRanks) {
  const Schedule s = read_schedule(
      "x ranks=2 stages=4 microbatches=3 placement=v\n"
      "r0 F0.0 F0.1 F0.2 F1.0 B1.0 B0.0 F1.2 F1.1 B1.1 B0.1 B1.2 B0.2\n"
      "r1 F0.0 F1.0 B1.0 B0.0 F0.1 F0.2 F1.1 F1.2 B1.1 B0.1 B1.2 B0.2\n");
  const Certificate c = validate(s);
  ASSERT_EQ(c.channels.size(), 4U);
  EXPECT_EQ(c.channels[0].messages, 3);
  EXPECT_EQ(c.channels[0].most_early, 0);
  EXPECT_EQ(c.channels[2].most_early, 1);  // microbatch 1 comes first and is used second
  EXPECT_EQ(c.least_buffers, 2);
  EXPECT_EQ(refusal_validate(s, {.buffers = 2}), "");
  EXPECT_EQ(refusal_validate(s, {.buffers = 1}),
            "schedule x: with room for 1 messages between two ranks it can't go on, accepted 2 or more:\n"
            "r0 F0.0 F0.1 F0.2 >F1.0< B1.0 B0.0 F1.2 F1.1 …  waits for room for F0.2 on the way to rank 1\n"
            "r1 F0.0 F1.0 >B1.0< B0.0 F0.1 F0.2 F1.1 …  waits for B1.0 of rank 0\n");
}

// Generation, proof and timing of 64 ranks × 512 microbatches × 8 stages a rank: well below a second.
TEST(Validate, PlansLargePipelinesInTime) {
  const auto start = std::chrono::steady_clock::now();
  const Schedule s = make_schedule("interleaved", {.ranks = 64, .microbatches = 512, .chunks = 8});
  const Certificate c = validate(s);
  const Timing t = timing_of(s, even_times(s.placement));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_NEAR(t.synchronous(), 63 * 3 / 8.0, 1e-6);
  EXPECT_EQ(c.peaks[0].bytes, 64 + 63 / 8.0);
  EXPECT_LT(seconds, 5) << "the limit leaves room for sanitizers and busy machines";
  RecordProperty("milliseconds", static_cast<int>(seconds * 1e3));
}

}  // namespace
}  // namespace heddle::schedule
