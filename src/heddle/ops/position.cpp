// Rotary positions (Su et al., arXiv 2104.09864), and the assembly of MLA's queries, keys and values around them
// (DeepSeek-V2, arXiv 2405.04434, section 2.1). T rows, h heads, n positionless and r rotary elements a head,
// v value elements a head; table A[S, r]: r/2 cosines, then r/2 sines.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef mla_assemble_dgrad, mla_rope_dgrad;

// clang-format off
const OpDef rope{
    .kind = "rope",
    .operands = "x table", .results = "y",
    .attributes = "heads head_dim rope_dim sequence interleaved first? inverse?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_turned_rows(rule, op.attributes);
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      Attributes inverse = op.attributes;
      inverse.set("inverse", 1 - op.attributes.integer("inverse"));
      const ValueId dx = writer.input_gradient(*op.def, {d_out[0], op.in[1]}, {writer.d(op.in[0])}, inverse)[0];
      return std::vector{dx, none};
    },
};
// clang-format on

struct Heads {
  explicit Heads(const Attributes& a)
      : heads(a.integer("heads")),
        nope(a.integer("nope")),
        rope(a.integer("rope")),
        value(a.integer("value_dim")) {}
  Dim q() const { return fixed(heads * (nope + rope)); }
  Dim kv() const { return fixed(heads * (nope + value)); }
  Dim v() const { return fixed(heads * value); }
  int64_t heads, nope, rope, value;
};

// clang-format off
const OpDef mla_assemble{
    .kind = "mla_assemble",
    .operands = "kv k_rope", .results = "k v", .attributes = "heads nope rope value_dim",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Heads h(op.attributes);
      rule.shape(0, {rule.dim(0, 0), h.kv()});
      rule.shape(1, {rule.dim(0, 0), fixed(h.rope)});
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), h.q()}),
                         output(rule.dtype(0), {rule.dim(0, 0), h.v()})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(mla_assemble_dgrad, d_out, {writer.d(op.in[0]), writer.d(op.in[1])},
                                   op.attributes);
    },
};

const OpDef mla_assemble_dgrad{
    .kind = "mla_assemble_dgrad",
    .operands = "dk dv", .results = "dkv dk_rope", .attributes = "heads nope rope value_dim",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Heads h(op.attributes);
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), h.kv()}),
                         output(rule.dtype(0), {rule.dim(0, 0), fixed(h.rope)})};
    }),
};

const OpDef mla_rope{
    .kind = "mla_rope",
    .operands = "q kv k_rope table", .results = "q_turned k v",
    .attributes = "heads nope rope value_dim sequence interleaved",
    .stands_for = "q_turned = rope q table\n"
                  "turned = rope k_rope table\n"
                  "k v = mla_assemble kv turned",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Heads h(op.attributes);
      rule.shape(0, {rule.dim(0, 0), h.q()});
      rule.shape(1, {rule.dim(0, 0), h.kv()});
      rule.shape(2, {rule.dim(0, 0), fixed(h.rope)});
      rule.shape(3, {fixed(op.attributes.integer("sequence")), fixed(h.rope)});
      const Dtype dtype = rule.dtype(0);
      const Dim rows = rule.dim(0, 0);
      return std::vector{output(dtype, {rows, h.q()}), output(dtype, {rows, h.q()}), output(dtype, {rows, h.v()})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      std::vector<ValueId> d_in =
          writer.input_gradient(mla_rope_dgrad, {d_out[0], d_out[1], d_out[2], op.in[3]},
                                {writer.d(op.in[0]), writer.d(op.in[1]), writer.d(op.in[2])}, op.attributes);
      d_in.push_back(none);
      return d_in;
    },
};

const OpDef mla_rope_dgrad{
    .kind = "mla_rope_dgrad",
    .operands = "dq_turned dk dv table", .results = "dq dkv dk_rope",
    .attributes = "heads nope rope value_dim sequence interleaved",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Heads h(op.attributes);
      const Dtype dtype = rule.dtype(0);
      const Dim rows = rule.dim(0, 0);
      return std::vector{output(dtype, {rows, h.q()}), output(dtype, {rows, h.kv()}),
                         output(dtype, {rows, fixed(h.rope)})};
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> rope_ops() {
  return {&rope, &mla_assemble, &mla_assemble_dgrad, &mla_rope, &mla_rope_dgrad};
}

}  // namespace heddle::ops
