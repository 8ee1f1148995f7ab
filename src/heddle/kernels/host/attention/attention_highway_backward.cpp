// Backward of attention by Highway: fp32, and bf16 widened as it is packed. The scheme is that of
// attention_avx512_backward.cpp:
//
//   p  = exp(scale·q kᵀ − lse)      delta = Σ do·o      dp = do vᵀ      ds = p·(dp − delta)
//   dv = pᵀ do                      dk = scale·dsᵀ q                    dq = scale·ds k
//
// It takes 64 queries × 64 keys at a time. Shared scratch sums dq of a query head and dk, dv of the unit in fp32,
// to write them out once. Where probabilities are dropped, dp and, behind ds, p are multiplied by the factors. With
// a cap c, c·tanh(s ÷ c) stands for the scores s, and ds has the factor 1 − tanh².
#include "heddle/kernels/host/simd_targets_to_avx2.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/attention/attention_highway_backward.cpp"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/attention/attention_highway-inl.h"
#include "heddle/kernels/host/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {

using attention::highway::kBlock;
using attention::highway::kRowsBlock;
using Shared = attention::highway::BackwardShared;
using Thread = attention::highway::BackwardThread;

void clear(float* sums, int64_t first_step, int64_t end_step, int64_t width) {
  std::memset(sums + first_step * kStep * width, 0,
              static_cast<size_t>((end_step - first_step) * kStep * width) * sizeof(float));
}

template <class X>
void pack_keys(const Task& task, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const HeadRows<const X> k = key_rows<const X>(task, task.operands.k, p.head_dim);
  pack_transposed(k, p.keys, first, end, s.k_t);
  pack_transposed(key_rows<const X>(task, task.operands.v, p.value_dim), p.keys, first, end, s.v_t);
  pack_padded(k, p.keys, first, end, s.k);
  clear(s.dk, first, end, s.width);
  clear(s.dv, first, end, s.value_width);
}

template <class X>
float dot(const X* a, const X* b, int64_t count) {
  Sum sum;
  sweep(count, [&](int64_t i, auto lanes, auto nth)
                   HEDDLE_BODY { sum.add_product(load(a + i, lanes), load(b + i, lanes), nth); });
  return sum.total();
}

template <class X>
void pack_queries(const Task& task, int64_t member, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const int64_t head = p.head(task.unit, member);
  const HeadRows<const X> dout = query_rows<const X>(task, task.operands.dout, head, p.value_dim);
  const HeadRows<const X> out = query_rows<const X>(task, task.operands.out_saved, head, p.value_dim);
  pack_padded(query_rows<const X>(task, task.operands.q, head, p.head_dim), p.queries, first, end, s.q);
  pack_padded(dout, p.queries, first, end, s.dout);
  for (int64_t r = first * kStep; r < end * kStep; ++r) {
    // A query that is not there has p = 1 and do = 0: it adds nothing.
    const bool there = r < p.queries;
    s.lse[r] = there ? task.operands.lse_saved[(p.first_query(task.unit) + r) * p.heads + head] : 0.0f;
    s.delta[r] = there ? dot(dout.row(r), out.row(r), p.value_dim) : 0.0f;
  }
  clear(s.dq, first, end, s.width);
}

/// p and ds of 32 queries × 32 keys; the scores stand in p and dp in ds. Row r may see the first
/// min(keys, seen + r·seen_more) keys, but of these, where `first` is given, none that stands before first[r] of
/// them.
void weigh(const Thread& t, const float* lse, const float* delta, const Problem& problem, int64_t keys,
           int64_t seen, int64_t seen_more, int64_t at, const int64_t* first) {
  const V scale_x = set(problem.scale), one = set(1.0f), raw_cap = set(problem.cap / problem.scale);
  for (int64_t r = 0; r < kStep; ++r, seen += seen_more) {
    const V lse_x = set(lse[r]), delta_x = set(delta[r]);
    const int64_t allowed = std::min(keys, seen);
    for (int64_t n = 0; n < kStep; n += kLanes) {
      float* const p = t.p + at + r * kRowsBlock + n;
      float* const ds = t.ds + at + r * kRowsBlock + n;
      V score = load(p, Whole{}), slope = one;
      if (problem.cap > 0) {
        const V bent = tanh_of(hn::Div(score, raw_cap));
        score = hn::Mul(raw_cap, bent);
        slope = hn::Mul(hn::Sub(one, bent), hn::Add(one, bent));
      }
      V weight = exp_up_to_88(hn::MulSub(score, scale_x, lse_x));
      if (n + kLanes > allowed) {
        const auto mask = hn::FirstN(Floats(), static_cast<size_t>(std::max<int64_t>(0, allowed - n)));
        weight = hn::IfThenElseZero(mask, weight);
      }
      if (first != nullptr && first[r] > n) {
        const auto unseen = hn::FirstN(Floats(), static_cast<size_t>(first[r] - n));
        weight = hn::IfThenZeroElse(unseen, weight);
      }
      store(weight, p, Whole{});
      V moved = hn::Mul(weight, hn::Sub(load(ds, Whole{}), delta_x));
      if (problem.cap > 0) moved = hn::Mul(moved, slope);
      store(moved, ds, Whole{});
    }
  }
}

template <class X>
void write_queries(const Task& task, int64_t member, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const int64_t head = p.head(task.unit, member), end_row = std::min(end * kStep, p.queries);
  const HeadRows<const float> sum = query_rows<const float>(task, task.operands.dq_before, head, p.head_dim);
  const HeadRows<const float>* const before = task.operands.dq_before != nullptr ? &sum : nullptr;
  const auto write = [&](const auto& dq)
                         HEDDLE_BODY { write_rows(dq, first * kStep, end_row, s.dq, s.width, p.scale, before); };
  if (task.operands.wide_dq) {
    write(query_rows<float>(task, task.operands.dq, head, p.head_dim));
  } else {
    write(query_rows<X>(task, task.operands.dq, head, p.head_dim));
  }
}

template <class X>
void write_keys(const Task& task, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const int64_t begin_row = first * kStep, end_row = std::min(end * kStep, p.keys);
  write_rows(key_rows<X>(task, task.operands.dk, p.head_dim), begin_row, end_row, s.dk, s.width, p.scale);
  write_rows(key_rows<X>(task, task.operands.dv, p.value_dim), begin_row, end_row, s.dv, s.value_width, 1.0f);
}

}  // namespace

void Accumulate(const Task& task, int64_t member, int64_t key_block, int64_t query_block) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const Thread t(task.thread);
  const int64_t first_key = key_block * kBlock, first_query = query_block * kBlock;  // in steps
  const int64_t keys = std::min(kBlock, p.key_steps() - first_key);
  const int64_t queries = std::min(kBlock, p.query_steps() - first_query);
  const bool on_diagonal = p.has_diagonal() && first_key == p.diagonal(first_query);
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t row = (first_query + i) * kStep;
    const int64_t end = on_diagonal ? std::min(keys, i + 1) : keys;
    for (int64_t j = 0; j < end; ++j) {
      const int64_t step = first_key + j, at = i * kStep * kRowsBlock + j * kStep;
      multiply(kStep, kStep, p.head_dim, {s.q + row * s.width, s.width, 1}, s.k_t + step * kStep * p.head_dim,
               kStep, t.p + at, kRowsBlock, false);
      multiply(kStep, kStep, p.value_dim, {s.dout + row * s.value_width, s.value_width, 1},
               s.v_t + step * kStep * p.value_dim, kStep, t.ds + at, kRowsBlock, false);
      const auto drop_of = [&](float* numbers) {
        if (p.dropped == nullptr) return;
        const int64_t head = p.head(task.unit, member);
        attention::drop(task, head, first_query + i, step * kStep, kStep, numbers + at, kRowsBlock);
      };
      drop_of(t.ds);
      const bool triangle = on_diagonal && i == j, hides = p.hides(task.unit, first_query + i, step * kStep);
      int64_t first_seen[kStep] = {};
      for (int64_t r = 0; r < p.rows_of(first_query + i) && hides; ++r) {
        first_seen[r] = p.first_seen[p.first_query(task.unit) + row + r] - step * kStep;
      }
      weigh(t, s.lse + row, s.delta + row, p, std::min(kStep, p.keys - step * kStep), triangle ? 1 : kStep,
            triangle ? 1 : 0, at, hides ? first_seen : nullptr);
      drop_of(t.p);
    }
    multiply(kStep, s.width, end * kStep, {t.ds + i * kStep * kRowsBlock, kRowsBlock, 1},
             s.k + first_key * kStep * s.width, s.width, s.dq + row * s.width, s.width, true);
  }
  for (int64_t j = 0; j < keys; ++j) {
    const int64_t begin = on_diagonal ? j : 0;
    if (begin >= queries) break;
    const int64_t key = (first_key + j) * kStep, row = (first_query + begin) * kStep;
    const int64_t at = begin * kStep * kRowsBlock + j * kStep, depth = (queries - begin) * kStep;
    multiply(kStep, s.value_width, depth, {t.p + at, 1, kRowsBlock}, s.dout + row * s.value_width, s.value_width,
             s.dv + key * s.value_width, s.value_width, true);
    multiply(kStep, s.width, depth, {t.ds + at, 1, kRowsBlock}, s.q + row * s.width, s.width, s.dk + key * s.width,
             s.width, true);
  }
}

void PackForBackwardF32(const Task& task, int64_t first, int64_t end) { pack_keys<float>(task, first, end); }
void PackForBackwardBf16(const Task& task, int64_t first, int64_t end) { pack_keys<bf16>(task, first, end); }
void PackQueriesF32(const Task& task, int64_t member, int64_t first, int64_t end) {
  pack_queries<float>(task, member, first, end);
}
void PackQueriesBf16(const Task& task, int64_t member, int64_t first, int64_t end) {
  pack_queries<bf16>(task, member, first, end);
}
void WriteQueriesF32(const Task& task, int64_t member, int64_t first, int64_t end) {
  write_queries<float>(task, member, first, end);
}
void WriteQueriesBf16(const Task& task, int64_t member, int64_t first, int64_t end) {
  write_queries<bf16>(task, member, first, end);
}
void WriteKeysF32(const Task& task, int64_t first, int64_t end) { write_keys<float>(task, first, end); }
void WriteKeysBf16(const Task& task, int64_t first, int64_t end) { write_keys<bf16>(task, first, end); }

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using attention::Problem;
using attention::Task;
HWY_EXPORT(Accumulate);
HWY_EXPORT(PackForBackwardF32);
HWY_EXPORT(PackForBackwardBf16);
HWY_EXPORT(PackQueriesF32);
HWY_EXPORT(PackQueriesBf16);
HWY_EXPORT(WriteQueriesF32);
HWY_EXPORT(WriteQueriesBf16);
HWY_EXPORT(WriteKeysF32);
HWY_EXPORT(WriteKeysBf16);

int64_t shared_bytes(const Problem& p) { return attention::highway::BackwardShared(p, nullptr).bytes; }
int64_t thread_bytes(const Problem&) { return attention::highway::BackwardThread(nullptr).bytes; }

void accumulate(const Task& task, int64_t member, int64_t j, int64_t i) {
  HWY_DYNAMIC_DISPATCH(Accumulate)(task, member, j, i);
}
template <class X>
void pack_keys(const Task& task, int64_t first, int64_t end) {
  std::is_same_v<X, bf16> ? HWY_DYNAMIC_DISPATCH(PackForBackwardBf16)(task, first, end)
                          : HWY_DYNAMIC_DISPATCH(PackForBackwardF32)(task, first, end);
}
template <class X>
void pack_queries(const Task& task, int64_t member, int64_t first, int64_t end) {
  std::is_same_v<X, bf16> ? HWY_DYNAMIC_DISPATCH(PackQueriesBf16)(task, member, first, end)
                          : HWY_DYNAMIC_DISPATCH(PackQueriesF32)(task, member, first, end);
}
template <class X>
void write_queries(const Task& task, int64_t member, int64_t first, int64_t end) {
  std::is_same_v<X, bf16> ? HWY_DYNAMIC_DISPATCH(WriteQueriesBf16)(task, member, first, end)
                          : HWY_DYNAMIC_DISPATCH(WriteQueriesF32)(task, member, first, end);
}
template <class X>
void write_keys(const Task& task, int64_t first, int64_t end) {
  std::is_same_v<X, bf16> ? HWY_DYNAMIC_DISPATCH(WriteKeysBf16)(task, first, end)
                          : HWY_DYNAMIC_DISPATCH(WriteKeysF32)(task, first, end);
}
}  // namespace

namespace attention {
const BackwardPath kBackwardHighway = {highway::kBlock,
                                       shared_bytes,
                                       thread_bytes,
                                       pack_keys<float>,
                                       pack_queries<float>,
                                       accumulate,
                                       write_queries<float>,
                                       write_keys<float>,
                                       true,
                                       true};
const BackwardPath kBackwardHighwayWidened = {highway::kBlock,
                                              shared_bytes,
                                              thread_bytes,
                                              pack_keys<bf16>,
                                              pack_queries<bf16>,
                                              accumulate,
                                              write_queries<bf16>,
                                              write_keys<bf16>,
                                              true,
                                              true};
}  // namespace attention

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
