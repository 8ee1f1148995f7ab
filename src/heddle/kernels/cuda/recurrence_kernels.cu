// The recurrence itself; what stands around it is in convolution_kernels.cu.
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/recurrence_kernels.h"

namespace heddle::kernels::cuda {

namespace {

HEDDLE_DEVICE float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }

/// Minus the slope of head j of `heads` (kernels/recurrence.h).
HEDDLE_DEVICE float slope_log_decay(const RecurArgs& args, int64_t head) {
  if (args.slopes == 0) return 0;
  const int64_t j = args.first_head + head;
  int64_t power = 1;
  while (2 * power <= args.slope_heads) power *= 2;
  const float p = static_cast<float>(power);
  const float exponent =
      j < power ? -8.0f * static_cast<float>(j + 1) / p : -8.0f * static_cast<float>(2 * (j - power) + 1) / (2 * p);
  return -args.slopes * exp2f(exponent);
}

/// A lane's part of a row: its key channels of q and k, normed, q scaled, and of the decay.
struct KeyRow {
  float q[kKeyRuns], k[kKeyRuns], D[kKeyRuns], beta, skip;
};

template <class X>
HEDDLE_DEVICE void load_row(const RecurArgs& args, int64_t t, int64_t head, float slope, KeyRow& row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t key = (t * args.hk + head / (args.h / args.hk)) * args.dk, value = t * args.h + head;
  const X *q = static_cast<const X*>(args.q) + key, *k = static_cast<const X*>(args.k) + key;
  float qq = 0, kk = 0;
  const float of_head = args.decay != nullptr && !args.by_channel ? args.decay[value] : slope;
  HEDDLE_UNROLL
  for (int r = 0; r < kKeyRuns; ++r) {
    const int c = lane + r * kWarp;
    const bool there = c < args.dk;
    row.q[r] = there && args.q != nullptr ? to_float(q[c]) : 0.0f;
    row.k[r] = there ? to_float(k[c]) : 0.0f;
    row.D[r] = expf(args.by_channel ? (there ? args.decay[value * args.dk + c] : 0.0f) : of_head);
    qq += row.q[r] * row.q[r];
    kk += row.k[r] * row.k[r];
  }
  float q_factor = args.scale, k_factor = 1;
  if (args.normed) {
    q_factor *= 1.0f / sqrtf(warp_sum(qq) + args.epsilon);
    k_factor = 1.0f / sqrtf(warp_sum(kk) + args.epsilon);
  }
  HEDDLE_UNROLL
  for (int r = 0; r < kKeyRuns; ++r) {
    row.q[r] *= q_factor;
    row.k[r] *= k_factor;
  }
  row.beta = 1;
  if (args.beta != nullptr) {
    row.beta = args.wide_beta ? static_cast<const float*>(args.beta)[value]
                              : to_float(static_cast<const X*>(args.beta)[value]);
    if (args.sigmoid) row.beta = args.top * sigmoid_of(row.beta);
  }
  row.skip = args.skip != nullptr ? args.skip[head] : 0.0f;
}

HEDDLE_DEVICE bool begins_at(const RecurArgs& args, int64_t t, bool goes_on) {
  if (args.starts != nullptr && args.starts[t] == t % args.S) return true;
  return t % args.S == 0 && !goes_on;
}
HEDDLE_DEVICE bool begins_at(const RecurArgs& args, int64_t t) {
  return begins_at(args, t, args.before != nullptr);
}

/// The place of a sequence and head among states of all of them.
HEDDLE_DEVICE int64_t place_of_state(const RecurArgs& args, int64_t n, int64_t head) {
  return (n * args.all_heads + head) * args.dk * args.dv;
}

/// S ← D·S; Σ_c S_c·k_c of one column.
HEDDLE_DEVICE float decayed_product(const KeyRow& row, float (&s)[kKeyRuns]) {
  float sum = 0;
  HEDDLE_UNROLL
  for (int r = 0; r < kKeyRuns; ++r) {
    s[r] *= row.D[r];
    sum += s[r] * row.k[r];
  }
  return sum;
}

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) recur_forward(RecurArgs args) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t n = blockIdx.x / args.h, head = blockIdx.x % args.h;
  const int64_t first = (static_cast<int64_t>(blockIdx.y) * kRecurWarps + warp) * kColumns;
  float s[kColumns][kKeyRuns] = {};
  const bool cached = args.places != nullptr;
  float* state = cached ? args.states + (n * args.h + head) * args.dk * args.dv : nullptr;
  const float* given = args.before != nullptr ? args.before + place_of_state(args, n, head) : state;
  for (int c = 0; c < kColumns && given != nullptr; ++c) {
    for (int r = 0; r < kKeyRuns; ++r) {
      const int channel = lane + r * kWarp;
      if (channel < args.dk && first + c < args.dv) s[c][r] = given[channel * args.dv + first + c];
    }
  }
  const float slope = slope_log_decay(args, head);
  const int64_t from = cached ? 0 : n * args.S, to = cached ? args.rows : from + args.S;
  for (int64_t t = from; t < to; ++t) {
    X* o = static_cast<X*>(args.o) + (t * args.h + head) * args.dv;
    if (cached && args.places[t] < 0 && n == 0 && lane == 0) {
      for (int c = 0; c < kColumns; ++c) {
        if (first + c < args.dv) o[first + c] = rounded<X>(0.0f);
      }
    }
    if (cached && (args.places[t] < 0 || args.places[t] / args.S != n)) continue;
    if (cached ? args.places[t] % args.S == 0 : begins_at(args, t)) {
      for (int c = 0; c < kColumns; ++c) {
        for (int r = 0; r < kKeyRuns; ++r) s[c][r] = 0;
      }
    }
    KeyRow row;
    load_row<X>(args, t, head, slope, row);
    const X* v = static_cast<const X*>(args.v) + (t * args.h + head) * args.dv;
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      if (first + c >= args.dv) break;
      const float value = to_float(v[first + c]);
      const float held = decayed_product(row, s[c]);
      const float write = row.beta * (args.delta ? value - warp_sum(held) : value);
      float sum = 0;
      HEDDLE_UNROLL
      for (int r = 0; r < kKeyRuns; ++r) {
        s[c][r] += write * row.k[r];
        sum += s[c][r] * row.q[r];
      }
      sum = warp_sum(sum);
      if (lane == 0) o[first + c] = rounded<X>(sum + row.skip * value);
    }
  }
  for (int c = 0; c < kColumns && cached; ++c) {
    for (int r = 0; r < kKeyRuns; ++r) {
      const int channel = lane + r * kWarp;
      if (channel < args.dk && first + c < args.dv) state[channel * args.dv + first + c] = s[c][r];
    }
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kMostValueChannels / kColumns * kWarp) recur_backward(RecurArgs args) {
  HEDDLE_DYNAMIC_SHARED(raw);
  float* board = reinterpret_cast<float*>(raw);  // [warps][dk], then [warps][3]
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  float* numbers = board + warps * args.dk;
  const int64_t n = blockIdx.x / args.h, head = blockIdx.x % args.h, first = warp * kColumns;
  const int64_t of_state = args.dk * args.dv, runs = (args.S + kRecurRun - 1) / kRecurRun;
  float* kept = args.kept + static_cast<int64_t>(blockIdx.x) * runs * of_state;
  float* run_states = args.run + static_cast<int64_t>(blockIdx.x) * kRecurRun * of_state;
  const float slope = slope_log_decay(args, head);
  float s[kColumns][kKeyRuns] = {}, ds[kColumns][kKeyRuns] = {};
  const auto at = [&](int c, int r) { return (lane + r * kWarp) * args.dv + first + c; };
  const auto there = [&](int c, int r) { return lane + r * kWarp < args.dk && first + c < args.dv; };
  const auto forth = [&](int64_t t) {
    if (begins_at(args, t)) {
      for (int c = 0; c < kColumns; ++c) {
        for (int r = 0; r < kKeyRuns; ++r) s[c][r] = 0;
      }
    }
    KeyRow row;
    load_row<X>(args, t, head, slope, row);
    const X* v = static_cast<const X*>(args.v) + (t * args.h + head) * args.dv;
    for (int c = 0; c < kColumns; ++c) {
      if (first + c >= args.dv) break;
      const float value = to_float(v[first + c]), held = decayed_product(row, s[c]);
      const float write = row.beta * (args.delta ? value - warp_sum(held) : value);
      for (int r = 0; r < kKeyRuns; ++r) s[c][r] += write * row.k[r];
    }
  };
  const auto store_state = [&](float* to) {
    for (int c = 0; c < kColumns; ++c) {
      for (int r = 0; r < kKeyRuns; ++r) {
        if (there(c, r)) to[at(c, r)] = s[c][r];
      }
    }
  };
  const int64_t of_piece = place_of_state(args, n, head);
  for (int c = 0; c < kColumns && args.before != nullptr; ++c) {
    for (int r = 0; r < kKeyRuns; ++r) {
      if (!there(c, r)) continue;
      s[c][r] = args.before[of_piece + at(c, r)];
      ds[c][r] = args.behind[of_piece + at(c, r)];
    }
  }
  for (int64_t i = 0; i < args.S; ++i) {
    if (i % kRecurRun == 0) store_state(kept + i / kRecurRun * of_state);
    forth(n * args.S + i);
  }
  float d_skip = 0;
  for (int64_t run = runs; run-- > 0;) {
    const int64_t begin = run * kRecurRun, end = min(args.S, begin + kRecurRun);
    const float* before = kept + run * of_state;
    for (int c = 0; c < kColumns; ++c) {
      for (int r = 0; r < kKeyRuns; ++r) s[c][r] = there(c, r) ? before[at(c, r)] : 0.0f;
    }
    for (int64_t i = begin; i < end; ++i) {
      forth(n * args.S + i);
      store_state(run_states + (i - begin) * of_state);
    }
    for (int64_t i = end; i-- > begin;) {
      const int64_t t = n * args.S + i, value_row = t * args.h + head;
      const bool fresh = begins_at(args, t);
      const float* after = run_states + (i - begin) * of_state;
      const float* prior = i == begin ? before : after - of_state;
      KeyRow row;
      load_row<X>(args, t, head, slope, row);
      const X* v = static_cast<const X*>(args.v) + value_row * args.dv;
      const X* d_o = static_cast<const X*>(args.d_o) + value_row * args.dv;
      X* d_v = static_cast<X*>(args.d_v) + value_row * args.dv;
      float dq[kKeyRuns] = {}, dk[kKeyRuns] = {}, dg[kKeyRuns] = {}, d_beta = 0;
      for (int c = 0; c < kColumns; ++c) {
        if (first + c >= args.dv) break;
        const float value = to_float(v[first + c]), d_out = to_float(d_o[first + c]);
        float held[kKeyRuns], dw = 0, read = 0;
        for (int r = 0; r < kKeyRuns; ++r) {
          const bool in = there(c, r);
          held[r] = in && !fresh ? row.D[r] * prior[at(c, r)] : 0.0f;
          dq[r] += in ? after[at(c, r)] * d_out : 0.0f;
          ds[c][r] += row.q[r] * d_out;
          dw += ds[c][r] * row.k[r];
          read += held[r] * row.k[r];
        }
        dw = warp_sum(dw);
        const float u = args.delta ? value - warp_sum(read) : value;
        const float du = row.beta * dw;
        d_beta += dw * u;
        d_skip += value * d_out;
        if (lane == 0) d_v[first + c] = rounded<X>(du + row.skip * d_out);
        for (int r = 0; r < kKeyRuns; ++r) {
          dk[r] += row.beta * ds[c][r] * u;
          if (args.delta) {
            ds[c][r] -= row.k[r] * du;
            dk[r] -= held[r] * du;
          }
          dg[r] += ds[c][r] * held[r];
          ds[c][r] = fresh ? 0.0f : ds[c][r] * row.D[r];
        }
      }
      float dg_head = 0;
      for (int r = 0; r < kKeyRuns; ++r) dg_head += dg[r];
      dg_head = warp_sum(dg_head);
      if (lane == 0) {
        numbers[warp * 3] = d_beta;
        numbers[warp * 3 + 1] = dg_head;
      }
      // Sums over the warps: dq, dk, and dg where channels decay.
      const auto over_warps = [&](const float(&part)[kKeyRuns], float* to) {
        for (int r = 0; r < kKeyRuns; ++r) {
          if (lane + r * kWarp < args.dk) board[warp * args.dk + lane + r * kWarp] = part[r];
        }
        __syncthreads();
        for (int64_t c = threadIdx.x; c < args.dk; c += blockDim.x) {
          float sum = 0;
          for (int w = 0; w < warps; ++w) sum += board[w * args.dk + c];
          to[c] = sum;
        }
        __syncthreads();
      };
      over_warps(dq, args.q_rows + value_row * args.dk);
      over_warps(dk, args.k_rows + value_row * args.dk);
      if (args.by_channel) over_warps(dg, args.d_decay + value_row * args.dk);
      if (threadIdx.x == 0) {
        float of_beta = 0, of_decay = 0;
        for (int w = 0; w < warps; ++w) {
          of_beta += numbers[w * 3];
          of_decay += numbers[w * 3 + 1];
        }
        if (args.sigmoid) of_beta *= row.beta * (1.0f - row.beta / args.top);
        if (args.d_decay != nullptr && !args.by_channel) args.d_decay[value_row] = of_decay;
        if (args.d_beta != nullptr && args.wide_beta) static_cast<float*>(args.d_beta)[value_row] = of_beta;
        if (args.d_beta != nullptr && !args.wide_beta)
          static_cast<X*>(args.d_beta)[value_row] = rounded<X>(of_beta);
      }
      __syncthreads();
    }
  }
  if (args.skip_parts == nullptr) return;
  if (lane == 0) numbers[warp * 3 + 2] = d_skip;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += numbers[w * 3 + 2];
    args.skip_parts[blockIdx.x] = sum;
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) recur_summaries(RecurArgs args) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t n = blockIdx.x / args.all_heads, head = blockIdx.x % args.all_heads;
  const int64_t first = (static_cast<int64_t>(blockIdx.y) * kRecurWarps + warp) * kColumns;
  const int64_t columns = args.dv + (args.delta ? args.dk : 0);
  const bool real = head < args.h;
  float s[kColumns][kKeyRuns] = {}, decays[kKeyRuns];
  for (int r = 0; r < kKeyRuns; ++r) {
    decays[r] = real ? 1.0f : 0.0f;
    for (int c = 0; c < kColumns; ++c) s[c][r] = real && first + c == args.dv + lane + r * kWarp ? 1.0f : 0.0f;
  }
  const float slope = slope_log_decay(args, head);
  for (int64_t t = n * args.S; t < (n + 1) * args.S && real; ++t) {
    if (begins_at(args, t, true)) {
      for (int r = 0; r < kKeyRuns; ++r) {
        decays[r] = 0;
        for (int c = 0; c < kColumns; ++c) s[c][r] = 0;
      }
    }
    KeyRow row;
    load_row<X>(args, t, head, slope, row);
    const X* v = static_cast<const X*>(args.v) + (t * args.h + head) * args.dv;
    for (int r = 0; r < kKeyRuns; ++r) decays[r] *= row.D[r];
    for (int c = 0; c < kColumns; ++c) {
      if (first + c >= columns) break;
      const float value = first + c < args.dv ? to_float(v[first + c]) : 0.0f;
      const float held = decayed_product(row, s[c]);
      const float write = row.beta * (args.delta ? value - warp_sum(held) : value);
      for (int r = 0; r < kKeyRuns; ++r) s[c][r] += write * row.k[r];
    }
  }
  float* update = args.update + place_of_state(args, n, head);
  float* transition = args.transition + (n * args.all_heads + head) * args.width;
  for (int r = 0; r < kKeyRuns; ++r) {
    const int channel = lane + r * kWarp;
    if (channel >= args.dk) continue;
    for (int c = 0; c < kColumns && first + c < columns; ++c) {
      const int64_t e = first + c;
      if (e < args.dv) {
        update[channel * args.dv + e] = s[c][r];
      } else {
        transition[channel * args.dk + e - args.dv] = s[c][r];
      }
    }
    if (!args.delta && first == 0 && channel < args.width) transition[channel] = decays[r];
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) recur_state_gradients(RecurArgs args) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t n = blockIdx.x / args.all_heads, head = blockIdx.x % args.all_heads;
  const int64_t first = (static_cast<int64_t>(blockIdx.y) * kRecurWarps + warp) * kColumns;
  float ds[kColumns][kKeyRuns] = {};
  const float slope = slope_log_decay(args, head);
  for (int64_t t = (n + 1) * args.S; t-- > n * args.S && head < args.h;) {
    KeyRow row;
    load_row<X>(args, t, head, slope, row);
    const X* d_o = static_cast<const X*>(args.d_o) + (t * args.h + head) * args.dv;
    const bool fresh = begins_at(args, t, true);
    for (int c = 0; c < kColumns; ++c) {
      if (first + c >= args.dv) break;
      const float d_out = to_float(d_o[first + c]);
      float dw = 0;
      for (int r = 0; r < kKeyRuns; ++r) {
        ds[c][r] += row.q[r] * d_out;
        dw += ds[c][r] * row.k[r];
      }
      const float du = args.delta ? row.beta * warp_sum(dw) : 0.0f;
      for (int r = 0; r < kKeyRuns; ++r) ds[c][r] = fresh ? 0.0f : (ds[c][r] - row.k[r] * du) * row.D[r];
    }
  }
  float* to = args.update + place_of_state(args, n, head);
  for (int r = 0; r < kKeyRuns; ++r) {
    const int channel = lane + r * kWarp;
    for (int c = 0; c < kColumns; ++c) {
      if (channel < args.dk && first + c < args.dv) to[channel * args.dv + first + c] = ds[c][r];
    }
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) scan_pieces(ScanArgs args) {
  const int64_t n = blockIdx.x / args.heads, head = blockIdx.x % args.heads, e = blockIdx.y;
  const bool matrix = args.width == args.dk * args.dk;
  const float* before = nullptr;
  for (int64_t i = 0; i < args.pieces; ++i) {
    const int64_t p = args.reverse ? args.pieces - 1 - i : i;
    const int64_t last = i == 0 ? p : args.reverse ? p + 1 : p - 1;
    float* to = args.states + ((n * args.pieces + p) * args.heads + head) * args.dk * args.dv + e;
    const int64_t of_last = (n * args.pieces + last) * args.heads + head;
    const float* T = args.transition + of_last * args.width;
    for (int64_t c = threadIdx.x; c < args.dk; c += blockDim.x) {
      float sum = i == 0 ? 0.0f : args.update[(of_last * args.dk + c) * args.dv + e];
      if (i > 0 && matrix) {
        for (int64_t b = 0; b < args.dk; ++b)
          sum += (args.reverse ? T[b * args.dk + c] : T[c * args.dk + b]) * before[b * args.dv];
      } else if (i > 0) {
        sum += T[args.width == 1 ? 0 : c] * before[c * args.dv];
      }
      to[c * args.dv] = sum;
    }
    before = to;
    __syncthreads();
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) recur_keys(RecurKeyArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * (kRecurThreads / kWarp) + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (at >= args.T * args.hk) return;
  const int64_t t = at / args.hk, key = at % args.hk, group = args.h / args.hk;
  const X* x = static_cast<const X*>(args.x) + at * args.dk;
  float values[kKeyRuns], d[kKeyRuns], squares = 0, along = 0;
  for (int r = 0; r < kKeyRuns; ++r) {
    const int64_t c = lane + r * kWarp;
    values[r] = c < args.dk ? to_float(x[c]) : 0.0f;
    d[r] = 0;
    for (int64_t j = 0; j < group && c < args.dk; ++j)
      d[r] += args.rows[((t * args.h) + key * group + j) * args.dk + c];
    squares += values[r] * values[r];
    along += values[r] * d[r];
  }
  float factor = 1;
  if (args.normed) {
    factor = 1.0f / sqrtf(warp_sum(squares) + args.epsilon);
    along = warp_sum(along) * factor * factor;
  }
  for (int r = 0; r < kKeyRuns; ++r) {
    const int64_t c = lane + r * kWarp;
    const float dx = args.normed ? factor * (d[r] - values[r] * along) : d[r];
    if (c < args.dk) static_cast<X*>(args.dx)[at * args.dk + c] = rounded<X>(args.scale * dx);
  }
}

template HEDDLE_KERNEL void recur_forward<float>(RecurArgs args);
template HEDDLE_KERNEL void recur_forward<Bf16>(RecurArgs args);
template HEDDLE_KERNEL void recur_backward<float>(RecurArgs args);
template HEDDLE_KERNEL void recur_backward<Bf16>(RecurArgs args);
template HEDDLE_KERNEL void recur_summaries<float>(RecurArgs args);
template HEDDLE_KERNEL void recur_summaries<Bf16>(RecurArgs args);
template HEDDLE_KERNEL void recur_state_gradients<float>(RecurArgs args);
template HEDDLE_KERNEL void recur_state_gradients<Bf16>(RecurArgs args);
template HEDDLE_KERNEL void recur_keys<float>(RecurKeyArgs args);
template HEDDLE_KERNEL void recur_keys<Bf16>(RecurKeyArgs args);

}  // namespace heddle::kernels::cuda
