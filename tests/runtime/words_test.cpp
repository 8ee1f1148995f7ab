// Real steps whose programs were changed by hand: products in panels, activations that are dropped where many rows
// come and made again, state that is copied to memory that outlives the run. The bits stay.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "heddle/ir/verify/verify.h"
#include "heddle/ops/ops.h"
#include "heddle/runtime/predict.h"
#include "heddle/schedule/lower.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::test {
namespace {

constexpr uint64_t kSeed = 5;

// After its ops were changed: the blocks of training anew.
void take_in(plan::Lowered& lowered, const plan::Plan& plan) {
  ir::StepProgram& program = lowered.program;
  for (auto& lists : program.actions) lists.clear();
  program.blocks.clear();
  schedule::lower(program, program.actions[0], plan::schedule_of(plan));
  program.listings.resize(static_cast<size_t>(plan.mesh.pp));
  ir::verify(program);
}

// Accumulators and statistics of every rank, by name: a changed program may have them in other places.
std::map<std::string, std::vector<double>> results(TinyRun& run) {
  std::map<std::string, std::vector<double>> all;
  for (int r = 0; r < run.plan().ranks(); ++r) {
    for (const ir::Value& value : run.listing(r).values) {
      const bool sums = value.role == ir::Role::accumulator || value.role == ir::Role::statistic;
      if (sums && value.part_of == ir::none)
        all[fmt::format("{} of rank {}", value.name, r)] = run.read(r, value.name);
    }
  }
  return all;
}

struct Result {
  std::map<std::string, std::vector<double>> values;
  int64_t peak_bytes = 0;  // of the rank that has most
  int64_t ops = 0;         // that were run
};

Result result(const plan::Plan& plan, const std::function<void(ir::Listing&)>& change, int steps = 1) {
  const model::ModelConfig config = tiny_model();
  const auto edit = [&](plan::Lowered& lowered) {
    for (int r = 0; r < plan.mesh.pp; ++r) {
      if (change) change(lowered.program.listings[static_cast<size_t>(r)]);
    }
    take_in(lowered, plan);
  };
  // What makes weights anew belongs to the blocks that are gone: a tiny model has its weights as their own masters.
  TinyRun run(config, plan, "reference", 1 << 24, 1, true, {}, 0, edit);
  fill(run, config, kSeed);
  for (int step = 0; step < steps; ++step) run.run(tiny_batches(config, plan, kSeed + static_cast<uint64_t>(step)));
  Result found{results(run)};
  for (int r = 0; r < plan.ranks(); ++r) found.ops += run.executor(r).enqueued_ops();
  for (int r = 0; r < plan.ranks(); ++r)
    found.peak_bytes = std::max(found.peak_bytes, run.executor(r).walk().storage().peak_live_bytes());
  return found;
}

// Every linear of F as two products of half of the rows.
void cut_linears(ir::Listing& listing, int64_t at) {
  std::vector<ir::Op> ops;
  for (const ir::Op& whole : listing.ops) {
    if (whole.kind() != "linear" || whole.phase != ir::Phase::F) {
      ops.push_back(whole);
      continue;
    }
    const int64_t rows = listing.value(whole.out[0]).shape[0].count;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, at}, {at, rows}}) {
      ir::Op op = whole;
      op.in[0] = listing.rows(whole.in[0], begin, end);
      op.out[0] = listing.rows(whole.out[0], begin, end);
      ops.push_back(op);
    }
  }
  listing.ops = std::move(ops);
}

TEST(Words, ProductsInPanelsHaveTheSameBits) {
  for (const auto& [pipeline, experts] : {std::pair{1, 1}, {2, 2}}) {
    const plan::Plan plan = tiny_plan(pipeline, experts, true);
    const Result whole = result(plan, {});
    for (const int64_t at : {1, 8, 15}) {
      const Result cut = result(plan, [&](ir::Listing& listing) { cut_linears(listing, at); });
      EXPECT_EQ(cut.values, whole.values) << at;
      EXPECT_EQ(cut.peak_bytes, whole.peak_bytes) << at;
    }
  }
}

// What the experts' first product makes is dropped behind its last reader in F where more than `limit` rows came,
// and made again before I reads it.
void drop_where_many(ir::Listing& listing, int64_t limit) {
  std::vector<ir::Op> ops = listing.ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    const ir::Op made = ops[i];
    if (made.phase != ir::Phase::F || !made.kind().starts_with("grouped_linear") || made.again) continue;
    const ir::ValueId y = made.out[0];
    const ir::ValueId n = listing.value(y).shape[0].rows_of;
    if (n == ir::none) continue;
    const auto reads = [&](const ir::Op& op) { return std::find(op.in.begin(), op.in.end(), y) != op.in.end(); };
    size_t last = i, first_behind = ops.size();
    for (size_t j = i + 1; j < ops.size(); ++j) {
      if (!reads(ops[j])) continue;
      if (ops[j].phase == ir::Phase::F) last = j;
      if (ops[j].phase != ir::Phase::F) first_behind = std::min(first_behind, j);
    }
    if (first_behind == ops.size()) continue;
    ir::Op again = made;
    again.phase = ops[first_behind].phase;
    again.again = true;
    again.condition = {n, limit, true};
    ir::Op drop;
    drop.def = &ops::find("drop");
    drop.in = {y};
    drop.layer = made.layer;
    drop.condition = again.condition;
    ops.insert(ops.begin() + static_cast<long>(first_behind), again);
    ops.insert(ops.begin() + static_cast<long>(last) + 1, drop);
    ++i;
  }
  listing.ops = std::move(ops);
}

TEST(Words, WhatIsDroppedByADecisionAndMadeAgainHasTheSameBits) {
  for (const auto& [pipeline, experts] : {std::pair{1, 2}, {2, 2}, {1, 4}}) {
    const plan::Plan plan = tiny_plan(pipeline, experts, true);
    const Result kept = result(plan, {}, 2);
    std::vector<int64_t> more;  // ops, by limit
    for (const int64_t limit : {0, 20, 30, 40, 1000}) {
      const Result dropped = result(
          plan, [&](ir::Listing& listing) { drop_where_many(listing, limit); }, 2);
      EXPECT_EQ(dropped.values, kept.values) << limit;
      EXPECT_LE(dropped.peak_bytes, kept.peak_bytes) << limit;
      more.push_back(dropped.ops - kept.ops);
    }
    EXPECT_GT(more.front(), 0);  // all were made again
    EXPECT_EQ(more.back(), 0);   // none
    EXPECT_TRUE(std::is_sorted(more.rbegin(), more.rend()));
    EXPECT_GT(std::set<int64_t>(more.begin(), more.end()).size(), 2u);  // some, here and there
  }
}

// The forecast takes the worse outcome: what is dropped beyond a limit is there as a whole at the limit.
TEST(Words, ThePredictionCountsBothOutcomes) {
  model::ModelConfig config = tiny_model();
  config.moe_intermediate_size = 512;  // what the experts make is most of a step
  const plan::Plan plan = tiny_plan(1, 4, true);
  const auto peak = [&](int64_t limit) {
    plan::Lowered lowered = plan::lower(config, plan);
    if (limit >= 0) drop_where_many(lowered.program.listings[0], limit);
    take_in(lowered, plan);
    return runtime::predict_memory(lowered.program, 0, "reference", 0, 4).peak_live_bytes;
  };
  const int64_t kept = peak(-1), dropped = peak(0), most = 4 * 16 * config.num_experts_per_tok;
  EXPECT_LT(dropped, kept);
  EXPECT_GT(peak(most - 1), dropped + (kept - dropped) / 2);
  EXPECT_LT(peak(most - 1), kept);
  EXPECT_EQ(peak(most), kept);
}

// The masters, and on the way a half of one after the other.
void snapshot(ir::Listing& listing) {
  for (ir::ValueId id = 0, count = static_cast<ir::ValueId>(listing.values.size()); id < count; ++id) {
    ir::Value value = listing.value(id);
    if (value.role != ir::Role::optimizer || value.part_of != ir::none || value.layout != ir::Layout::rows)
      continue;
    value.name = "saved." + value.name;
    value.space = ir::Space::shared;
    const ir::ValueId saved = listing.add_value(value);
    const int64_t elements = listing.elements(id, ir::FixedRows()), half = (elements + 1) / 2;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, half}, {half, elements}}) {
      if (begin == end) continue;
      ir::Op op;
      op.def = &ops::find("copy_out");
      op.phase = ir::Phase::end;
      op.in = {listing.elements_of(id, begin, end)};
      op.updates = {listing.elements_of(saved, begin, end)};
      listing.append(std::move(op), {});
    }
  }
}

TEST(Words, WhatWasCopiedToSharedMemoryOutlivesTheRun) {
  const std::string file = std::filesystem::temp_directory_path() / fmt::format("heddle-words-test-{}-", getpid());
  const plan::Plan plan = tiny_plan(2, 1, true);
  const model::ModelConfig config = tiny_model();
  const auto edit = [&](plan::Lowered& lowered) {
    for (int r = 0; r < 2; ++r) snapshot(lowered.program.listings[static_cast<size_t>(r)]);
    take_in(lowered, plan);
  };
  std::vector<std::map<std::string, std::vector<double>>> saved(2);
  size_t values = 0;
  {
    TinyRun run(config, plan, "reference", 1 << 24, 1, true, {}, 0, edit, file);
    EXPECT_FALSE(run.executor(0).found_shared());
    fill(run, config, kSeed);
    run.run(tiny_batches(config, plan, kSeed));
    for (int r = 0; r < 2; ++r) {
      for (const ir::Value& value : run.listing(r).values) {
        if (value.space != ir::Space::shared || value.part_of != ir::none) continue;
        saved[static_cast<size_t>(r)][value.name] = run.read(r, value.name);
        EXPECT_EQ(run.read(r, value.name), run.read(r, value.name.substr(6))) << value.name;
        ++values;
      }
    }
    EXPECT_THROW(TinyRun(config, plan, "reference", 1 << 24, 1, true, {}, 0, edit, file), SystemError);  // in use
  }
  EXPECT_GT(values, 10u);
  {
    TinyRun run(config, plan, "reference", 1 << 24, 1, true, {}, 0, edit, file);
    for (int r = 0; r < 2; ++r) {
      EXPECT_TRUE(run.executor(r).found_shared());
      for (const auto& [name, wanted] : saved[static_cast<size_t>(r)]) EXPECT_EQ(run.read(r, name), wanted) << name;
    }
  }
  // Another program has nothing to look for there.
  const auto renamed = [&](plan::Lowered& lowered) {
    edit(lowered);
    for (ir::Listing& listing : lowered.program.listings) {
      for (ir::Value& value : listing.values) {
        if (value.space == ir::Space::shared) value.name += ".other";
      }
    }
  };
  EXPECT_THROW(TinyRun(config, plan, "reference", 1 << 24, 1, true, {}, 0, renamed, file), SystemError);
  for (int r = 0; r < 2; ++r) std::filesystem::remove(fmt::format("{}{}", file, r));
}

}  // namespace
}  // namespace heddle::test
