// Forward of attention in bf16 with AMX.
//
// An item is 32 queries and 128 keys. First scores = q kᵀ by tiles. Then they become probabilities
// (attention_avx512_soften.h). Then out += probabilities · v by tiles. While the vector units soften one item, the
// tile unit computes the scores of the next: 8 rows are softened between starting the products of 32 keys and
// storing them.
#include "heddle/kernels/host/attention/attention_problem.h"

#if defined(__x86_64__)

#include <algorithm>

#include "heddle/kernels/host/attention/attention_ahead.h"
#include "heddle/kernels/host/attention/attention_amx_tiles.h"
#include "heddle/kernels/host/attention/attention_avx512_soften.h"

namespace heddle::kernels::host::attention {
namespace {

constexpr int64_t kBlock = 2;  // steps of queries a block
constexpr int64_t kTileFloats = kTile / 2;
/// Probabilities lie in tiles: [query tile of 2][key step of 4].
constexpr WeightRows kInTiles = {kTileFloats, kTileFloats / kSide, kGroup* kTileFloats};

struct Shared {
  Shared(const Problem& p, std::byte* base)
      : width_steps(divide_up(p.head_dim, 32)), value_tiles(divide_up(p.value_dim, kSide)) {
    Carver carver(base);
    k = carver.take<bf16>(p.key_steps() * 2 * width_steps * kTile);
    v = carver.take<bf16>(p.key_steps() * value_tiles * kTile);
    bytes = carver.used();
  }
  int64_t width_steps, value_tiles;
  bf16* k;  // pairs_across: [key tile][column step]
  bf16* v;  // pairs_down: [key step][value tile]
  int64_t bytes;
};

struct Thread {
  Thread(const Problem& p, std::byte* base) {
    Carver carver(base);
    q = carver.take<bf16>(kBlock * 2 * divide_up(p.head_dim, 32) * kTile);
    scores[0] = carver.take<float>(kStep * kKeys);
    scores[1] = carver.take<float>(kStep * kKeys);
    weights = carver.take<float>(kStep * kKeys / 2);
    for (Running& r : running) r = take_running(carver, p);
    bytes = carver.used();
  }
  bf16* q;           // rows: [query tile][column step]
  float* scores[2];  // [32][128]
  float* weights;    // probabilities as words, kInTiles
  Running running[kBlock];
  int64_t bytes;
};

int64_t shared_bytes(const Problem& p) { return Shared(p, nullptr).bytes; }
int64_t thread_bytes(const Problem& p) { return Thread(p, nullptr).bytes; }

void pack_keys(const Task& task, int64_t first_step, int64_t end_step) {
  const Problem& p = task.problem;
  const Shared s(p, task.shared);
  const HeadRows k = key_rows<Bf16Pairs>(task, task.operands.k, p.head_dim);
  const HeadRows v = key_rows<Bf16Pairs>(task, task.operands.v, p.value_dim);
  for (int64_t step = first_step; step < end_step; ++step) {
    pack_pairs_across(k, step, s.width_steps, s.k + step * 2 * s.width_steps * kTile);
    pack_pairs_down(v, step, s.value_tiles, s.v + step * s.value_tiles * kTile);
  }
}

void attend(const Task& task, int64_t member, int64_t block) {
  const Problem& p = task.problem;
  const Shared shared(p, task.shared);
  const Thread t(p, task.thread);
  const int64_t head = p.head(task.unit, member), first_step = block * kBlock;
  const int64_t width_steps = shared.width_steps, value_tiles = shared.value_tiles, out_width = value_tiles * kSide;
  const int64_t subs = std::min(kBlock, p.query_steps() - first_step);
  const HeadRows q = query_rows<Bf16Pairs>(task, task.operands.q, head, p.head_dim);
  const float scale_log2 = p.scale * static_cast<float>(kLog2E);
  const auto end_step = [&](int64_t sub) { return p.seen_steps(first_step + sub); };
  if (p.begin_step(task.unit, first_step) >= end_step(subs - 1)) {  // of others' keys: what none of them sees
    const int64_t first_row = first_step * kStep;
    return pass_on(task, head, first_row, std::min(subs * kStep, p.queries - first_row));
  }
  for (int64_t sub = 0; sub < subs; ++sub) {
    const int64_t first_row = (first_step + sub) * kStep, end_row = std::min(first_row + kStep, p.queries);
    pack_rows(q, first_step + sub, width_steps, t.q + sub * 2 * width_steps * kTile);
    begin(task, head, first_row, end_row - first_row, t.running[sub]);
    const int64_t bytes = p.value_dim * (task.operands.wide_out ? 4 : 2);
    for (int64_t row = first_row; row < end_row; ++row) {
      char* const out = static_cast<char*>(task.operands.out);
      claim_row(out + ((p.first_query(task.unit) + row) * p.heads + head) * bytes, bytes);
    }
  }
  uint32_t allowed[kStep];
  see_last_keys(p, allowed);

  // Both steps of queries of a block meet the same groups of keys: the diagonal of a block begins at an even step,
  // a group at a multiple of four. Items run through the groups, and within one through the steps of queries.
  const int64_t first_group = p.begin_step(task.unit, first_step) / kGroup;
  const int64_t items = (divide_up(end_step(subs - 1), kGroup) - first_group) * subs;
  const auto group_of = [&](int64_t item) { return first_group + item / subs; };
  const auto steps_of = [&](int64_t item) {
    return std::min(kGroup, end_step(item % subs) - group_of(item) * kGroup);
  };
  const Sums no_sums{nullptr, kSide * kKeys, kSide, kKeys};
  const auto start_scores = [&](int64_t item, int64_t s) {
    zero_sums<2, 2>();
    add_products<2, 2>(
        {t.q + item % subs * 2 * width_steps * kTile, width_steps * kTile, kTile},
        {shared.k + (group_of(item) * kGroup + s) * 2 * width_steps * kTile, width_steps * kTile, kTile},
        width_steps);
  };
  const auto store_scores = [&](int64_t item, int64_t s) {
    Sums to = no_sums;
    to.data = t.scores[item & 1] + s * kStep;
    store_sums<2, 2>(to);
  };

  Ahead ahead(task, items * kGroup);
  ahead.add_keys(task.operands.k, p.head_dim);
  ahead.add_keys(task.operands.v, p.value_dim);
  ahead.add_queries(task.operands.q, p.head_dim);
  const TileState tiles;
  for (int64_t s = 0; s < steps_of(0); ++s) {
    start_scores(0, s);
    store_scores(0, s);
  }
  for (int64_t item = 0; item < items; ++item) {
    const int64_t sub = item % subs, group = group_of(item), steps = steps_of(item);
    const int64_t steps_ahead = item + 1 < items ? steps_of(item + 1) : 0;
    const Running& r = t.running[sub];
    const bool last = group * kGroup + steps == end_step(sub);
    const bool masked = last && (p.has_diagonal() || p.keys % kStep != 0);
    const auto soften = kSoftenRows<Bf16Pairs, kInTiles>[masked][steps - 1];
    hide_unseen(task, first_step + sub, group * kKeys, steps * kStep, t.scores[item & 1], kKeys);
    for (int64_t s = 0; s < kGroup; ++s) {
      if (s < steps_ahead) start_scores(item + 1, s);
      ahead.ask();
      constexpr int64_t kShare = kStep / kGroup;
      soften(r, t.scores[item & 1], t.weights, s * kShare, (s + 1) * kShare, allowed, scale_log2);
      if (s < steps_ahead) store_scores(item + 1, s);
    }
    multiply_tiles(2, value_tiles, {reinterpret_cast<const bf16*>(t.weights), kGroup * kTile, kTile},
                   {shared.v + group * kGroup * value_tiles * kTile, kTile, value_tiles * kTile}, steps,
                   {r.out, kSide * out_width, kSide, out_width}, true);
    if (last) {
      const int64_t first_row = (first_step + sub) * kStep;
      finish<Bf16Pairs>(task, r, head, first_row, std::min(kStep, p.queries - first_row));
    }
  }
}

}  // namespace

const ForwardPath kForwardAmx = {kBlock, shared_bytes, thread_bytes, pack_keys, attend};

}  // namespace heddle::kernels::host::attention

#endif
