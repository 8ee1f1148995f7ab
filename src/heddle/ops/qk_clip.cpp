// QK-clip (Kimi K2, arXiv 2507.20534, section 2.1, MuonClip): where a head's largest attention logit of a step
// exceeds a limit, its weights shrink after the update by powers of factor = limit ÷ largest.
//
// `max_logits` keeps the largest logit of each head over the step. A row's log-sum-exp is never less than its
// largest logit. So rows whose lse is at most `above` cannot exceed it: they give their lse, and only the others
// make their logits again. A number of `most` that exceeds `above` is therefore the exact maximum. Any other is a
// bound of it. The last number of `most` is the mark of the rank (kernels/qk_clip.h). With `ring` the keys are
// those of each turn.
//
// `scale_heads` reads a row of `most` of each rank that shares the heads. These ranks hold the equal runs of the
// weight's elements, in the order of the rows, and the rank finds its own run by its mark. A head has `rows` rows,
// of which the first ones are scaled by one power of its factor and the rest by another.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

constexpr size_t kStarts = 2, kChosen = 3, kKeys = 4;

// clang-format off
const OpDef max_logits{
    .kind = "max_logits",
    .operands = "q lse starts? chosen? keys*", .updates = "most",
    .attributes = "heads kv_heads head_dim sequence causal scale above cp? window? ring? inner? head_parts?",
    .replayable = false,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Attributes& a = op.attributes;
      const int64_t length = a.integer("sequence"), cp = a.integer_or("cp", 1), ring = a.integer_or("ring", 0);
      rule.quotient(a.integer("heads"), a.integer("kv_heads"), "heads is not a multiple of kv_heads");
      rule.require(length >= 1 && cp >= 1 && rule.size(0, 0) % (length / cp) == 0, "rows are not whole sequences");
      rule.shape(0, {rule.dim(0, 0), fixed(a.integer("heads") * a.integer("head_dim"))});
      rule.shape(1, {rule.dim(0, 0), fixed(a.integer("heads"))});
      rule.require(rule.dtype(1) == wide(rule.dtype(0)), "lse is not wide");
      rule.require(op.in.size() == kKeys + static_cast<size_t>(ring != 0 ? cp : 1), "keys are not those of all turns");
      const Dim keys = fixed(rule.size(0, 0) * (ring != 0 ? 1 : cp));
      for (size_t i = kKeys; i < op.in.size(); ++i) {
        rule.shape(i, {keys, fixed(a.integer("kv_heads") * a.integer("head_dim"))});
      }
      if (rule.has(kStarts)) rule.shape(kStarts, {fixed(rule.size(0, 0) * cp)});
      if (rule.has(kChosen)) rule.shape(kChosen, {rule.dim(0, 0), rule.dim(kChosen, 1)});
      for (const size_t i : {kStarts, kChosen}) {
        rule.require(!rule.has(i) || rule.dtype(i) == Dtype::i32, "starts or chosen keys are not i32");
      }
      const ir::Shape most{fixed(1), fixed(a.integer("heads") * a.integer_or("head_parts", 1) + 1)};
      rule.require(rule.updated(0).dtype == Dtype::f64 && rule.updated(0).shape == most,
                   "most is not a number a head and one more");
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return Cost{.bytes = static_cast<double>(listing.bytes(op.in[1], rows))};
    },
};
// clang-format on

void check_scaled(const Rule& rule, const Op& op) {
  const Attributes& a = op.attributes;
  rule.require(a.integer("rows") >= 1 && a.integer("first") >= 0 && a.integer("first") <= a.integer("rows") &&
                   a.integer("columns") >= 1,
               "a size is below one");
  for (const char* power : {"first_power", "rest_power"}) {
    const double p = a.number(power);
    rule.require(p == 0 || p == 0.5 || p == 1, "a power is none of 0, 0.5 and 1");
  }
  rule.shape(0, {fixed(1)});
  rule.shape(1, {rule.dim(1, 0), fixed(a.integer("heads") + 1)});
  rule.require(rule.dtype(0) == Dtype::f64 && rule.dtype(1) == Dtype::f64, "clip or most are not f64");
}

// clang-format off
const OpDef scale_heads{
    .kind = "scale_heads",
    .operands = "clip most", .updates = "master",
    .attributes = "above heads rows first first_power rest_power columns",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_scaled(rule, op);
      rule.require(rule.updated(0).dtype == wide(rule.updated(0).dtype), "the master is not wide");
    }),
};

// The master is split (`adamw_split`): its last bit is the sign of v.
const OpDef scale_heads_split{
    .kind = "scale_heads_split",
    .operands = "clip most", .updates = "rest v w",
    .attributes = "above heads rows first first_power rest_power columns",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_scaled(rule, op);
      rule.require(rule.updated(0).dtype == Dtype::u16 && rule.updated(2).dtype == Dtype::bf16,
                   "splits an f32 into bf16 and u16");
      rule.require(rule.updated(0).shape == rule.updated(1).shape && rule.updated(0).shape == rule.updated(2).shape,
                   "rest, second moment and weight differ in shape");
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> qk_clip_ops() { return {&max_logits, &scale_heads, &scale_heads_split}; }

}  // namespace heddle::ops
