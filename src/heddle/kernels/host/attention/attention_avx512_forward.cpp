// Forward of attention with AVX-512, in fp32 and bf16.
//
// It takes 32 queries and 128 keys at a time. First scores = q kᵀ (lanes run along keys, hence kᵀ is packed once a
// unit). Then they become probabilities, in place (attention_avx512_soften.h). Then out += probabilities · v.
#include "heddle/kernels/host/attention/attention_problem.h"

#if defined(__x86_64__)

#include <algorithm>

#include "heddle/kernels/host/attention/attention_avx512_pack.h"
#include "heddle/kernels/host/attention/attention_avx512_product.h"
#include "heddle/kernels/host/attention/attention_avx512_soften.h"

namespace heddle::kernels::host::attention {
namespace {

/// Probabilities take the place of their scores.
template <class Words>
constexpr WeightRows kInPlace = {kStep / Words::kPer, kKeys, kLanes* kKeys};

template <class Words>
struct Shared {
  Shared(const Problem& p, std::byte* base)
      : depth(divide_up(p.head_dim, Words::kPer)), value_width(round_up(p.value_dim, kLanes)) {
    Carver carver(base);
    k_t = carver.take<float>(p.key_steps() * depth * kStep);
    v = carver.take<float>(p.key_steps() * kStep / Words::kPer * value_width);
    bytes = carver.used();
  }
  float* k_panel(int64_t step) const { return k_t + step * depth * kStep; }
  float* v_rows(int64_t step) const { return v + step * kStep / Words::kPer * value_width; }
  int64_t depth, value_width;  // words of a key; Dv padded to 16
  float* k_t;                  // transposed: [step][words][32]
  float* v;                    // down: [S in words][Dv padded]
  int64_t bytes;
};

struct Thread {
  Thread(const Problem& p, std::byte* base) {
    Carver carver(base);
    q = carver.take<float>(kStep * round_up(p.head_dim, kLanes));
    scores = carver.take<float>(kStep * kKeys);
    running = take_running(carver, p);
    bytes = carver.used();
  }
  float* q;       // rows: [32][words padded]
  float* scores;  // [32][128], then the probabilities as words
  Running running;
  int64_t bytes;
};

template <class Words>
int64_t shared_bytes(const Problem& p) {
  return Shared<Words>(p, nullptr).bytes;
}
int64_t thread_bytes(const Problem& p) { return Thread(p, nullptr).bytes; }

template <class Words>
void pack_keys(const Task& task, int64_t first_step, int64_t end_step) {
  const Problem& p = task.problem;
  const Shared<Words> s(p, task.shared);
  pack_transposed(key_rows<Words>(task, task.operands.k, p.head_dim), first_step, end_step, s.k_panel(first_step));
  pack_down(key_rows<Words>(task, task.operands.v, p.value_dim), first_step, end_step, s.v_rows(first_step));
}

template <class Words>
void attend(const Task& task, int64_t member, int64_t block) {
  const Problem& p = task.problem;
  const Shared<Words> shared(p, task.shared);
  const Thread t(p, task.thread);
  const int64_t head = p.head(task.unit, member), first_row = block * kStep;
  const RowsOf<Words> q = query_rows<Words>(task, task.operands.q, head, p.head_dim);
  const int64_t width = shared.value_width, q_width = q.padded_depth(),
                rows = std::min(kStep, p.queries - first_row);
  const int64_t begin_step = p.begin_step(task.unit, block), end_step = p.seen_steps(block);
  if (begin_step >= end_step) return pass_on(task, head, first_row, rows);
  const float scale_log2 = p.scale * static_cast<float>(kLog2E);
  pack_rows(q, block, block + 1, t.q);
  begin(task, head, first_row, rows, t.running);

  uint32_t allowed[kStep];
  see_last_keys(p, allowed);
  for (int64_t first = begin_step; first < end_step; first += kGroup) {
    const int64_t steps = std::min(kGroup, end_step - first);
    for (int64_t s = 0; s < steps; ++s) {
      multiply<Words>(kStep, 2, shared.depth, {t.q, q_width, 1}, shared.k_panel(first + s), kStep,
                      t.scores + s * kStep, kKeys, false);
    }
    hide_unseen(task, block, first * kStep, steps * kStep, t.scores, kKeys);
    const bool masked = first + steps == end_step && (p.has_diagonal() || p.keys % kStep != 0);
    kSoftenRows<Words, kInPlace<Words>>[masked][steps - 1](t.running, t.scores, t.scores, 0, kStep, allowed,
                                                           scale_log2);
    multiply<Words>(kStep, width / kLanes, steps * kStep / Words::kPer, {t.scores, kKeys, 1}, shared.v_rows(first),
                    width, t.running.out, width, true);
  }
  finish<Words>(task, t.running, head, first_row, rows);
}

template <class Words>
constexpr ForwardPath kPath = {1, shared_bytes<Words>, thread_bytes, pack_keys<Words>, attend<Words>};

}  // namespace

const ForwardPath kForwardAvx512 = kPath<Fp32>;
const ForwardPath kForwardAvx512Widened = kPath<Bf16Widened>;
const ForwardPath kForwardAvx512Bf16 = kPath<Bf16Pairs>;

}  // namespace heddle::kernels::host::attention

#endif
