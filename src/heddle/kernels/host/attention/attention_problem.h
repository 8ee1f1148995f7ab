// One attention call: its sizes, its operands, and the two interfaces (forward, backward) that an instruction set
// implements and attention_schedule.cpp drives.
//
// Words: a *unit* is one (sequence, key head) with the query heads that read it. A *step* is 32 rows of a sequence,
// the grain of causal skipping. *Shared* scratch belongs to one unit in flight, *thread* scratch to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "heddle/kernels/dropped_keys.h"

namespace heddle::kernels::host::attention {

constexpr int64_t kStep = 32;
constexpr double kLog2E = 1.44269504088896340736;

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }
/// The lowest `count` bits, all of them from 32 on.
constexpr uint32_t bits_below(int64_t count) {
  return count >= 32 ? 0xffffffffu : count <= 0 ? 0u : (1u << count) - 1u;
}

struct Problem {
  int64_t sequences = 0;                // B
  int64_t queries = 1, keys = 1;        // Sq, S: rows of a sequence
  int64_t heads = 1, kv_heads = 1;      // Hq, Hk
  int64_t head_dim = 1, value_dim = 1;  // D, Dv
  bool causal = false;
  float scale = 1.0f;
  float cap = 0;  // scores s become c·tanh(s ÷ c); 0: they stay
  // In a sequence that is cut among ranks, the queries are two chunks. Number of their steps, and the steps of keys
  // at which they begin (all multiples of the path's block). 0: queries and keys are the same rows.
  int64_t chunk_steps = 0;
  int64_t chunk_begin[2] = {0, 0};
  // A part of the ring: the keys are another rank's share. Each query of a chunk sees the same first steps of it
  // (multiples of the path's block), all rows of them. The chunk of later positions sees at least as many.
  bool of_others = false;
  int64_t chunk_seen[2] = {0, 0};
  // For keys that are a rank's share: the rows of a chunk, and the positions at which its two begin; 0: a key's row
  // is its position.
  int64_t key_chunk = 0;
  int64_t key_chunk_begin[2] = {0, 0};

  // The first key row that each query row of the call sees in a window, or where documents are apart; it never
  // falls within a sequence. Null: the first of all.
  const int32_t* first_seen = nullptr;

  // The probabilities that are dropped; null: none.
  const DroppedKeys* dropped = nullptr;

  int64_t heads_per_unit() const { return heads / kv_heads; }
  int64_t units() const { return sequences * kv_heads; }
  int64_t query_steps() const { return divide_up(queries, kStep); }
  int64_t key_steps() const { return divide_up(keys, kStep); }
  int64_t first_query(int64_t unit) const { return unit / kv_heads * queries; }
  int64_t first_key(int64_t unit) const { return unit / kv_heads * keys; }
  /// True if the last step of keys that a step of queries sees holds the same positions.
  bool has_diagonal() const { return causal && !of_others; }
  /// The step of keys that holds the diagonal, where there is one.
  int64_t diagonal(int64_t query_step) const {
    if (chunk_steps == 0) return query_step;
    return query_step < chunk_steps ? chunk_begin[0] + query_step : chunk_begin[1] + query_step - chunk_steps;
  }
  /// Steps of keys that a step of queries sees.
  int64_t seen_steps(int64_t query_step) const {
    if (of_others) return chunk_seen[query_step < chunk_steps ? 0 : 1];
    return causal ? diagonal(query_step) + 1 : key_steps();
  }
  /// The first step of keys that a step of queries sees.
  int64_t begin_step(int64_t unit, int64_t query_step) const {
    return first_seen == nullptr ? 0 : first_seen[first_query(unit) + query_step * kStep] / kStep;
  }
  /// Rows of a step of queries that are there.
  int64_t rows_of(int64_t query_step) const { return std::min(kStep, queries - query_step * kStep); }
  /// True if some of them are blind to keys from this row on.
  bool hides(int64_t unit, int64_t query_step, int64_t key) const {
    if (first_seen == nullptr) return false;
    return first_seen[first_query(unit) + query_step * kStep + rows_of(query_step) - 1] > key;
  }
  /// The block of queries behind the last that sees a block of keys; `blocks` of them are there.
  int64_t end_query_block(int64_t unit, int64_t key_block, int64_t steps_per_block, int64_t blocks) const {
    if (first_seen == nullptr) return blocks;
    const int32_t* const rows = first_seen + first_query(unit);
    const auto end_key = static_cast<int32_t>((key_block + 1) * steps_per_block * kStep);
    return divide_up(std::lower_bound(rows, rows + queries, end_key) - rows, steps_per_block * kStep);
  }
  /// Steps of keys that some query sees.
  int64_t seen_steps() const { return seen_steps(query_steps() - 1); }
  /// The first block of queries that sees a block of keys; beyond the last one when none does.
  int64_t first_query_block(int64_t key_block, int64_t steps_per_block) const {
    const int64_t each = chunk_steps / steps_per_block;
    if (of_others) {
      for (int64_t c = 0; c < 2; ++c) {
        if (key_block * steps_per_block < chunk_seen[c]) return c * each;
      }
      return 2 * each;
    }
    if (!causal) return 0;
    if (chunk_steps == 0) return key_block;
    for (int64_t c = 0; c < 2; ++c) {
      const int64_t begin = chunk_begin[c] / steps_per_block;
      if (key_block < begin + each) return c * each + (key_block > begin ? key_block - begin : 0);
    }
    return 2 * each;
  }
  /// The position of a key row in the whole sequence, and how many rows from it on stand at those that follow.
  std::pair<int64_t, int64_t> run_of_key(int64_t key) const {
    if (key_chunk == 0) return {key, std::numeric_limits<int64_t>::max()};
    return {key_chunk_begin[key / key_chunk] + key % key_chunk, key_chunk - key % key_chunk};
  }
  int64_t kv_head(int64_t unit) const { return unit % kv_heads; }
  int64_t head(int64_t unit, int64_t member) const { return kv_head(unit) * heads_per_unit() + member; }
};

/// Row-major tensors of the call, of sequences × queries or × keys rows. Element type is that of the path, or f32
/// where said.
struct Operands {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  const void* dout = nullptr;        // backward
  const void* out_saved = nullptr;   // backward
  const float* lse_saved = nullptr;  // backward
  void* out = nullptr;               // forward
  float* lse = nullptr;              // forward
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  // A part of the ring joins what the parts before it have given, if any, and gives f32 for the parts after it.
  const float *out_before = nullptr, *lse_before = nullptr;  // forward
  const float* dq_before = nullptr;                          // backward
  bool wide_out = false, wide_dq = false;                    // out or dq is f32
  const float* sinks = nullptr;  // forward: of each head a score without a value, or null
};

/// The unit that this thread will likely work on next: a path may ask for its rows meanwhile. Each call of a unit
/// has its share of them.
struct Next {
  int64_t unit = -1;
  int64_t share = 0, shares = 1;
};

/// The reference of a row before it has met a key that it sees: finite, so that of unseen keys alone, whose scores
/// are −∞, nothing comes out but zeros.
constexpr float kUnmet = -1e30f;

struct Task {
  const Problem& problem;
  const Operands& operands;
  int64_t unit;
  std::byte* shared;
  std::byte* thread;
  Next next = {};
};

/// Scores of a step of queries and of `keys` keys from `first_key` on: those that a query sees none of become −∞.
inline void hide_unseen(const Task& task, int64_t query_step, int64_t first_key, int64_t keys, float* scores,
                        int64_t pitch) {
  const Problem& p = task.problem;
  if (!p.hides(task.unit, query_step, first_key)) return;
  const int32_t* const rows = p.first_seen + p.first_query(task.unit) + query_step * kStep;
  for (int64_t r = 0; r < p.rows_of(query_step); ++r) {
    const int64_t hidden = std::clamp<int64_t>(rows[r] - first_key, 0, keys);
    std::fill_n(scores + r * pitch, hidden, -std::numeric_limits<float>::infinity());
  }
}

/// Multiplies numbers of a step of queries and of `keys` keys from `first_key` on, a multiple of 4 each, by the
/// factors of dropout.
inline void drop(const Task& task, int64_t head, int64_t query_step, int64_t first_key, int64_t keys,
                 float* numbers, int64_t pitch) {
  const Problem& p = task.problem;
  constexpr int64_t kSome = 128;
  float factors[kSome];
  for (int64_t r = 0; r < p.rows_of(query_step); ++r) {
    const int64_t row = p.first_query(task.unit) + query_step * kStep + r;
    for (int64_t n = 0, count = 0; n < keys; n += count) {
      const auto [position, run] = p.run_of_key(first_key + n);
      count = std::min({kSome, keys - n, run});
      p.dropped->factors(row, head, position, count, factors);
      for (int64_t i = 0; i < count; ++i) numbers[r * pitch + n + i] *= factors[i];
    }
  }
}

/// Forward of one instruction set. Blocks of queries are independent once the unit's keys are packed.
struct ForwardPath {
  int64_t steps_per_block;  // of queries, and of keys packed at a time
  int64_t (*shared_bytes)(const Problem&);
  int64_t (*thread_bytes)(const Problem&);
  void (*pack_keys)(const Task&, int64_t first_step, int64_t end_step);
  void (*attend)(const Task&, int64_t member, int64_t block);
  bool drops = false;  // probabilities
  bool caps = false;   // scores
};

/// Backward of one instruction set. For each query head of the unit: pack_queries, then `accumulate` for every pair
/// of (key block j, query block i), then write_queries. The sums for key block j must meet i in increasing order
/// and those for query block i must meet j in increasing order; pairs that share neither are independent.
struct BackwardPath {
  int64_t steps_per_block;
  int64_t (*shared_bytes)(const Problem&);
  int64_t (*thread_bytes)(const Problem&);
  void (*pack_keys)(const Task&, int64_t first_step, int64_t end_step);
  void (*pack_queries)(const Task&, int64_t member, int64_t first_step, int64_t end_step);
  void (*accumulate)(const Task&, int64_t member, int64_t key_block, int64_t query_block);
  void (*write_queries)(const Task&, int64_t member, int64_t first_step, int64_t end_step);
  void (*write_keys)(const Task&, int64_t first_step, int64_t end_step);
  bool drops = false;  // probabilities
  bool caps = false;   // scores
};

extern const ForwardPath kForwardAmx, kForwardAvx512, kForwardAvx512Widened, kForwardAvx512Bf16;
extern const BackwardPath kBackwardAmx, kBackwardAvx512, kBackwardAvx512Widened, kBackwardAvx512Bf16;
extern const ForwardPath kForwardHighway, kForwardHighwayWidened;
extern const BackwardPath kBackwardHighway, kBackwardHighwayWidened;

/// Bytes that run_forward and run_backward need at `scratch`, for any number of threads of this process.
int64_t scratch_bytes(const Problem&, const ForwardPath&);
int64_t scratch_bytes(const Problem&, const BackwardPath&);
void run(const Problem&, const Operands&, const ForwardPath&, std::byte* scratch);
void run(const Problem&, const Operands&, const BackwardPath&, std::byte* scratch);

/// Hands out 64-byte aligned pieces of a scratch region; with no base it only measures.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    T* piece = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

}  // namespace heddle::kernels::host::attention
