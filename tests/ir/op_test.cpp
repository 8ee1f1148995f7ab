// Names of operands and attributes, and who uses a value.
#include "heddle/ir/op.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/ir/uses.h"
#include "heddle/ir/verify/verify.h"
#include "tests/ir/small_listing.h"

namespace heddle::ir {
namespace {

Op named(std::string_view kind) {
  Op op;
  op.def = &ops::find(kind);
  return op;
}

TEST(Op, OperandsHaveNames) {
  test::SmallListing s = test::small_listing();
  const Op& norm = s.listing.ops[1];
  EXPECT_EQ(norm.operand("x"), s.x);
  EXPECT_EQ(norm.operand("g"), s.gain);
  EXPECT_EQ(s.listing.value(norm.result("rstd")).name, "rstd");
  EXPECT_EQ(s.listing.ops[2].operand("bias"), none);  // may be absent
  EXPECT_THROW(norm.operand("bias"), InternalError);
}

TEST(Op, CountsAndAttributesAreThoseOfTheDefinition) {
  Op op = named("linear");
  op.in = {0, 1};
  EXPECT_NO_THROW(check_names(op));
  op.attributes.set("wide", int64_t{1});
  EXPECT_NO_THROW(check_names(op));
  op.attributes.set("wise", int64_t{1});
  EXPECT_THROW(check_names(op), InternalError);
  Op many = named("linear");
  many.in = {0, 1, 2, 3};
  EXPECT_THROW(check_names(many), InternalError);
  Op few = named("linear");
  few.in = {0};
  EXPECT_THROW(check_names(few), InternalError);
  Op gap = named("linear");
  gap.in = {none, 1};
  EXPECT_THROW(check_names(gap), InternalError);
  Op bare = named("rms_norm");
  bare.in = {0, 1};
  EXPECT_THROW(check_names(bare), InternalError);  // lacks epsilon
  Op any = named("sum_parts");
  any.in = {0, 1, 2, 3, 4};
  any.attributes.set("size", int64_t{1});
  EXPECT_NO_THROW(check_names(any));
}

TEST(Op, EveryDefinitionNamesWhatItHas) {
  for (const OpDef* def : ops::all()) {
    for (const std::string_view list : {def->operands, def->results, def->updates, def->attributes}) {
      const std::vector<std::string_view> names = names_in(list);
      for (size_t i = 0; i < names.size(); ++i) {
        EXPECT_EQ(place_of(names[i], list), static_cast<int>(i)) << def->kind << " has two of " << names[i];
        EXPECT_TRUE(!names[i].ends_with('*') || i + 1 == names.size()) << def->kind;
      }
    }
    EXPECT_TRUE(def->packable.empty() || place_of(def->packable, def->operands) >= 0) << def->kind;
    if (!def->exact.empty()) {
      EXPECT_NO_THROW(ops::find(def->exact));
    }
    EXPECT_EQ(def->chooses_experts, place_of("offsets", def->results) >= 0) << def->kind;
  }
}

TEST(Uses, AreThoseOfTheList) {
  test::SmallListing s = test::small_listing();
  const Uses uses(s.listing);
  EXPECT_EQ(uses.writer(s.x), &s.listing.ops[0]);
  EXPECT_EQ(uses.writer(s.w), nullptr);
  EXPECT_EQ(uses.writer_index(s.z), 4);
  EXPECT_EQ(std::vector<int>(uses.readers(s.w).begin(), uses.readers(s.w).end()), (std::vector{2, 3}));
  EXPECT_EQ(std::vector<int>(uses.readers(s.y).begin(), uses.readers(s.y).end()), (std::vector{3, 4}));
  EXPECT_EQ(uses.first_reader(s.y), &s.listing.ops[3]);
  EXPECT_EQ(uses.first_reader(s.z), nullptr);
}

}  // namespace
}  // namespace heddle::ir
