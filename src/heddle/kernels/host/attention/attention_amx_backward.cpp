// Backward of attention in bf16 with AMX.
//
//   p  = exp(scale·q kᵀ − lse)      delta = Σ do·o      dp = do vᵀ      ds = p·(dp − delta)
//   dv = pᵀ do                      dk = scale·dsᵀ q                    dq = scale·ds k
//
// It takes 128 keys × 128 queries at a time. p and ds are held transposed (rows are keys, lanes queries). So they
// come out of the vector units just as the A operand of dv and dk, and lse and delta are plain vectors. The sum of
// dq is transposed, dqᵀ = kᵀ dsᵀ, with dsᵀ as the B operand. Its pairs of keys come from interleaving two rows.
// That leaves the queries of a step in the order of kLaneQuery, undone when dq is written. While the vector units
// work on 32 × 32 scores, the tile unit computes the next ones. p and ds are rounded to bf16, all sums are fp32.
#include "heddle/kernels/host/attention/attention_problem.h"

#if defined(__x86_64__)

#include <algorithm>

#include "heddle/kernels/host/attention/attention_ahead.h"
#include "heddle/kernels/host/attention/attention_amx_tiles.h"

namespace heddle::kernels::host::attention {
namespace {

constexpr int64_t kBlock = 4;                 // steps of keys and of queries
constexpr int64_t kSumsTile = kSide * kSide;  // floats in a tile of C

/// Interleaving 16-bit words within 128-bit lanes leaves query kLaneQuery + 4·t in lane `lane` of tile t.
constexpr int64_t lane_query(int64_t tile, int64_t lane) { return lane / 4 * 8 + lane % 4 + 4 * tile; }

struct Shared {
  Shared(const Problem& p, std::byte* base)
      : width_steps(divide_up(p.head_dim, 32)),
        width_tiles(divide_up(p.head_dim, kSide)),
        value_steps(divide_up(p.value_dim, 32)),
        value_tiles(divide_up(p.value_dim, kSide)) {
    Carver carver(base);
    const int64_t keys = p.key_steps(), queries = p.query_steps();
    k_rows = carver.take<bf16>(keys * 2 * width_steps * kTile);
    v_rows = carver.take<bf16>(keys * 2 * value_steps * kTile);
    k_columns = carver.take<bf16>(keys * width_tiles * kTile);
    q_across = carver.take<bf16>(queries * 2 * width_steps * kTile);
    dout_across = carver.take<bf16>(queries * 2 * value_steps * kTile);
    q_down = carver.take<bf16>(queries * width_tiles * kTile);
    dout_down = carver.take<bf16>(queries * value_tiles * kTile);
    lse_log2 = carver.take<float>(queries * kStep);
    delta = carver.take<float>(queries * kStep);
    dq = carver.take<float>(queries * width_tiles * 2 * kSumsTile);
    dk = carver.take<float>(keys * width_tiles * 2 * kSumsTile);
    dv = carver.take<float>(keys * value_tiles * 2 * kSumsTile);
    bytes = carver.used();
  }
  int64_t width_steps, width_tiles, value_steps, value_tiles;
  bf16 *k_rows, *v_rows;         // rows: [key tile][column step]
  bf16* k_columns;               // columns: [key step][column tile]
  bf16 *q_across, *dout_across;  // pairs_across: [query tile][column step]
  bf16 *q_down, *dout_down;      // pairs_down: [query step][column tile]
  float *lse_log2, *delta;       // [S]
  float* dq;                     // [query step][column tile][query tile of 2][16 columns][16 queries]
  float *dk, *dv;                // [key step][key tile of 2][column tile][16 keys][16 columns]
  int64_t bytes;
};

struct Thread {
  explicit Thread(std::byte* base) {
    Carver carver(base);
    for (int i = 0; i < 2; ++i) {
      scores[i] = carver.take<float>(kStep * kStep);
      dp[i] = carver.take<float>(kStep * kStep);
    }
    p = carver.take<bf16>(kBlock * kBlock * 2 * kTile);
    ds = carver.take<bf16>(kBlock * kBlock * 2 * kTile);
    ds_pairs = carver.take<bf16>(kBlock * kBlock * 2 * kTile);
    bytes = carver.used();
  }
  float *scores[2], *dp[2];  // [32 keys][32 queries]
  bf16 *p, *ds;              // A: [key step][key tile of 2][query step], summed over queries
  bf16* ds_pairs;            // B: [query step][query tile of 2][key step], summed over keys
  int64_t bytes;
};

int64_t shared_bytes(const Problem& p) { return Shared(p, nullptr).bytes; }
int64_t thread_bytes(const Problem&) { return Thread(nullptr).bytes; }

void pack_keys(const Task& task, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const HeadRows k = key_rows<Bf16Pairs>(task, task.operands.k, p.head_dim);
  const HeadRows v = key_rows<Bf16Pairs>(task, task.operands.v, p.value_dim);
  for (int64_t step = first; step < end; ++step) {
    pack_rows(k, step, s.width_steps, s.k_rows + step * 2 * s.width_steps * kTile);
    pack_rows(v, step, s.value_steps, s.v_rows + step * 2 * s.value_steps * kTile);
    pack_columns(k, step, s.width_tiles, s.k_columns + step * s.width_tiles * kTile);
    if (p.first_seen == nullptr && step < p.seen_steps()) continue;
    // No pair of blocks begins the sums of keys that no query sees, and with first_seen none begins any.
    const auto clear = [&](float* sums, int64_t tiles) {
      std::fill_n(sums + step * 2 * tiles * kSumsTile, 2 * tiles * kSumsTile, 0.0f);
    };
    clear(s.dk, s.width_tiles);
    clear(s.dv, s.value_tiles);
  }
}

void pack_queries(const Task& task, int64_t member, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const int64_t head = p.head(task.unit, member);
  const HeadRows q = query_rows<Bf16Pairs>(task, task.operands.q, head, p.head_dim);
  const HeadRows dout = query_rows<Bf16Pairs>(task, task.operands.dout, head, p.value_dim);
  for (int64_t step = first; step < end; ++step) {
    pack_pairs_across(q, step, s.width_steps, s.q_across + step * 2 * s.width_steps * kTile);
    pack_pairs_across(dout, step, s.value_steps, s.dout_across + step * 2 * s.value_steps * kTile);
    pack_pairs_down(q, step, s.width_tiles, s.q_down + step * s.width_tiles * kTile);
    pack_pairs_down(dout, step, s.value_tiles, s.dout_down + step * s.value_tiles * kTile);
  }
  const int64_t dq_floats = 2 * s.width_tiles * kSumsTile;  // of a step
  for (int64_t step = first; step < end; ++step) {
    // No pair of blocks begins these sums either.
    if (p.first_seen == nullptr && p.seen_steps(step) > 0) continue;
    std::fill_n(s.dq + step * dq_floats, dq_floats, 0.0f);
  }
  weigh_rows<Bf16Pairs>(task, head, first, end, s.lse_log2, s.delta);
}

struct Weigh {
  const float *scores, *dp;          // [32 keys][32 queries]
  const float *lse_log2, *delta;     // [32 queries]
  bf16 *p, *ds, *ds_pairs;           // first tiles of this pair of steps
  int64_t tile_stride, pair_stride;  // between the two key tiles of p and ds, the two query tiles of ds_pairs
  const uint32_t* queries;           // masked: of each key, the queries that see it
};

/// Finds, for each of 32 keys, the queries of a step that see it. `keys`: how many of them are there; on the
/// diagonal key r meets queries r..31 only.
void find_queries(const Task& task, int64_t key_step, int64_t query_step, bool diagonal, int64_t keys, bool hides,
                  uint32_t* queries) {
  const Problem& p = task.problem;
  int64_t seeing = 0;  // the first ones, for what a query sees never begins before what an earlier one does
  for (int64_t key = 0; key < kStep; ++key) {
    queries[key] = key >= keys ? 0u : diagonal ? ~bits_below(key) : ~0u;
    if (!hides) continue;
    const int32_t* const first = p.first_seen + p.first_query(task.unit) + query_step * kStep;
    while (seeing < p.rows_of(query_step) && first[seeing] <= key_step * kStep + key) ++seeing;
    queries[key] &= bits_below(seeing);
  }
}

/// Keys [first, end), an even number.
template <bool masked>
HEDDLE_AVX512 void weigh_keys(const Weigh& w, float scale_log2, int64_t first, int64_t end) {
  const __m512 scale = _mm512_set1_ps(scale_log2);
  const __m512 lse[2] = {_mm512_load_ps(w.lse_log2), _mm512_load_ps(w.lse_log2 + 16)};
  const __m512 delta[2] = {_mm512_load_ps(w.delta), _mm512_load_ps(w.delta + 16)};
  for (int64_t pair = first; pair < end; pair += 2) {
    __m512i ds_rows[2];
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      const int64_t key = pair + odd;
      __m512 p[2], ds[2];
#pragma GCC unroll 2
      for (int n = 0; n < 2; ++n) {
        p[n] = exp2_coarse(_mm512_fmsub_ps(_mm512_load_ps(w.scores + key * kStep + n * 16), scale, lse[n]));
        if (masked) p[n] = _mm512_maskz_mov_ps(static_cast<__mmask16>(w.queries[key] >> (16 * n)), p[n]);
        ds[n] = _mm512_mul_ps(p[n], _mm512_sub_ps(_mm512_load_ps(w.dp + key * kStep + n * 16), delta[n]));
      }
      const int64_t at = key / kSide * w.tile_stride + key % kSide * 32;
      ds_rows[odd] = (__m512i)_mm512_cvtne2ps_pbh(ds[1], ds[0]);
      _mm512_store_si512(w.p + at, (__m512i)_mm512_cvtne2ps_pbh(p[1], p[0]));
      _mm512_store_si512(w.ds + at, ds_rows[odd]);
    }
    bf16* const pairs = w.ds_pairs + pair / 2 * 32;
    _mm512_store_si512(pairs, _mm512_unpacklo_epi16(ds_rows[0], ds_rows[1]));
    _mm512_store_si512(pairs + w.pair_stride, _mm512_unpackhi_epi16(ds_rows[0], ds_rows[1]));
  }
}

void accumulate(const Task& task, int64_t member, int64_t key_block, int64_t query_block) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const Thread t(task.thread);
  const int64_t first_key = key_block * kBlock, first_query = query_block * kBlock;  // in steps
  const int64_t keys = std::min(kBlock, p.key_steps() - first_key);
  const int64_t queries = std::min(kBlock, p.query_steps() - first_query);
  const bool on_diagonal = p.has_diagonal() && first_key == p.diagonal(first_query);
  const float scale_log2 = p.scale * static_cast<float>(kLog2E);

  // The pairs of (key step, query step) that are not wholly masked.
  struct Pair {
    int64_t key, query;
  };
  Pair pairs[kBlock * kBlock];
  int64_t count = 0;
  for (int64_t key = 0; key < keys; ++key) {
    for (int64_t query = on_diagonal ? key : 0; query < queries; ++query) pairs[count++] = {key, query};
  }

  const auto start = [](const bf16* rows, const bf16* across, int64_t key, int64_t query, int64_t width) {
    zero_sums<2, 2>();
    add_products<2, 2>({rows + key * 2 * width * kTile, width * kTile, kTile},
                       {across + query * 2 * width * kTile, width * kTile, kTile}, width);
  };
  const auto start_scores = [&](Pair pair) {
    start(s.k_rows, s.q_across, first_key + pair.key, first_query + pair.query, s.width_steps);
  };
  const auto start_dp = [&](Pair pair) {
    start(s.v_rows, s.dout_across, first_key + pair.key, first_query + pair.query, s.value_steps);
  };
  const auto store = [](float* to) { store_sums<2, 2>({to, kSide * kStep, kSide, kStep}); };

  Ahead rows_ahead(task, count);
  rows_ahead.add_keys(task.operands.k, p.head_dim);
  rows_ahead.add_keys(task.operands.v, p.value_dim);
  rows_ahead.add_queries(task.operands.q, p.head_dim);
  rows_ahead.add_queries(task.operands.dout, p.value_dim);
  rows_ahead.add_queries(task.operands.out_saved, p.value_dim);
  uint32_t seeing[kStep];
  const TileState tiles;
  start_scores(pairs[0]);
  store(t.scores[0]);
  start_dp(pairs[0]);
  store(t.dp[0]);
  for (int64_t n = 0; n < count; ++n) {
    const auto [key, query] = pairs[n];
    const int64_t row = (first_query + query) * kStep;
    const int64_t a_tile = (key * 2 * kBlock + query) * kTile, b_tile = (query * 2 * kBlock + key) * kTile;
    const Weigh w{t.scores[n & 1], t.dp[n & 1],         s.lse_log2 + row, s.delta + row,  t.p + a_tile,
                  t.ds + a_tile,   t.ds_pairs + b_tile, kBlock * kTile,   kBlock * kTile, seeing};
    const bool diagonal = on_diagonal && key == query,
               hides = p.hides(task.unit, first_query + query, (first_key + key) * kStep);
    const int64_t there = std::min(kStep, p.keys - (first_key + key) * kStep);
    const bool masked = diagonal || hides || there < kStep;
    if (masked) find_queries(task, first_key + key, first_query + query, diagonal, there, hides, seeing);
    const auto weigh = masked ? weigh_keys<true> : weigh_keys<false>;
    const bool ahead = n + 1 < count;
    if (ahead) start_scores(pairs[n + 1]);
    rows_ahead.ask();
    weigh(w, scale_log2, 0, kStep / 2);
    if (ahead) {
      store(t.scores[(n + 1) & 1]);
      start_dp(pairs[n + 1]);
    }
    weigh(w, scale_log2, kStep / 2, kStep);
    if (ahead) store(t.dp[(n + 1) & 1]);
  }

  const bool first_queries =
      p.first_seen == nullptr && member == 0 && query_block == p.first_query_block(key_block, kBlock);
  for (int64_t key = 0; key < keys; ++key) {
    const int64_t begin = on_diagonal ? key : 0;
    const int64_t a_tile = (key * 2 * kBlock + begin) * kTile, step = first_query + begin;
    const Tiles p_a{t.p + a_tile, kBlock * kTile, kTile}, ds_a{t.ds + a_tile, kBlock * kTile, kTile};
    multiply_tiles(
        2, s.value_tiles, p_a, {s.dout_down + step * s.value_tiles * kTile, kTile, s.value_tiles * kTile},
        queries - begin,
        {s.dv + (first_key + key) * 2 * s.value_tiles * kSumsTile, s.value_tiles * kSumsTile, kSumsTile, kSide},
        !first_queries);
    multiply_tiles(
        2, s.width_tiles, ds_a, {s.q_down + step * s.width_tiles * kTile, kTile, s.width_tiles * kTile},
        queries - begin,
        {s.dk + (first_key + key) * 2 * s.width_tiles * kSumsTile, s.width_tiles * kSumsTile, kSumsTile, kSide},
        !first_queries);
  }
  for (int64_t query = 0; query < queries; ++query) {
    const int64_t end = on_diagonal ? std::min(keys, query + 1) : keys;
    multiply_tiles(s.width_tiles, 2,
                   {s.k_columns + first_key * s.width_tiles * kTile, kTile, s.width_tiles * kTile},
                   {t.ds_pairs + query * 2 * kBlock * kTile, kBlock * kTile, kTile}, end,
                   {s.dq + (first_query + query) * 2 * s.width_tiles * kSumsTile, 2 * kSumsTile, kSumsTile, kSide},
                   p.first_seen != nullptr || key_block != 0);
  }
}

/// dq as it is handed on: in the ring f32 until the last part, with the sum of the parts before.
template <class Words>
HEDDLE_AVX512 void write_dq(const Task& task, int64_t member, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const __m512 scale = _mm512_set1_ps(p.scale);
  const int64_t stride = p.heads * p.head_dim;
  const int64_t begin = p.first_query(task.unit) * stride + p.head(task.unit, member) * p.head_dim;
  using X = typename Words::Element;
  X* const dq = static_cast<X*>(task.operands.dq) + begin;
  const float* const before = task.operands.dq_before == nullptr ? nullptr : task.operands.dq_before + begin;
  for (int64_t step = first; step < end; ++step) {
    const int64_t next_end = std::min((step + 2) * kStep, p.queries);
    for (int64_t row = (step + 1) * kStep; row < next_end; ++row)
      claim_row(dq + row * stride, p.head_dim * int64_t{sizeof(X)});
    for (int64_t column = 0; column < s.width_tiles; ++column) {
      for (int64_t tile = 0; tile < 2; ++tile) {
        const float* const from = s.dq + ((step * s.width_tiles + column) * 2 + tile) * kSumsTile;
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(from + i * kSide);
        transpose_words(r);
        for (int64_t lane = 0; lane < kSide; ++lane) {
          const int64_t row = step * kStep + lane_query(tile, lane);
          if (row >= p.queries) continue;
          const int64_t at = row * stride + column * kSide, columns = p.head_dim - column * kSide;
          __m512 x = _mm512_mul_ps(scale, _mm512_castsi512_ps(r[lane]));
          if (before != nullptr) {
            const auto there = static_cast<__mmask16>(bits_below(columns));
            x = _mm512_add_ps(_mm512_maskz_loadu_ps(there, before + at), x);
          }
          Words::store(dq + at, columns, x);
        }
      }
    }
  }
}

void write_queries(const Task& task, int64_t member, int64_t first, int64_t end) {
  task.operands.wide_dq ? write_dq<Fp32>(task, member, first, end) : write_dq<Bf16Pairs>(task, member, first, end);
}

/// Writes factor × sums ([key step][key tile][column tile]) to the rows of a head.
HEDDLE_AVX512 void write_rows(const Problem& p, const float* sums, float factor, bf16* to, int64_t stride,
                              int64_t width, int64_t first, int64_t end) {
  constexpr int64_t kRowsAhead = 8;
  const int64_t tiles = divide_up(width, kSide);
  for (int64_t row = first * kStep; row < std::min(end * kStep, p.keys); ++row) {
    if (row + kRowsAhead < p.keys) claim_row(to + (row + kRowsAhead) * stride, width * 2);
    for (int64_t c = 0; c < tiles; ++c) {
      const float* const from = sums + (row / kSide * tiles + c) * kSumsTile + row % kSide * kSide;
      Bf16Pairs::store(to + row * stride + c * kSide, width - c * kSide,
                       _mm512_mul_ps(_mm512_set1_ps(factor), _mm512_load_ps(from)));
    }
  }
}

void write_keys(const Task& task, int64_t first, int64_t end) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const int64_t stride = p.kv_heads * p.head_dim, value_stride = p.kv_heads * p.value_dim;
  const int64_t row = p.first_key(task.unit), head = p.kv_head(task.unit);
  write_rows(p, s.dk, p.scale, static_cast<bf16*>(task.operands.dk) + row * stride + head * p.head_dim, stride,
             p.head_dim, first, end);
  write_rows(p, s.dv, 1.0f, static_cast<bf16*>(task.operands.dv) + row * value_stride + head * p.value_dim,
             value_stride, p.value_dim, first, end);
}

}  // namespace

const BackwardPath kBackwardAmx = {kBlock,       shared_bytes, thread_bytes,  pack_keys,
                                   pack_queries, accumulate,   write_queries, write_keys};

}  // namespace heddle::kernels::host::attention

#endif
