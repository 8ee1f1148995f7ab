// Selection of keys, attention to those that are chosen, and the loss of the indexer (ops/selection.cpp).
//
// Work is cut by rows of queries, but for gradients of keys: those of attention by sequence and kv head, those of
// an indexer by key. So each number has one writer, which sums over the queries in increasing order. The bits
// depend on nothing but the operands. Chosen positions increase along a row: the ones of a range of keys stand side
// by side.
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/selection.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "heddle/kernels/query_rows.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"
#include "heddle/kernels/host/query_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;
using device::TensorView;

template <class X>
HWY_INLINE void round_to(const float* from, int64_t n, X* to) {
  sweep(n, [&](int64_t i, auto lanes, auto) HEDDLE_BODY { store(load(from + i, lanes), to + i, lanes); });
}

/// The keys that query t may read for a key head: the chosen ones, or all that it sees.
struct Keys {
  explicit Keys(const KernelCall& call) : of(call), rows(of.rows) {}
  /// Fills the rows of the keys, and returns how many there are. The first of them is at slot `begin` of its list.
  int64_t read(int64_t t, int64_t* at, int64_t list_index = 0) {
    const int64_t base = rows.base(t);
    list = of.of(t, list_index);
    int64_t count = 0;
    for (int64_t slot = list.begin; slot < list.end; ++slot) at[count++] = base + list.position(slot);
    return count;
  }
  /// True if each key head has keys of its own.
  bool apart() const { return of.lists > 1; }

  ChosenKeys of;
  const QueryRows& rows;
  ChosenKeys::List list{};
};

/// q, k and w of an indexer, which lead the operands.
template <class X>
struct Indexer {
  explicit Indexer(const KernelCall& call)
      : h(call.op->attributes.integer("heads")),
        d(call.op->attributes.integer("head_dim")),
        apart(call.op->attributes.has("lists")),
        scale(static_cast<float>(call.op->attributes.number("scale"))),
        q(call.in[0].as<const X>()),
        k(call.in[1].as<const X>()),
        w(named_operand(call, "w").as<const float>()) {}
  /// The score of all heads together; where each has a list, that of the one.
  HWY_INLINE float score(int64_t t, int64_t key, int64_t list = 0) const {
    if (apart) return scale * dot(q + (t * h + list) * d, k + key * d, d);
    float sum = 0;
    for (int64_t j = 0; j < h; ++j) {
      const float s = std::max(0.0f, dot(q + (t * h + j) * d, k + key * d, d));
      sum += w == nullptr ? s : w[t * h + j] * s;
    }
    return scale * sum;
  }
  int64_t h, d;
  bool apart;
  float scale;
  const X *q, *k;
  const float* w;
};

/// A number that is less the better the score is, and of equal scores the earlier the key; a NaN is the worst.
HWY_INLINE uint64_t rank_of(float score, int64_t n) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);
  const uint32_t order = score != score ? 0u : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (uint64_t{~order} << 32) | static_cast<uint64_t>(n);
}

/// It holds a query's index scores and the attention's share of each key of a list, both as distributions, at the
/// first places.
template <class X>
struct Divergence {
  explicit Divergence(const KernelCall& call)
      : indexer(call),
        keys(call),
        share(call.in[3].as<const float>()),
        p(static_cast<size_t>(keys.of.most())),
        i(p),
        at(p.size()) {}
  HWY_INLINE double of(int64_t t, int64_t list) {
    count = keys.read(t, at.data(), list);
    const float* of_list = share + slot(t, list);
    float total = 0, most = -std::numeric_limits<float>::infinity();
    for (int64_t j = 0; j < count; ++j) {
      total += of_list[j];
      p[j] = i[j] = indexer.score(t, at[j], list);
      most = std::max(most, i[j]);
    }
    if (count == 0) return 0;
    const float sum = exponentials(most, count, i.data()), lse = most + std::log(sum);
    double divergence = 0;
    for (int64_t j = 0; j < count; ++j) {
      const float log_i = p[j] - lse;
      i[j] /= sum;
      p[j] = total > 0 ? of_list[j] / total : i[j];
      if (total > 0 && p[j] > 0) divergence += static_cast<double>(p[j]) * (std::log(p[j]) - log_i);
    }
    return divergence;
  }
  /// The place of a list's first key in what has a number for each slot. The list is the one read last.
  int64_t slot(int64_t t, int64_t list) const {
    return (t * keys.of.lists + list) * keys.of.most() + keys.list.begin;
  }

  Indexer<X> indexer;
  Keys keys;
  const float* share;
  int64_t count = 0;
  std::vector<float> p, i;
  std::vector<int64_t> at;
};
}  // namespace

void ChooseKeysRows(const KernelCall& call, int64_t begin, int64_t end) {
  by_types(call.in[0].dtype, call.in[0].dtype, [&](auto, auto x_type) HEDDLE_BODY {
    const Indexer<decltype(x_type)> indexer(call);
    const QueryRows rows(call);
    const int64_t columns = call.out[0].dim(1);
    std::vector<uint64_t> ranks;
    for (int64_t t = begin; t < end; ++t) {
      int32_t* chosen = call.out[0].as<int32_t>() + t * columns;
      const int64_t first = rows.first(t), seen = rows.seen(t), count = std::min(columns, seen - first);
      std::fill(chosen + count, chosen + columns, -1);
      if (count == seen - first) {
        for (int64_t j = 0; j < count; ++j) chosen[j] = static_cast<int32_t>(first + j);
        continue;
      }
      ranks.clear();
      for (int64_t n = first; n < seen; ++n) ranks.push_back(rank_of(indexer.score(t, rows.base(t) + n), n));
      std::nth_element(ranks.begin(), ranks.begin() + count, ranks.end());
      for (int64_t j = 0; j < count; ++j) chosen[j] = static_cast<int32_t>(ranks[j] & 0xffffffffu);
      std::sort(chosen, chosen + count);
    }
  });
}

/// Pairs of a row and a head of the indexer, from `begin` to `end`.
void ChooseBlocksPairs(const KernelCall& call, int64_t begin, int64_t end) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), d = a.integer("head_dim"), columns = a.integer("top_k");
  const int64_t block = a.integer("block"), local = a.integer_or("local", 0);
  const QueryRows rows(call);
  by_types(call.in[0].dtype, call.in[1].dtype, [&](auto q_type, auto k_type) HEDDLE_BODY {
    const auto* q = call.in[0].as<const decltype(q_type)>();
    const auto* k = call.in[1].as<const decltype(k_type)>();
    std::vector<uint64_t> ranks;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t t = row / h, start = rows.start(t), seen = rows.positions(t), base = rows.base(t);
      const int64_t first = start / block, last = seen == 0 ? first : (seen - 1) / block + 1;
      const int64_t count = std::min(columns, last - first);
      int32_t* chosen = call.out[0].as<int32_t>() + row * columns;
      std::fill(chosen + count, chosen + columns, -1);
      if (count == last - first) {
        for (int64_t j = 0; j < count; ++j) chosen[j] = static_cast<int32_t>(first + j);
        continue;
      }
      ranks.clear();
      for (int64_t b = first; b < last; ++b) {
        float most = -std::numeric_limits<float>::infinity();
        if (b >= last - local) most = -most;
        for (int64_t n = std::max(start, b * block); b < last - local && n < std::min(seen, (b + 1) * block); ++n)
          most = std::max(most, dot(q + row * d, k + (base + n) * d, d));
        ranks.push_back(rank_of(most, b));
      }
      std::nth_element(ranks.begin(), ranks.begin() + count, ranks.end());
      for (int64_t j = 0; j < count; ++j) chosen[j] = static_cast<int32_t>(ranks[j] & 0xffffffffu);
      std::sort(chosen, chosen + count);
    }
  });
}

/// Pairs of a row and a kv head, from `begin` to `end`.
void ChosenAttentionPairs(const KernelCall& call, int64_t begin, int64_t end) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), hk = a.integer("kv_heads"), g = h / hk, d = a.integer("head_dim");
  const int64_t v = a.integer("value_dim");
  const auto scale = static_cast<float>(a.number("scale"));
  const bool apart = static_cast<bool>(call.in[2]);
  const auto* sinks = named_operand(call, "sinks").as<const float>();
  Keys keys(call);
  const int64_t columns = keys.of.most();
  std::vector<int64_t> at(static_cast<size_t>(columns));
  std::vector<float> s_gc(static_cast<size_t>(g * columns)), o_gv(static_cast<size_t>(g * v));
  by_types(call.in[0].dtype, call.in[1].dtype, [&](auto q_type, auto k_type) HEDDLE_BODY {
    using Q = decltype(q_type);
    using K = decltype(k_type);
    const K* k = call.in[1].as<const K>();
    const K* values = apart ? call.in[2].as<const K>() : k;
    const int64_t width = apart ? v : d;
    int64_t read = -1, count = 0;  // the row whose keys are at hand
    for (int64_t pair = begin; pair < end; ++pair) {
      const int64_t t = pair / hk, kv = pair % hk, head = t * h + kv * g;
      if (t != read || keys.apart()) count = keys.read(read = t, at.data(), kv);
      const Q* q = call.in[0].as<const Q>() + head * d;
      Q* o = call.out[0].as<Q>() + head * v;
      auto* lse = call.out[1].as<float>() + head;
      for (int64_t j = 0; j < count; ++j) {
        const K* key = k + (at[j] * hk + kv) * d;
        for (int64_t i = 0; i < g; ++i) s_gc[i * columns + j] = scale * dot(q + i * d, key, d);
      }
      std::fill(o_gv.begin(), o_gv.end(), 0.0f);
      for (int64_t i = 0; i < g; ++i) {
        float* s = s_gc.data() + i * columns;
        lse[i] = -std::numeric_limits<float>::infinity();
        if (count == 0) continue;
        const float sink = sinks == nullptr ? -std::numeric_limits<float>::infinity() : sinks[kv * g + i];
        const float most = std::max(sink, *std::max_element(s, s + count));
        const float sum = exponentials(most, count, s) + std::exp(sink - most);
        lse[i] = most + std::log(sum);
        for (int64_t j = 0; j < count; ++j) s[j] /= sum;
      }
      for (int64_t j = 0; j < count; ++j) {
        const K* value = values + (at[j] * hk + kv) * width;
        for (int64_t i = 0; i < g; ++i) add_scaled(s_gc[i * columns + j], value, v, o_gv.data() + i * v);
      }
      round_to(o_gv.data(), g * v, o);
    }
  });
}

/// Pairs of a sequence and a kv head, from `begin` to `end`.
void ChosenAttentionGradPairs(const KernelCall& call, int64_t begin, int64_t end) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), hk = a.integer("kv_heads"), g = h / hk, d = a.integer("head_dim");
  const int64_t v = a.integer("value_dim");
  const auto scale = static_cast<float>(a.number("scale"));
  Keys keys(call);
  const int64_t S = keys.rows.keys, own = keys.rows.own;
  std::vector<int64_t> at(static_cast<size_t>(keys.of.most()));
  std::vector<float> dk(static_cast<size_t>(S * d)), dv(static_cast<size_t>(S * v)), dq(static_cast<size_t>(d));
  by_types(call.in[1].dtype, call.in[1].dtype, [&](auto, auto x_type) HEDDLE_BODY {
    using X = decltype(x_type);
    const X *k = call.in[2].as<const X>(), *values = call.in[3].as<const X>();
    for (int64_t pair = begin; pair < end; ++pair) {
      const int64_t sequence = pair / hk, kv = pair % hk;
      std::fill(dk.begin(), dk.end(), 0.0f);
      std::fill(dv.begin(), dv.end(), 0.0f);
      for (int64_t t = sequence * own; t < (sequence + 1) * own; ++t) {
        const int64_t count = keys.read(t, at.data(), kv);
        for (int64_t row = t * h + kv * g; row < t * h + (kv + 1) * g; ++row) {
          const X *q_d = call.in[1].as<const X>() + row * d, *do_v = call.in[0].as<const X>() + row * v;
          const float lse = call.in[5].as<const float>()[row],
                      delta = dot(do_v, call.in[4].as<const X>() + row * v, v);
          std::fill(dq.begin(), dq.end(), 0.0f);
          for (int64_t j = 0; j < count; ++j) {
            const int64_t key = at[j] * hk + kv, n = at[j] - sequence * S;
            const float p = std::exp(scale * dot(q_d, k + key * d, d) - lse);
            const float ds = p * (dot(do_v, values + key * v, v) - delta) * scale;
            add_scaled(ds, k + key * d, d, dq.data());
            add_scaled(ds, q_d, d, dk.data() + n * d);
            add_scaled(p, do_v, v, dv.data() + n * v);
          }
          round_to(dq.data(), d, call.out[0].as<X>() + row * d);
        }
      }
      for (int64_t n = 0; n < S; ++n) {
        const int64_t key = (sequence * S + n) * hk + kv;
        round_to(dk.data() + n * d, d, call.out[1].as<X>() + key * d);
        round_to(dv.data() + n * v, v, call.out[2].as<X>() + key * v);
      }
    }
  });
}

void AttentionShareRows(const KernelCall& call, int64_t begin, int64_t end) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), hk = a.integer("kv_heads"), d = a.integer("head_dim");
  const auto scale = static_cast<float>(a.number("scale"));
  const auto* lse = call.in[2].as<const float>();
  const ShareColumns columns(call);
  Keys keys(call);
  std::vector<int64_t> at(static_cast<size_t>(keys.of.most()));
  std::vector<float> s(at.size());
  by_types(call.in[0].dtype, call.in[0].dtype, [&](auto, auto x_type) HEDDLE_BODY {
    using X = decltype(x_type);
    const X* k = call.in[1].as<const X>();
    for (int64_t row = begin * keys.of.lists; row < end * keys.of.lists; ++row) {
      const int64_t t = row / keys.of.lists, list = row % keys.of.lists;
      float* share = call.out[0].as<float>() + row * columns.of_list;
      std::fill_n(share, columns.of_list, 0.0f);
      const int64_t count = keys.read(t, at.data(), list), first = keys.list.begin;
      for (int64_t head = list * columns.heads; head < (list + 1) * columns.heads && count > 0; ++head) {
        const X* q_d = call.in[0].as<const X>() + (t * h + head) * d;
        for (int64_t j = 0; j < count; ++j) s[j] = scale * dot(q_d, k + (at[j] * hk + head / (h / hk)) * d, d);
        exponentials(lse[t * h + head], count, s.data());
        if (columns.width == 1) {
          add_scaled(1.0f, s.data(), count, share + first);
        } else {
          for (int64_t j = 0; j < count; ++j) share[(first + j) / columns.width] += s[j];
        }
      }
    }
  });
}

void IndexLossRows(const KernelCall& call, double* of_rows, int64_t begin, int64_t end) {
  by_types(call.in[0].dtype, call.in[0].dtype, [&](auto, auto x_type) HEDDLE_BODY {
    Divergence<decltype(x_type)> divergence(call);
    for (int64_t t = begin; t < end; ++t) {
      of_rows[t] = 0;
      for (int64_t list = 0; list < divergence.keys.of.lists; ++list) of_rows[t] += divergence.of(t, list);
    }
  });
}

/// dq and dw of rows from `begin` to `end`, and the gradients of their scores, which stay in scratch: a number for
/// each of the share.
void IndexLossGradRows(const KernelCall& call, int64_t begin, int64_t end) {
  by_types(call.in[0].dtype, call.in[0].dtype, [&](auto, auto x_type) HEDDLE_BODY {
    using X = decltype(x_type);
    Divergence<X> divergence(call);
    const Indexer<X>& of = divergence.indexer;
    const float factor = call.in[4].as<const float>()[call.op->attributes.integer("scale_index")] *
                         static_cast<float>(call.op->attributes.number("weight")) * of.scale;
    const int64_t lists = divergence.keys.of.lists, heads = of.h / lists;
    std::vector<float> dq(static_cast<size_t>(of.d));
    for (int64_t of_list = begin * lists; of_list < end * lists; ++of_list) {
      const int64_t t = of_list / lists, list = of_list % lists;
      divergence.of(t, list);
      float* d_score = reinterpret_cast<float*>(call.scratch) + divergence.slot(t, list);
      for (int64_t j = 0; j < divergence.count; ++j) d_score[j] = factor * (divergence.i[j] - divergence.p[j]);
      for (int64_t row = of_list * heads; row < (of_list + 1) * heads; ++row) {
        float dw = 0;
        std::fill(dq.begin(), dq.end(), 0.0f);
        for (int64_t j = 0; j < divergence.count; ++j) {
          const X* key = of.k + divergence.at[j] * of.d;
          const float s = of.apart ? 1.0f : dot(of.q + row * of.d, key, of.d);
          if (s <= 0) continue;
          dw += d_score[j] * s;
          add_scaled(of.w == nullptr ? d_score[j] : d_score[j] * of.w[row], key, of.d, dq.data());
        }
        if (of.w != nullptr) call.out[2].as<float>()[row] = dw;
        round_to(dq.data(), of.d, call.out[0].as<X>() + row * of.d);
      }
    }
  });
}

/// dk of the keys from `begin` to `end`, out of the gradients of scores.
void IndexLossGradKeys(const KernelCall& call, int64_t begin, int64_t end) {
  by_types(call.in[0].dtype, call.in[0].dtype, [&](auto, auto x_type) HEDDLE_BODY {
    using X = decltype(x_type);
    const Indexer<X> of(call);
    const ChosenKeys keys(call);
    const int64_t S = keys.rows.keys, own = keys.rows.own, heads = of.h / keys.lists;
    std::vector<float> dk(static_cast<size_t>((end - begin) * of.d), 0.0f);
    for (int64_t from = begin; from < end;) {  // sequence by sequence
      const int64_t sequence = from / S, to = std::min(end, (sequence + 1) * S);
      const int64_t low = from - sequence * S, high = to - sequence * S;
      for (int64_t of_list = sequence * own * keys.lists; of_list < (sequence + 1) * own * keys.lists; ++of_list) {
        const int64_t t = of_list / keys.lists;
        const float* d_score = reinterpret_cast<const float*>(call.scratch) + of_list * keys.most();
        const ChosenKeys::List list = keys.of(t, of_list % keys.lists);
        for (int64_t j = list.first_from(low); j < list.end && list.position(j) < high; ++j) {
          const int64_t key = sequence * S + list.position(j);
          for (int64_t row = of_list * heads; row < (of_list + 1) * heads; ++row) {
            const X* q_d = of.q + row * of.d;
            if (!of.apart && dot(q_d, of.k + key * of.d, of.d) <= 0) continue;
            const float ds = of.w == nullptr ? d_score[j] : d_score[j] * of.w[row];
            add_scaled(ds, q_d, of.d, dk.data() + (key - begin) * of.d);
          }
        }
      }
      from = to;
    }
    round_to(dk.data(), (end - begin) * of.d, call.out[1].as<X>() + begin * of.d);
  });
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(ChooseKeysRows);
HWY_EXPORT(ChooseBlocksPairs);
HWY_EXPORT(ChosenAttentionPairs);
HWY_EXPORT(ChosenAttentionGradPairs);
HWY_EXPORT(AttentionShareRows);
HWY_EXPORT(IndexLossRows);
HWY_EXPORT(IndexLossGradRows);
HWY_EXPORT(IndexLossGradKeys);

/// Bytes that a query or a key reads of all that it meets, in a mean.
int64_t bytes_met(const KernelCall& call, size_t q) {
  return (call.in[q].columns() + call.op->attributes.integer("sequence")) * 64;
}

void choose_keys(const KernelCall& call) {
  over_rows(call.in[0].dim(0), bytes_met(call, 0), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ChooseKeysRows)(call, begin, end);
  });
}

void choose_blocks(const KernelCall& call) {
  over_rows(call.in[0].dim(0) * call.op->attributes.integer("heads"), bytes_met(call, 1),
            [&](int64_t begin, int64_t end) {
              HWY_DYNAMIC_DISPATCH(ChooseBlocksPairs)
              (call, begin, end);
            });
}

void chosen_attention(const KernelCall& call) {
  const int64_t hk = call.op->attributes.integer("kv_heads");
  over_rows(call.in[0].dim(0) * hk, ChosenKeys(call).most() * call.in[1].columns() / hk * 4,
            [&](int64_t begin, int64_t end) {
              HWY_DYNAMIC_DISPATCH(ChosenAttentionPairs)
              (call, begin, end);
            });
}

void chosen_attention_dgrad(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t own = a.integer("sequence") / a.integer_or("cp", 1);
  over_rows(call.in[1].dim(0) / own * a.integer("kv_heads"), own * ChosenKeys(call).most() * 64,
            [&](int64_t begin, int64_t end) {
              HWY_DYNAMIC_DISPATCH(ChosenAttentionGradPairs)
              (call, begin, end);
            });
}

void attention_share(const KernelCall& call) {
  over_rows(call.in[0].dim(0), bytes_met(call, 0), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AttentionShareRows)(call, begin, end);
  });
}

void index_loss(const KernelCall& call) {
  std::vector<double> of_rows(static_cast<size_t>(call.in[0].dim(0)));
  over_rows(call.in[0].dim(0), bytes_met(call, 0), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(IndexLossRows)(call, of_rows.data(), begin, end);
  });
  double sum = 0;
  for (const double each : of_rows) sum += each;
  call.out[0].as<double>()[0] = call.op->attributes.number("weight") * sum;
}

void index_loss_dgrad(const KernelCall& call) {
  over_rows(call.in[0].dim(0), bytes_met(call, 0), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(IndexLossGradRows)(call, begin, end);
  });
  over_rows(call.in[1].dim(0), bytes_met(call, 0), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(IndexLossGradKeys)(call, begin, end);
  });
}

int64_t scores_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.elements(op.in[3], rows) * static_cast<int64_t>(sizeof(float));
}

/// Any mixture of bf16 and f32.
Support narrow(const ir::Listing& listing, const ir::Op& op) {
  for (const ir::ValueId id : op.in) {
    if (id != ir::none && listing.value(id).dtype == Dtype::f64) return Support::no("an operand is f64");
  }
  return Support::yes();
}

}  // namespace

std::vector<KernelEntry> selection_kernels() {
  return {{"choose_keys", "host", "highway", narrow, nullptr, choose_keys},
          {"choose_blocks", "host", "highway", narrow, nullptr, choose_blocks},
          {"chosen_attention", "host", "highway", narrow, nullptr, chosen_attention},
          {"chosen_attention_dgrad", "host", "highway", narrow, nullptr, chosen_attention_dgrad},
          {"attention_share", "host", "highway", narrow, nullptr, attention_share},
          {"index_loss", "host", "highway", narrow, nullptr, index_loss},
          {"index_loss_dgrad", "host", "highway", narrow, scores_bytes, index_loss_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
