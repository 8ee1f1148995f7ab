// The entries of the attention kernels: what they accept, what scratch they need, and how a call is read.
#include "heddle/kernels/host/attention/attention.h"

#include <algorithm>

#include "heddle/kernels/host/attention/attention_problem.h"
#include "heddle/kernels/host/cpu_features.h"
#include "heddle/kernels/seen_keys.h"

namespace heddle::kernels::host {

namespace {

using attention::BackwardPath;
using attention::ForwardPath;
using attention::kStep;
using attention::Operands;
using attention::Problem;

/// `rows`: of queries. The place matters to the mask, not to scratch.
Problem read_problem(const ir::Op& op, int64_t rows, const ir::Coordinates* place = nullptr) {
  Problem problem;
  const int64_t cp = op.attributes.integer_or("cp", 1);
  problem.keys = op.attributes.integer("sequence");
  problem.queries = problem.keys / cp;
  const int64_t chunk_steps = problem.keys / (2 * cp) / kStep,
                index = place == nullptr ? 0 : run_of_neighbours(*place, cp);
  const int64_t chunks[2] = {index, 2 * cp - 1 - index};  // of the queries
  problem.causal = op.attributes.integer("causal") != 0;
  if (const int64_t turn = op.attributes.integer_or("turn", -1); turn >= 0) {
    problem.keys = problem.queries;
    const int64_t owner = ir::owner_in_turn(index, turn, cp, op.attributes.integer_or("inner", 1)),
                  owned[2] = {owner, 2 * cp - 1 - owner};  // chunks of the keys
    if (cp > 1) {
      problem.key_chunk = chunk_steps * kStep;
      for (int c = 0; c < 2; ++c) problem.key_chunk_begin[c] = owned[c] * problem.key_chunk;
    }
    if (problem.causal && turn > 0) {
      problem.of_others = true;
      problem.chunk_steps = chunk_steps;
      for (int c = 0; c < 2; ++c) {
        problem.chunk_seen[c] = ((owned[0] < chunks[c] ? 1 : 0) + (owned[1] < chunks[c] ? 1 : 0)) * chunk_steps;
      }
    }
  } else if (cp > 1) {
    problem.chunk_steps = chunk_steps;
    for (int c = 0; c < 2; ++c) problem.chunk_begin[c] = chunks[c] * chunk_steps;
  }
  problem.heads = op.attributes.integer("heads");
  problem.kv_heads = op.attributes.integer("kv_heads");
  problem.head_dim = op.attributes.integer("head_dim");
  problem.value_dim = op.attributes.integer("value_dim");
  problem.scale = static_cast<float>(op.attributes.number("scale"));
  problem.cap = static_cast<float>(op.attributes.number_or("cap", 0));
  HEDDLE_CHECK(rows % problem.queries == 0, "{}: {} rows are no whole number of sequences of {}", op.kind(), rows,
               problem.queries);
  problem.sequences = rows / problem.queries;
  return problem;
}

bool has_first_seen(const ir::Op& op) {
  const int at = ir::place_of("starts", op.def->operands);
  const bool starts = at >= 0 && at < static_cast<int>(op.in.size()) && op.in[at] != ir::none;
  return starts || op.attributes.integer_or("window", 0) > 0;
}
/// Bytes of first_seen, at the end of scratch.
int64_t first_seen_bytes(const ir::Op& op, int64_t rows) {
  return has_first_seen(op) ? attention::round_up(rows * static_cast<int64_t>(sizeof(int32_t)), 64) : 0;
}
template <class Path>
int64_t scratch_bytes(const ir::Op& op, int64_t rows, const Path& path) {
  return attention::round_up(attention::scratch_bytes(read_problem(op, rows), path), 64) +
         first_seen_bytes(op, rows);
}

/// The problem of a call with `rows` queries.
template <class Path>
Problem problem_of(const device::KernelCall& call, int64_t rows, const Path& path) {
  Problem problem = read_problem(*call.op, rows, call.place);
  if (!has_first_seen(*call.op)) return problem;
  const SeenKeys keys(*call.op, call.place, named_operand(call, "starts").as<const int32_t>());
  auto* const first =
      reinterpret_cast<int32_t*>(call.scratch + attention::round_up(attention::scratch_bytes(problem, path), 64));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t b = row / problem.queries, i = row % problem.queries;
    first[row] = static_cast<int32_t>(std::min(keys.first(b, i), keys.seen(i)));
  }
  problem.first_seen = first;
  return problem;
}

/// One way to compute both passes: what it takes, what it needs of the processor, and its paths.
struct Way {
  std::string_view name;
  Dtype dtype;
  const Support& (*machine)();
  const ForwardPath& forward;
  const BackwardPath& backward;
  /// Rows of which a chunk of a cut sequence is a multiple: the largest block of queries.
  int64_t chunk_unit() const { return std::max(forward.steps_per_block, backward.steps_per_block) * kStep; }
};

#if defined(__x86_64__)
constexpr Way kAmx{"amx", Dtype::bf16, amx_bf16, attention::kForwardAmx, attention::kBackwardAmx};
constexpr Way kAvx512Bf16{"avx512_bf16", Dtype::bf16, avx512_bf16, attention::kForwardAvx512Bf16,
                          attention::kBackwardAvx512Bf16};
constexpr Way kAvx512Widened{"avx512_widened", Dtype::bf16, avx512, attention::kForwardAvx512Widened,
                             attention::kBackwardAvx512Widened};
constexpr Way kAvx512{"avx512", Dtype::f32, avx512, attention::kForwardAvx512, attention::kBackwardAvx512};
#endif
/// Any processor: AVX2, NEON, SSE4 or plain numbers.
const Support& any_processor() {
  static const Support yes = (mask_highway(), Support::yes());
  return yes;
}
constexpr Way kHighway{"highway", Dtype::f32, any_processor, attention::kForwardHighway,
                       attention::kBackwardHighway};
constexpr Way kHighwayWidened{"highway_widened", Dtype::bf16, any_processor, attention::kForwardHighwayWidened,
                              attention::kBackwardHighwayWidened};

Support accepts(const ir::Listing& listing, const ir::Op& op, size_t tensors, const Way& way) {
  for (size_t i = 0; i < tensors; ++i) {
    const Dtype found = listing.value(op.in.at(i)).dtype;
    if (found != way.dtype)
      return Support::no(fmt::format("takes {}, input {} is {}", name_of(way.dtype), i, name_of(found)));
  }
  const ir::Attributes& a = op.attributes;
  for (const char* name : {"sequence", "heads", "kv_heads", "head_dim", "value_dim"}) {
    if (a.integer(name) < 1) return Support::no(fmt::format("{} is {}, wanted at least 1", name, a.integer(name)));
  }
  if (a.integer("heads") % a.integer("kv_heads") != 0) return Support::no("kv_heads does not divide heads");
  const int64_t cp = a.integer_or("cp", 1), unit = way.chunk_unit();
  if (cp > 1 && a.integer("sequence") % (2 * cp * unit) != 0) {
    return Support::no(
        fmt::format("chunks of {} ÷ {} positions are no multiple of {}", a.integer("sequence"), 2 * cp, unit));
  }
  if (a.has("rate") && !(way.forward.drops && way.backward.drops)) return Support::no("drops no probabilities");
  if (a.has("cap") && !(way.forward.caps && way.backward.caps)) return Support::no("caps no scores");
  // The running maximum is taken before the scale.
  if (!(a.number("scale") > 0)) return Support::no("the scale is not positive");
  return Support::yes();
}

template <const Way& way, size_t tensors>
Support supports(const ir::Listing& listing, const ir::Op& op) {
  const Support& machine = way.machine();
  return machine ? accepts(listing, op, tensors, way) : machine;
}

/// Rows of q, which stands at input `q_at`.
int64_t rows_of(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows, size_t q_at) {
  return listing.elements(op.in.at(q_at), rows) /
         (op.attributes.integer("heads") * op.attributes.integer("head_dim"));
}

template <const Way& way>
int64_t forward_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return scratch_bytes(op, rows_of(listing, op, rows, 0), way.forward);
}

template <const Way& way>
int64_t backward_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return scratch_bytes(op, rows_of(listing, op, rows, 1), way.backward);
}

template <const Way& way>
void forward(const device::KernelCall& call) {
  Operands operands;
  operands.q = call.in[0].data;
  operands.k = call.in[1].data;
  operands.v = call.in[2].data;
  operands.out = call.out[0].data;
  operands.lse = call.out[1].as<float>();
  operands.out_before = named_operand(call, "o_before").as<const float>();
  operands.lse_before = named_operand(call, "lse_before").as<const float>();
  if (const device::TensorView sinks = named_operand(call, "sinks"); sinks) {
    operands.sinks = sinks.as<const float>() + first_sink(*call.op, call.place);
  }
  operands.wide_out = call.out[0].dtype == Dtype::f32;
  const DroppedKeys dropped(call);
  Problem problem = problem_of(call, call.in[0].rows(), way.forward);
  problem.dropped = dropped ? &dropped : nullptr;
  attention::run(problem, operands, way.forward, call.scratch);
}

template <const Way& way>
void backward(const device::KernelCall& call) {
  Operands operands;
  operands.dout = call.in[0].data;
  operands.q = call.in[1].data;
  operands.k = call.in[2].data;
  operands.v = call.in[3].data;
  operands.out_saved = call.in[4].data;
  operands.lse_saved = call.in[5].as<float>();
  operands.dq = call.out[0].data;
  operands.dk = call.out[1].data;
  operands.dv = call.out[2].data;
  operands.dq_before = named_operand(call, "dq_before").as<const float>();
  operands.wide_dq = call.out[0].dtype == Dtype::f32;
  const DroppedKeys dropped(call);
  Problem problem = problem_of(call, call.in[1].rows(), way.backward);
  problem.dropped = dropped ? &dropped : nullptr;
  attention::run(problem, operands, way.backward, call.scratch);
}

template <const Way& way>
void append(std::vector<KernelEntry>& list) {
  list.push_back({"attention", "host", way.name, supports<way, 3>, forward_bytes<way>, forward<way>});
  list.push_back({"attention_dgrad", "host", way.name, supports<way, 5>, backward_bytes<way>, backward<way>});
  list.push_back({"attention_part", "host", way.name, supports<way, 3>, forward_bytes<way>, forward<way>});
  list.push_back({"attention_part_dgrad", "host", way.name, supports<way, 5>, backward_bytes<way>, backward<way>});
}

}  // namespace

const std::vector<KernelEntry>& attention_kernels() {
  static const std::vector<KernelEntry> entries = [] {
    std::vector<KernelEntry> list;
#if defined(__x86_64__)
    append<kAmx>(list);
    append<kAvx512Bf16>(list);
    append<kAvx512Widened>(list);
    append<kAvx512>(list);
#endif
    append<kHighway>(list);
    append<kHighwayWidened>(list);
    return list;
  }();
  return entries;
}

}  // namespace heddle::kernels::host
