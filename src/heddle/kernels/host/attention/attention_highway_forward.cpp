// Forward of attention by Highway: fp32, and bf16 widened as it is packed. The scheme is that of
// attention_avx512_forward.cpp: 32 queries meet 128 keys at a time; scores, then one pass over each row that makes
// the probabilities, then out += probabilities · v. The reference that is subtracted before the exponential follows
// a row's maximum only when that has grown by more than kSlack.
#include "heddle/kernels/host/simd_targets_to_avx2.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/attention/attention_highway_forward.cpp"
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/attention/attention_highway-inl.h"
#include "heddle/kernels/host/attention/attention_running.h"
#include "heddle/kernels/host/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {

using attention::highway::kGroup;
using attention::highway::kKeys;
using Shared = attention::highway::ForwardShared;
using Thread = attention::highway::ForwardThread;

constexpr float kSlack = 6.0f;  // e^6 is far from overflow
constexpr float kNever = -std::numeric_limits<float>::infinity();

template <class X>
void pack_keys(const Task& task, int64_t first_step, int64_t end_step) {
  const Problem& p = task.problem;
  const Shared shared(p, task.shared);
  pack_transposed(key_rows<const X>(task, task.operands.k, p.head_dim), p.keys, first_step, end_step, shared.k_t);
  pack_padded(key_rows<const X>(task, task.operands.v, p.value_dim), p.keys, first_step, end_step, shared.v);
}

/// Moves the reference of a row to `highest` (a raw score) and rescales what has been summed.
HWY_NOINLINE void move_reference(const Thread& t, int64_t row, float highest, float scale, int64_t out_width) {
  const float reference = highest * scale;
  const V factor = set(std::exp(t.reference[row] - reference));
  float* const sums = t.sums + row * kPad;
  for (int64_t i = 0; i < kPad; i += kLanes) store(hn::Mul(load(sums + i, Whole{}), factor), sums + i, Whole{});
  float* const out = t.out + row * out_width;
  for (int64_t i = 0; i < out_width; i += kLanes) {
    store(hn::Mul(load(out + i, Whole{}), factor), out + i, Whole{});
  }
  t.reference[row] = reference;
  t.limit[row] = (reference + kSlack) / scale;
}

/// Scores to probabilities, in place, for 32 rows × `keys`. In the last 32 keys row r may see the first
/// seen + r·seen_more ones.
void soften(const Thread& t, int64_t keys, int64_t seen, int64_t seen_more, float scale, int64_t out_width) {
  const V lowest = set(kNever), scale_x = set(scale);
  for (int64_t row = 0; row < kStep; ++row, seen += seen_more) {
    float* const scores = t.scores + row * kKeys;
    for (int64_t i = seen / kLanes * kLanes; i < kStep; i += kLanes) {
      float* const at = scores + keys - kStep + i;
      const auto mask = hn::FirstN(Floats(), static_cast<size_t>(std::max<int64_t>(0, seen - i)));
      store(hn::IfThenElse(mask, load(at, Whole{}), lowest), at, Whole{});
    }
    V highest[2] = {lowest, lowest};
    for (int64_t n = 0; n < keys; n += 2 * kLanes) {
      highest[0] = hn::Max(highest[0], load(scores + n, Whole{}));
      highest[1] = hn::Max(highest[1], load(scores + n + kLanes, Whole{}));
    }
    const float most = hn::GetLane(hn::MaxOfLanes(Floats(), hn::Max(highest[0], highest[1])));
    if (most > t.limit[row]) move_reference(t, row, most, scale, out_width);
    const V reference = set(t.reference[row]);
    V sum = load(t.sums + row * kPad, Whole{});
    for (int64_t n = 0; n < keys; n += kLanes) {
      // 0, and not 2^-100, for a key that may not be seen.
      const V y = exp_up_to_88(hn::MulSub(load(scores + n, Whole{}), scale_x, reference));
      sum = hn::Add(sum, y);
      store(y, scores + n, Whole{});
    }
    store(sum, t.sums + row * kPad, Whole{});
  }
}

template <class X>
void finish(const Task& task, const Thread& t, int64_t head, int64_t first_row, int64_t rows) {
  const Problem& p = task.problem;
  const int64_t out_width = round_up(p.value_dim, kPad);
  const auto write = [&](const auto& out, int64_t row, float factor) HEDDLE_BODY {
    const std::remove_cvref_t<decltype(out)> to{out.row(first_row + row), out.stride, out.width};
    write_rows(to, 0, 1, t.out + row * out_width, out_width, factor);
  };
  for (int64_t row = 0; row < rows; ++row) {
    const float total = hn::GetLane(hn::SumOfLanes(Floats(), load(t.sums + row * kPad, Whole{})));
    const int64_t at = p.first_query(task.unit) + first_row + row;
    task.operands.lse[at * p.heads + head] = std::log(total) + t.reference[row];
    if (task.operands.wide_out) {
      write(query_rows<float>(task, task.operands.out, head, p.value_dim), row, 1.0f / total);
    } else {
      write(query_rows<X>(task, task.operands.out, head, p.value_dim), row, 1.0f / total);
    }
  }
}

template <class X>
void attend(const Task& task, int64_t member, int64_t block) {
  const Problem& p = task.problem;
  const Shared shared(p, task.shared);
  const Thread t(p, task.thread);
  const int64_t head = p.head(task.unit, member), first_row = block * kStep;
  const int64_t width = shared.value_width, rows = std::min(kStep, p.queries - first_row);
  const int64_t begin_step = p.begin_step(task.unit, block), end_step = p.seen_steps(block);
  if (begin_step >= end_step) return attention::pass_on(task, head, first_row, rows);
  copy_rows(query_rows<const X>(task, task.operands.q, head, p.head_dim), first_row, rows, kStep, t.q, p.head_dim);
  attention::begin(task, head, first_row, rows, {t.out, t.sums, t.reference, t.limit, width, kPad, 1.0f, kSlack});
  for (int64_t first = begin_step; first < end_step; first += kGroup) {
    const int64_t steps = std::min(kGroup, end_step - first);
    for (int64_t s = 0; s < steps; ++s) {
      multiply(kStep, kStep, p.head_dim, {t.q, p.head_dim, 1}, shared.k_t + (first + s) * p.head_dim * kStep, kStep,
               t.scores + s * kStep, kKeys, false);
    }
    for (int64_t r = 0; r < kStep && p.cap > 0; ++r) cap_row(p.cap / p.scale, steps * kStep, t.scores + r * kKeys);
    hide_unseen(task, block, first * kStep, steps * kStep, t.scores, kKeys);
    int64_t seen = kStep, seen_more = 0;
    if (first + steps == end_step) {
      seen = p.has_diagonal() ? 1 : p.keys - (p.key_steps() - 1) * kStep;
      seen_more = p.has_diagonal() ? 1 : 0;
    }
    soften(t, steps * kStep, seen, seen_more, p.scale, width);
    if (p.dropped != nullptr) attention::drop(task, head, block, first * kStep, steps * kStep, t.scores, kKeys);
    multiply(kStep, width, steps * kStep, {t.scores, kKeys, 1}, shared.v + first * kStep * width, width, t.out,
             width, true);
  }
  finish<X>(task, t, head, first_row, rows);
}

}  // namespace

void PackKeysF32(const Task& task, int64_t first, int64_t end) { pack_keys<float>(task, first, end); }
void PackKeysBf16(const Task& task, int64_t first, int64_t end) { pack_keys<bf16>(task, first, end); }
void AttendF32(const Task& task, int64_t member, int64_t block) { attend<float>(task, member, block); }
void AttendBf16(const Task& task, int64_t member, int64_t block) { attend<bf16>(task, member, block); }

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using attention::Problem;
using attention::Task;
HWY_EXPORT(PackKeysF32);
HWY_EXPORT(PackKeysBf16);
HWY_EXPORT(AttendF32);
HWY_EXPORT(AttendBf16);

int64_t shared_bytes(const Problem& p) { return attention::highway::ForwardShared(p, nullptr).bytes; }
int64_t thread_bytes(const Problem& p) { return attention::highway::ForwardThread(p, nullptr).bytes; }

void pack_f32(const Task& task, int64_t first, int64_t end) { HWY_DYNAMIC_DISPATCH(PackKeysF32)(task, first, end); }
void pack_bf16(const Task& task, int64_t first, int64_t end) {
  HWY_DYNAMIC_DISPATCH(PackKeysBf16)(task, first, end);
}
void attend_f32(const Task& task, int64_t member, int64_t block) {
  HWY_DYNAMIC_DISPATCH(AttendF32)(task, member, block);
}
void attend_bf16(const Task& task, int64_t member, int64_t block) {
  HWY_DYNAMIC_DISPATCH(AttendBf16)(task, member, block);
}
}  // namespace

namespace attention {
const ForwardPath kForwardHighway = {1, shared_bytes, thread_bytes, pack_f32, attend_f32, true, true};
const ForwardPath kForwardHighwayWidened = {1, shared_bytes, thread_bytes, pack_bf16, attend_bf16, true, true};
}  // namespace attention

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
