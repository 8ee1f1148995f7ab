// Checks a product's arguments, chooses the engine and hands the pieces to the OpenMP team.
#include "heddle/kernels/host/gemm/gemm.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

#include "heddle/kernels/host/cpu_features.h"
#include "heddle/kernels/host/gemm/gemm_block.h"
#include "heddle/kernels/host/gemm/gemm_split.h"

namespace heddle::kernels::host {
namespace {

/// Below this a team costs more than it saves.
constexpr double kLeastParallelFlops = 4e5;
constexpr int64_t kScratchAlignment = 64;
/// Packed weights or gradients of so many bytes are gone from the caches before they are next read.
constexpr int64_t kLeastBytesPastCache = 4 << 20;

int64_t aligned(int64_t bytes) { return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment; }
int64_t numbers_bytes(int64_t experts) { return aligned((experts + 1) * 8); }

Rows with_stride(Rows rows, int64_t columns) {
  if (rows.stride == 0) rows.stride = columns;
  return rows;
}
OutRows with_stride(OutRows rows, int64_t columns) {
  if (rows.stride == 0) rows.stride = columns;
  return rows;
}

void check_type(std::string_view what, Dtype dtype) {
  HEDDLE_CHECK(dtype == Dtype::bf16 || dtype == Dtype::f32, "matrix product: {} is {}, not bf16 or f32", what,
               name_of(dtype));
}

/// The engine for these operand types; checks that it can run.
Engine resolve(Engine wanted, Dtype left, Dtype right) {
  const Dtype both = left == Dtype::bf16 && right == Dtype::bf16 ? Dtype::bf16 : Dtype::f32;
  if (wanted == Engine::best) return best_engine(both);
  const Support support = engine_supported(wanted, both);
  HEDDLE_CHECK(support.ok, "matrix product: engine {}: {}", name_of(wanted), support.reason);
  return wanted;
}

/// A packed weight can be read only by the engine that packed it, whatever the other operand's type.
Engine resolve(Engine wanted, Dtype left, const Weights& w) {
  if (!w.packed) return resolve(wanted, left, w.dtype);
  const Engine packer = wanted == Engine::best ? best_engine(w.dtype) : wanted;
  HEDDLE_CHECK(panel_bytes(packer, 1, 1) > 0, "matrix product: a packed weight, but engine {} reads rows",
               name_of(packer));
  const bool narrow = takes_bf16_only(packer);
  HEDDLE_CHECK(!narrow || left == Dtype::bf16,
               "matrix product: a packed bf16 weight with an f32 operand; use the weight's rows");
  return resolve(packer, narrow ? Dtype::bf16 : Dtype::f32, narrow ? Dtype::bf16 : Dtype::f32);
}

struct Team {
  int threads = 1;
  int64_t* numbers = nullptr;   // [experts + 1]
  std::byte* pieces = nullptr;  // threads × piece_bytes
  int64_t piece_bytes = 0;
  std::byte* scratch_of(int thread) const { return pieces + thread * piece_bytes; }
};

double flops_of(const ProductSizes& sizes) {
  return 2.0 * static_cast<double>(sizes.rows) * static_cast<double>(sizes.n) * static_cast<double>(sizes.k);
}

Team make_team(const Scratch& scratch, const ProductSizes& sizes, Engine engine) {
  const int64_t room = scratch.bytes - numbers_bytes(sizes.groups), piece = piece_scratch_bytes(engine, sizes);
  HEDDLE_CHECK(scratch.data && room >= piece, "matrix product: {} bytes of scratch, need {} or more", scratch.bytes,
               numbers_bytes(sizes.groups) + piece);
  HEDDLE_CHECK(reinterpret_cast<uintptr_t>(scratch.data) % kScratchAlignment == 0,
               "matrix product: scratch is not 64-byte aligned");
  Team team;
  team.threads = static_cast<int>(std::min<int64_t>(omp_get_max_threads(), room / piece));
  if (flops_of(sizes) < kLeastParallelFlops) team.threads = 1;
  team.numbers = reinterpret_cast<int64_t*>(scratch.data);
  team.pieces = scratch.data + numbers_bytes(sizes.groups);
  team.piece_bytes = piece;
  return team;
}

void check_groups(const RowGroups& groups) {
  HEDDLE_CHECK(groups.begin(0) >= 0, "matrix product: the first offset is negative");
  for (int64_t g = 0; g < groups.count(); ++g) {
    HEDDLE_CHECK(groups.end(g) >= groups.begin(g), "matrix product: offsets decrease at group {}", g);
  }
}

int64_t row_count(const RowGroups& groups) { return groups.end(groups.count() - 1) - groups.begin(0); }

/// Forward and dgrad alike: C[T,columns] = A[T,depth] · B_e[depth,columns].
struct GroupedProduct {
  const RowGroups* groups;
  int64_t depth, columns;
  Rows a;
  const Weights* w;
  bool forward;
  const float* bias;
  OutRows c;
  Engine engine;
};

void run(const GroupedProduct& job, const Scratch& scratch) {
  const int64_t rows = row_count(*job.groups);
  if (rows == 0) return;
  HEDDLE_CHECK(job.a.data && job.c.data && job.w->data, "matrix product: an operand is null");
  const int64_t n = job.forward ? job.columns : job.depth, k = job.forward ? job.depth : job.columns;
  const Team team = make_team(scratch, {job.groups->count(), rows, n, k}, job.engine);
  const PieceSplit split =
      PieceSplit::rows_by_columns(*job.groups, job.engine == Engine::highway ? kMostTallPieceRows : kMostPieceRows,
                                  job.columns, team.threads, team.numbers);
  const int64_t forward_bytes = panel_bytes(job.engine, k, n), dgrad_bytes = panel_bytes(job.engine, n, k);
  const int64_t count = split.count();
  const auto chunk = static_cast<int>(split.chunk(team.threads));
#pragma omp parallel for num_threads(team.threads) schedule(dynamic, chunk)
  for (int64_t i = 0; i < count; ++i) {
    const Piece cut = split.piece(i);
    ProductPiece piece;
    piece.rows = cut.row_end - cut.row_begin;
    piece.depth = job.depth;
    piece.columns = job.columns;
    piece.column_begin = cut.column_begin;
    piece.column_end = cut.column_end;
    piece.a = job.a;
    piece.a.data = static_cast<const std::byte*>(job.a.data) + cut.row_begin * job.a.stride * size_of(job.a.dtype);
    const auto* weight = static_cast<const std::byte*>(job.w->data);
    if (job.w->packed) {
      piece.panels = weight + cut.group * (forward_bytes + dgrad_bytes) + (job.forward ? 0 : forward_bytes);
    } else {
      piece.b = {weight + cut.group * n * k * size_of(job.w->dtype), job.w->dtype, k};
      piece.b_transposed = job.forward;
    }
    piece.bias = job.bias;
    piece.c = job.c;
    piece.c.data = static_cast<std::byte*>(job.c.data) + cut.row_begin * job.c.stride * size_of(job.c.dtype);
    piece.scratch = team.scratch_of(omp_get_thread_num());
    run_piece(job.engine, piece);
  }
}

/// dbias[n] (+)= Σ_t dy[t,n] for columns n_begin .. n_end; the sum is finished, in increasing t, before it is
/// added.
template <class T>
void sum_rows(const T* dy, int64_t stride, int64_t rows, int64_t n_begin, int64_t n_end, bool overwrite,
              float* dbias) {
  for (int64_t begin = n_begin; begin < n_end; begin += kPanelColumns) {
    const int64_t wide = std::min(n_end - begin, kPanelColumns);
    float sum[kPanelColumns] = {};
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t i = 0; i < wide; ++i) sum[i] += static_cast<float>(dy[t * stride + begin + i]);
    }
    for (int64_t i = 0; i < wide; ++i) dbias[begin + i] = overwrite ? sum[i] : dbias[begin + i] + sum[i];
  }
}

/// One thread's share of a weight gradient's pieces, taken from a count that all threads draw on. A bias gradient
/// is summed when the piece that it goes with is taken.
class WgradShare final : public WgradPieces {
 public:
  WgradShare(const LinearWgrad& call, const Rows& x, const Rows& dy, const PieceSplit& split,
             std::atomic<int64_t>& taken)
      : call_(call), x_(x), dy_(dy), split_(split), taken_(taken), index_(omp_get_thread_num()) {}

  bool next(WgradPiece& piece) override {
    while (index_ < split_.count()) {
      const Piece cut = split_.piece(index_);
      index_ = omp_get_num_threads() + taken_.fetch_add(1, std::memory_order_relaxed);
      const int64_t first = call_.groups.begin(cut.group), rows = call_.groups.end(cut.group) - first;
      if (rows == 0 && !call_.overwrite) continue;
      const Rows dy = from_row(dy_, first);
      if (call_.dbias && cut.column_begin == 0) sum_dbias(cut, dy, rows);
      piece.rows = rows;
      piece.n_begin = cut.row_begin;
      piece.n_end = cut.row_end;
      piece.k_begin = cut.column_begin;
      piece.k_end = cut.column_end;
      piece.dy = dy;
      piece.x = from_row(x_, first);
      piece.dw = call_.dw + cut.group * call_.n * call_.k;
      piece.dw_stride = call_.k;
      piece.overwrite = call_.overwrite;
      piece.past_cache = call_.overwrite && call_.groups.count() * call_.n * call_.k * 4 >= kLeastBytesPastCache;
      return true;
    }
    return false;
  }

 private:
  static Rows from_row(Rows matrix, int64_t row) {
    if (matrix.data) {
      matrix.data = static_cast<const std::byte*>(matrix.data) + row * matrix.stride * size_of(matrix.dtype);
    }
    return matrix;
  }
  void sum_dbias(const Piece& cut, const Rows& dy, int64_t rows) const {
    float* dbias = call_.dbias + cut.group * call_.n;
    if (dy.dtype == Dtype::bf16) {
      sum_rows(static_cast<const bf16*>(dy.data), dy.stride, rows, cut.row_begin, cut.row_end, call_.overwrite,
               dbias);
    } else {
      sum_rows(static_cast<const float*>(dy.data), dy.stride, rows, cut.row_begin, cut.row_end, call_.overwrite,
               dbias);
    }
  }

  const LinearWgrad& call_;
  const Rows x_, dy_;
  const PieceSplit& split_;
  std::atomic<int64_t>& taken_;
  int64_t index_;
};

}  // namespace

std::string_view name_of(Engine engine) {
  switch (engine) {
    case Engine::best: return "best";
    case Engine::amx: return "amx";
    case Engine::amx_bf16x3: return "amx-bf16x3";
    case Engine::avx512_bf16: return "avx512-bf16";
    case Engine::avx512_widen: return "avx512-widen";
    case Engine::avx512: return "avx512";
    case Engine::neon_bf16: return "neon_bf16";
    case Engine::highway: return "highway";
  }
  return "?";
}

Support engine_supported(Engine engine, Dtype dtype) {
  if (dtype != Dtype::bf16 && dtype != Dtype::f32) {
    return Support::no(fmt::format("matrix products of {} are left to the reference", name_of(dtype)));
  }
  switch (engine) {
    case Engine::amx: return dtype == Dtype::bf16 ? amx_bf16() : Support::no("amx multiplies bf16 only");
    case Engine::amx_bf16x3: return dtype == Dtype::f32 ? amx_bf16() : Support::no("amx-bf16x3 is for f32");
    case Engine::avx512_bf16:
      return dtype == Dtype::bf16 ? avx512_bf16() : Support::no("avx512-bf16 multiplies bf16 only");
    case Engine::avx512_widen:
      return dtype == Dtype::bf16 ? avx512() : Support::no("avx512-widen multiplies bf16 only");
    case Engine::avx512:
      return dtype == Dtype::f32 ? avx512() : Support::no("avx512 is for f32; avx512-widen takes bf16");
    case Engine::neon_bf16:
      return dtype == Dtype::bf16 ? neon_bf16() : Support::no("neon_bf16 multiplies bf16 only");
    case Engine::best:
    case Engine::highway: return Support::yes();
  }
  return Support::no("no such engine");
}

Engine best_engine(Dtype dtype) {
  for (const Engine engine : {Engine::amx, Engine::amx_bf16x3, Engine::avx512_bf16, Engine::avx512_widen,
                              Engine::avx512, Engine::neon_bf16}) {
    if (engine_supported(engine, dtype)) return engine;
  }
  return Engine::highway;
}

bool takes_bf16_only(Engine engine) {
  return engine == Engine::amx || engine == Engine::avx512_bf16 || engine == Engine::avx512_widen ||
         engine == Engine::neon_bf16;
}

bool multiplies_bf16(Engine engine) {
  return engine == Engine::amx || engine == Engine::avx512_bf16 || engine == Engine::neon_bf16;
}

Support gemm_supported(Dtype dtype) { return engine_supported(Engine::highway, dtype); }

RowGroups RowGroups::equal(int64_t count, int64_t rows) {
  RowGroups groups;
  groups.count_ = count;
  groups.rows_ = rows;
  return groups;
}

RowGroups::RowGroups(std::span<const int32_t> offsets)
    : count_(static_cast<int64_t>(offsets.size()) - 1), narrow_(offsets.data()) {
  HEDDLE_CHECK(count_ >= 1, "row groups: {} offsets, need two or more", offsets.size());
}

RowGroups::RowGroups(std::span<const int64_t> offsets)
    : count_(static_cast<int64_t>(offsets.size()) - 1), wide_(offsets.data()) {
  HEDDLE_CHECK(count_ >= 1, "row groups: {} offsets, need two or more", offsets.size());
}

int64_t panel_bytes(Engine engine, int64_t depth, int64_t columns) {
  switch (engine) {
    case Engine::amx: return amx::panel_bytes(false, depth, columns);
    case Engine::amx_bf16x3: return amx::panel_bytes(true, depth, columns);
    case Engine::avx512_bf16: return avx512_bf16_engine::panel_bytes(depth, columns);
    case Engine::avx512_widen: return avx512_engine::panel_bytes(avx512_engine::Form::widened, depth, columns);
    case Engine::avx512: return avx512_engine::panel_bytes(avx512_engine::Form::floats, depth, columns);
    default: return 0;  // reads rows
  }
}

namespace {
/// Rows × columns of C over the depth.
int64_t product_bytes(Engine engine, int64_t rows, int64_t columns, int64_t depth) {
  switch (engine) {
    case Engine::avx512_bf16: return avx512_engine::scratch_bytes(avx512_engine::Form::pairs, rows, columns, depth);
    case Engine::avx512_widen:
      return avx512_engine::scratch_bytes(avx512_engine::Form::widened, rows, columns, depth);
    case Engine::avx512: return avx512_engine::scratch_bytes(avx512_engine::Form::floats, rows, columns, depth);
    case Engine::highway: return highway::product_scratch_bytes(rows, columns, depth);
    default: return kPieceScratchBytes;
  }
}
int64_t wgrad_bytes(Engine engine, int64_t n, int64_t k, int64_t rows) {
  return engine == Engine::highway ? highway::wgrad_scratch_bytes(n, k, rows) : product_bytes(engine, n, k, rows);
}

/// The products' blocks are of more than kLeastRows / 2 rows and kLeastColumns / 2 columns, but for what is left
/// over.
int64_t most_pieces(const ProductSizes& sizes) {
  const auto blocks = [](int64_t length, int64_t block) { return (length + block - 1) / block; };
  const int64_t columns = blocks(std::max(sizes.n, sizes.k), PieceSplit::kLeastColumns / 2);
  const int64_t products = (blocks(sizes.rows, PieceSplit::kLeastRows / 2) + sizes.groups) * columns;
  const int64_t gradients = sizes.groups * blocks(sizes.n, PieceSplit::kLeastColumns / 2) *
                            blocks(sizes.k, PieceSplit::kLeastColumns / 2);
  return std::max<int64_t>(1, std::max(products, gradients));
}
}  // namespace

int64_t piece_scratch_bytes(Engine engine, const ProductSizes& sizes) {
  const int64_t most = std::max({product_bytes(engine, sizes.rows, sizes.n, sizes.k),
                                 product_bytes(engine, sizes.rows, sizes.k, sizes.n),
                                 wgrad_bytes(engine, sizes.n, sizes.k, sizes.rows)});
  return std::min(aligned(most), kPieceScratchBytes);
}

void run_piece(Engine engine, const ProductPiece& piece) {
  switch (engine) {
    case Engine::amx: return amx::product(false, piece);
    case Engine::amx_bf16x3: return amx::product(true, piece);
    case Engine::avx512_bf16: return avx512_bf16_engine::product(piece);
    case Engine::avx512_widen: return avx512_engine::product(avx512_engine::Form::widened, piece);
    case Engine::avx512: return avx512_engine::product(avx512_engine::Form::floats, piece);
    case Engine::neon_bf16: return neon::product(piece);
    default: return highway::product(piece);
  }
}

static void run_piece(Engine engine, const WgradPiece& piece, std::byte* scratch) {
  switch (engine) {
    case Engine::avx512_bf16: return avx512_bf16_engine::wgrad(piece, scratch);
    case Engine::avx512_widen: return avx512_engine::wgrad(avx512_engine::Form::widened, piece, scratch);
    case Engine::avx512: return avx512_engine::wgrad(avx512_engine::Form::floats, piece, scratch);
    case Engine::neon_bf16: return neon::wgrad(piece, scratch);
    default: return highway::wgrad(piece, scratch);
  }
}

void run_pieces(Engine engine, WgradPieces& pieces, std::byte* scratch) {
  if (engine == Engine::amx || engine == Engine::amx_bf16x3) {
    return amx::wgrad(engine == Engine::amx_bf16x3, pieces, scratch);
  }
  for (WgradPiece piece; pieces.next(piece);) run_piece(engine, piece, scratch);
}

void run_piece(Engine engine, const PackPiece& piece) {
  switch (engine) {
    case Engine::avx512_bf16: return avx512_bf16_engine::pack(piece);
    case Engine::avx512_widen: return avx512_engine::pack(avx512_engine::Form::widened, piece);
    case Engine::avx512: return avx512_engine::pack(avx512_engine::Form::floats, piece);
    default: internal_error("pack: engine {} reads rows", name_of(engine));
  }
}

int64_t packed_bytes(Dtype dtype, int64_t experts, int64_t n, int64_t k, Engine engine) {
  const Engine packer = resolve(engine, dtype, dtype);
  return experts * (panel_bytes(packer, k, n) + panel_bytes(packer, n, k));
}

namespace {

void pack_by_rows(bool split, const void* source, Dtype source_dtype, int64_t experts, int64_t n, int64_t k,
                  std::byte* packed) {
  const int64_t bytes = amx::panel_bytes(split, k, n) + amx::panel_bytes(split, n, k);
  constexpr int64_t kRows = 4 * kPanelColumns;
  const int64_t pieces = (n + kRows - 1) / kRows;
#pragma omp parallel for schedule(dynamic, 1) if (experts * n * k > 65536)
  for (int64_t i = 0; i < experts * pieces; ++i) {
    const int64_t expert = i / pieces, row = i % pieces * kRows;
    amx::pack(split, {.n = n,
                      .k = k,
                      .n_begin = row,
                      .n_end = std::min(row + kRows, n),
                      .w = {static_cast<const std::byte*>(source) + expert * n * k * size_of(source_dtype),
                            source_dtype, k},
                      .panels = packed + expert * bytes,
                      .past_cache = experts * bytes >= kLeastBytesPastCache});
  }
}

}  // namespace

void pack_weights(Dtype dtype, const void* source, Dtype source_dtype, int64_t experts, int64_t n, int64_t k,
                  void* packed, Engine engine) {
  HEDDLE_CHECK(experts >= 0 && n >= 1 && k >= 1, "pack: {} experts of {} × {}", experts, n, k);
  check_type("the packed weight", dtype);
  check_type("the weight to pack", source_dtype);
  const Engine packer = resolve(engine, dtype, dtype);
  HEDDLE_CHECK(panel_bytes(packer, k, n) > 0, "pack: engine {} reads rows", name_of(packer));
  if (packer == Engine::amx || packer == Engine::amx_bf16x3) {
    return pack_by_rows(packer == Engine::amx_bf16x3, source, source_dtype, experts, n, k,
                        static_cast<std::byte*>(packed));
  }
  const int64_t forward_bytes = panel_bytes(packer, k, n), dgrad_bytes = panel_bytes(packer, n, k);
  constexpr int64_t kColumns = 128;
  const int64_t forward_pieces = (n + kColumns - 1) / kColumns, dgrad_pieces = (k + kColumns - 1) / kColumns;
  const int64_t count = experts * (forward_pieces + dgrad_pieces);
  // With many experts a thread packs both blockings of one, so that its rows are fetched once.
  const int64_t chunk = experts >= 2 * omp_get_max_threads() ? forward_pieces + dgrad_pieces : 1;
#pragma omp parallel for schedule(dynamic, chunk) if (experts * n * k > 65536)
  for (int64_t i = 0; i < count; ++i) {
    const int64_t expert = i / (forward_pieces + dgrad_pieces);
    int64_t block = i % (forward_pieces + dgrad_pieces);
    const bool forward = block < forward_pieces;
    if (!forward) block -= forward_pieces;
    PackPiece piece;
    piece.depth = forward ? k : n;
    piece.columns = forward ? n : k;
    piece.column_begin = block * kColumns;
    piece.column_end = std::min(piece.column_begin + kColumns, piece.columns);
    piece.b = {static_cast<const std::byte*>(source) + expert * n * k * size_of(source_dtype), source_dtype, k};
    piece.b_transposed = forward;
    piece.round_to_bf16 = dtype == Dtype::bf16;
    piece.panels =
        static_cast<std::byte*>(packed) + expert * (forward_bytes + dgrad_bytes) + (forward ? 0 : forward_bytes);
    run_piece(packer, piece);
  }
}

int64_t gemm_scratch_bytes(const ProductSizes& sizes, int threads, Engine engine) {
  int64_t piece = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    piece = std::max(piece, piece_scratch_bytes(engine == Engine::best ? best_engine(dtype) : engine, sizes));
  }
  int64_t team = threads > 0 ? threads : omp_get_max_threads();
  if (flops_of(sizes) < kLeastParallelFlops) team = 1;
  return numbers_bytes(sizes.groups) + std::min(team, most_pieces(sizes)) * piece;
}

int64_t gemm_scratch_bytes(int64_t groups, int threads) {
  return numbers_bytes(groups) + (threads > 0 ? threads : omp_get_max_threads()) * kPieceScratchBytes;
}

void linear_forward(const LinearForward& call) {
  HEDDLE_CHECK(call.n >= 1 && call.k >= 1, "linear: N = {}, K = {}", call.n, call.k);
  check_groups(call.groups);
  check_type("x", call.x.dtype);
  check_type("w", call.w.dtype);
  check_type("y", call.y.dtype);
  run({&call.groups, call.k, call.n, with_stride(call.x, call.k), &call.w, true, call.bias,
       with_stride(call.y, call.n), resolve(call.engine, call.x.dtype, call.w)},
      call.scratch);
}

void linear_dgrad(const LinearDgrad& call) {
  HEDDLE_CHECK(call.n >= 1 && call.k >= 1, "linear dgrad: N = {}, K = {}", call.n, call.k);
  check_groups(call.groups);
  check_type("dy", call.dy.dtype);
  check_type("w", call.w.dtype);
  check_type("dx", call.dx.dtype);
  run({&call.groups, call.n, call.k, with_stride(call.dy, call.n), &call.w, false, nullptr,
       with_stride(call.dx, call.k), resolve(call.engine, call.dy.dtype, call.w)},
      call.scratch);
}

void linear_wgrad(const LinearWgrad& call) {
  HEDDLE_CHECK(call.n >= 1 && call.k >= 1, "linear wgrad: N = {}, K = {}", call.n, call.k);
  check_groups(call.groups);
  check_type("x", call.x.dtype);
  check_type("dy", call.dy.dtype);
  const RowGroups& groups = call.groups;
  const int64_t rows = row_count(groups);
  if (rows == 0 && !call.overwrite) return;
  HEDDLE_CHECK(rows == 0 || (call.dy.data && (call.x.data || !call.dw)), "linear wgrad: an operand is null");
  const Engine engine = resolve(call.engine, call.dy.dtype, call.x.dtype);
  const Rows x = with_stride(call.x, call.k), dy = with_stride(call.dy, call.n);
  const Team team = make_team(call.scratch, {groups.count(), rows, call.n, call.k}, engine);
  int64_t deepest = 0;
  for (int64_t g = 0; g < groups.count(); ++g) deepest = std::max(deepest, groups.end(g) - groups.begin(g));
  const bool narrow = deepest > kWgradRunRows || engine != Engine::amx;
  const PieceSplit split = PieceSplit::equal(groups.count(), call.n, narrow ? kMostDeepWgradRows : kMostWgradRows,
                                             call.k, team.threads, team.numbers);
  std::atomic<int64_t> taken = 0;
#pragma omp parallel num_threads(team.threads)
  {
    WgradShare share(call, x, dy, split, taken);
    if (call.dw) {
      run_pieces(engine, share, team.scratch_of(omp_get_thread_num()));
    } else {
      for (WgradPiece piece; share.next(piece);) continue;
    }
  }
}

}  // namespace heddle::kernels::host
