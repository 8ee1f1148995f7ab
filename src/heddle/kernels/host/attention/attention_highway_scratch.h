// The scratch of the Highway attention kernels: all of it fp32, whatever the type of the operands, which are
// widened as they are packed. The layouts are the same for every instruction set.
#pragma once

#include "heddle/kernels/host/attention/attention_problem.h"

namespace heddle::kernels::host::attention::highway {

constexpr int64_t kPad = 8;                // rows are padded to it: the widest vector
constexpr int64_t kGroup = 4;              // forward: steps of keys a pass
constexpr int64_t kKeys = kGroup * kStep;  // 128
constexpr int64_t kBlock = 2;              // backward: steps of queries and of keys
constexpr int64_t kRowsBlock = kBlock * kStep;

struct ForwardShared {
  ForwardShared(const Problem& p, std::byte* base) : value_width(round_up(p.value_dim, kPad)) {
    Carver carver(base);
    k_t = carver.take<float>(p.key_steps() * p.head_dim * kStep);
    v = carver.take<float>(p.key_steps() * kStep * value_width);
    bytes = carver.used();
  }
  int64_t value_width;
  float* k_t;  // [step][D][32]
  float* v;    // [S][Dv padded]
  int64_t bytes;
};

struct ForwardThread {
  ForwardThread(const Problem& p, std::byte* base) {
    Carver carver(base);
    q = carver.take<float>(kStep * p.head_dim);
    scores = carver.take<float>(kStep * kKeys);
    out = carver.take<float>(kStep * round_up(p.value_dim, kPad));
    sums = carver.take<float>(kStep * kPad);
    reference = carver.take<float>(kStep);
    limit = carver.take<float>(kStep);
    bytes = carver.used();
  }
  float* q;          // [32][D]
  float* scores;     // [32][128], then the probabilities
  float* out;        // [32][Dv padded]
  float* sums;       // [32][8], a row's sum is the sum of its lanes
  float* reference;  // [32], in units of the scaled score
  float* limit;      // [32], the raw score at which the reference must move
  int64_t bytes;
};

struct BackwardShared {
  BackwardShared(const Problem& p, std::byte* base)
      : width(round_up(p.head_dim, kPad)), value_width(round_up(p.value_dim, kPad)) {
    Carver carver(base);
    const int64_t keys = p.key_steps() * kStep, queries = p.query_steps() * kStep;
    k_t = carver.take<float>(keys * p.head_dim);
    v_t = carver.take<float>(keys * p.value_dim);
    k = carver.take<float>(keys * width);
    q = carver.take<float>(queries * width);
    dout = carver.take<float>(queries * value_width);
    lse = carver.take<float>(queries);
    delta = carver.take<float>(queries);
    dq = carver.take<float>(queries * width);
    dk = carver.take<float>(keys * width);
    dv = carver.take<float>(keys * value_width);
    bytes = carver.used();
  }
  int64_t width, value_width;  // D and Dv padded
  float *k_t, *v_t;            // [step][D][32], [step][Dv][32]
  float *k, *q, *dout;         // [S][D padded], the same, [S][Dv padded]
  float *lse, *delta;          // [S]
  float *dq, *dk, *dv;         // sums, as k and dout
  int64_t bytes;
};

struct BackwardThread {
  explicit BackwardThread(std::byte* base) {
    Carver carver(base);
    p = carver.take<float>(kRowsBlock * kRowsBlock);
    ds = carver.take<float>(kRowsBlock * kRowsBlock);
    bytes = carver.used();
  }
  float *p, *ds;  // [64 queries][64 keys]; ds holds dp first
  int64_t bytes;
};

}  // namespace heddle::kernels::host::attention::highway
