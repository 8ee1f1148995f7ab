// The chunk of a recurrence, forward (recurrence.cpp has the formulas). Compiled once for each instruction set.
#if defined(HEDDLE_KERNELS_HOST_RECURRENCE_CHUNK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_RECURRENCE_CHUNK_INL_H
#undef HEDDLE_KERNELS_HOST_RECURRENCE_CHUNK_INL_H
#else
#define HEDDLE_KERNELS_HOST_RECURRENCE_CHUNK_INL_H
#endif

#include "heddle/kernels/host/recurrence_room.h"
#include "heddle/kernels/host/small_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

struct Chunk {
  const RecurRoom& room;
  const RecurSizes& s;
  bool by_channel;     // decays
  bool fresh = false;  // it begins a document: the state before it is zero
  bool last = false;   // its document ends with it: nobody takes the state behind it
  bool reads = true;   // queries are there, and read the state
  bool learns = true;  // decays have a gradient: they are no slopes
  int64_t rows = 0;
};

/// The operands of a value head in one sequence, at its first row; of rows of a cache, at the first of all.
template <class X>
struct Operands {
  Operands(const RecurTask& task, int64_t head) : size(task.size) {
    const device::KernelCall& call = task.call;
    const bool cached = !call.updates.empty();  // then the rows of all sequences stand among one another
    const int64_t row = cached ? 0 : task.sequence * size.S, key = row * size.hk + head / size.group,
                  value = row * size.h + head;
    const auto rows = [&](const char* name, int64_t at) -> const X* {
      const device::TensorView of = named_operand(call, name);
      return of ? of.as<const X>() + at : nullptr;
    };
    d_out = rows("do", value * size.dv);
    q = rows("q", key * size.dk);
    k = rows("k", key * size.dk);
    v = rows("v", value * size.dv);
    const int64_t state = (task.sequence * size.all_heads + head) * size.dk * size.dv;
    const auto of_state = [&](const char* name) -> const float* {
      const device::TensorView of = cached ? device::TensorView() : named_operand(call, name);
      return of ? of.as<const float>() + state : nullptr;
    };
    before = of_state("states");
    behind = of_state("behind");
    if (const device::TensorView of = named_operand(call, "decay")) {
      by_channel = of.dim(1) != size.h;
      decay = of.as<const float>() + value * (by_channel ? size.dk : 1);
    }
    constant = slope_decay(*call.op, call.place, head);
    if (const device::TensorView of = named_operand(call, "beta")) {
      wide_beta = of.dtype == Dtype::f32 ? of.as<const float>() + value : nullptr;
      beta = of.dtype == Dtype::f32 ? nullptr : of.as<const bf16>() + value;
    }
    if (const device::TensorView of = named_operand(call, "skip")) {
      skips = true;
      skip = of.as<const float>()[first_of_part(*call.op, call.place, size.h) + head];
    }
  }
  float beta_of(int64_t t) const {
    if (wide_beta == nullptr && beta == nullptr) return 1;
    const float b = wide_beta != nullptr ? wide_beta[t * size.h] : static_cast<float>(beta[t * size.h]);
    return size.sigmoid ? static_cast<float>(size.top) / (1.0f + std::exp(-b)) : b;
  }
  const RecurSizes& size;
  const X *d_out, *q, *k, *v;
  const float *before, *behind;  // [dk,dv]: the state ahead of the rows, the gradient of that behind them
  const float *decay = nullptr, *wide_beta = nullptr;
  const bf16* beta = nullptr;
  double constant = 0;
  float skip = 0;
  bool by_channel = false, skips = false;
};

/// Rows of `width` numbers, widened, with zeros behind them to a multiple of kPad.
template <class X>
HWY_INLINE void load_rows(const X* from, int64_t from_pitch, int64_t begin, int64_t rows, int64_t width, float* to,
                          int64_t pitch) {
  for (int64_t i = 0; i < rows; ++i) {
    std::fill(to + i * pitch + width, to + (i + 1) * pitch, 0.0f);
    const X* x = from + (begin + i) * from_pitch;
    sweep(width,
          [&](int64_t e, auto lanes, auto) HEDDLE_BODY { store(load(x + e, lanes), to + i * pitch + e, lanes); });
  }
}

/// to = factor·x over a padded row.
HWY_INLINE void scale_row(const float* x, int64_t n, float factor, float* to) {
  const V f = set(factor);
  for (int64_t e = 0; e < n; e += kLanes) hn::StoreU(hn::Mul(f, hn::LoadU(Floats(), x + e)), Floats(), to + e);
}
/// to += factor·x, over a padded row.
HWY_INLINE void add_row(float factor, const float* x, int64_t n, float* to) {
  const V f = set(factor);
  for (int64_t e = 0; e < n; e += kLanes)
    hn::StoreU(hn::MulAdd(f, hn::LoadU(Floats(), x + e), hn::LoadU(Floats(), to + e)), Floats(), to + e);
}
HWY_INLINE float dot_rows(const float* x, const float* y, int64_t n) {
  V sum = zero();
  for (int64_t e = 0; e < n; e += kLanes)
    sum = hn::MulAdd(hn::LoadU(Floats(), x + e), hn::LoadU(Floats(), y + e), sum);
  return hn::GetLane(hn::SumOfLanes(Floats(), sum));
}

/// to = x·exp(a + b), over a padded row; b may be null. `factors`, unless null, gets the exponential.
HWY_INLINE void decay_row(const float* x, const float* a, const float* b, int64_t n, float* to,
                          float* factors = nullptr) {
  for (int64_t e = 0; e < n; e += kLanes) {
    V power = hn::LoadU(Floats(), a + e);
    if (b != nullptr) power = hn::Add(power, hn::LoadU(Floats(), b + e));
    const V factor = exp_up_to_88(at_most(set(88.0f), power));
    if (factors != nullptr) hn::StoreU(factor, Floats(), factors + e);
    hn::StoreU(hn::Mul(hn::LoadU(Floats(), x + e), factor), Floats(), to + e);
  }
}
HWY_INLINE void add_to(const float* x, int64_t n, float* to) { add_row(1.0f, x, n, to); }

/// One decay a head: the factors of rows, and of pairs of them.
template <class X>
HWY_INLINE void load_head_decays(const Operands<X>& from, int64_t begin, const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  double sums[kChunk + 1] = {0};  // before each row, and in all
  for (int64_t i = 0; i < chunk.rows; ++i)
    sums[i + 1] = sums[i] + (from.decay != nullptr ? static_cast<double>(from.decay[(begin + i) * chunk.s.h])
                                                   : from.constant);
  const double all = sums[chunk.rows];
  for (int64_t i = 0; i < chunk.rows; ++i) {
    r.from_begin[i] = static_cast<float>(std::exp(sums[i + 1]));
    r.to_end[i] = static_cast<float>(std::exp(all - sums[i + 1]));
    if (chunk.reads) scale_row(r.q + i * r.dkp, r.dkp, r.from_begin[i], r.q_begin + i * r.dkp);
    scale_row(r.k + i * r.dkp, r.dkp, r.from_begin[i], r.k_begin + i * r.dkp);
    scale_row(r.k + i * r.dkp, r.dkp, r.to_end[i], r.k_end + i * r.dkp);
    float* pairs = r.decays + i * kChunk;
    for (int64_t j = 0; j <= i; ++j) pairs[j] = static_cast<float>(sums[i + 1] - sums[j + 1]);
    for (int64_t j = 0; j <= i; j += kLanes)
      hn::StoreU(exp_up_to_88(at_most(set(88.0f), hn::LoadU(Floats(), pairs + j))), Floats(), pairs + j);
    std::fill(pairs + i + 1, pairs + kChunk, 0.0f);
  }
  std::fill_n(r.whole, r.dkp, static_cast<float>(std::exp(all)));
}

/// A decay a channel: sums of logarithms by blocks of rows.
template <class X>
HWY_INLINE void load_channel_decays(const Operands<X>& from, int64_t begin, const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  load_rows(from.decay, chunk.s.h * chunk.s.dk, begin, chunk.rows, chunk.s.dk, r.heads, r.dkp);
  std::fill_n(r.running, r.dkp, 0.0f);
  for (int64_t first = 0; first < chunk.rows; first += kSub) {
    const int64_t end = std::min(first + kSub, chunk.rows);
    std::fill_n(r.tails + (end - 1) * r.dkp, r.dkp, 0.0f);
    for (int64_t i = end - 1; i-- > first;) {
      std::copy_n(r.tails + (i + 1) * r.dkp, r.dkp, r.tails + i * r.dkp);
      add_to(r.heads + (i + 1) * r.dkp, r.dkp, r.tails + i * r.dkp);
    }
    for (int64_t i = first; i < end; ++i) {
      if (i > first) add_to(r.heads + (i - 1) * r.dkp, r.dkp, r.heads + i * r.dkp);
      if (chunk.reads) decay_row(r.q + i * r.dkp, r.heads + i * r.dkp, r.running, r.dkp, r.q_begin + i * r.dkp);
      decay_row(r.k + i * r.dkp, r.heads + i * r.dkp, r.running, r.dkp, r.k_begin + i * r.dkp);
    }
    float* total = r.totals + first / kSub * r.dkp;
    std::copy_n(r.heads + (end - 1) * r.dkp, r.dkp, total);
    add_to(total, r.dkp, r.running);
  }
  std::fill_n(r.whole, r.dkp, 1.0f);
  decay_row(r.whole, r.running, nullptr, r.dkp, r.whole);
  std::fill_n(r.running, r.dkp, 0.0f);
  for (int64_t block = (chunk.rows - 1) / kSub; block >= 0; --block) {
    for (int64_t i = block * kSub; i < std::min((block + 1) * kSub, chunk.rows); ++i)
      decay_row(r.k + i * r.dkp, r.tails + i * r.dkp, r.running, r.dkp, r.k_end + i * r.dkp);
    add_to(r.totals + block * r.dkp, r.dkp, r.running);
  }
}

/// q and k normed and q scaled, v, β, and what decays make of them.
template <class X>
HWY_INLINE void load_chunk(const Operands<X>& from, int64_t begin, int64_t end, Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  const RecurSizes& s = chunk.s;
  chunk.rows = end - begin;
  if (chunk.reads) load_rows(from.q, s.hk * s.dk, begin, chunk.rows, s.dk, r.q, r.dkp);
  load_rows(from.k, s.hk * s.dk, begin, chunk.rows, s.dk, r.k, r.dkp);
  if (from.v != nullptr) {
    const int64_t dv = from.size.dv;
    load_rows(from.v, s.h * dv, begin, chunk.rows, dv, r.v, r.dvp);
  }
  for (int64_t i = 0; i < chunk.rows; ++i) {
    const auto factor = [&](const float* x) HEDDLE_BODY {
      return s.normed ? 1.0f / std::sqrt(dot_rows(x, x, r.dkp) + static_cast<float>(s.epsilon)) : 1.0f;
    };
    float *q = r.q + i * r.dkp, *k = r.k + i * r.dkp;
    if (chunk.reads) scale_row(q, r.dkp, static_cast<float>(s.scale) * factor(q), q);
    if (s.normed) scale_row(k, r.dkp, factor(k), k);
    r.beta[i] = from.beta_of(begin + i);
  }
  chunk.by_channel ? load_channel_decays(from, begin, chunk) : load_head_decays(from, begin, chunk);
}

/// k of the rows before a block, decayed from each to the block's begin; and q and k of the block from there.
HWY_INLINE void load_panel(const Chunk& chunk, int64_t first) {
  const RecurRoom& r = chunk.room;
  std::fill_n(r.running, r.dkp, 0.0f);
  for (int64_t block = first / kSub; block-- > 0;) {
    for (int64_t j = block * kSub; j < (block + 1) * kSub; ++j)
      decay_row(r.k + j * r.dkp, r.tails + j * r.dkp, r.running, r.dkp, r.panel + j * r.dkp,
                r.panel_factor + j * r.dkp);
    add_to(r.totals + block * r.dkp, r.dkp, r.running);
  }
  for (int64_t i = first; i < std::min(first + kSub, chunk.rows); ++i) {
    if (chunk.reads)
      decay_row(r.q + i * r.dkp, r.heads + i * r.dkp, nullptr, r.dkp, r.q_block + (i - first) * r.dkp);
    decay_row(r.k + i * r.dkp, r.heads + i * r.dkp, nullptr, r.dkp, r.k_block + (i - first) * r.dkp);
  }
}

/// The decay from row j to row i of one block, at channels from e on.
HWY_INLINE V decay_between(const RecurRoom& r, int64_t i, int64_t j, int64_t e) {
  return exp_up_to_88(at_most(set(88.0f), hn::Sub(hn::LoadU(Floats(), r.heads + i * r.dkp + e),
                                                  hn::LoadU(Floats(), r.heads + j * r.dkp + e))));
}

/// M and, of a chunk that reads, N; zero above the diagonal; M on it, too.
HWY_INLINE void scores(const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  const RecurSizes& s = chunk.s;
  if (!chunk.by_channel) transpose(chunk.rows, r.dkp, r.k, r.dkp, r.turned, kChunk, padded(chunk.rows));
  for (int64_t first = 0; first < chunk.rows; first += kSub) {
    const int64_t end = std::min(first + kSub, chunk.rows), block = end - first;
    float *m = r.m + first * kChunk, *n = r.n + first * kChunk;
    if (!chunk.by_channel) {
      if (s.delta)
        product<Into::set>(block, first + kSub, s.dk, {r.k + first * r.dkp, r.dkp}, r.turned, kChunk, m, kChunk);
      if (chunk.reads)
        product<Into::set>(block, first + kSub, s.dk, {r.q + first * r.dkp, r.dkp}, r.turned, kChunk, n, kChunk);
      for (int64_t i = first; i < end; ++i) {
        for (int64_t j = 0; j < first + kSub; j += kLanes) {
          const V decay = hn::LoadU(Floats(), r.decays + i * kChunk + j);
          for (float* of : {r.m + i * kChunk + j, r.n + i * kChunk + j})
            hn::StoreU(hn::Mul(decay, hn::LoadU(Floats(), of)), Floats(), of);
        }
        r.m[i * kChunk + i] = 0;
      }
      continue;
    }
    load_panel(chunk, first);
    transpose(first, r.dkp, r.panel, r.dkp, r.turned, kChunk, first);
    if (s.delta) product<Into::set>(block, first, s.dk, {r.k_block, r.dkp}, r.turned, kChunk, m, kChunk);
    if (chunk.reads) product<Into::set>(block, first, s.dk, {r.q_block, r.dkp}, r.turned, kChunk, n, kChunk);
    for (int64_t i = first; i < end; ++i) {
      std::fill(r.m + i * kChunk + first, r.m + i * kChunk + first + kSub, 0.0f);
      std::fill(r.n + i * kChunk + first, r.n + i * kChunk + first + kSub, 0.0f);
      for (int64_t j = first; j <= i; ++j) {
        V of_k = zero(), of_q = zero();
        for (int64_t e = 0; e < r.dkp; e += kLanes) {
          const V key = hn::Mul(hn::LoadU(Floats(), r.k + j * r.dkp + e), decay_between(r, i, j, e));
          of_k = hn::MulAdd(key, hn::LoadU(Floats(), r.k + i * r.dkp + e), of_k);
          if (chunk.reads) of_q = hn::MulAdd(key, hn::LoadU(Floats(), r.q + i * r.dkp + e), of_q);
        }
        r.n[i * kChunk + j] = hn::GetLane(hn::SumOfLanes(Floats(), of_q));
        if (j < i) r.m[i * kChunk + j] = hn::GetLane(hn::SumOfLanes(Floats(), of_k));
      }
    }
  }
}

/// u and w.
HWY_INLINE void writes(const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  std::copy_n(r.v, chunk.rows * r.dvp, r.u);
  if (chunk.s.delta && !chunk.fresh)
    product<Into::subtract>(chunk.rows, r.dvp, chunk.s.dk, {r.k_begin, r.dkp}, r.state, r.dvp, r.u, r.dvp);
  for (int64_t first = 0; first < chunk.rows; first += kSub) {
    const int64_t end = std::min(first + kSub, chunk.rows);
    if (chunk.s.delta)
      product<Into::subtract>(end - first, r.dvp, first, {r.m + first * kChunk, kChunk}, r.w, r.dvp,
                              r.u + first * r.dvp, r.dvp);
    for (int64_t i = first; i < end; ++i) {
      for (int64_t j = first; j < i && chunk.s.delta; ++j)
        add_row(-r.m[i * kChunk + j], r.w + j * r.dvp, r.dvp, r.u + i * r.dvp);
      scale_row(r.u + i * r.dvp, r.dvp, r.beta[i], r.w + i * r.dvp);
    }
  }
}

HWY_INLINE void outputs(const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  if (!chunk.fresh)
    product<Into::set>(chunk.rows, r.dvp, chunk.s.dk, {r.q_begin, r.dkp}, r.state, r.dvp, r.o, r.dvp);
  for (int64_t first = 0; first < chunk.rows; first += kSub) {
    const int64_t end = std::min(first + kSub, chunk.rows);
    const Left n{r.n + first * kChunk, kChunk};
    float* o = r.o + first * r.dvp;
    chunk.fresh ? product<Into::set>(end - first, r.dvp, end, n, r.w, r.dvp, o, r.dvp)
                : product<Into::add>(end - first, r.dvp, end, n, r.w, r.dvp, o, r.dvp);
  }
}

/// The state behind the chunk.
HWY_INLINE void advance(const Chunk& chunk) {
  const RecurRoom& r = chunk.room;
  const Left keys = transposed(r.k_end, r.dkp);
  if (chunk.fresh) {
    product<Into::set>(chunk.s.dk, r.dvp, chunk.rows, keys, r.w, r.dvp, r.state, r.dvp);
    return;
  }
  for (int64_t c = 0; c < chunk.s.dk; ++c) scale_row(r.state + c * r.dvp, r.dvp, r.whole[c], r.state + c * r.dvp);
  product<Into::add>(chunk.s.dk, r.dvp, chunk.rows, keys, r.w, r.dvp, r.state, r.dvp);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
