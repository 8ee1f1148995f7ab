// recur and recur_dgrad of heads whose log decay is a constant (lightning attention), in bf16 with AVX512_BF16: the
// chunks of recurrence.cpp, with products of pairs of bf16.
//
// States and every sum are fp32. Rounded to bf16 are factors of a product alone: the state that queries read, its
// gradient, pairs of rows with their decays, and rows times their decays. With p(n) = exp(n·g) and C rows a chunk
//   N_ij = scale·p(i − j)·q_i·k_j (j ≤ i),  o_i = scale·p(i + 1)·q_i S_0 + Σ_j N_ij v_j
//   S = p(C)·S_0 + Σ_j (p(C − 1 − j)·k_j) v_jᵀ
// and, with P_ij = scale·p(i − j)·do_i·v_j and dS of the state behind the chunk
//   dv_j = p(C − 1 − j)·k_j dS + Σ_i N_ij do_i
//   dq_i = scale·p(i + 1)·S_0 do_i + Σ_j P_ij k_j,  dk_j = p(C − 1 − j)·dS v_j + Σ_i P_ij q_i
//   dS_0 = p(C)·dS + Σ_i (scale·p(i + 1)·q_i) do_iᵀ
//
// Layouts of a matrix as words, which are pairs along the summed dim (attention_avx512_words.h): rows, a word two
// columns; turned, its transpose; down, a word two rows.
#include "heddle/kernels/host/attention/attention_problem.h"

#if defined(__x86_64__)

#include "heddle/kernels/host/attention/attention_avx512_product.h"
#include "heddle/kernels/host/cpu_features.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/recurrence_room.h"
#include "heddle/kernels/host/transpose_words.h"

namespace heddle::kernels::host {
namespace {

using attention::Bf16Pairs;
using attention::kLanes;
using attention::Strided;
using device::KernelCall;

constexpr int64_t kBlock = 16;  // rows of a block of pairs
constexpr int64_t kPairs = kChunk / 2;

/// The working memory of one thread; with a null base it only counts.
struct PairsRoom {
  PairsRoom(const RecurSizes& s, bool gradients, std::byte* base)
      : dk(attention::round_up(s.dk, 32)), dv(attention::round_up(s.dv, 32)) {
    attention::Carver carver(base);
    for (float** rows : {&q, &k, &scaled}) *rows = carver.take<float>(kChunk * dk / 2);
    v = carver.take<float>(kChunk * dv / 2);
    k_turned = carver.take<float>(kPairs * dk);
    k_down = carver.take<float>(kPairs * dk);
    v_down = carver.take<float>(kPairs * dv);
    sums = carver.take<float>(kChunk * std::max(dk, dv));
    for (float** square : {&pairs, &decays}) *square = carver.take<float>(kChunk * kChunk);
    pair_rows = carver.take<float>(kChunk * kPairs);
    state = carver.take<float>(dk * dv);
    state_words = carver.take<float>(dk * dv / 2);
    powers = carver.take<float>(kChunk + 1);
    if (gradients) {
      d_out = carver.take<float>(kChunk * dv / 2);
      v_turned = carver.take<float>(kPairs * dv);
      d_out_down = carver.take<float>(kPairs * dv);
      q_down = carver.take<float>(kPairs * dk);
      pair_down = carver.take<float>(kPairs * kChunk);
      d_state = carver.take<float>(dk * dv);
      d_state_turned = carver.take<float>(dk * dv / 2);
      kept = carver.take<float>((s.S / kChunk + int64_t{s.goes_on}) * dk * dv / 2);
      chunks = carver.take<int32_t>(s.S + 1);
    }
    bytes = carver.used();
  }
  int64_t dk, dv;                                                    // padded
  float *q, *k, *v, *d_out = nullptr;                                // rows
  float *k_turned, *v_turned = nullptr;                              // [words of a row][64]
  float *k_down, *v_down, *q_down = nullptr, *d_out_down = nullptr;  // [32][columns]
  float* scaled;                                                     // rows, times a factor each
  float* sums;                                                       // [64][columns]
  float *pairs, *decays;  // [64][64]; decays: scale·p(i − j), zero above the diagonal
  float *pair_rows, *pair_down = nullptr;
  float *state, *state_words;  // [dk][dv]; down, or turned to be kept
  float *d_state = nullptr, *d_state_turned = nullptr;
  float* kept = nullptr;  // turned: states ahead of chunks that do not begin a document
  float* powers;          // p(n)
  int32_t* chunks = nullptr;
  int64_t bytes;
};

/// One sequence and head.
struct PairsTask {
  const KernelCall& call;
  const RecurSizes& s;
  int64_t sequence, head;
  PairsRoom room;
  double decay;  // of a row, its logarithm

  const bf16* rows(const char* name, int64_t width) const {
    return named_operand(call, name).as<const bf16>() + first(width);
  }
  int64_t first(int64_t width) const { return (sequence * s.S * s.h + head) * width; }
  const float* given_state(const char* name) const {
    const device::TensorView of = named_operand(call, name);
    return of ? of.as<const float>() + (sequence * s.all_heads + head) * s.dk * s.dv : nullptr;
  }
  const int32_t* starts() const { return named_operand(call, "starts").as<const int32_t>(); }
  bool begins_at(int64_t row, bool goes_on) const { return begins(starts(), sequence * s.S + row, s.S, goes_on); }
};

constexpr int64_t whole_blocks(int64_t rows) { return attention::round_up(rows, kBlock); }

/// Rows of bf16 as they lie, zeros around them.
HEDDLE_AVX512 void take_rows(const bf16* from, int64_t pitch, int64_t rows, int64_t width, int64_t padded_width,
                             float* to) {
  for (int64_t i = 0; i < kChunk; ++i, from += pitch) {
    for (int64_t c = 0; c < padded_width; c += 32, to += kLanes)
      _mm512_store_ps(to, i < rows ? Bf16Pairs::load_words(from + c, width - c) : _mm512_setzero_ps());
  }
}

/// Rows times a factor each, rounded.
HEDDLE_AVX512 void scale_words(const float* from, int64_t words, const float* factors, int64_t step, float factor,
                               float* to) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  for (int64_t i = 0; i < kChunk; ++i) {
    const __m512 f = _mm512_set1_ps(factor * factors[i * step]);
    for (int64_t c = 0; c < words; c += kLanes, from += kLanes, to += kLanes) {
      const __m512i x = _mm512_load_si512(from);
      const __m512 even = _mm512_mul_ps(f, _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)));
      const __m512 odd = _mm512_mul_ps(f, _mm512_castsi512_ps(_mm512_and_si512(x, upper)));
      const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even));
      const __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd));
      _mm512_store_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
  }
}

/// [64][words] → [32][2·words].
HEDDLE_AVX512 void down(const float* rows, int64_t words, float* to) {
  for (int64_t i = 0; i < kPairs; ++i, rows += 2 * words) {
    for (int64_t c = 0; c < words; c += kLanes, to += 2 * kLanes) {
      const __m512 first = _mm512_load_ps(rows + c), second = _mm512_load_ps(rows + words + c);
      _mm512_store_ps(to, Bf16Pairs::pairs_down<0>(first, second));
      _mm512_store_ps(to + kLanes, Bf16Pairs::pairs_down<1>(first, second));
    }
  }
}

/// [64][words] → [words][64].
HEDDLE_AVX512 void turned(const float* rows, int64_t words, float* to) {
  for (int64_t i = 0; i < kChunk; i += 16) {
    for (int64_t c = 0; c < words; c += 16) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int x = 0; x < 16; ++x) r[x] = _mm512_load_si512(rows + (i + x) * words + c);
      transpose_words(r);
#pragma GCC unroll 16
      for (int x = 0; x < 16; ++x) _mm512_store_si512(to + (c + x) * kChunk + i, r[x]);
    }
  }
}

/// A state [dk][dv] as words turned [dv in words][dk].
HEDDLE_AVX512 void state_turned(const float* state, int64_t dk, int64_t dv, float* to) {
  for (int64_t c = 0; c < dk; c += 16) {
    for (int64_t e = 0; e < dv; e += 32) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int x = 0; x < 16; ++x) {
        const float* row = state + (c + x) * dv + e;
        r[x] = _mm512_castps_si512(Bf16Pairs::pairs_across(_mm512_load_ps(row), _mm512_load_ps(row + kLanes)));
      }
      transpose_words(r);
#pragma GCC unroll 16
      for (int x = 0; x < 16; ++x) _mm512_store_si512(to + (e / 2 + x) * dk + c, r[x]);
    }
  }
}

/// Two rows of floats as words of (first, second).
HEDDLE_AVX512_INLINE __m512 words_down(__m512 first, __m512 second) {
  alignas(64) static constexpr std::array<uint16_t, 32> kOrder = [] {
    std::array<uint16_t, 32> order{};
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
    return order;
  }();
  const __m512i both = _mm512_castps_si512(Bf16Pairs::pairs_across(first, second));
  return _mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_load_si512(kOrder.data()), both));
}

/// A state as words down [dk in words][dv]; then it decays by `factor`.
HEDDLE_AVX512 void state_down(float* state, int64_t dk, int64_t dv, float factor, float* to) {
  const __m512 f = _mm512_set1_ps(factor);
  for (int64_t c = 0; c < dk; c += 2, state += 2 * dv) {
    for (int64_t e = 0; e < dv; e += kLanes, to += kLanes) {
      const __m512 first = _mm512_load_ps(state + e), second = _mm512_load_ps(state + dv + e);
      _mm512_store_ps(to, words_down(first, second));
      _mm512_store_ps(state + e, _mm512_mul_ps(f, first));
      _mm512_store_ps(state + dv + e, _mm512_mul_ps(f, second));
    }
  }
}

HEDDLE_AVX512 void multiply_all(float* x, int64_t count, float factor) {
  const __m512 f = _mm512_set1_ps(factor);
  for (int64_t i = 0; i < count; i += kLanes) _mm512_store_ps(x + i, _mm512_mul_ps(f, _mm512_load_ps(x + i)));
}

/// Row i times factor·factors[i·step].
HEDDLE_AVX512 void scale_sums(float* sums, int64_t rows, int64_t width, const float* factors, int64_t step,
                              float factor) {
  for (int64_t i = 0; i < rows; ++i) multiply_all(sums + i * width, width, factor * factors[i * step]);
}

HEDDLE_AVX512 void store_sums(const float* sums, int64_t width, int64_t rows, int64_t count, bf16* to,
                              int64_t pitch) {
  for (int64_t i = 0; i < rows; ++i, sums += width, to += pitch) {
    for (int64_t e = 0; e < count; e += kLanes) Bf16Pairs::store(to + e, count - e, _mm512_load_ps(sums + e));
  }
}

void load_state(const float* from, const PairsTask& task, float* to) {
  std::fill_n(to, task.room.dk * task.room.dv, 0.0f);
  for (int64_t c = 0; c < task.s.dk; ++c) std::copy_n(from + c * task.s.dv, task.s.dv, to + c * task.room.dv);
}

void fill_powers(const PairsTask& task) {
  for (int64_t n = 0; n <= kChunk; ++n)
    task.room.powers[n] = static_cast<float>(std::exp(static_cast<double>(n) * task.decay));
  for (int64_t i = 0; i < kChunk; ++i) {
    for (int64_t j = 0; j < kChunk; ++j)
      task.room.decays[i * kChunk + j] = j > i ? 0.0f : static_cast<float>(task.s.scale) * task.room.powers[i - j];
  }
}

/// pairs = decays ∘ (left · rightᵀ) in blocks up to the diagonal, as words of rows and, unless null, down.
HEDDLE_AVX512 void pair_words(const PairsRoom& r, int64_t rows, const float* left, const float* right_turned,
                              int64_t words, float* to_rows, float* to_down) {
  for (int64_t first = 0; first < rows; first += kBlock) {
    float* const block = r.pairs + first * kChunk;
    attention::multiply<Bf16Pairs>(kBlock, first / kBlock + 1, words, Strided{left + first * words, words, 1},
                                   right_turned, kChunk, block, kChunk, false);
    for (int64_t i = 0; i < kBlock; i += 2) {
      float *x = block + i * kChunk, *y = x + kChunk;
      const float *of_x = r.decays + (first + i) * kChunk, *of_y = of_x + kChunk;
      for (int64_t j = 0; j < first + kBlock; j += 2 * kLanes) {
        const bool whole = j + kLanes < first + kBlock;  // the last vector of an odd number has none beside it
        __m512 a[2], b[2];
        for (int half = 0; half < 2; ++half) {
          const int64_t at = j + half * kLanes;
          const bool there = half == 0 || whole;
          a[half] = there ? _mm512_mul_ps(_mm512_load_ps(of_x + at), _mm512_load_ps(x + at)) : _mm512_setzero_ps();
          b[half] = there ? _mm512_mul_ps(_mm512_load_ps(of_y + at), _mm512_load_ps(y + at)) : _mm512_setzero_ps();
        }
        if (to_rows != nullptr) {
          _mm512_store_ps(to_rows + (first + i) * kPairs + j / 2, Bf16Pairs::pairs_across(a[0], a[1]));
          _mm512_store_ps(to_rows + (first + i + 1) * kPairs + j / 2, Bf16Pairs::pairs_across(b[0], b[1]));
        }
        if (to_down != nullptr) {
          float* const to = to_down + (first + i) / 2 * kChunk + j;
          _mm512_store_ps(to, words_down(a[0], b[0]));
          if (whole) _mm512_store_ps(to + kLanes, words_down(a[1], b[1]));
        }
      }
    }
  }
}

/// sums +=, or =, (pairs as rows) · right, of rows up to the diagonal.
HEDDLE_AVX512 void add_earlier(const PairsRoom& r, int64_t rows, const float* right_down, int64_t width, bool add) {
  for (int64_t first = 0; first < rows; first += kBlock) {
    attention::multiply<Bf16Pairs>(kBlock, width / kLanes, (first + kBlock) / 2,
                                   Strided{r.pair_rows + first * kPairs, kPairs, 1}, right_down, width,
                                   r.sums + first * width, width, add);
  }
}

/// sums +=, or =, (pairs down)ᵀ · right, of rows from the diagonal on.
HEDDLE_AVX512 void add_later(const PairsRoom& r, int64_t rows, const float* right_down, int64_t width, bool add) {
  for (int64_t first = 0; first < rows; first += kBlock) {
    attention::multiply<Bf16Pairs>(kBlock, width / kLanes, (rows - first) / 2,
                                   Strided{r.pair_down + first / 2 * kChunk + first, 1, kChunk},
                                   right_down + first / 2 * width, width, r.sums + first * width, width, add);
  }
}

/// state += (rows times their decays)ᵀ · right, or = where it is not there yet.
HEDDLE_AVX512 void add_to_state(const PairsRoom& r, int64_t rows, const float* left_down, const float* right_down,
                                float* state, bool add) {
  attention::multiply<Bf16Pairs>(r.dk, r.dv / kLanes, rows / 2, Strided{left_down, 1, r.dk}, right_down, r.dv,
                                 state, r.dv, add);
}

HEDDLE_AVX512 void forward_pairs(const PairsTask& task) {
  const RecurSizes& s = task.s;
  const PairsRoom& r = task.room;
  const bf16 *q = task.rows("q", s.dk), *k = task.rows("k", s.dk), *v = task.rows("v", s.dv);
  bf16* const out = task.call.out[0].as<bf16>() + task.first(s.dv);
  fill_powers(task);
  for (int64_t begin = 0, end = 0; begin < s.S; begin = end) {
    end = chunk_end(task.starts(), task.sequence * s.S, begin, s.S);
    const int64_t rows = end - begin, whole = whole_blocks(rows);
    const bool fresh = task.begins_at(begin, s.goes_on);
    if (begin == 0 && !fresh) load_state(task.given_state("states"), task, r.state);
    take_rows(q + begin * s.h * s.dk, s.h * s.dk, rows, s.dk, r.dk, r.q);
    take_rows(k + begin * s.h * s.dk, s.h * s.dk, rows, s.dk, r.dk, r.k);
    take_rows(v + begin * s.h * s.dv, s.h * s.dv, rows, s.dv, r.dv, r.v);
    turned(r.k, r.dk / 2, r.k_turned);
    down(r.v, r.dv / 2, r.v_down);
    pair_words(r, whole, r.q, r.k_turned, r.dk / 2, r.pair_rows, nullptr);
    if (!fresh) {
      state_down(r.state, r.dk, r.dv, r.powers[rows], r.state_words);
      attention::multiply<Bf16Pairs>(whole, r.dv / kLanes, r.dk / 2, Strided{r.q, r.dk / 2, 1}, r.state_words, r.dv,
                                     r.sums, r.dv, false);
      scale_sums(r.sums, rows, r.dv, r.powers + 1, 1, static_cast<float>(s.scale));
    }
    add_earlier(r, whole, r.v_down, r.dv, !fresh);
    store_sums(r.sums, r.dv, rows, s.dv, out + begin * s.h * s.dv, s.h * s.dv);
    if (end == s.S || task.begins_at(end, false)) continue;  // nobody takes its state; such a chunk is whole
    scale_words(r.k, r.dk / 2, r.powers + kChunk - 1, -1, 1, r.scaled);
    down(r.scaled, r.dk / 2, r.k_down);
    add_to_state(r, whole, r.k_down, r.v_down, r.state, !fresh);
  }
}

/// The chunks of a sequence, and the states ahead of those that do not begin a document.
HEDDLE_AVX512 int64_t keep_states(const PairsTask& task, const bf16* k, const bf16* v) {
  const RecurSizes& s = task.s;
  const PairsRoom& r = task.room;
  int64_t chunks = 0, kept = 0;
  for (int64_t begin = 0; begin < s.S; begin = r.chunks[chunks]) {
    r.chunks[chunks++] = static_cast<int32_t>(begin);
    const int64_t end = chunk_end(task.starts(), task.sequence * s.S, begin, s.S);
    r.chunks[chunks] = static_cast<int32_t>(end);
    const bool fresh = task.begins_at(begin, s.goes_on);
    if (begin == 0 && !fresh) load_state(task.given_state("states"), task, r.state);
    if (!fresh) state_turned(r.state, r.dk, r.dv, r.kept + kept++ * r.dk * r.dv / 2);
    if (end == s.S || task.begins_at(end, false)) continue;
    take_rows(k + begin * s.h * s.dk, s.h * s.dk, end - begin, s.dk, r.dk, r.k);
    take_rows(v + begin * s.h * s.dv, s.h * s.dv, end - begin, s.dv, r.dv, r.v);
    down(r.v, r.dv / 2, r.v_down);
    scale_words(r.k, r.dk / 2, r.powers + kChunk - 1, -1, 1, r.scaled);
    down(r.scaled, r.dk / 2, r.k_down);
    if (!fresh) multiply_all(r.state, r.dk * r.dv, r.powers[kChunk]);
    add_to_state(r, kChunk, r.k_down, r.v_down, r.state, !fresh);
  }
  return chunks;
}

HEDDLE_AVX512 void backward_pairs(const PairsTask& task) {
  const RecurSizes& s = task.s;
  const PairsRoom& r = task.room;
  const auto scale = static_cast<float>(s.scale);
  const int64_t of_keys = s.h * s.dk, of_values = s.h * s.dv;
  const bf16 *q = task.rows("q", s.dk), *k = task.rows("k", s.dk), *v = task.rows("v", s.dv),
             *d_out = task.rows("do", s.dv);
  bf16 *d_q = task.call.out[0].as<bf16>() + task.first(s.dk), *d_k = task.call.out[1].as<bf16>() + task.first(s.dk),
       *d_v = task.call.out[2].as<bf16>() + task.first(s.dv);
  fill_powers(task);
  const int64_t chunks = keep_states(task, k, v);
  int64_t kept = 0;
  for (int64_t c = 0; c < chunks; ++c) kept += !task.begins_at(r.chunks[c], s.goes_on);
  for (int64_t c = chunks; c-- > 0;) {
    const int64_t begin = r.chunks[c], end = r.chunks[c + 1], rows = end - begin, whole = whole_blocks(rows);
    const bool fresh = task.begins_at(begin, s.goes_on);
    const float* const behind = end == s.S ? task.given_state("behind") : nullptr;
    const bool last = end == s.S ? behind == nullptr : task.begins_at(end, false);
    if (behind != nullptr) load_state(behind, task, r.d_state);
    const float* const to_end = r.powers + rows - 1;
    take_rows(q + begin * of_keys, of_keys, rows, s.dk, r.dk, r.q);
    take_rows(k + begin * of_keys, of_keys, rows, s.dk, r.dk, r.k);
    take_rows(v + begin * of_values, of_values, rows, s.dv, r.dv, r.v);
    take_rows(d_out + begin * of_values, of_values, rows, s.dv, r.dv, r.d_out);
    down(r.d_out, r.dv / 2, r.d_out_down);
    // Values.
    turned(r.k, r.dk / 2, r.k_turned);
    pair_words(r, whole, r.q, r.k_turned, r.dk / 2, nullptr, r.pair_down);
    if (!last) {
      state_turned(r.d_state, r.dk, r.dv, r.d_state_turned);
      state_down(r.d_state, r.dk, r.dv, r.powers[rows], r.state_words);
      attention::multiply<Bf16Pairs>(whole, r.dv / kLanes, r.dk / 2, Strided{r.k, r.dk / 2, 1}, r.state_words, r.dv,
                                     r.sums, r.dv, false);
      scale_sums(r.sums, rows, r.dv, to_end, -1, 1);
    }
    add_later(r, whole, r.d_out_down, r.dv, !last);
    store_sums(r.sums, r.dv, rows, s.dv, d_v + begin * of_values, of_values);
    // Queries.
    turned(r.v, r.dv / 2, r.v_turned);
    pair_words(r, whole, r.d_out, r.v_turned, r.dv / 2, r.pair_rows, r.pair_down);
    if (!fresh) {
      attention::multiply<Bf16Pairs>(whole, r.dk / kLanes, r.dv / 2, Strided{r.d_out, r.dv / 2, 1},
                                     r.kept + --kept * r.dk * r.dv / 2, r.dk, r.sums, r.dk, false);
      scale_sums(r.sums, rows, r.dk, r.powers + 1, 1, scale);
    }
    down(r.k, r.dk / 2, r.k_down);
    add_earlier(r, whole, r.k_down, r.dk, !fresh);
    store_sums(r.sums, r.dk, rows, s.dk, d_q + begin * of_keys, of_keys);
    // Keys.
    if (!last) {
      attention::multiply<Bf16Pairs>(whole, r.dk / kLanes, r.dv / 2, Strided{r.v, r.dv / 2, 1}, r.d_state_turned,
                                     r.dk, r.sums, r.dk, false);
      scale_sums(r.sums, rows, r.dk, to_end, -1, 1);
    }
    down(r.q, r.dk / 2, r.q_down);
    add_later(r, whole, r.q_down, r.dk, !last);
    store_sums(r.sums, r.dk, rows, s.dk, d_k + begin * of_keys, of_keys);
    if (fresh) continue;
    scale_words(r.q, r.dk / 2, r.powers + 1, 1, scale, r.scaled);
    down(r.scaled, r.dk / 2, r.q_down);
    add_to_state(r, whole, r.q_down, r.d_out_down, r.d_state, !last);
  }
}

int64_t tasks_of(const ir::Listing& listing, const ir::Op& op, const RecurSizes& s) {
  return listing.value(op.operand("q")).shape[0].count / s.S * s.h;
}
template <bool gradients>
int64_t pairs_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  const RecurSizes s(op);
  return std::min(most_threads(), tasks_of(listing, op, s)) * PairsRoom(s, gradients, nullptr).bytes;
}

template <bool gradients>
void run_pairs(const KernelCall& call) {
  const RecurSizes s(*call.op);
  const int64_t bytes = PairsRoom(s, gradients, nullptr).bytes, tasks = call.in[gradients].dim(0) / s.S * s.h;
  if (tasks == 0) return;
  const auto team = static_cast<int>(std::min<int64_t>({omp_get_max_threads(), most_threads(), tasks}));
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
  for (int64_t i = 0; i < tasks; ++i) {
    const PairsTask task{call,
                         s,
                         i / s.h,
                         i % s.h,
                         PairsRoom(s, gradients, call.scratch + omp_get_thread_num() * bytes),
                         slope_decay(*call.op, call.place, i % s.h)};
    gradients ? backward_pairs(task) : forward_pairs(task);
  }
}

Support takes_pairs(const ir::Listing& listing, const ir::Op& op) {
  if (!avx512_bf16()) return avx512_bf16();
  if (listing.value(op.operand("q")).dtype != Dtype::bf16) return Support::no("operands are not bf16");
  const RecurSizes s(op);
  if (s.delta || s.normed || s.h != s.hk) return Support::no("the delta rule, norms and shared keys are of chunks");
  for (const char* name : {"decay", "beta", "skip"}) {
    if (op.operand(name) != ir::none) return Support::no("decays, betas and skips are of chunks");
  }
  return Support::yes();
}

}  // namespace

std::vector<KernelEntry> recurrence_bf16_kernels() {
  return {{"recur", "host", "pairs of bf16", takes_pairs, pairs_bytes<false>, run_pairs<false>},
          {"recur_dgrad", "host", "pairs of bf16", takes_pairs, pairs_bytes<true>, run_pairs<true>}};
}

}  // namespace heddle::kernels::host

#else

#include "heddle/kernels/host/host.h"

namespace heddle::kernels::host {
std::vector<KernelEntry> recurrence_bf16_kernels() { return {}; }
}  // namespace heddle::kernels::host

#endif
