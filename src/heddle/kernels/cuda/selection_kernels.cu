// A row's keys are shared among the threads of a block, each of which takes whole products. A gradient of keys has
// one block a key, which looks the key up in each query's choice: sums are in increasing query, whatever ran first.
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/query_positions.h"
#include "heddle/kernels/cuda/selection_kernels.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int kWarps = kSelectionThreads / kWarp;

/// The slots of a row's list that hold keys, and the row of the key in one of them. Of blocks of keys, a slot
/// stands for each key of each block, and behind them for each of the tail.
struct RowKeys {
  const int32_t* chosen;
  int64_t begin, end, base, block, tail, tail_at;
  HEDDLE_DEVICE int64_t position(int64_t j) const {
    if (chosen == nullptr) return j;
    if (block == 0) return chosen[j];
    return j < tail ? chosen[j / block] * block + j % block : tail_at + j - tail;
  }
  HEDDLE_DEVICE int64_t row(int64_t j) const { return base + position(j); }
};
HEDDLE_DEVICE RowKeys keys_of(const QueryRowsArgs& rows, const int32_t* chosen, int64_t c, int64_t t,
                              const ListsArgs& lists = {}, int64_t kv = 0) {
  const int64_t columns = c / lists.lists;
  RowKeys keys{chosen == nullptr ? nullptr : chosen + t * c + (lists.lists > 1 ? kv * columns : 0),
               0,
               columns,
               base_of(rows, t),
               lists.block,
               0,
               0};
  if (chosen == nullptr) {
    const int64_t seen = seen_of(rows, t);
    keys.end = lists.block == 0 ? seen : seen / lists.block * lists.block;
    keys.begin = min(first_of(rows, t), keys.end);
    return keys;
  }
  int64_t low = 0;  // the first column without a key
  while (low < keys.end) {
    const int64_t middle = (low + keys.end) / 2;
    if (keys.chosen[middle] < 0) {
      keys.end = middle;
    } else {
      low = middle + 1;
    }
  }
  if (lists.block == 0) return keys;
  const int64_t count = keys.end, seen = positions_of(rows, t);
  keys.tail = count * keys.block;
  keys.tail_at = seen / keys.block * keys.block;
  keys.end = keys.tail;
  if (lists.tail != 0) {
    keys.end += seen % keys.block;
  } else if (count > 0 && keys.chosen[count - 1] == seen / keys.block) {
    keys.end -= keys.block - seen % keys.block;
  }
  if (keys.end > 0) keys.begin = max(int64_t{0}, min(start_of(rows, t) - keys.position(0), keys.end));
  return keys;
}
/// The slot of row t that holds position n of the query's sequence, or −1.
HEDDLE_DEVICE int64_t slot_of(const QueryRowsArgs& rows, const int32_t* chosen, int64_t c, int64_t t, int64_t n,
                              const ListsArgs& lists = {}, int64_t kv = 0) {
  const RowKeys keys = keys_of(rows, chosen, c, t, lists, kv);
  if (chosen == nullptr) return n >= keys.begin && n < keys.end ? n : -1;
  int64_t low = 0, high = keys.end, within = 0, width = 1;
  if (keys.block > 0) {
    if (n < start_of(rows, t) || n >= positions_of(rows, t)) return -1;
    if (lists.tail != 0 && n >= keys.tail_at) return keys.tail + n - keys.tail_at;
    width = keys.block;
    high = keys.tail / width;
    within = n % width;
    n /= width;
  }
  const int64_t count = high;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys.chosen[middle] < n) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < count && keys.chosen[low] == n ? low * width + within : -1;
}

template <class X, class Y>
HEDDLE_DEVICE float dot(const X* x, const Y* y, int64_t width) {
  float sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += to_float(x[i]) * to_float(y[i]);
  return sum;
}
/// Computes the same with all threads of the block, and gives it to each.
template <class X, class Y>
HEDDLE_DEVICE float block_dot(const X* x, const Y* y, int64_t width, float* board) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += kSelectionThreads) sum += to_float(x[i]) * to_float(y[i]);
  return block_sum(sum, board);
}

/// The score of all heads together.
template <class X>
HEDDLE_DEVICE float score(const IndexArgs& args, int64_t t, int64_t key) {
  const X* q = static_cast<const X*>(args.q) + t * args.h * args.d;
  const X* k = static_cast<const X*>(args.k) + key * args.d;
  float sum = 0;
  for (int64_t j = 0; j < args.h; ++j) {
    const float s = fmaxf(0.0f, dot(q + j * args.d, k, args.d));
    sum += args.w == nullptr ? s : args.w[t * args.h + j] * s;
  }
  return args.scale * sum;
}

/// The order of floats as that of unsigned numbers: both zeros alike, a NaN below all else.
HEDDLE_DEVICE uint32_t order_of(float x) {
  if (x != x) return 0;
  const uint32_t bits = word_of(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// Writes the numbers of the `count` greatest scores from `first` to `seen`, in increasing order; of equal ones the
/// earlier. All threads of the block take part.
HEDDLE_DEVICE void take_best(const float* scores, int64_t first, int64_t seen, int64_t count, int32_t* chosen,
                             int* board, unsigned* votes) {
  // The greatest number that `count` orders reach, bit by bit; then as many of those that equal it as are wanted.
  uint32_t least = 0;
  int above = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const uint32_t tried = least | (1u << bit);
    int reach = 0;
    for (int64_t n = first + threadIdx.x; n < seen; n += kSelectionThreads)
      reach += order_of(scores[n]) >= tried ? 1 : 0;
    if (block_sum(reach, board) >= count) least = tried;
  }
  for (int64_t n = first + threadIdx.x; n < seen; n += kSelectionThreads)
    above += order_of(scores[n]) > least ? 1 : 0;
  const int64_t equal_ones = count - block_sum(above, board);
  int64_t equal_before = 0, taken = 0;
  for (int64_t n0 = first; n0 < seen; n0 += kSelectionThreads) {
    const int64_t n = n0 + threadIdx.x;
    const uint32_t order = n < seen ? order_of(scores[n]) : 0;
    const bool equal = n < seen && order == least;
    int all = 0;
    const int64_t place = equal_before + count_before(equal, votes, all);
    equal_before += all;
    const bool takes = n < seen && (order > least || (equal && place < equal_ones));
    const int64_t at = taken + count_before(takes, votes, all);
    taken += all;
    if (takes) chosen[at] = static_cast<int32_t>(n);
  }
}

constexpr float kNoSink = -3.4e38f;

/// s = scale·q·k of a row's keys and one head, then their exponentials; returns the greatest, and their sum. A sink
/// takes part in both.
template <class Q, class K>
HEDDLE_DEVICE float exponentials(const RowKeys& keys, const Q* q, const K* k, int64_t hk, int64_t kv, int64_t d,
                                 float scale, float sink, float* s, float* board, float& sum) {
  float most = sink;
  for (int64_t j = keys.begin + threadIdx.x; j < keys.end; j += kSelectionThreads) {
    s[j] = scale * dot(q, k + (keys.row(j) * hk + kv) * d, d);
    most = fmaxf(most, s[j]);
  }
  most = block_max(most, board);
  sum = 0;
  for (int64_t j = keys.begin + threadIdx.x; j < keys.end; j += kSelectionThreads) {
    s[j] = expf(s[j] - most);
    sum += s[j];
  }
  sum = block_sum(sum, board) + expf(sink - most);
  __syncthreads();
  return most;
}

/// A row of queries and one of its lists, which a block of threads has.
struct RowList {
  HEDDLE_DEVICE RowList(const IndexLossArgs& args, int64_t block)
      : t(block / args.lists.lists),
        list(block % args.lists.lists),
        slot0(block * args.slots),
        keys(keys_of(args.index.rows, args.chosen, args.c, t, args.lists, list)) {}
  int64_t t, list, slot0;  // slot0: where its slots begin among those of all rows
  RowKeys keys;
};

/// The indexer's scores of a row in `i`, which become its distribution; returns ln of it less the scores.
template <class X>
HEDDLE_DEVICE float distribution(const IndexLossArgs& args, const RowList& row, float* i, float* board,
                                 float& total) {
  float most = -3.4e38f;
  total = 0;
  const IndexArgs& index = args.index;
  for (int64_t j = row.keys.begin + threadIdx.x; j < row.keys.end; j += kSelectionThreads) {
    const int64_t key = row.keys.row(j);
    i[j] = args.apart ? index.scale * dot(static_cast<const X*>(index.q) + (row.t * index.h + row.list) * index.d,
                                          static_cast<const X*>(index.k) + key * index.d, index.d)
                      : score<X>(index, row.t, key);
    most = fmaxf(most, i[j]);
    total += args.share[row.slot0 + j];
  }
  most = block_max(most, board);
  total = block_sum(total, board);
  float sum = 0;
  for (int64_t j = row.keys.begin + threadIdx.x; j < row.keys.end; j += kSelectionThreads) sum += expf(i[j] - most);
  return -(most + logf(block_sum(sum, board)));
}

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSelectionThreads) choose_keys(ChooseArgs args) {
  HEDDLE_SHARED(int, board, kWarps);
  HEDDLE_SHARED(unsigned, votes, kWarps);
  float* scores = args.scores + static_cast<int64_t>(blockIdx.x) * args.index.rows.S;
  for (int64_t t = blockIdx.x; t < args.index.T; t += gridDim.x) {
    const int64_t first = first_of(args.index.rows, t), seen = seen_of(args.index.rows, t);
    const int64_t base = base_of(args.index.rows, t), count = min(args.c, seen - first);
    int32_t* chosen = args.chosen + t * args.c;
    for (int64_t j = count + threadIdx.x; j < args.c; j += kSelectionThreads) chosen[j] = -1;
    if (count == seen - first) {
      for (int64_t j = threadIdx.x; j < count; j += kSelectionThreads) chosen[j] = static_cast<int32_t>(first + j);
      continue;
    }
    for (int64_t n = first + threadIdx.x; n < seen; n += kSelectionThreads)
      scores[n] = score<X>(args.index, t, base + n);
    __syncthreads();
    take_best(scores, first, seen, count, chosen, board, votes);
    __syncthreads();
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSelectionThreads) choose_blocks(ChooseBlocksArgs args) {
  HEDDLE_SHARED(int, board, kWarps);
  HEDDLE_SHARED(unsigned, votes, kWarps);
  float* scores = args.scores + static_cast<int64_t>(blockIdx.x) * args.blocks;
  for (int64_t row = blockIdx.x; row < args.T * args.h; row += gridDim.x) {
    const int64_t t = row / args.h, start = start_of(args.rows, t), seen = positions_of(args.rows, t);
    const int64_t first = start / args.block, last = seen == 0 ? first : (seen - 1) / args.block + 1;
    const int64_t base = base_of(args.rows, t), count = min(args.c, last - first);
    int32_t* chosen = args.chosen + row * args.c;
    for (int64_t j = count + threadIdx.x; j < args.c; j += kSelectionThreads) chosen[j] = -1;
    if (count == last - first) {
      for (int64_t j = threadIdx.x; j < count; j += kSelectionThreads) chosen[j] = static_cast<int32_t>(first + j);
      continue;
    }
    const X* q = static_cast<const X*>(args.q) + row * args.d;
    const X* k = static_cast<const X*>(args.k) + base * args.d;
    for (int64_t b = first + threadIdx.x; b < last; b += kSelectionThreads) {
      float most = float_of_word(0xff800000u);
      const int64_t from = max(start, b * args.block), to = min(seen, (b + 1) * args.block);
      for (int64_t n = from; n < to; ++n) most = fmaxf(most, dot(q, k + n * args.d, args.d));
      scores[b] = b < last - args.local ? most : float_of_word(0x7f800000u);
    }
    __syncthreads();
    take_best(scores, first, last, count, chosen, board, votes);
    __syncthreads();
  }
}

template <class Q, class K>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSelectionThreads) chosen_attention(ChosenAttentionArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  HEDDLE_SHARED(float, board, kWarps);
  float* s = reinterpret_cast<float*>(shared);
  const int64_t row = blockIdx.x, t = row / args.h, kv = row % args.h / (args.h / args.hk), d = args.d, v = args.v;
  const RowKeys keys = keys_of(args.rows, args.chosen, args.c, t, args.lists, kv);
  const K* k = static_cast<const K*>(args.k);
  float sum = 0;
  const float sink = args.sinks == nullptr ? kNoSink : args.sinks[row % args.h];
  const float most = exponentials(keys, static_cast<const Q*>(args.q) + row * d, k, args.hk, kv, d, args.scale,
                                  sink, s, board, sum);
  const K* values = args.values == nullptr ? k : static_cast<const K*>(args.values);
  const int64_t width = args.values == nullptr ? d : v;
  Q* o = static_cast<Q*>(args.o) + row * v;
  for (int64_t i = threadIdx.x; i < v; i += kSelectionThreads) {
    float total = 0;
    for (int64_t j = keys.begin; j < keys.end; ++j)
      total += s[j] * to_float(values[(keys.row(j) * args.hk + kv) * width + i]);
    o[i] = rounded<Q>(keys.end == keys.begin ? 0.0f : total / sum);
  }
  if (threadIdx.x == 0) args.lse[row] = keys.end == keys.begin ? float_of_word(0xff800000u) : most + logf(sum);
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSelectionThreads) chosen_attention_dq(ChosenAttentionGradArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  HEDDLE_SHARED(float, board, kWarps);
  float* ds = reinterpret_cast<float*>(shared);
  const int64_t row = blockIdx.x, t = row / args.h, kv = row % args.h / (args.h / args.hk), d = args.d, v = args.v;
  const RowKeys keys = keys_of(args.rows, args.chosen, args.c, t, args.lists, kv);
  const X *q = static_cast<const X*>(args.q) + row * d, *d_o = static_cast<const X*>(args.d_o) + row * v;
  const X *k = static_cast<const X*>(args.k), *values = static_cast<const X*>(args.values);
  const float delta = block_dot(d_o, static_cast<const X*>(args.o) + row * v, v, board), lse = args.lse[row];
  if (threadIdx.x == 0) args.delta[row] = delta;
  for (int64_t j = keys.begin + threadIdx.x; j < keys.end; j += kSelectionThreads) {
    const int64_t key = keys.row(j) * args.hk + kv;
    const float p = expf(args.scale * dot(q, k + key * d, d) - lse);
    ds[j] = p * (dot(d_o, values + key * v, v) - delta) * args.scale;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < d; i += kSelectionThreads) {
    float total = 0;
    for (int64_t j = keys.begin; j < keys.end; ++j)
      total += ds[j] * to_float(k[(keys.row(j) * args.hk + kv) * d + i]);
    static_cast<X*>(args.dq)[row * d + i] = rounded<X>(total);
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSelectionThreads) chosen_attention_dkv(ChosenAttentionGradArgs args) {
  HEDDLE_SHARED(float, board, kWarps);
  HEDDLE_SHARED(int, found, kSelectionThreads);
  const int64_t key = blockIdx.x, n = key / args.hk, kv = key % args.hk, g = args.h / args.hk, d = args.d,
                v = args.v;
  const int64_t sequence = n / args.rows.keys, end = (sequence + 1) * args.rows.own;
  const X *k = static_cast<const X*>(args.k) + key * d, *value = static_cast<const X*>(args.values) + key * v;
  float dk[kColumnsPerThread] = {}, dv[kColumnsPerThread] = {};
  for (int64_t t0 = sequence * args.rows.own; t0 < end; t0 += kSelectionThreads) {
    const int64_t own = t0 + threadIdx.x;
    const bool reads =
        own < end && slot_of(args.rows, args.chosen, args.c, own, n % args.rows.keys, args.lists, kv) >= 0;
    found[threadIdx.x] = reads ? 1 : 0;
    __syncthreads();
    for (int64_t t = t0; t < end && t < t0 + kSelectionThreads; ++t) {
      if (found[t - t0] == 0) continue;
      for (int64_t row = t * args.h + kv * g; row < t * args.h + (kv + 1) * g; ++row) {
        const X *q = static_cast<const X*>(args.q) + row * d, *d_o = static_cast<const X*>(args.d_o) + row * v;
        const float p = expf(args.scale * block_dot(q, k, d, board) - args.lse[row]);
        const float ds = p * (block_dot(d_o, value, v, board) - args.delta[row]) * args.scale;
        HEDDLE_UNROLL
        for (int m = 0; m < kColumnsPerThread; ++m) {
          const int64_t i = threadIdx.x + static_cast<int64_t>(m) * kSelectionThreads;
          if (i < d) dk[m] += ds * to_float(q[i]);
          if (i < v) dv[m] += p * to_float(d_o[i]);
        }
      }
    }
    __syncthreads();
  }
  HEDDLE_UNROLL
  for (int m = 0; m < kColumnsPerThread; ++m) {
    const int64_t i = threadIdx.x + static_cast<int64_t>(m) * kSelectionThreads;
    if (i < d) static_cast<X*>(args.dk)[key * d + i] = rounded<X>(dk[m]);
    if (i < v) static_cast<X*>(args.dv)[key * v + i] = rounded<X>(dv[m]);
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSelectionThreads) attention_share(AttentionShareArgs args) {
  const int64_t t = blockIdx.x, of_list = args.h / args.lists.lists, of_key = args.h / args.hk;
  const X* k = static_cast<const X*>(args.k);
  for (int64_t list = 0; list < args.lists.lists; ++list) {
    const RowKeys keys = keys_of(args.rows, args.chosen, args.c, t, args.lists, list);
    for (int64_t j = threadIdx.x; j < args.columns; j += kSelectionThreads) {
      const int64_t from = max(keys.begin, j * args.width), to = min(keys.end, (j + 1) * args.width);
      float sum = 0;
      for (int64_t slot = from; slot < to; ++slot) {
        for (int64_t head = list * of_list; head < (list + 1) * of_list; ++head) {
          const X* q = static_cast<const X*>(args.q) + (t * args.h + head) * args.d;
          const float s = dot(q, k + (keys.row(slot) * args.hk + head / of_key) * args.d, args.d);
          sum += expf(args.scale * s - args.lse[t * args.h + head]);
        }
      }
      args.share[(t * args.lists.lists + list) * args.columns + j] = sum;
    }
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSelectionThreads) index_loss(IndexLossArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  HEDDLE_SHARED(float, board, kWarps);
  HEDDLE_SHARED(double, wide_board, kWarps);
  float* i = reinterpret_cast<float*>(shared);
  const RowList row(args, blockIdx.x);
  float total = 0;
  const float log_part = distribution<X>(args, row, i, board, total);
  double divergence = 0;
  for (int64_t j = row.keys.begin + threadIdx.x; j < row.keys.end; j += kSelectionThreads) {
    const float p = total > 0 ? args.share[row.slot0 + j] / total : 0.0f;
    if (p > 0) divergence += static_cast<double>(p) * (logf(p) - (i[j] + log_part));
  }
  divergence = block_sum(divergence, wide_board);
  if (threadIdx.x == 0) args.loss[blockIdx.x] = args.weight * divergence;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSelectionThreads) index_loss_dq(IndexLossArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  HEDDLE_SHARED(float, board, kWarps);
  float* i = reinterpret_cast<float*>(shared);
  const int64_t d = args.index.d, heads = args.index.h / args.lists.lists;
  const RowList of(args, blockIdx.x);
  const RowKeys& keys = of.keys;
  float total = 0;
  const float log_part = distribution<X>(args, of, i, board, total);
  const float factor = total > 0 ? *args.factor * args.weight * args.index.scale : 0.0f;
  float* d_score = args.d_score + of.slot0;
  for (int64_t j = keys.begin + threadIdx.x; j < keys.end; j += kSelectionThreads) {
    const float p = total > 0 ? args.share[of.slot0 + j] / total : 0.0f;
    d_score[j] = factor * (expf(i[j] + log_part) - p);
  }
  const X* k = static_cast<const X*>(args.index.k);
  const int64_t row0 = of.t * args.index.h + of.list * heads;
  for (int64_t row = row0; row < row0 + heads; ++row) {
    const X* q = static_cast<const X*>(args.index.q) + row * d;
    float dw = 0;
    __syncthreads();
    for (int64_t j = keys.begin + threadIdx.x; j < keys.end; j += kSelectionThreads) {
      const float s = args.apart ? 1.0f : dot(q, k + keys.row(j) * d, d);
      i[j] = s > 0 ? d_score[j] : 0.0f;
      dw += i[j] * s;
    }
    dw = block_sum(dw, board);
    if (threadIdx.x == 0 && args.dw != nullptr) args.dw[row] = dw;
    __syncthreads();
    const float w = args.index.w == nullptr ? 1.0f : args.index.w[row];
    for (int64_t e = threadIdx.x; e < d; e += kSelectionThreads) {
      float sum = 0;
      for (int64_t j = keys.begin; j < keys.end; ++j) sum += i[j] * to_float(k[keys.row(j) * d + e]);
      static_cast<X*>(args.dq)[row * d + e] = rounded<X>(w * sum);
    }
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSelectionThreads) index_loss_dk(IndexLossArgs args) {
  HEDDLE_SHARED(float, board, kWarps);
  HEDDLE_SHARED(int, found, kSelectionThreads);
  const QueryRowsArgs& rows = args.index.rows;
  const int64_t key = blockIdx.x, d = args.index.d, lists = args.lists.lists, heads = args.index.h / lists;
  const int64_t first = key / rows.keys * rows.own * lists, end = first + rows.own * lists;
  const X* k = static_cast<const X*>(args.index.k) + key * d;
  float dk[kColumnsPerThread] = {};
  for (int64_t t0 = first; t0 < end; t0 += kSelectionThreads) {
    const int64_t own = t0 + threadIdx.x;
    found[threadIdx.x] = own < end ? static_cast<int>(slot_of(rows, args.chosen, args.c, own / lists,
                                                              key % rows.keys, args.lists, own % lists))
                                   : -1;
    __syncthreads();
    for (int64_t t = t0; t < end && t < t0 + kSelectionThreads; ++t) {  // a row of queries and a list
      const int64_t slot = found[t - t0];
      if (slot < 0) continue;
      const float d_score = args.d_score[t * args.slots + slot];
      for (int64_t row = t * heads; row < (t + 1) * heads; ++row) {
        const X* q = static_cast<const X*>(args.index.q) + row * d;
        if (!args.apart && !(block_dot(q, k, d, board) > 0)) continue;
        const float ds = args.index.w == nullptr ? d_score : d_score * args.index.w[row];
        HEDDLE_UNROLL
        for (int m = 0; m < kColumnsPerThread; ++m) {
          const int64_t i = threadIdx.x + static_cast<int64_t>(m) * kSelectionThreads;
          if (i < d) dk[m] += ds * to_float(q[i]);
        }
      }
    }
    __syncthreads();
  }
  HEDDLE_UNROLL
  for (int m = 0; m < kColumnsPerThread; ++m) {
    const int64_t i = threadIdx.x + static_cast<int64_t>(m) * kSelectionThreads;
    if (i < d) static_cast<X*>(args.dk)[key * d + i] = rounded<X>(dk[m]);
  }
}

template HEDDLE_KERNEL void choose_keys<float>(ChooseArgs args);
template HEDDLE_KERNEL void choose_keys<Bf16>(ChooseArgs args);
template HEDDLE_KERNEL void choose_blocks<float>(ChooseBlocksArgs args);
template HEDDLE_KERNEL void choose_blocks<Bf16>(ChooseBlocksArgs args);
template HEDDLE_KERNEL void chosen_attention<float, float>(ChosenAttentionArgs args);
template HEDDLE_KERNEL void chosen_attention<float, Bf16>(ChosenAttentionArgs args);
template HEDDLE_KERNEL void chosen_attention<Bf16, Bf16>(ChosenAttentionArgs args);
template HEDDLE_KERNEL void chosen_attention_dq<float>(ChosenAttentionGradArgs args);
template HEDDLE_KERNEL void chosen_attention_dq<Bf16>(ChosenAttentionGradArgs args);
template HEDDLE_KERNEL void chosen_attention_dkv<float>(ChosenAttentionGradArgs args);
template HEDDLE_KERNEL void chosen_attention_dkv<Bf16>(ChosenAttentionGradArgs args);
template HEDDLE_KERNEL void attention_share<float>(AttentionShareArgs args);
template HEDDLE_KERNEL void attention_share<Bf16>(AttentionShareArgs args);
template HEDDLE_KERNEL void index_loss<float>(IndexLossArgs args);
template HEDDLE_KERNEL void index_loss<Bf16>(IndexLossArgs args);
template HEDDLE_KERNEL void index_loss_dq<float>(IndexLossArgs args);
template HEDDLE_KERNEL void index_loss_dq<Bf16>(IndexLossArgs args);
template HEDDLE_KERNEL void index_loss_dk<float>(IndexLossArgs args);
template HEDDLE_KERNEL void index_loss_dk<Bf16>(IndexLossArgs args);

}  // namespace heddle::kernels::cuda
