// Weights and their gradients: packed forms, exact sums, the end of the step.
#include "heddle/passes/exact_sums.h"
#include "heddle/passes/pack_weights.h"
#include "heddle/passes/update/update.h"
#include "tests/passes/expect_becomes.h"

namespace heddle::passes {
namespace {

using test::expect_becomes;

TEST(PackWeights, WhatOnlyProductsRead) {
  const auto packed = [](ir::Listing& listing) {
    pack_weights(listing, [](const ir::Value& weight) { return weight.name == "rows" ? 0 : 1024; });
  };
  const auto text = [](const std::string& form) {
    return R"(
listing 0
  weight      x       f32[4, 8]
  weight      g       f32[8]
  weight      map     f32[8, 8])" +
           form + R"(
  weight      rows    f32[8, 8]
  weight      gate    f32[8, 8]
  weight      shown   f32[8, 8]
  weight      narrow  bf16[8, 8]
listing 0, F
    n, rstd = rms_norm x, g {epsilon 1e-06}
    a = linear n, map
    b = linear a, rows
    c = linear b, gate {wide 1}
    d = linear c, shown
    e = silu shown
listing 0, I
    da = linear_dgrad a, map {dtype f32}
)";
  };
  expect_becomes(text(""), packed, text(" packed in 1024 bytes"));
}

TEST(ExactSums, RoundedPartsBesideTheirSum) {
  const std::string before = R"(
listing 0
  weight      x       f32[4, 8]
  weight      w       f32[8, 8]
  weight      kept    f32[8, 8]
  accumulator grad.w  f32[8, 8]
)";
  expect_becomes(before + R"(
listing 0, F
    y = linear x, w
listing 0, W
  layer 0
    linear_wgrad x, y -> grad.w
)",
                 exact_sums, before + R"(
  accumulator exact.grad.w f64[8, 8]
listing 0, F
    y = linear x, w
listing 0, W
  layer 0
    linear_wgrad x, y -> grad.w fresh
    add_exact grad.w -> exact.grad.w
)");
}

// An expert's partial sums are those of each rank that its rows come from, so the product makes them itself.
TEST(ExactSums, OfExperts) {
  const std::string table = R"(
listing 0
  weight      x       f32[4, 8]
  weight      s       f32[4, 4]
  weight      w       f32[4, 8, 8]
  accumulator grad.w  f32[4, 8, 8]
)",
                    forward = R"(
listing 0, F
  layer 0
    experts, row_of, token_of, offsets = choose s, none {group_score_top 2, groups 1, top_groups 1, top_k 2}
    p = permute x, row_of, token_of, experts
    y = grouped_linear p, w, offsets
listing 0, W
  layer 0
)";
  expect_becomes(table + forward + "    grouped_linear_wgrad p, y, offsets -> grad.w\n", exact_sums,
                 table + "  accumulator exact.grad.w f64[4, 8, 8]\n" + forward +
                     "    grouped_linear_wgrad_exact p, y, offsets, none -> exact.grad.w\n");
}

test::Rewrite updated(const UpdateOptions& options) {
  return [options](ir::Listing& listing) {
    model::RankText text;
    for (const char* name : {"g", "w"}) {
      model::Parameter& p = text.parameters.emplace_back();
      p.name = name;
      p.value = listing.find(name);
      p.trained = p.decays = p.name == "w";
    }
    text.listing = std::move(listing);
    update(text, options);
    listing = std::move(text.listing);
  };
}

std::string linear(const std::string& weight, const std::string& table, const std::string& rest) {
  return fmt::format(R"(
listing 0
  weight      g       f32[8]
  weight      w       {0}
  accumulator grad.w  f32[8, 8]
{1}
listing 0, F
    x = receive {{columns 8, dtype {2}, rows 4, step -1}}  comm.pp.forward.receive
    y = linear x, w
listing 0, W
    linear_wgrad x, y -> grad.w
{3}
)",
                     weight, table, weight.substr(0, weight.find('[')), rest);
}

TEST(Update, AStepThatIsAnOutlierIsLeftOut) {
  UpdateOptions options;
  options.skip_loss_above = 2;
  expect_becomes(linear("f32[8, 8]", "", ""), updated(options),
                 linear("f32[8, 8]", R"(
  takes       hyper   f64[4] step of rates
  takes       limits  f64[2] step of outliers else inf
  statistic   grad_norm f64[1]
  statistic   step_skipped f64[1]
  optimizer   m.w     f32[8, 8]
  optimizer   v.w     f32[8, 8]
)",
                        R"(
listing 0, end
    square.w = grad_square_sum grad.w
    norm, clip = grad_norm square.w {max_norm 1}
    accumulate norm -> grad_norm
    hyper = load {input hyper}                           copy_in
    loss = sum_parts {size 1}
    limits = load {input limits}                         copy_in
    clip.decided, hyper.decided, skipped = skip_outlier norm, clip, hyper, limits, loss
    accumulate skipped -> step_skipped
    adamw clip.decided, hyper.decided, grad.w -> w, m.w, v.w {beta1 0.9, beta2 0.95, copy 0, decay 0.1, epsilon 1e-08}
)"));
}

TEST(Update, AWeightThatIsItsOwnMaster) {
  expect_becomes(linear("f32[8, 8]", "", ""), updated({}),
                 linear("f32[8, 8]", R"(
  takes       hyper   f64[4] step of rates
  statistic   grad_norm f64[1]
  optimizer   m.w     f32[8, 8]
  optimizer   v.w     f32[8, 8]
)",
                        R"(
listing 0, end
    square.w = grad_square_sum grad.w
    norm, clip = grad_norm square.w {max_norm 1}
    accumulate norm -> grad_norm
    hyper = load {input hyper}                           copy_in
    adamw clip, hyper, grad.w -> w, m.w, v.w {beta1 0.9, beta2 0.95, copy 0, decay 0.1, epsilon 1e-08}
)"));
}

constexpr const char* kStateWeights = R"(
  takes       hyper   f64[4] step of rates
  statistic   grad_norm f64[1]
  optimizer   master.w f32[8, 8]
  optimizer   m.w     f32[8, 8]
  optimizer   v.w     f32[8, 8]
)";

std::string end(const std::string& last) {
  return R"(
listing 0, end
    square.w = grad_square_sum grad.w
    norm, clip = grad_norm square.w {max_norm 1}
    accumulate norm -> grad_norm
    hyper = load {input hyper}                           copy_in
)" + last;
}

TEST(Update, ARoundedWeight) {
  expect_becomes(linear("bf16[8, 8]", "", ""), updated({}), linear("bf16[8, 8]", kStateWeights, end(R"(
    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w {beta1 0.9, beta2 0.95, copy 1, decay 0.1, epsilon 1e-08}
)")));
  UpdateOptions apart;
  apart.fuse_copy = false;
  expect_becomes(linear("bf16[8, 8]", "", ""), updated(apart), linear("bf16[8, 8]", kStateWeights, end(R"(
    adamw clip, hyper, grad.w -> master.w, m.w, v.w {beta1 0.9, beta2 0.95, copy 0, decay 0.1, epsilon 1e-08}
    cast_weight master.w -> w
)")));
}

TEST(Update, APackedWeight) {
  const std::string packed = "f32[8, 8] packed in 1024 bytes";
  expect_becomes(linear(packed, "", ""), updated({}), linear(packed, kStateWeights, end(R"(
    adamw clip, hyper, grad.w -> master.w, m.w, v.w {beta1 0.9, beta2 0.95, copy 0, decay 0.1, epsilon 1e-08}
    pack_weight master.w -> w
)")));
}

TEST(Update, AWeightOfTwoRanks) {
  UpdateOptions options;
  options.group_ranks = {{"stage", 2}, {"world", 2}};
  expect_becomes(linear("f32[8, 8]", "", ""), updated(options),
                 linear("f32[8, 8]", R"(
  takes       hyper   f64[4] step of rates
  statistic   grad_norm f64[1]
  optimizer   master.w f32[32]
  optimizer   m.w     f32[32]
  optimizer   v.w     f32[32]
)",
                        R"(
listing 0, begin
    gather_weights master.w -> w {ranks 2}               comm.stage
listing 0, end
    shard.grad.w = reduce_gradients grad.w {one 1, ranks 2}  comm.stage
    square.w = grad_square_sum shard.grad.w
    square = sum_parts square.w {size 1}
    square_all = all_reduce square {ranks 2}             comm.world
    norm, clip = grad_norm square_all {max_norm 1}
    accumulate norm -> grad_norm
    hyper = load {input hyper}                           copy_in
    adamw clip, hyper, shard.grad.w -> master.w, m.w, v.w {beta1 0.9, beta2 0.95, copy 0, decay 0.1, epsilon 1e-08}
)"));
}

}  // namespace
}  // namespace heddle::passes
