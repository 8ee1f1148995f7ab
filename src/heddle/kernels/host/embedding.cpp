// Rows of the token embedding, and their gradient. T tokens, H hidden, V vocabulary.
//   embedding: x_t = w[ids_t], zeros where ids_t < 0;  embedding_wgrad: acc[ids_t] += dx_t, in increasing t
// The gradient sorts tokens by id first (counting, stable), so that a row of acc is read and written once. Pieces
// are some of the ids that occur by a slice of columns. So no two threads share an element, and one frequent id is
// still divided.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/embedding.cpp"
#include "heddle/kernels/host/embedding_ids.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

template <class X>
void rows_of_ids(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[1].columns();
  const auto* ids_T = call.in[0].as<const int32_t>();
  for (int64_t t = begin; t < end; ++t) {
    X* x_H = call.out[0].as<X>() + t * H;
    if (ids_T[t] < 0) {
      std::memset(static_cast<void*>(x_H), 0, static_cast<size_t>(H) * sizeof(X));
    } else {
      copy(call.in[1].as<const X>() + ids_T[t] * H, H, x_H);
    }
  }
}

/// Columns from .. to of row `id` of acc: what it holds (nothing when overwritten) and the rows of its tokens.
template <class X>
HWY_INLINE void add_tokens(const KernelCall& call, const int32_t* tokens, int64_t count, int64_t id, int64_t from,
                           int64_t to) {
  const int64_t H = call.updates[0].columns();
  const X* dx_TH = call.in[0].as<const X>() + from;
  float* acc = call.updates[0].as<float>() + id * H + from;
  sweep_by_runs(to - from, [&](int64_t h, auto lanes, auto run) HEDDLE_BODY {
    constexpr int vectors = decltype(run)::value;
    V sum[vectors];
    for (int i = 0; i < vectors; ++i) sum[i] = call.overwrite ? zero() : load(acc + h + i * kLanes, lanes);
    for (int64_t n = 0; n < count; ++n) {
      const X* dx = dx_TH + tokens[n] * H + h;
      for (int i = 0; i < vectors; ++i) sum[i] = hn::Add(sum[i], load(dx + i * kLanes, lanes));
    }
    for (int i = 0; i < vectors; ++i) store(sum[i], acc + h + i * kLanes, lanes);
  });
}

template <class X>
void add_ids(const KernelCall& call, const TokensOfIds& sorted, int64_t first, int64_t last, int64_t from,
             int64_t to) {
  for (int64_t p = first; p < last; ++p) {
    const int32_t id = sorted.present[p], start = sorted.starts[id];
    add_tokens<X>(call, sorted.tokens + start, sorted.starts[id + 1] - start, id, from, to);
  }
}
}  // namespace

void EmbeddingRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[1].dtype == Dtype::bf16 ? rows_of_ids<bf16>(call, begin, end) : rows_of_ids<float>(call, begin, end);
}

/// Present ids first .. last, columns from .. to.
void EmbeddingAddIds(const KernelCall& call, const TokensOfIds& sorted, int64_t first, int64_t last, int64_t from,
                     int64_t to) {
  if (call.in[0].dtype == Dtype::bf16) {
    add_ids<bf16>(call, sorted, first, last, from, to);
  } else {
    add_ids<float>(call, sorted, first, last, from, to);
  }
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(EmbeddingRows);
HWY_EXPORT(EmbeddingAddIds);

void check_ids(const int32_t* ids_T, int64_t T, int64_t V) {
  int32_t most = -1;
  for (int64_t t = 0; t < T; ++t) most = std::max(most, ids_T[t]);
  HEDDLE_CHECK(most < V, "token id {} in a vocabulary of {}", most, V);
}

void embedding(const KernelCall& call) {
  const int64_t T = call.in[0].elements();
  check_ids(call.in[0].as<const int32_t>(), T, call.in[1].dim(0));
  over_rows(call, T, 2 * call.in[1].columns() * size_of(call.in[1].dtype), HWY_DYNAMIC_DISPATCH(EmbeddingRows));
}

TokensOfIds sort_tokens(const int32_t* ids_T, int64_t T, int64_t V, std::byte* scratch) {
  auto* starts = reinterpret_cast<int32_t*>(scratch);
  int32_t *tokens = starts + V + 2, *present = tokens + T;
  // Counts stand two places on, so that placing the tokens leaves starts where they belong.
  std::fill_n(starts, V + 2, 0);
  int64_t kinds = 0;
  for (int64_t t = 0; t < T; ++t) {
    if (ids_T[t] < 0) continue;
    if (starts[ids_T[t] + 2]++ == 0) present[kinds++] = ids_T[t];
  }
  for (int64_t id = 0; id < V; ++id) starts[id + 1] += starts[id];
  for (int64_t t = 0; t < T; ++t) {
    if (ids_T[t] >= 0) tokens[starts[ids_T[t] + 1]++] = static_cast<int32_t>(t);
  }
  return {starts, tokens, present, kinds};
}

void embedding_wgrad(const KernelCall& call) {
  const int64_t T = call.in[1].elements(), V = call.updates[0].dim(0), H = call.updates[0].dim(1);
  check_ids(call.in[1].as<const int32_t>(), T, V);
  const TokensOfIds sorted = sort_tokens(call.in[1].as<const int32_t>(), T, V, call.scratch);
  if (call.overwrite) {
    over_rows(V, H * 4, [&](int64_t begin, int64_t end) {
      for (int64_t id = begin; id < end; ++id) {
        if (sorted.starts[id] == sorted.starts[id + 1]) std::fill_n(call.updates[0].as<float>() + id * H, H, 0.0f);
      }
    });
  }
  constexpr int64_t kIds = 16, kColumns = 256;
  const int64_t ranges = (sorted.kinds + kIds - 1) / kIds, slices = (H + kColumns - 1) / kColumns;
  const int64_t bytes = T * H * size_of(call.in[0].dtype) + sorted.kinds * H * 8;
  over_rows(ranges * slices, bytes / std::max<int64_t>(1, ranges * slices), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece / slices * kIds, column = piece % slices * kColumns;
      HWY_DYNAMIC_DISPATCH(EmbeddingAddIds)
      (call, sorted, first, std::min(sorted.kinds, first + kIds), column, std::min(H, column + kColumns));
    }
  });
}

int64_t wgrad_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return 4 * (2 * listing.elements(op.in[1], rows) + listing.value(op.updates[0]).shape[0].count + 2);
}

}  // namespace

std::vector<KernelEntry> embedding_kernels() {
  return {{"embedding", "host", "highway", takes<"ix">, nullptr, embedding},
          {"embedding_wgrad", "host", "highway", takes<"xi", "a">, wgrad_scratch, embedding_wgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
