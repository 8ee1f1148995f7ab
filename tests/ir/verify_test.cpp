// What the verifier must not let through: programs that are right but for one change.
#include "heddle/ir/verify/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/ops/ops.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::ir {
namespace {

plan::Lowered lowered(int pipeline = 1, int experts = 1, bool fused = true) {
  return plan::lower(test::tiny_model(), test::tiny_plan(pipeline, experts, fused));
}

bool rejected(const Listing& listing) {
  try {
    verify(listing);
  } catch (const InternalError&) {
    return true;
  }
  return false;
}
bool rejected(const StepProgram& program) {
  try {
    verify(program);
  } catch (const InternalError&) {
    return true;
  }
  return false;
}

bool reads(const Op& op, const std::vector<ValueId>& values) {
  return std::any_of(op.in.begin(), op.in.end(), [&](ValueId id) {
    return id != none && std::find(values.begin(), values.end(), id) != values.end();
  });
}

size_t first(const Listing& listing, std::string_view kind) {
  for (size_t i = 0; i < listing.ops.size(); ++i) {
    if (listing.ops[i].kind() == kind) return i;
  }
  internal_error("no '{}'", kind);
}

TEST(VerifyListing, AcceptsWhatIsLowered) {
  for (const bool fused : {false, true}) {
    for (const Listing& listing : lowered(2, 2, fused).program.listings) EXPECT_FALSE(rejected(listing));
  }
}

TEST(VerifyListing, EveryOpThatIsReadMustStand) {
  const Listing whole = lowered(1, 2).program.listings[0];
  int deleted = 0;
  for (size_t i = 0; i < whole.ops.size(); ++i) {
    const Op& op = whole.ops[i];
    const bool read =
        std::any_of(whole.ops.begin(), whole.ops.end(), [&](const Op& o) { return reads(o, op.out); });
    const bool sums = !op.updates.empty() && whole.value(op.updates[0]).role == Role::accumulator;
    if (!read && !sums) continue;
    Listing listing = whole;
    listing.ops.erase(listing.ops.begin() + static_cast<long>(i));
    EXPECT_TRUE(rejected(listing)) << "without op " << i << ", '" << op.kind() << "'";
    ++deleted;
  }
  EXPECT_GT(deleted, 50);
}

TEST(VerifyListing, NoOpStandsTwice) {
  const Listing whole = lowered(1, 2).program.listings[0];
  for (size_t i = 0; i < whole.ops.size(); ++i) {
    const Op& op = whole.ops[i];
    const bool sums = !op.updates.empty() && whole.value(op.updates[0]).role == Role::accumulator;
    if (op.out.empty() && !sums) continue;
    Listing listing = whole;
    listing.ops.insert(listing.ops.begin() + static_cast<long>(i), op);
    EXPECT_TRUE(rejected(listing)) << "with op " << i << ", '" << op.kind() << "' twice";
  }
}

TEST(VerifyListing, NoReadBeforeTheWrite) {
  const Listing whole = lowered(1, 2).program.listings[0];
  for (size_t i = 0; i + 1 < whole.ops.size(); ++i) {
    if (!reads(whole.ops[i + 1], whole.ops[i].out)) continue;
    Listing listing = whole;
    std::swap(listing.ops[i], listing.ops[i + 1]);
    EXPECT_TRUE(rejected(listing)) << "op " << i << ", '" << whole.ops[i].kind() << "' after its reader";
  }
}

TEST(VerifyListing, OutputsAreWhatIsInferred) {
  const Listing whole = lowered(1, 2).program.listings[0];
  for (const Op& op : whole.ops) {
    for (const ValueId id : op.out) {
      Listing listing = whole;
      Value& value = listing.value(id);
      value.dtype = value.dtype == Dtype::f64 ? Dtype::f32 : Dtype::f64;
      EXPECT_TRUE(rejected(listing)) << "'" << value.name << "' in another type";
      listing = whole;
      listing.value(id).shape.push_back({2, none});
      EXPECT_TRUE(rejected(listing)) << "'" << value.name << "' with one dim more";
    }
  }
}

TEST(VerifyListing, LoadsAreOfTheTableOfInputs) {
  const Listing whole = lowered(1, 2).program.listings[0];
  const Op& load = whole.ops[first(whole, "load")];
  for (size_t i = 0; i < whole.inputs.size(); ++i) {
    SCOPED_TRACE(text_of(whole.inputs[i]));
    Listing listing = whole;
    listing.inputs.erase(listing.inputs.begin() + static_cast<long>(i));
    EXPECT_TRUE(rejected(listing)) << "without it";
    listing = whole;
    listing.inputs[i].shape.push_back(2);
    EXPECT_TRUE(rejected(listing)) << "in another shape";
    listing = whole;
    listing.inputs[i].dtype = listing.inputs[i].dtype == Dtype::f64 ? Dtype::f32 : Dtype::f64;
    EXPECT_TRUE(rejected(listing)) << "in another type";
    listing = whole;
    listing.inputs.push_back(listing.inputs[i]);
    EXPECT_TRUE(rejected(listing)) << "twice";
  }
  Listing listing = whole;
  listing.ops[first(whole, "load")].attributes.set("input", load.attributes.word("input") + "s");
  EXPECT_TRUE(rejected(listing)) << "an input of another name";
}

TEST(VerifyListing, OneWriterAnAccumulator) {
  Listing listing = lowered().program.listings[0];
  const size_t wgrad = first(listing, "linear_wgrad");
  size_t other = wgrad + 1;
  const auto shape_of = [&](size_t i) { return listing.value(listing.ops[i].updates[0]).shape; };
  while (listing.ops[other].kind() != "linear_wgrad" || shape_of(other) != shape_of(wgrad)) ++other;
  listing.ops[other].updates = listing.ops[wgrad].updates;
  EXPECT_TRUE(rejected(listing));
}

TEST(VerifyListing, OnlyPersistentValuesAreUpdated) {
  Listing listing = lowered().program.listings[0];
  Op& op = listing.ops[first(listing, "linear_wgrad")];
  const Value& accumulator = listing.value(op.updates[0]);
  EXPECT_FALSE(rejected(listing));
  listing.value(op.updates[0]).role = Role::activation;
  EXPECT_TRUE(rejected(listing)) << accumulator.name;
}

TEST(VerifyListing, NothingPersistentIsAnOutput) {
  Listing listing = lowered().program.listings[0];
  listing.value(listing.ops[first(listing, "embedding")].out[0]).role = Role::weight;
  EXPECT_TRUE(rejected(listing));
}

TEST(VerifyListing, PhasesReadOnlyWhatCameBefore) {
  Listing listing = lowered().program.listings[0];
  listing.ops[first(listing, "embedding")].phase = Phase::I;  // F reads it
  EXPECT_TRUE(rejected(listing));
  listing = lowered().program.listings[0];
  listing.ops[first(listing, "grad_norm")].phase = Phase::F;  // and reads what the end wrote
  EXPECT_TRUE(rejected(listing));
}

TEST(VerifyProgram, NoActionIsLeftOutOrDoneTwice) {
  for (const auto& [pipeline, experts] : {std::pair{1, 1}, {2, 1}, {2, 2}}) {
    const StepProgram whole = lowered(pipeline, experts).program;
    ASSERT_FALSE(rejected(whole));
    for (size_t c = 0; c < whole.actions[0].size(); ++c) {
      for (size_t i = 0; i < whole.actions[0][c].size(); ++i) {
        StepProgram program = whole;
        auto& actions = program.actions[0][c];
        actions.erase(actions.begin() + static_cast<long>(i));
        EXPECT_TRUE(rejected(program)) << "without action " << i << " of class " << c;
        program = whole;
        auto& again = program.actions[0][c];
        again.insert(again.begin() + static_cast<long>(i), again[i]);
        EXPECT_TRUE(rejected(program)) << "with action " << i << " of class " << c << " twice";
      }
    }
  }
}

// An exchange of two neighbouring actions is either refused or harmless: it walks, and no rank gets stuck.
TEST(VerifyProgram, ASwapIsRefusedOrHarmless) {
  const plan::Lowered all = lowered(2, 1);
  int refused = 0, swaps = 0;
  for (size_t c = 0; c < all.program.actions[0].size(); ++c) {
    for (size_t i = 0; i + 1 < all.program.actions[0][c].size(); ++i, ++swaps) {
      StepProgram program = all.program;
      std::swap(program.actions[0][c][i], program.actions[0][c][i + 1]);
      if (rejected(program)) {
        ++refused;
        continue;
      }
      simulate::SimulationInput input;
      input.groups = simulate::groups_of(program, plan::Mesh(test::tiny_plan(2, 1, true).mesh));
      input.duration_us = [](int, const Issue&) { return 1.0; };
      EXPECT_EQ(simulate::simulate(program, input).deadlock, "") << "class " << c << ", action " << i;
    }
  }
  EXPECT_GT(3 * refused, swaps);
}

TEST(VerifyProgram, MicrobatchesInOrderAndTheEndLast) {
  const StepProgram whole = lowered().program;
  StepProgram program = whole;  // F0 IW0 F1 IW1 F2 IW2 end
  std::swap(program.actions[0][0][0], program.actions[0][0][2]);
  EXPECT_TRUE(rejected(program));
  program = whole;
  auto& actions = program.actions[0][0];
  std::rotate(actions.begin(), actions.end() - 1, actions.end());
  EXPECT_TRUE(rejected(program));
  program = whole;
  program.actions[0][0][0].microbatches = {0, 1};
  EXPECT_TRUE(rejected(program));
  program = whole;
  program.actions[0][0][0].block = 99;
  EXPECT_TRUE(rejected(program));
}

TEST(VerifyProgram, SharedWeightsAreTheOwners) {
  plan::Plan plan = test::tiny_plan(1, 1, true);
  plan.evaluates = true;
  StepProgram program = plan::lower(test::tiny_model(), plan).program;
  ASSERT_EQ(program.listings.size(), 3u);  // training, evaluation, what restores the weights
  for (Value& value : program.listings[1].values) {
    if (value.shared_with < 0) continue;
    value.layout = Layout::packed;
    value.packed_bytes = 64;
    break;
  }
  EXPECT_TRUE(rejected(program));
}

}  // namespace
}  // namespace heddle::ir
