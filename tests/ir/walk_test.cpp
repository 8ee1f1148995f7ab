// The walk in a tight arena: reused storage is waited for, what doesn't fit is told, and the walk can go on
// afterwards.
#include "heddle/ir/walk/walk.h"

#include <gtest/gtest.h>

#include "heddle/passes/host/offload.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::test {
namespace {

struct Prepared {
  model::ModelConfig config = tiny_model();
  plan::Plan plan;
  std::vector<Batch> batches;
  Prepared(int pipeline, int experts, bool fused, uint64_t seed)
      : plan(tiny_plan(pipeline, experts, fused)), batches(tiny_batches(config, plan, seed)) {}
};

// Every accumulator and statistic of every rank.
std::vector<std::vector<double>> results(TinyRun& run) {
  std::vector<std::vector<double>> all;
  for (int r = 0; r < run.plan().ranks(); ++r) {
    for (const ir::Value& value : run.listing(r).values) {
      if (value.role == ir::Role::accumulator || value.role == ir::Role::statistic)
        all.push_back(run.read(r, value.name));
    }
  }
  return all;
}

// The smallest arena in which every rank's step fits, to 128 bytes.
int64_t least_capacity(TinyRun& run, const RowsSeen& rows) {
  int64_t least = 0;
  const auto fits_all = [&](int64_t capacity) {
    for (int r = 0; r < run.plan().ranks(); ++r) {
      simulate::RecordOptions options;
      options.scratch_bytes = scratch_of(run);
      options.rows = rows.read();
      options.capacity_bytes = capacity;
      try {
        simulate::record(run.lowered().program, r, options);
      } catch (const ir::OutOfMemory&) {
        return false;
      }
    }
    return true;
  };
  for (int r = 0; r < run.plan().ranks(); ++r) {
    simulate::RecordOptions options;
    options.scratch_bytes = scratch_of(run);
    options.rows = rows.read();
    const int64_t peak = simulate::record(run.lowered().program, r, options).peak_live_bytes;
    int64_t fails = peak - ir::kStorageAlignment, fits = 2 * peak;
    while (fits - fails > ir::kStorageAlignment) {
      options.capacity_bytes = (fails + fits) / 2 / ir::kStorageAlignment * ir::kStorageAlignment;
      try {
        simulate::record(run.lowered().program, r, options);
        fits = options.capacity_bytes;
      } catch (const ir::OutOfMemory&) {
        fails = options.capacity_bytes;
      }
    }
    EXPECT_LT(fits, peak + peak / 6);  // of a tiny model: the lists of an exchange are large beside its values
    least = std::max(least, fits);
  }
  // More room can lay values out worse: what is least for one rank may be too little for another that needs less.
  while (!fits_all(least)) least += ir::kStorageAlignment;
  return least;
}

TEST(Walk, ATightArenaGivesTheSameBits) {
  for (const uint64_t seed : {11, 12}) {
    for (const auto& [pipeline, experts] : {std::pair{1, 1}, {2, 2}, {1, 4}}) {
      const Prepared p(pipeline, experts, seed % 2 == 0, seed);
      TinyRun roomy(p.config, p.plan, "reference", 1 << 24);
      fill(roomy, p.config, seed);
      RowsSeen rows;
      rows.run(roomy, p.batches);
      const std::vector<std::vector<double>> expected = results(roomy);
      const int64_t capacity = least_capacity(roomy, rows);
      TinyRun tight(p.config, p.plan, "reference", capacity);
      fill(tight, p.config, seed);
      tight.run(p.batches);
      const std::vector<std::vector<double>> found = results(tight);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], expected[i]) << i;  // NaN would differ, too
    }
  }
}

// An arena that is foretold far too small grows while streams run in it, with one end or two, and nothing else
// changes.
TEST(Walk, AnArenaThatGrowsGivesTheSameBits) {
  for (const char* offload : {"", "input"}) {
    for (const auto& [pipeline, experts] : {std::pair{1, 1}, {2, 2}, {1, 4}}) {
      Prepared p(pipeline, experts, true, 13);
      p.plan.memory.offload = passes::offload_groups(offload);
      TinyRun roomy(p.config, p.plan, "reference", 1 << 24);
      fill(roomy, p.config, 13);
      roomy.run(p.batches);
      const ir::Storage& storage = roomy.executor(0).walk().storage();
      const int64_t predicted = (2 * roomy.executor(0).walk().persistent_bytes() + storage.peak_live_bytes()) / 3;
      TinyRun grown(p.config, p.plan, "reference", predicted, 1, true, {}, 1 << 24);
      fill(grown, p.config, 13);
      grown.run(p.batches);
      EXPECT_GT(grown.executor(0).walk().storage().grown_bytes(), 0) << offload;
      EXPECT_EQ(results(grown), results(roomy)) << offload;
      TinyRun limited(p.config, p.plan, "reference", predicted, 1, true, {}, predicted + ir::kStorageAlignment);
      fill(limited, p.config, 13);
      EXPECT_THROW(limited.run(p.batches), Error);
    }
  }
}

TEST(Walk, TheArenaIsAsLargeInEveryStepAsInTheFirst) {
  for (const auto& [pipeline, experts] : {std::pair{1, 1}, {2, 2}}) {
    const Prepared p(pipeline, experts, true, 3);
    TinyRun run(p.config, p.plan, "reference", 1 << 24);
    fill(run, p.config, 3);
    RowsSeen rows;
    rows.run(run, p.batches);
    for (int r = 0; r < p.plan.ranks(); ++r) {
      simulate::RecordOptions options;
      options.scratch_bytes = scratch_of(run);
      options.rows = rows.read();
      const int64_t first = simulate::record(run.lowered().program, r, options).reserved_bytes;
      for (const int steps : {2, 3, 20}) {
        options.steps = steps;
        EXPECT_EQ(simulate::record(run.lowered().program, r, options).reserved_bytes, first) << steps << " steps";
      }
    }
  }
}

TEST(Walk, OutOfMemoryNamesTheLargestTensors) {
  const Prepared p(1, 1, true, 4);
  TinyRun run(p.config, p.plan, "reference", 1 << 24);
  simulate::RecordOptions options;
  options.scratch_bytes = scratch_of(run);
  options.keep_peak = true;
  const simulate::Recording whole = simulate::record(run.lowered().program, 0, options);
  options.capacity_bytes = whole.peak_live_bytes - ir::kStorageAlignment;
  try {
    simulate::record(run.lowered().program, 0, options);
    FAIL() << "it fits";
  } catch (const ir::OutOfMemory& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("out of device memory: '"), std::string::npos) << what;
    EXPECT_NE(what.find("capacity"), std::string::npos) << what;
    EXPECT_NE(what.find(whole.live_at_peak[0].name + " "), std::string::npos) << what;
  }
  // Not even the weights fit.
  options.capacity_bytes = whole.persistent_bytes / 2;
  EXPECT_THROW(simulate::record(run.lowered().program, 0, options), ir::OutOfMemory);
}

// Asks for more scratch than there is, once, half way through a step.
class GreedyOnce : public ir::Issuer {
 public:
  int64_t scratch_bytes(int, uint32_t, const ir::RowCounts&) override { return ++asked == 100 ? 1 << 30 : 0; }
  void issue(const ir::Issue& issue) override { last_count = issue.count; }
  int64_t read_rows(const ir::Issue&, size_t) override { return 0; }
  int asked = 0;
  uint64_t last_count = 0;
};

TEST(Walk, AStepAfterOutOfMemoryWorks) {
  const ir::StepProgram program = plan::lower(tiny_model(), tiny_plan(1, 1, true)).program;
  ir::Walk walk(program, 0, 1 << 23);
  GreedyOnce issuer;
  EXPECT_THROW(walk.run_step(issuer), ir::OutOfMemory);
  EXPECT_EQ(walk.storage().live_bytes(), walk.persistent_bytes());
  walk.run_step(issuer);
  EXPECT_EQ(walk.storage().live_bytes(), walk.persistent_bytes());
  const int64_t peak = walk.storage().peak_live_bytes();
  ir::Walk fresh(program, 0, 1 << 23);
  GreedyOnce content;
  content.asked = 1000;
  fresh.run_step(content);
  EXPECT_EQ(fresh.storage().peak_live_bytes(), peak);
}

// On real streams: the arena is too small, the executor says so and lives on.
TEST(Walk, AnExecutorOutlivesOutOfMemory) {
  const Prepared p(1, 1, true, 6);
  plan::Plan plan = p.plan;
  plan.evaluates = true;
  TinyRun roomy(p.config, plan, "reference", 1 << 24);
  simulate::RecordOptions options;
  options.scratch_bytes = scratch_of(roomy);
  options.capacity_bytes = 1 << 24;
  const int64_t peak = simulate::record(roomy.lowered().program, 0, options).peak_live_bytes;
  options.purpose = ir::Purpose::evaluate;
  options.scratch_bytes = {};
  const int64_t evaluation = simulate::record(roomy.lowered().program, 0, options).peak_live_bytes;
  ASSERT_LT(evaluation, peak);
  TinyRun tight(p.config, plan, "reference", peak - ir::kStorageAlignment);
  fill(roomy, p.config, 6);
  fill(tight, p.config, 6);
  const auto loss_of = [&](TinyRun& run) {
    runtime::Executor& executor = run.executor(0);
    executor.run_step(inputs_of(p.batches[0], executor, ir::Purpose::evaluate), ir::Purpose::evaluate);
    const ir::Listing& listing = run.lowered().program.listings[1];
    return TinyRun::get(run.executor(0).view(1, listing.find("loss.next_token")), 0);
  };
  EXPECT_THROW(tight.executor(0).run_step(inputs_of(p.batches[0], tight.executor(0))), ir::OutOfMemory);
  EXPECT_EQ(loss_of(tight), loss_of(roomy));
  EXPECT_THROW(tight.executor(0).run_step(inputs_of(p.batches[0], tight.executor(0))), ir::OutOfMemory);
  EXPECT_EQ(loss_of(tight), loss_of(roomy));
}

}  // namespace
}  // namespace heddle::test
