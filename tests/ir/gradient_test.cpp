// Differentiation as a rewriting: which ops it writes, how gradients of several readers meet, what it leaves out.
// (That the gradients are right is checked by finite differences in tests/kernels.)
#include "heddle/ir/gradient.h"

#include <gtest/gtest.h>

#include "heddle/ir/verify/verify.h"
#include "tests/ir/small_listing.h"

namespace heddle::test {
namespace {

using ir::none;
using ir::Phase;
using ir::ValueId;

struct Differentiated {
  SmallListing s = small_listing();
  ValueId seed = none;
  std::vector<ValueId> found;
  Differentiated() {
    ir::Value value = s.listing.value(s.z);
    ir::Op op;
    op.def = &ops::find("receive");
    op.group = "pp";
    op.phase = Phase::I;
    op.attributes = {
        {"step", int64_t{1}}, {"dtype", std::string("bf16")}, {"rows", int64_t{6}}, {"columns", int64_t{4}}};
    seed = s.listing.append(std::move(op), {"dz_received"})[0];
    found = ir::differentiate(s.listing, ops::find("add"), {{s.z, seed}}, {s.x, s.y, s.z});
  }
  const ir::Op& writer_of(ValueId id) const {
    for (const ir::Op& op : s.listing.ops) {
      for (const ValueId out : op.out) {
        if (out == id) return op;
      }
    }
    internal_error("nothing writes value {}", id);
  }
};

TEST(Gradient, SumsWhatSeveralReadersGive) {
  const Differentiated d;
  EXPECT_EQ(d.found[2], d.seed);
  const ir::Op& sum = d.writer_of(d.found[1]);  // y is read by the second map and by the addition
  EXPECT_EQ(sum.kind(), "add");
  EXPECT_EQ(sum.phase, Phase::I);
  EXPECT_EQ(sum.in[0], d.seed);  // the last reader comes first
  EXPECT_EQ(d.writer_of(sum.in[1]).kind(), "linear_dgrad");
  EXPECT_EQ(d.s.listing.value(d.found[1]).role, ir::Role::gradient);
}

TEST(Gradient, OneAccumulatorAUseInTheOrderOfTheWalk) {
  const Differentiated d;
  ASSERT_EQ(d.s.listing.accumulators.at(d.s.w).size(), 2u);
  EXPECT_EQ(d.s.listing.value(d.s.listing.accumulators.at(d.s.w)[0]).name, "grad.map.weight");
  EXPECT_EQ(d.s.listing.value(d.s.listing.accumulators.at(d.s.w)[1]).name, "grad.map.weight.use2");
  EXPECT_EQ(d.s.listing.value(d.s.listing.accumulators.at(d.s.w)[0]).dtype, Dtype::f32);
  ASSERT_EQ(d.s.listing.accumulators.at(d.s.gain).size(), 1u);
}

TEST(Gradient, PhasesAndLayers) {
  const Differentiated d;
  int input_gradients = 0, weight_gradients = 0;
  for (const ir::Op& op : d.s.listing.ops) {
    if (op.phase == Phase::W) {
      ++weight_gradients;
      EXPECT_FALSE(op.updates.empty());
    }
    if (op.kind() == "linear_dgrad") {
      ++input_gradients;
      EXPECT_EQ(op.layer, input_gradients == 1 ? 1 : 0);  // the last layer first
    }
  }
  EXPECT_EQ(input_gradients, 2);
  EXPECT_EQ(weight_gradients, 3);  // two uses of the map, one of the gain
}

TEST(Gradient, IsARightProgram) {
  Differentiated d;
  EXPECT_NO_THROW(ir::verify(d.s.listing));
}

// Without a seed nothing flows, and nothing is written; x then has no gradient.
TEST(Gradient, NothingWithoutASeed) {
  SmallListing s = small_listing();
  const size_t before = s.listing.ops.size();
  const std::vector<ValueId> found = ir::differentiate(s.listing, ops::find("add"), {}, {s.x});
  EXPECT_EQ(found[0], none);
  EXPECT_EQ(s.listing.ops.size(), before);
  EXPECT_TRUE(s.listing.accumulators.empty());
}

}  // namespace
}  // namespace heddle::test
