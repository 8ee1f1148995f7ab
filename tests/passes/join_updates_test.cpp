// What the end of a step does to each parameter, joined where nothing has to wait longer for it.
#include "heddle/passes/update/join_updates.h"

#include "tests/passes/expect_becomes.h"

namespace heddle::passes {
namespace {

using test::expect_becomes;
using test::expect_stays;

const std::string kState = R"(
listing 0
  takes        hyper    f64[4] step of rates
  weight       a        f32[8]
  weight       b        f32[4, 8]
  weight       w        bf16[8]
  weight       grad.a   f32[8]
  weight       grad.b   f32[4, 8]
  weight       grad.w   f32[8]
  weight       again.a  f32[8]
  optimizer    m.a      f32[8]
  optimizer    v.a      f32[8]
  optimizer    m.b      f32[4, 8]
  optimizer    v.b      f32[4, 8]
  optimizer    m.w      f32[8]
  optimizer    v.w      f32[8]
  optimizer    master.w f32[8]
  optimizer    mean.a   f32[8]
  optimizer    mean.b   f32[4, 8]
)";
const std::string kRule = "{beta1 0.9, beta2 0.95, copy 0, decay 0.1, epsilon 1e-08}";
const std::string kNorm = R"(
listing 0, end
    square.a = grad_square_sum grad.a
    square.b = grad_square_sum grad.b
    norm, clip = grad_norm square.a, square.b {max_norm 1}
    hyper = load {input hyper}
)";

TEST(JoinUpdates, NeighboursOfOneKind) {
  expect_becomes(kState + kNorm + "    adamw clip, hyper, grad.a -> a, m.a, v.a " + kRule +
                     "\n    average_master clip, a -> mean.a {decay 0.99}\n"
                     "    adamw clip, hyper, grad.b -> b, m.b, v.b " +
                     kRule + "\n    average_master clip, b -> mean.b {decay 0.99}\n",
                 join_updates,
                 kState + R"(
listing 0, end
    square.a, square.b = grad_square_sums grad.a, grad.b
    norm, clip = grad_norm square.a, square.b {max_norm 1}
    hyper = load {input hyper}
    adamw_many clip, hyper, grad.a, grad.b -> a, m.a, v.a, b, m.b, v.b )" +
                     kRule + R"(
    average_masters clip, a, b -> mean.a, mean.b {decay 0.99}
)");
}

TEST(JoinUpdates, AcrossWhatTouchesNothingOfTheirs) {
  expect_becomes(kState + kNorm + "    adamw clip, hyper, grad.w -> master.w, m.w, v.w " + kRule +
                     "\n    cast_weight master.w -> w\n"
                     "    adamw clip, hyper, grad.b -> b, m.b, v.b " +
                     kRule + "\n",
                 join_updates,
                 kState + R"(
listing 0, end
    square.a, square.b = grad_square_sums grad.a, grad.b
    norm, clip = grad_norm square.a, square.b {max_norm 1}
    hyper = load {input hyper}
    adamw_many clip, hyper, grad.w, grad.b -> master.w, m.w, v.w, b, m.b, v.b )" +
                     kRule + R"(
    cast_weight master.w -> w
)");
}

// Of another rule, of several gradients, of another condition; and what reads what an op between has made.
TEST(JoinUpdates, WhatDiffersStaysApart) {
  const std::string other = "{beta1 0.9, beta2 0.95, copy 0, decay 0, epsilon 1e-08}";
  const std::string norm = R"(
listing 0, end
    square.a = grad_square_sum grad.a, again.a
    square.b = grad_square_sum grad.b
    norm, clip = grad_norm square.a, square.b {max_norm 1}
    hyper = load {input hyper}
)";
  expect_stays(kState + norm + "    adamw clip, hyper, grad.a -> a, m.a, v.a " + kRule +
                   "\n    adamw clip, hyper, grad.b -> b, m.b, v.b " + other +
                   "\n    accumulate grad.a -> grad.w\n"
                   "    adamw clip, hyper, grad.w -> master.w, m.w, v.w " +
                   kRule + "\n",
               join_updates);
}

// A gradient that comes from other ranks later than the first's, which waits for no message.
TEST(JoinUpdates, NothingWaitsForMoreThanBefore) {
  const std::string sharded = R"(
listing 0
  weight       a        f32[8]
  weight       b        f32[4, 8]
  weight       grad.a   f32[8]
  weight       grad.b   f32[4, 8]
)";
  const std::string reduced = R"(
listing 0, end
    mine.a, mine.b = reduce_gradients grad.a, grad.b {one 0, ranks 2}  comm.dp
    late.a = reduce_gradients grad.a {one 1, ranks 2}  comm.dp
)";
  expect_becomes(sharded + reduced + R"(
    square.a = grad_square_sum mine.a
    square.late = grad_square_sum late.a
    square.b = grad_square_sum mine.b
    norm, clip = grad_norm square.a, square.late, square.b {max_norm 1}
)",
                 join_updates, sharded + reduced + R"(
    square.a, square.b = grad_square_sums mine.a, mine.b
    square.late = grad_square_sum late.a
    norm, clip = grad_norm square.a, square.late, square.b {max_norm 1}
)");
}

}  // namespace
}  // namespace heddle::passes
