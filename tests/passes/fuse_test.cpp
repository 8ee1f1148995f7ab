// Each fusion on the ops that it stands for, and on ops that look like them but whose inner values something else
// needs.
#include "heddle/passes/fuse.h"

#include "tests/passes/expect_becomes.h"

namespace heddle::passes {
namespace {

using test::expect_becomes;
using test::expect_stays;

test::Rewrite fused(const std::string& name) {
  return [name](ir::Listing& listing) { fuse(listing, {name}); };
}

TEST(FuseNorm, AnAdditionAndItsNorm) {
  expect_becomes(R"(
listing 0
  weight      g       f32[8]
listing 0, F
    a = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
    b = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 3
    s = add a, b                                         compute @attention
    y, rstd = rms_norm s, g {epsilon 1e-06}              compute @mlp
    t = add s, y
)",
                 fused("norm"), R"(
listing 0
  weight      g       f32[8]
listing 0, F
    a = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
    b = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 3
    s, y, rstd = add_rms_norm a, b, g {epsilon 1e-06}    compute @attention
    t = add s, y
)");
}

TEST(FuseNorm, AnAdditionAndItsLayerNorm) {
  expect_becomes(R"(
listing 0
  weight      g       f32[8]
  weight      h       f32[8]
listing 0, F
    a = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
    b = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 3
    s = add a, b                                         compute @attention
    y, mean, rstd = layer_norm s, g, h {epsilon 1e-06}   compute @mlp
    t = add s, y
)",
                 fused("norm"), R"(
listing 0
  weight      g       f32[8]
  weight      h       f32[8]
listing 0, F
    a = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
    b = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 3
    s, y, mean, rstd = add_layer_norm a, b, g, h {epsilon 1e-06}  compute @attention
    t = add s, y
)");
}

constexpr const char* kBiased = R"(
listing 0
  weight      w       f32[16, 8]
  weight      b       f32[16]
listing 0, F
    x = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 3
    p = linear x, w                                      compute @mlp
    u = add_bias p, b                                    compute @mlp
    a = swiglu u                                         compute @mlp
)";

TEST(FuseBias, InsideItsProduct) {
  expect_becomes(kBiased, fused("bias"), R"(
listing 0
  weight      w       f32[16, 8]
  weight      b       f32[16]
listing 0, F
    x = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 3
    u = linear x, w, b                                   compute @mlp
    a = swiglu u                                         compute @mlp
)");
}

TEST(FuseBias, InsideTheActivationThatFollows) {
  expect_becomes(kBiased, fused("bias_swiglu"), R"(
listing 0
  weight      w       f32[16, 8]
  weight      b       f32[16]
listing 0, F
    x = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 3
    p = linear x, w                                      compute @mlp
    a = swiglu p, b                                      compute @mlp
)");
}

TEST(FuseGelu, WithItsBias) {
  expect_becomes(R"(
listing 0
  weight      b       f32[8]
listing 0, F
    x = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 3
    u = add_bias x, b                                    compute @mlp
    a = gelu u {tanh 1}                                  compute @mlp
)",
                 fused("gelu"), R"(
listing 0
  weight      b       f32[8]
listing 0, F
    x = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 3
    a = gelu x, b {tanh 1}                               compute @mlp
)");
}

// With its bias, which belongs to the MLP, and before a norm that wants the addition too.
TEST(FuseDropoutAdd, WithItsBias) {
  expect_becomes(R"(
listing 0
  takes       drawn_tokens i32[4] microbatch of microbatch
  takes       drawn_key i32[3] step of dropout
  weight      b       f32[8]
  weight      g       f32[8]
  weight      h       f32[8]
listing 0, F
    x = receive {columns 8, dtype f32, rows 4, step -1}                  comm.pp.forward.receive
    r = receive {columns 8, dtype f32, rows 4, step -1}                  comm.pp.forward.receive
    tokens = load {input drawn_tokens}                                   copy_in
    key = load {input drawn_key}                                         copy_in
  layer 3
    u = add_bias x, b                                                    compute @mlp
    d = dropout u, tokens, key {rate 0.25, site 5}                       compute
    y = add r, d                                                         compute
    n, mean, rstd = layer_norm y, g, h {epsilon 1e-06}                   compute
    t = add y, n
)",
                 [](ir::Listing& listing) {
                   passes::fuse(listing, {"dropout_add", "norm", "bias"});
                 },
                 R"(
listing 0
  takes       drawn_tokens i32[4] microbatch of microbatch
  takes       drawn_key i32[3] step of dropout
  weight      b       f32[8]
  weight      g       f32[8]
  weight      h       f32[8]
listing 0, F
    x = receive {columns 8, dtype f32, rows 4, step -1}                  comm.pp.forward.receive
    r = receive {columns 8, dtype f32, rows 4, step -1}                  comm.pp.forward.receive
    tokens = load {input drawn_tokens}                                   copy_in
    key = load {input drawn_key}                                         copy_in
  layer 3
    y = dropout_add x, r, tokens, key, b {rate 0.25, site 5}             compute
    n, mean, rstd = layer_norm y, g, h {epsilon 1e-06}                   compute
    t = add y, n
)");
}

// Of two biases, and of a sum that something else reads, the product stays as it is.
TEST(FuseBias, NotWhereTheProductIsReadElsewhere) {
  const char* text = R"(
listing 0
  weight      w       f32[16, 8]
  weight      b       f32[16]
listing 0, F
    x = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 3
    p = linear x, w                                      compute @mlp
    u = add_bias p, b                                    compute @mlp
    t = add p, u
)";
  expect_stays(text, fused("bias"));
  expect_stays(text, fused("bias_swiglu"));
}

TEST(FuseNorm, NotOfAnotherChunk) {
  expect_stays(R"(
listing 0
  chunks 0/1 0/1
  weight      a       f32[4, 8]
  weight      g       f32[8]
listing 0, F
    s = add a, a
    y, rstd = rms_norm s, g {epsilon 1e-06}              compute  #1
)",
               fused("norm"));
}

// The norm of a sum, not of one of its parts; and nothing at all unless it is asked for.
TEST(FuseNorm, NotBesideASum) {
  const char* text = R"(
listing 0
  weight      a       f32[4, 8]
  weight      g       f32[8]
listing 0, F
    s = add a, a
    y, rstd = rms_norm a, g {epsilon 1e-06}
    z, rstd_z = rms_norm s, g {epsilon 1e-06}
)";
  expect_stays(text, fused("swiglu"));
  expect_becomes(text, fused("norm"), R"(
listing 0
  weight      a       f32[4, 8]
  weight      g       f32[8]
listing 0, F
    s, z, rstd_z = add_rms_norm a, a, g {epsilon 1e-06}
    y, rstd = rms_norm a, g {epsilon 1e-06}
)");
}

TEST(FuseSwiglu, GateTimesUp) {
  expect_becomes(R"(
listing 0
  weight      u       f32[4, 16]
listing 0, F
  layer 0
    gate, up = split u {first 8}
    half = silu gate
    a = multiply half, up
    b = silu a
)",
                 fused("swiglu"), R"(
listing 0
  weight      u       f32[4, 16]
listing 0, F
  layer 0
    a = swiglu u
    b = silu a
)");
}

TEST(FuseSwiglu, NotWithOtherReaders) {
  for (const char* inner : {"gate", "up", "half"}) {
    expect_stays(fmt::format(R"(
listing 0
  weight      u       f32[4, 16]
listing 0, F
    gate, up = split u {{first 8}}
    half = silu gate
    a = multiply half, up
    b = silu {}
)",
                             inner),
                 fused("swiglu"));
  }
}

TEST(FuseSwiglu, NotTheOtherWayRound) {
  expect_stays(R"(
listing 0
  weight      u       f32[4, 16]
listing 0, F
    gate, up = split u {first 8}
    half = silu up
    a = multiply half, gate
)",
               fused("swiglu"));
}

// Values that the gradient rule of some op names count as read.
TEST(FuseSwiglu, NotWithAMention) {
  expect_stays(R"(
listing 0
  weight      u       f32[4, 16]
listing 0, F
    gate, up = split u {first 8}
    half = silu gate
    a = multiply half, up
    b = silu a (up)
)",
               fused("swiglu"));
}

constexpr const char* kRope = R"(
listing 0
  weight      q       f32[4, 12]
  weight      kv      f32[4, 16]
  weight      k_raw   f32[4, 2]
  weight      table   f32[4, 2]
listing 0, F
  layer 0
)";

TEST(FuseRope, QueriesAndKeys) {
  expect_becomes(std::string(kRope) + R"(
    turned_q = rope q, table {head_dim 6, heads 2, interleaved 1, inverse 0, rope_dim 2, sequence 4}
    turned = rope k_raw, table {head_dim 2, heads 1, interleaved 1, inverse 0, rope_dim 2, sequence 4}
    k, v = mla_assemble kv, turned {heads 2, nope 4, rope 2, value_dim 4}
)",
                 fused("rope"), std::string(kRope) + R"(
    turned_q, k, v = mla_rope q, kv, k_raw, table {heads 2, interleaved 1, nope 4, rope 2, sequence 4, value_dim 4}
)");
}

TEST(FuseRope, NotWhereTurnedKeysAreRead) {
  expect_stays(std::string(kRope) + R"(
    turned_q = rope q, table {head_dim 6, heads 2, interleaved 1, inverse 0, rope_dim 2, sequence 4}
    turned = rope k_raw, table {head_dim 2, heads 1, interleaved 1, inverse 0, rope_dim 2, sequence 4}
    k, v = mla_assemble kv, turned {heads 2, nope 4, rope 2, value_dim 4}
    other = silu turned
)",
               fused("rope"));
}

constexpr const char* kRouter = R"(
listing 0
  weight      logits  f32[4, 8]
  weight      bias    f32[8]
listing 0, F
  layer 0
)";

TEST(FuseRouter, ScoresChoiceAndGates) {
  expect_becomes(std::string(kRouter) + R"(
    s = router_scores logits {function sigmoid}          compute @router
    experts, row_of, token_of, offsets = choose s, bias {group_score_top 2, groups 1, top_groups 1, top_k 2}
    gates = gate s, experts {normalize 1, scale 2.5}
    twice = add s, s
)",
                 fused("router"), std::string(kRouter) + R"(
    s, gates, experts, row_of, token_of, offsets = router logits, bias {function sigmoid, group_score_top 2, groups 1, normalize 1, scale 2.5, top_groups 1, top_k 2}  compute @router
    twice = add s, s
)");
}

TEST(FuseRouter, NotOfOtherScores) {
  expect_stays(std::string(kRouter) + R"(
    s = router_scores logits {function sigmoid}
    t = add s, s
    experts, row_of, token_of, offsets = choose t, bias {group_score_top 2, groups 1, top_groups 1, top_k 2}
    gates = gate s, experts {normalize 1, scale 1}
)",
               fused("router"));
}

constexpr const char* kCombine = R"(
listing 0
  weight      shared  f32[4, 8]
  weight      e       f32[8, 8]
  weight      s       f32[4, 4]
listing 0, F
  layer 0
    experts, row_of, token_of, offsets = choose s, none {group_score_top 2, groups 1, top_groups 1, top_k 2}
    gates = gate s, experts {normalize 1, scale 1}
)";

TEST(FuseCombine, TheSumOfExpertsAndWhatFollows) {
  expect_becomes(std::string(kCombine) + R"(
    sum = unpermute e, gates, row_of, experts
    y = add sum, shared
)",
                 fused("combine"), std::string(kCombine) + R"(
    y = unpermute e, gates, row_of, experts, shared
)");
}

TEST(FuseCombine, NotWithOtherReaders) {
  expect_stays(std::string(kCombine) + R"(
    sum = unpermute e, gates, row_of, experts
    y = add sum, shared
    z = silu sum
)",
               fused("combine"));
  expect_stays(std::string(kCombine) + R"(
    sum = unpermute e, gates, row_of, experts
    y = add shared, sum
)",
               fused("combine"));
}

// Where the other addend is made later, the sum waits for it.
TEST(FuseCombine, BehindItsLastOperand) {
  expect_becomes(std::string(kCombine) + R"(
    sum = unpermute e, gates, row_of, experts
    late = silu shared
    other = silu late
    y = add sum, late
)",
                 fused("combine"), std::string(kCombine) + R"(
    late = silu shared
    y = unpermute e, gates, row_of, experts, late
    other = silu late
)");
}

constexpr const char* kLoss = R"(
listing 0
  takes       labels_1 i32[4] microbatch of microbatch
  takes       scales  f32[4] step of losses
  weight      x       f32[4, 8]
  weight      w       f32[16, 8]
listing 0, F
    labels = load {input labels_1}
    scales = load {input scales}
)";

TEST(FuseLoss, ProductAndLoss) {
  expect_becomes(std::string(kLoss) + R"(
    logits = linear x, w
    loss, lse = cross_entropy logits, labels, scales {scale_index 0}
)",
                 fused("loss"), std::string(kLoss) + R"(
    loss, lse = linear_cross_entropy x, w, labels, scales {scale_index 0}
)");
}

TEST(FuseLoss, NotWhereLogitsAreRead) {
  expect_stays(std::string(kLoss) + R"(
    logits = linear x, w
    loss, lse = cross_entropy logits, labels, scales {scale_index 0}
    more = z_loss logits, scales {scale_index 2, weight 0.1}
)",
               fused("loss"));
}

constexpr const char* kNormGradient = R"(
listing 0
  weight      x       f32[4, 8]
  weight      g       f32[8]
listing 0, F
  layer 0
    y, rstd = rms_norm x, g {epsilon 1e-06}
listing 0, I
  layer 0
    dy = linear_dgrad x, x_map {dtype f32}
    dres = silu x
)";

// As kNormGradient, with a square map that dy comes of.
std::string norm_gradient(const std::string& rest) {
  std::string text = kNormGradient;
  text.insert(text.find("listing 0, F"), "  weight      x_map   f32[8, 8]\n");
  return text + rest;
}

TEST(FuseNormGradient, WithTheAdditionBehindIt) {
  expect_becomes(norm_gradient(R"(
    own, dg = rms_norm_dgrad dy, x, g, rstd, none
    dx = add dres, own
)"),
                 fuse_norm_gradient, norm_gradient(R"(
    dx, dg = rms_norm_dgrad dy, x, g, rstd, dres
)"));
}

TEST(FuseNormGradient, NotWhereItsOwnPartIsRead) {
  expect_stays(norm_gradient(R"(
    own, dg = rms_norm_dgrad dy, x, g, rstd, none
    dx = add dres, own
    other = silu own
)"),
               fuse_norm_gradient);
}

constexpr const char* kTrainedLoss = R"(
listing 0
  takes       labels_1 i32[4] microbatch of microbatch
  takes       scales  f32[4] step of losses
  weight      x       f32[4, 8]
  weight      w       f32[16, 8]
  accumulator grad.w  f32[16, 8]
  statistic   loss    f64[1]
listing 0, F
    labels = load {input labels_1}
    scales = load {input scales}
)";

TEST(FuseTrainedLoss, ForwardAndBothGradients) {
  expect_becomes(std::string(kTrainedLoss) + R"(
    own, lse = linear_cross_entropy x, w, labels, scales {scale_index 0}
    accumulate own -> loss
listing 0, I
    dx = linear_cross_entropy_dgrad x, w, labels, lse, scales {scale_index 0}
    dz = silu dx
listing 0, W
    linear_cross_entropy_wgrad x, w, labels, lse, scales -> grad.w {scale_index 0}
)",
                 fuse_loss, std::string(kTrainedLoss) + R"(
listing 0, I
    own, dx = linear_cross_entropy_train x, w, labels, scales -> grad.w {scale_index 0}
    dz = silu dx
    accumulate own -> loss
)");
}

TEST(FuseTrainedLoss, NotWhereItsSumIsRead) {
  expect_stays(std::string(kTrainedLoss) + R"(
    own, lse = linear_cross_entropy x, w, labels, scales {scale_index 0}
    accumulate own -> loss
    other = add lse, lse
listing 0, I
    dx = linear_cross_entropy_dgrad x, w, labels, lse, scales {scale_index 0}
listing 0, W
    linear_cross_entropy_wgrad x, w, labels, lse, scales -> grad.w {scale_index 0}
)",
               fuse_loss);
}

}  // namespace
}  // namespace heddle::passes
