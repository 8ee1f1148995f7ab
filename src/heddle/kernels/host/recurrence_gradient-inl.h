// The gradients of a chunk of a recurrence (recurrence.cpp). The room has dO in `o`, the state before the chunk
// unless it is fresh, and the gradient of the state behind it unless it is its document's last. Compiled once for
// each instruction set.
#if defined(HEDDLE_KERNELS_HOST_RECURRENCE_GRADIENT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_RECURRENCE_GRADIENT_INL_H
#undef HEDDLE_KERNELS_HOST_RECURRENCE_GRADIENT_INL_H
#else
#define HEDDLE_KERNELS_HOST_RECURRENCE_GRADIENT_INL_H
#endif

#include "heddle/kernels/host/recurrence_chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

/// dw and du = β·dw: dw_j = Σ_i N_ij do_i + dSᵀ(decayed k_j), by the delta rule less Σ_i M_ij du_i over later rows.
HWY_INLINE void write_gradients(const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  if (!chunk.last)
    product<Into::set>(chunk.rows, r.dvp, chunk.s.dk, {r.k_end, r.dkp}, r.d_state, r.dvp, r.d_w, r.dvp);
  for (int64_t first = (chunk.rows - 1) / kSub * kSub; first >= 0; first -= kSub) {
    const int64_t end = std::min(first + kSub, chunk.rows);
    float* d_w = r.d_w + first * r.dvp;
    const Left n{r.n + first * kChunk + first, 1, kChunk};
    const float* d_o = r.o + first * r.dvp;
    chunk.last ? product<Into::set>(end - first, r.dvp, chunk.rows - first, n, d_o, r.dvp, d_w, r.dvp)
               : product<Into::add>(end - first, r.dvp, chunk.rows - first, n, d_o, r.dvp, d_w, r.dvp);
    if (chunk.s.delta && end < chunk.rows)
      product<Into::subtract>(end - first, r.dvp, chunk.rows - end, {r.m + end * kChunk + first, 1, kChunk},
                              r.d_u + end * r.dvp, r.dvp, d_w, r.dvp);
    for (int64_t j = end; j-- > first;) {
      for (int64_t i = j + 1; i < end && chunk.s.delta; ++i)
        add_row(-r.m[i * kChunk + j], r.d_u + i * r.dvp, r.dvp, r.d_w + j * r.dvp);
      scale_row(r.d_w + j * r.dvp, r.dvp, r.beta[j], r.d_u + j * r.dvp);
    }
  }
}

/// x ← x·y over padded rows.
HWY_INLINE void multiply_rows(float* x, const float* y, int64_t n) {
  for (int64_t e = 0; e < n; e += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(Floats(), x + e), hn::LoadU(Floats(), y + e)), Floats(), x + e);
}
/// to += x·y over padded rows.
HWY_INLINE void add_product_rows(const float* x, const float* y, int64_t n, float* to) {
  for (int64_t e = 0; e < n; e += kLanes)
    hn::StoreU(hn::MulAdd(hn::LoadU(Floats(), x + e), hn::LoadU(Floats(), y + e), hn::LoadU(Floats(), to + e)),
               Floats(), to + e);
}

/// x ← x·exp(a + b) over a padded row.
HWY_INLINE void decay_in_place(float* x, const float* a, const float* b, int64_t n) { decay_row(x, a, b, n, x); }

/// dN and dM where N and M are not zero, zero elsewhere in the blocks that have such places.
HWY_INLINE void pair_gradients(const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  transpose(chunk.rows, r.dvp, r.w, r.dvp, r.turned, kChunk, padded(chunk.rows));
  for (int64_t first = 0; first < chunk.rows; first += kSub) {
    const int64_t end = std::min(first + kSub, chunk.rows);
    product<Into::set>(end - first, first + kSub, chunk.s.dv, {r.o + first * r.dvp, r.dvp}, r.turned, kChunk,
                       r.d_n + first * kChunk, kChunk);
    if (chunk.s.delta)
      product<Into::set>(end - first, first + kSub, chunk.s.dv, {r.d_u + first * r.dvp, r.dvp}, r.turned, kChunk,
                         r.d_m + first * kChunk, kChunk);
    for (int64_t i = first; i < end; ++i) {
      std::fill(r.d_n + i * kChunk + i + 1, r.d_n + i * kChunk + first + kSub, 0.0f);
      if (!chunk.s.delta) continue;
      for (int64_t j = 0; j < i; ++j) r.d_m[i * kChunk + j] = -r.d_m[i * kChunk + j];
      std::fill(r.d_m + i * kChunk + i, r.d_m + i * kChunk + first + kSub, 0.0f);
    }
  }
}

/// Through M and N to q and k, decays of heads: these multiply the pairs.
HWY_INLINE void pairs_by_head(const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  const bool delta = chunk.s.delta;
  for (int64_t i = 0; i < chunk.rows; ++i) {
    multiply_rows(r.d_n + i * kChunk, r.decays + i * kChunk, padded(i + 1));
    if (delta) multiply_rows(r.d_m + i * kChunk, r.decays + i * kChunk, padded(i + 1));
  }
  for (int64_t first = 0; first < chunk.rows; first += kSub) {
    const int64_t end = std::min(first + kSub, chunk.rows), at = first * r.dkp, pair = first * kChunk;
    product<Into::add>(end - first, r.dkp, end, {r.d_n + pair, kChunk}, r.k, r.dkp, r.d_q + at, r.dkp);
    product<Into::add>(end - first, r.dkp, chunk.rows - first, {r.d_n + pair + first, 1, kChunk}, r.q + at, r.dkp,
                       r.d_k_column + at, r.dkp);
    if (!delta) continue;
    product<Into::add>(end - first, r.dkp, end, {r.d_m + pair, kChunk}, r.k, r.dkp, r.d_k_row + at, r.dkp);
    product<Into::add>(end - first, r.dkp, chunk.rows - first, {r.d_m + pair + first, 1, kChunk}, r.k + at, r.dkp,
                       r.d_k_column + at, r.dkp);
  }
}

/// Does the same where channels decay: a block of rows with the blocks before it by products, with itself pair by
/// pair.
HWY_INLINE void pairs_by_channel(const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  const bool delta = chunk.s.delta;
  float* const sums = r.q_begin;  // free: the states' part is done
  for (int64_t first = 0; first < chunk.rows; first += kSub) {
    const int64_t end = std::min(first + kSub, chunk.rows), block = end - first;
    const float *d_n = r.d_n + first * kChunk, *d_m = r.d_m + first * kChunk;
    if (first > 0) {
      load_panel(chunk, first);
      product<Into::set>(first, r.dkp, block, transposed(d_n, kChunk), r.q_block, r.dkp, sums, r.dkp);
      if (delta) product<Into::add>(first, r.dkp, block, transposed(d_m, kChunk), r.k_block, r.dkp, sums, r.dkp);
      for (int64_t j = 0; j < first; ++j)
        add_product_rows(sums + j * r.dkp, r.panel_factor + j * r.dkp, r.dkp, r.d_k_column + j * r.dkp);
      const auto of_rows = [&](const float* pairs, float* to) HEDDLE_BODY {
        product<Into::set>(block, r.dkp, first, {pairs, kChunk}, r.panel, r.dkp, sums, r.dkp);
        for (int64_t i = 0; i < block; ++i) {
          decay_in_place(sums + i * r.dkp, r.heads + (first + i) * r.dkp, nullptr, r.dkp);
          add_to(sums + i * r.dkp, r.dkp, to + (first + i) * r.dkp);
        }
      };
      of_rows(d_n, r.d_q);
      if (delta) of_rows(d_m, r.d_k_row);
    }
    for (int64_t i = first; i < end; ++i) {
      for (int64_t j = first; j <= i; ++j) {
        const V of_n = set(r.d_n[i * kChunk + j]), of_m = set(delta ? r.d_m[i * kChunk + j] : 0.0f);
        for (int64_t e = 0; e < r.dkp; e += kLanes) {
          const V decay = decay_between(r, i, j, e), key = hn::Mul(decay, hn::LoadU(Floats(), r.k + j * r.dkp + e));
          const auto add = [&](V factor, V x, float* to) HEDDLE_BODY {
            hn::StoreU(hn::MulAdd(factor, x, hn::LoadU(Floats(), to)), Floats(), to);
          };
          add(of_n, key, r.d_q + i * r.dkp + e);
          if (delta) add(of_m, key, r.d_k_row + i * r.dkp + e);
          const V from = hn::MulAdd(of_n, hn::LoadU(Floats(), r.q + i * r.dkp + e),
                                    hn::Mul(of_m, hn::LoadU(Floats(), r.k + i * r.dkp + e)));
          add(decay, from, r.d_k_column + j * r.dkp + e);
        }
      }
    }
  }
}

/// The gradients of a head's log decays, while dq and dk are still those of decayed rows. The decay of row i is a
/// factor of all that passes that row. Rows from i on read the state before the chunk and the rows before i. The
/// state behind the chunk has parts of both. Their terms are summed one by one: the same sum as a difference of
/// dq·q and dk·k, as channels have it, loses bits.
HWY_INLINE void head_decay_gradients(const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  double sums[kChunk] = {}, passing = 0;
  for (int64_t t = 0; t < chunk.rows; ++t) {
    const int64_t key = t * r.dkp, pair = t * kChunk;
    passing = static_cast<double>(dot_rows(r.q_begin + key, r.d_q + key, r.dkp)) +
              static_cast<double>(dot_rows(r.k_begin + key, r.d_k_row + key, r.dkp));
    for (int64_t i = 0; i <= t; ++i) {
      sums[i] += passing;
      passing += static_cast<double>(r.d_n[pair + i]) * static_cast<double>(r.n[pair + i]);
      if (chunk.s.delta) passing += static_cast<double>(r.d_m[pair + i]) * static_cast<double>(r.m[pair + i]);
    }
  }
  passing = 0;
  for (int64_t c = 0; c < chunk.s.dk; ++c) passing += static_cast<double>(r.d_whole[c]);
  for (int64_t i = 0; i < chunk.rows; ++i) {
    r.d_decay[i] = static_cast<float>(sums[i] + passing);
    passing += static_cast<double>(dot_rows(r.k_end + i * r.dkp, r.d_k_column + i * r.dkp, r.dkp));
  }
}

/// The gradient of the state before the chunk, from that of the state behind it.
HWY_INLINE void state_gradient(const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  const RecurSizes& s = chunk.s;
  if (chunk.last) {
    std::fill_n(r.d_state, s.dk * r.dvp, 0.0f);
  } else {
    for (int64_t c = 0; c < s.dk; ++c) scale_row(r.d_state + c * r.dvp, r.dvp, r.whole[c], r.d_state + c * r.dvp);
  }
  product<Into::add>(s.dk, r.dvp, chunk.rows, transposed(r.q_begin, r.dkp), r.o, r.dvp, r.d_state, r.dvp);
  if (s.delta)
    product<Into::subtract>(s.dk, r.dvp, chunk.rows, transposed(r.k_begin, r.dkp), r.d_u, r.dvp, r.d_state, r.dvp);
}

/// dq, the two parts of dk, the gradient of the chunk's decay, and that of the state before it unless it is fresh.
HWY_INLINE void score_gradients(const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  const RecurSizes& s = chunk.s;
  const int64_t keys = chunk.rows * r.dkp;
  pair_gradients(chunk);
  if (chunk.fresh) {
    std::fill_n(r.d_q, keys, 0.0f);
    std::fill_n(r.d_k_row, keys, 0.0f);
  } else {
    transpose(s.dk, r.dvp, r.state, r.dvp, r.state_turned, r.dkp, r.dkp);
    product<Into::set>(chunk.rows, r.dkp, s.dv, {r.o, r.dvp}, r.state_turned, r.dkp, r.d_q, r.dkp);
    std::fill_n(r.d_k_row, keys, 0.0f);
    if (s.delta)
      product<Into::subtract>(chunk.rows, r.dkp, s.dv, {r.d_u, r.dvp}, r.state_turned, r.dkp, r.d_k_row, r.dkp);
  }
  std::fill_n(r.d_whole, r.dkp, 0.0f);
  if (chunk.last) {
    std::fill_n(r.d_k_column, keys, 0.0f);
  } else {
    transpose(s.dk, r.dvp, r.d_state, r.dvp, r.state_turned, r.dkp, r.dkp);
    product<Into::set>(chunk.rows, r.dkp, s.dv, {r.w, r.dvp}, r.state_turned, r.dkp, r.d_k_column, r.dkp);
    for (int64_t i = 0; i < chunk.rows && chunk.by_channel; ++i)
      add_product_rows(r.d_k_column + i * r.dkp, r.k_end + i * r.dkp, r.dkp, r.d_whole);
    for (int64_t c = 0; c < s.dk && !chunk.fresh && chunk.learns; ++c)
      r.d_whole[c] += r.whole[c] * dot_rows(r.d_state + c * r.dvp, r.state + c * r.dvp, r.dvp);
  }
  if (!chunk.fresh) state_gradient(chunk);
  // From the decayed rows to the rows.
  if (chunk.by_channel) {
    std::fill_n(r.running, r.dkp, 0.0f);
    for (int64_t i = 0; i < chunk.rows && !chunk.fresh; ++i) {
      if (i > 0 && i % kSub == 0) add_to(r.totals + (i / kSub - 1) * r.dkp, r.dkp, r.running);
      for (float* of : {r.d_q, r.d_k_row}) decay_in_place(of + i * r.dkp, r.heads + i * r.dkp, r.running, r.dkp);
    }
    std::fill_n(r.running, r.dkp, 0.0f);
    for (int64_t i = chunk.rows; i-- > 0 && !chunk.last;) {
      if (i + 1 < chunk.rows && (i + 1) % kSub == 0) add_to(r.totals + (i + 1) / kSub * r.dkp, r.dkp, r.running);
      decay_in_place(r.d_k_column + i * r.dkp, r.tails + i * r.dkp, r.running, r.dkp);
    }
    pairs_by_channel(chunk);
  } else {
    if (chunk.learns) head_decay_gradients(chunk);
    for (int64_t i = 0; i < chunk.rows; ++i) {
      float *dq = r.d_q + i * r.dkp, *row = r.d_k_row + i * r.dkp, *column = r.d_k_column + i * r.dkp;
      scale_row(dq, r.dkp, r.from_begin[i], dq);
      scale_row(row, r.dkp, r.from_begin[i], row);
      scale_row(column, r.dkp, r.to_end[i], column);
    }
    pairs_by_head(chunk);
  }
}

/// Writes the gradients of a value head's own operands.
template <class X>
struct HeadGradients {
  HeadGradients(const RecurTask& task, const Operands<X>& operands, int64_t head)
      : from(operands), size(task.size) {
    const device::KernelCall& call = task.call;
    const int64_t value = task.sequence * size.S * size.h + head;
    size_t next = 3;
    d_v = call.out[2].as<X>() + value * size.dv;
    if (operands.decay != nullptr)
      d_decay = call.out[next++].as<float>() + value * (operands.by_channel ? size.dk : 1);
    if (named_operand(call, "beta")) {
      const device::TensorView& to = call.out[next];
      wide_d_beta = to.dtype == Dtype::f32 ? to.as<float>() + value : nullptr;
      d_beta = to.dtype == Dtype::f32 ? nullptr : to.as<bf16>() + value;
    }
  }

  void rows(const Chunk& chunk, int64_t begin) {
    const RecurRoom& r = chunk.room;
    for (int64_t i = 0; i < chunk.rows; ++i) {
      const float *d_u = r.d_u + i * r.dvp, *d_o = r.o + i * r.dvp;
      const V skip_v = set(from.skip);
      sweep(size.dv, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
        store(hn::MulAdd(skip_v, load(d_o + e, lanes), load(d_u + e, lanes)),
              d_v + (begin + i) * size.h * size.dv + e, lanes);
      });
      if (from.skips) skip += static_cast<double>(dot_rows(r.v + i * r.dvp, d_o, r.dvp));
      if (wide_d_beta == nullptr && d_beta == nullptr) continue;
      float d = dot_rows(r.d_w + i * r.dvp, r.u + i * r.dvp, r.dvp);
      if (size.sigmoid) d *= r.beta[i] * (1.0f - r.beta[i] / static_cast<float>(size.top));
      if (wide_d_beta != nullptr) wide_d_beta[(begin + i) * size.h] = d;
      if (d_beta != nullptr) d_beta[(begin + i) * size.h] = bf16(d);
    }
    if (d_decay == nullptr) return;
    if (!from.by_channel) {
      for (int64_t i = 0; i < chunk.rows; ++i) d_decay[(begin + i) * size.h] = r.d_decay[i];
      return;
    }
    // A log decay counts in all b from its row on, and in that of the chunk's end.
    for (int64_t i = chunk.rows; i-- > 0;) {
      const float *q = r.q + i * r.dkp, *k = r.k + i * r.dkp, *dq = r.d_q + i * r.dkp;
      const float *row = r.d_k_row + i * r.dkp, *column = r.d_k_column + i * r.dkp;
      const bool first = chunk.fresh && i == 0;  // it decays nothing
      float* to = d_decay + (begin + i) * size.h * size.dk;
      for (int64_t c = 0; c < size.dk; ++c) {
        r.d_whole[c] += q[c] * dq[c] + k[c] * (row[c] - column[c]);
        to[c] = first ? 0.0f : r.d_whole[c];
      }
    }
  }

  const Operands<X>& from;
  const RecurSizes& size;
  X* d_v;
  float *d_decay = nullptr, *wide_d_beta = nullptr;
  bf16* d_beta = nullptr;
  double skip = 0;
};

/// The gradient of a row of q or k from that of scale·x̂, where x̂ is x or the normed x.
template <class X>
HWY_INLINE void unnormed(const RecurSizes& s, const X* x, float scale, const float* d, X* to) {
  float factor = 1, along = 0;
  if (s.normed) {
    Sum squares, products;
    sweep(s.dk, [&](int64_t e, auto lanes, auto nth) HEDDLE_BODY {
      const V each = load(x + e, lanes);
      squares.add_product(each, each, nth);
      products.add_product(each, load(d + e, lanes), nth);
    });
    factor = 1.0f / std::sqrt(squares.total() + static_cast<float>(s.epsilon));
    along = factor * factor * products.total();
  }
  const V f = set(scale * factor), a = set(along);
  sweep(s.dk, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
    store(hn::Mul(f, hn::NegMulAdd(load(x + e, lanes), a, load(d + e, lanes))), to + e, lanes);
  });
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
