// The memory of the Highway recurrences, all of it fp32 (recurrence.cpp). Rows of dk and of dv numbers are padded
// with zeros to a multiple of kPad, so that products work by whole vectors.
#pragma once

#include <omp.h>

#include <algorithm>

#include "heddle/kernels/recurrence.h"

namespace heddle::kernels::host {

constexpr int64_t kChunk = 64;  // rows of a chunk, at most; none goes beyond its document
constexpr int64_t kSub = 16;    // rows of a block of a chunk
constexpr int64_t kPad = 16;    // a multiple of every vector
constexpr int64_t padded(int64_t n) { return (n + kPad - 1) / kPad * kPad; }

/// The end of the chunk that begins at a row of the sequence whose first row is `first`.
inline int64_t chunk_end(const int32_t* starts, int64_t first, int64_t begin, int64_t S) {
  const int64_t most = std::min(begin + kChunk, S);
  for (int64_t row = begin + 1; row < most; ++row) {
    if (begins(starts, first + row, S)) return row;
  }
  return most;
}

/// The results of a pass over the chunks.
enum class Recurring : uint8_t { outputs, state_gradient, gradients };

/// The working memory of one thread. With a null base it only counts.
struct RecurRoom {
  RecurRoom(const RecurSizes& s, Recurring pass, std::byte* base)
      : dkp(padded(s.dk)), dvp(padded(s.dv)), at_(reinterpret_cast<float*>(base)) {
    for (float** keys : {&q, &k, &q_begin, &k_begin, &k_end, &panel, &panel_factor, &heads, &tails})
      take(keys, kChunk * dkp);
    for (float** block : {&q_block, &k_block}) take(block, kSub * dkp);
    take(&totals, kChunk / kSub * dkp);
    for (float** values : {&v, &u, &w, &o}) take(values, kChunk * dvp);
    for (float** square : {&m, &n, &decays}) take(square, kChunk * kChunk);
    take(&turned, std::max(dkp, dvp) * kChunk);
    take(&state, s.dk * dvp);
    for (float** rows : {&beta, &from_begin, &to_end}) take(rows, kChunk);
    for (float** channels : {&whole, &running}) take(channels, dkp);
    if (pass == Recurring::outputs) return;
    for (float** values : {&d_w, &d_u}) take(values, kChunk * dvp);
    take(&d_state, s.dk * dvp);
    if (pass == Recurring::state_gradient) return;
    for (float** square : {&d_m, &d_n}) take(square, kChunk * kChunk);
    for (float** keys : {&d_q, &d_k_row, &d_k_column}) take(keys, kChunk * dkp);
    take(&d_whole, dkp);
    take(&d_decay, kChunk);
    take(&state_turned, dvp * dkp);
    take(&kept, (s.S / kChunk + int64_t{s.goes_on}) * s.dk * dvp);
    for (float** sums : {&sum_q, &sum_k}) take(sums, s.S * dkp);
    float* words = nullptr;
    take(&words, (s.S + 1 + kPad - 1) / kPad * kPad);
    chunks = reinterpret_cast<int32_t*>(words);
  }
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(float)); }

  int64_t dkp, dvp;
  float *q = nullptr, *k = nullptr;  // [64,dk]: normed, q scaled
  float *q_begin = nullptr, *k_begin = nullptr,
        *k_end = nullptr;                           // times the decay from the chunk's begin, to its end
  float *panel = nullptr, *panel_factor = nullptr;  // k of earlier blocks, decayed to a block's begin
  float *heads = nullptr,
        *tails = nullptr;  // log decays from a block's begin to a row, from a row to the block's end
  float *q_block = nullptr, *k_block = nullptr;                  // [16,dk]: decayed from the block's begin
  float* totals = nullptr;                                       // [4,dk]: log decays of blocks
  float *v = nullptr, *u = nullptr, *w = nullptr, *o = nullptr;  // [64,dv]; w = β·u
  float *m = nullptr, *n = nullptr, *decays = nullptr;  // [64,64]: k kᵀ and q kᵀ, with decays; decays by head
  float* turned = nullptr;                              // [dk or dv,64]
  float* state = nullptr;                               // [dk,dv]
  float *beta = nullptr, *from_begin = nullptr, *to_end = nullptr;  // [64]; decays by head
  float *whole = nullptr, *running = nullptr;  // [dk]: the decay of the chunk; a sum on the way
  float *d_w = nullptr, *d_u = nullptr, *d_m = nullptr, *d_n = nullptr;
  float *d_q = nullptr, *d_k_row = nullptr, *d_k_column = nullptr;
  float *d_state = nullptr, *d_whole = nullptr, *state_turned = nullptr;  // d_whole: of the chunk's log decay
  float* d_decay = nullptr;                                               // [64]: of log decays by head
  float* kept = nullptr;                     // states at the begin of chunks that do not begin a document
  float *sum_q = nullptr, *sum_k = nullptr;  // [S,dk] over the value heads of a key head
  int32_t* chunks = nullptr;                 // where chunks begin, and S

 private:
  void take(float** place, int64_t count) {
    if (at_ != nullptr) *place = at_ + count_;
    count_ += (count + kPad - 1) / kPad * kPad;
  }
  float* at_;
  int64_t count_ = 0;
};

/// An upper bound of threads that is the same when scratch is sized and when the kernel runs.
inline int64_t most_threads() {
  static const int64_t processors = std::max(1, omp_get_num_procs());
  return processors;
}

/// One sequence and head of a recurrence: a key head with its value heads for all gradients, else a value head.
struct RecurTask {
  const device::KernelCall& call;
  RecurSizes size;
  int64_t sequence, head;
  std::byte* room;
  float* skip_sums;  // [sequences, heads]; backward, where there is a skip
};

struct ScanSizes {
  ScanSizes(const ir::Op& op, int64_t columns)
      : heads(op.attributes.integer("heads")),
        pieces(op.attributes.integer("pieces")),
        dk(op.attributes.integer("head_dim")),
        dv(op.attributes.integer("value_dim")),
        width(columns / heads),
        reverse(op.attributes.integer_or("reverse", 0) != 0) {}
  bool is_matrix() const { return width == dk * dk; }
  int64_t heads, pieces, dk, dv, width;  // width: numbers of a transition
  bool reverse;
};

/// One sequence and head of a scan over pieces.
struct ScanTask {
  const device::KernelCall& call;
  const ScanSizes& size;
  int64_t sequence, head;
  std::byte* room;
};

}  // namespace heddle::kernels::host
