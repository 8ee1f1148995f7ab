// linear_cross_entropy and its gradients. They form the output projection and the loss over blocks of rows, so that
// T×V is never held. T tokens, V vocabulary, H hidden; a block has B rows, a chunk C columns of the vocabulary.
//
//   logits[B,V] = x wᵀ     lse = log Σ_v e^logits     loss = Σ_{labels ≥ 0} w·(lse − logits[label])
//   dlogits = scale·(softmax − onehot)     dx = dlogits w     dw (+)= dlogitsᵀ x
// The scale of rows with weights is scale·w. Where z_weight ζ adds ζ·w·lse² to the loss, softmax counts
// s = 1 + 2ζ·lse times. The scale of a row is then scale·w·s, and onehot counts 1/s.
//
// Logits in fp32 exist only as a tile of the cache, a chunk at a time. A block keeps q = e^logits · 2^-p in the
// type of x, with a power p for each row. The power is chosen before the row's largest logit is known: its first
// chunk's (or lse, where that is given). As bf16 has fp32's exponents, q loses nothing by that. Where a later
// chunk's largest exceeds it by so much that q might not be held, p is mended and the rows are swept once more. So
// one product, one exponential and one sweep give both the sum and the gradient: with Q = Σ q and f = scale / Q,
//   q[label] −= Q     dx = f·(q w)     dw (+)= qᵀ (f x)
// Powers of two leave all other bits alone, and f and Q come from lse. One op and several therefore give the same
// bits, unless a probability is below 2^-60 of its row's largest. Softmax as a scale of the other operand is the
// observation behind online softmax (Milakov and Gimelshein, 2018).
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "heddle/kernels/host/gemm/gemm_block.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/linear_operands.h"
#include "heddle/kernels/host/loss/linear_cross_entropy_rows.h"
#include "heddle/kernels/host/row_pieces.h"
#include "heddle/kernels/logit_z.h"

namespace heddle::kernels::host {
namespace {

using device::KernelCall;
using device::TensorView;

constexpr int64_t kBlockBytes = 48 << 20;
constexpr int64_t kTallTileRows = 512;       // for highway; its tile of logits stays in the second-level cache
constexpr double kLeastParallelFlops = 4e5;  // below this a team costs more than it saves
constexpr int64_t kMostParts = 8;            // of the vocabulary, beside its first chunk
constexpr float kMostPowerOver = 60;         // a row's largest q is at most 2^60
constexpr double kLn2 = 0.69314718055994531;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t aligned(int64_t bytes) { return ceil_div(bytes, 64) * 64; }

/// The cut of T rows, and the places in scratch.
struct Layout {
  int64_t block_rows = 0, stride = 0;  // of q, in elements
  // Sizes of a tile of logits. highway copies the weights anew for each, the others have them packed.
  int64_t tile_rows = kMostPieceRows, chunk = kMostPieceColumns;
  int64_t parts = 0;
  int64_t piece_bytes = 0, thread_bytes = 0;  // of a thread: a piece's scratch, and its tile of logits behind it
  // Offsets, then the end.
  int64_t q = 0, scaled_x = 0, losses = 0, squares = 0, rows = 0, shares = 0, threads = 0, bytes = 0;

  Layout(int64_t T, int64_t V, int64_t H, Dtype dtype, Engine engine, bool backward, bool with_z) {
    const int64_t size = size_of(dtype);
    if (engine == Engine::highway) tile_rows = kTallTileRows, chunk = kMostTallPieceColumns;
    chunk = std::min(chunk, ceil_div(std::max(V, H), kPanelColumns) * kPanelColumns);
    // An odd number of cache lines, so that the lines of a column spread over the cache.
    stride = ceil_div(V * size, 128) * 128 / size + 64 / size;
    const int64_t most = std::clamp<int64_t>(kBlockBytes / (stride * size), 256, 4096);
    const int64_t blocks = std::max<int64_t>(1, ceil_div(T, most));
    block_rows = ceil_div(ceil_div(T, blocks), 16) * 16;  // blocks of like size
    parts = 1 + std::min(kMostParts, ceil_div(V, chunk) - 1);
    const auto take = [this](int64_t wanted) {
      const int64_t at = bytes;
      bytes += aligned(wanted);
      return at;
    };
    q = take(backward ? block_rows * stride * size : 0);
    scaled_x = take(backward ? block_rows * H * size : 0);
    losses = take(T * 8);
    squares = take(with_z ? T * 8 : 0);
    rows = take(block_rows * 16);
    shares = take(block_rows * parts * 16);
    const double flops = 2.0 * static_cast<double>(T) * static_cast<double>(V) * static_cast<double>(H);
    const int64_t processors = flops < kLeastParallelFlops ? 1 : std::max(1, omp_get_num_procs());
    const ProductSizes block{1, block_rows, V, H};
    piece_bytes = piece_scratch_bytes(engine, block);
    thread_bytes = piece_bytes + std::min(ceil_div(block_rows, 32) * 32, tile_rows) * chunk * 4;
    threads = take(std::max(processors * thread_bytes, backward ? product_scratch_bytes(block) : 0));
  }
  /// Chunks of part p: the first chunk is part 0.
  int64_t first_chunk(int64_t part, int64_t V) const {
    if (part == 0) return 0;
    const int64_t others = ceil_div(V, chunk) - 1;
    return 1 + (parts == 1 ? 0 : others * (part - 1) / (parts - 1));
  }
};

/// State of a row of the block.
struct Row {
  int32_t power = 0;
  float factor = 0;  // scale / Q, or 0 where the label is masked
  float label_logit = 0;
  float unused = 0;
};
/// Sum and maximum of a row in one part.
struct Share {
  double sum = 0;
  float largest = 0;
  float unused = 0;
};

Engine engine_of(Dtype x, Dtype w) {
  return best_engine(x == Dtype::bf16 && w == Dtype::bf16 ? Dtype::bf16 : Dtype::f32);
}

int64_t scratch_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const ir::Value &x = listing.value(op.in[0]), &w = listing.value(op.in[1]);
  return Layout(listing.elements(op.in[2], rows), w.shape[0].count, w.shape[1].count, x.dtype,
                engine_of(x.dtype, w.dtype),
                op.kind() != "linear_cross_entropy" && op.kind() != "linear_token_losses",
                op.attributes.has("z_weight"))
      .bytes;
}

// One call's operands; absent outputs are null.
struct Operands {
  TensorView x_TH = {}, w_VH = {}, labels_T = {}, scales = {}, weights_T = {};
  const float* lse_T = nullptr;  // given, when the forward pass has made it
  float* lse_out_T = nullptr;
  double *loss = nullptr, *z = nullptr;
  double* losses_T = nullptr;
  TensorView dx_TH = {};
  float* dw_VH = nullptr;
};

/// The power of two nearest e^logit.
int32_t power_of(float logit) {
  if (!(std::abs(logit) < kMostLogit)) return 0;  // NaN too; the row's sum says that it is lost
  return static_cast<int32_t>(std::lround(logit / kLn2));
}

class Head {
 public:
  Head(const KernelCall& call, const Operands& operands)
      : call_(call),
        o_(operands),
        T_(o_.x_TH.dim(0)),
        H_(o_.x_TH.dim(1)),
        V_(o_.w_VH.dim(0)),
        X_(o_.x_TH.dtype),
        backward_(o_.dx_TH.data != nullptr || o_.dw_VH != nullptr),
        engine_(engine_of(X_, o_.w_VH.dtype)),
        layout_(T_, V_, H_, X_, engine_, backward_, call.op->attributes.has("z_weight")),
        rows_(reinterpret_cast<Row*>(call.scratch + layout_.rows)),
        shares_(reinterpret_cast<Share*>(call.scratch + layout_.shares)),
        losses_T_(o_.losses_T != nullptr ? o_.losses_T : reinterpret_cast<double*>(call.scratch + layout_.losses)),
        squares_T_(o_.z != nullptr ? reinterpret_cast<double*>(call.scratch + layout_.squares) : nullptr),
        z_weight_(static_cast<float>(call.op->attributes.number_or("z_weight", 0))),
        labels_T_(o_.labels_T.as<const int32_t>()) {
    if (o_.scales) scale_ = o_.scales.as<const float>()[call.op->attributes.integer("scale_index")];
  }

  void run() {
    for (int64_t t = 0; t < T_; ++t) {
      HEDDLE_CHECK(labels_T_[t] < V_ + (o_.lse_T != nullptr),
                   "linear_cross_entropy: the label of row {} is {}, the vocabulary has {}", t, labels_T_[t], V_);
    }
    if (T_ == 0 && o_.dw_VH != nullptr && call_.overwrite) std::fill_n(o_.dw_VH, V_ * H_, 0.0f);
    for (first_ = 0; first_ < T_; first_ += layout_.block_rows) {
      block_ = std::min(layout_.block_rows, T_ - first_);
      exponentials_of_block();
      over_rows(block_, H_ * 4, [this](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) finish_row(b);
      });
      if (o_.dx_TH.data != nullptr) input_gradient();
      if (o_.dw_VH != nullptr) weight_gradient();
    }
    sum_rows(losses_T_, o_.loss);
    sum_rows(squares_T_, o_.z);
  }

 private:
  void sum_rows(const double* of_T, double* to) const {
    if (to == nullptr) return;
    *to = 0;
    for (int64_t t = 0; t < T_; ++t) *to += of_T[t];
  }
  std::byte* q_row(int64_t b) const { return call_.scratch + layout_.q + b * layout_.stride * size_of(X_); }
  std::byte* scaled_x_row(int64_t b) const { return call_.scratch + layout_.scaled_x + b * H_ * size_of(X_); }
  const std::byte* x_row(int64_t b) const {
    return o_.x_TH.as<const std::byte>() + (first_ + b) * H_ * size_of(X_);
  }
  std::byte* thread_scratch() const {
    return call_.scratch + layout_.threads + omp_get_thread_num() * layout_.thread_bytes;
  }
  float* tile_of(std::byte* thread_scratch) const {
    return reinterpret_cast<float*>(thread_scratch + layout_.piece_bytes);
  }

  /// Calls body(row_begin, row_end, i) for pieces of the block's rows and i in 0 .. others, in parallel.
  template <class Body>
  void over_pieces(int64_t others, double flops, const Body& body) const {
    const auto threads =
        flops < kLeastParallelFlops ? 1 : std::min(omp_get_max_threads(), std::max(1, omp_get_num_procs()));
    int64_t pieces = ceil_div(block_, layout_.tile_rows);
    while (threads > 1 && pieces * others < 4 * threads && block_ / pieces > 64) pieces *= 2;
    const int64_t length = ceil_div(ceil_div(block_, pieces), 32) * 32;
    const int64_t count = ceil_div(block_, length) * others;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = i / others * length;
      body(begin, std::min(begin + length, block_), i % others);
    }
  }

  void exponentials_of_block() {
    const double flops = 2.0 * static_cast<double>(block_) * static_cast<double>(V_) * static_cast<double>(H_);
    const auto all_parts = [&](int64_t first_part) {
      if (first_part == layout_.parts) return;
      over_pieces(layout_.parts - first_part, flops, [&](int64_t begin, int64_t end, int64_t part) {
        exponentials_of_part(begin, end, part + first_part, false);
      });
    };
    if (o_.lse_T != nullptr) {
      for (int64_t b = 0; b < block_; ++b) rows_[b].power = power_of(o_.lse_T[first_ + b]);
      return all_parts(0);
    }
    over_pieces(1, flops / static_cast<double>(layout_.parts),
                [&](int64_t begin, int64_t end, int64_t) { exponentials_of_part(begin, end, 0, true); });
    all_parts(1);
    if (mend_powers()) all_parts(0);
  }

  /// Logits, then q and its sums, of some rows and one part.
  void exponentials_of_part(int64_t begin, int64_t end, int64_t part, bool choose_power) {
    std::byte* const scratch = thread_scratch();
    float* const tile = tile_of(scratch);
    const int64_t size = size_of(X_);
    const int64_t last =
        part + 1 == layout_.parts ? ceil_div(V_, layout_.chunk) : layout_.first_chunk(part + 1, V_);
    for (int64_t b = begin; b < end; ++b) share(b, part) = {0, -std::numeric_limits<float>::max(), 0};
    for (int64_t chunk = layout_.first_chunk(part, V_); chunk < last; ++chunk) {
      const int64_t v = chunk * layout_.chunk, columns = std::min(layout_.chunk, V_ - v);
      product(begin, end, v, columns, H_, V_, true, {x_row(begin), X_, H_}, scratch);
      for (int64_t b = begin; b < end; ++b) {
        const float* logits = tile + (b - begin) * layout_.chunk;
        Row& row = rows_[b];
        if (choose_power) row.power = power_of(largest_logit(logits, columns));
        const RowShare found =
            exponentials(logits, columns, row.power, backward_ ? q_row(b) + v * size : nullptr, X_);
        Share& sums = share(b, part);
        sums.sum += static_cast<double>(found.sum);
        sums.largest = std::max(sums.largest, found.largest);
        const int64_t label = labels_T_[first_ + b] - v;
        if (label >= 0 && label < columns) row.label_logit = logits[label];
      }
    }
  }

  /// The thread's tile = A · B over the columns column .. column + columns, forward or input gradient.
  void product(int64_t begin, int64_t end, int64_t column, int64_t columns, int64_t depth, int64_t all_columns,
               bool forward, const Rows& a, std::byte* scratch) const {
    ProductPiece piece;
    piece.rows = end - begin;
    piece.depth = depth;
    piece.columns = all_columns;
    piece.column_begin = column;
    piece.column_end = column + columns;
    piece.a = a;
    const auto* w = o_.w_VH.as<const std::byte>();
    if (o_.w_VH.layout == ir::Layout::packed) {
      piece.panels = w + (forward ? 0 : panel_bytes(engine_, H_, V_));
    } else {
      piece.b = {w, o_.w_VH.dtype, H_};
      piece.b_transposed = forward;
    }
    piece.c = {tile_of(scratch) - column, Dtype::f32, layout_.chunk};
    piece.scratch = scratch;
    run_piece(engine_, piece);
  }

  /// True if a row's largest logit was so far beyond its power that q may not hold it; its power is then mended.
  bool mend_powers() {
    bool mended = false;
    for (int64_t b = 0; b < block_; ++b) {
      float largest = share(b, 0).largest;
      for (int64_t p = 1; p < layout_.parts; ++p) largest = std::max(largest, share(b, p).largest);
      const int32_t power = power_of(largest);
      if (static_cast<float>(power) - static_cast<float>(rows_[b].power) <= kMostPowerOver) continue;
      rows_[b].power = power;
      mended = true;
    }
    return mended;
  }

  /// lse, loss, factor; the label's q; and x scaled.
  void finish_row(int64_t b) {
    Row& row = rows_[b];
    const int64_t t = first_ + b;
    const int32_t label = labels_T_[t];
    const float lse = o_.lse_T != nullptr ? o_.lse_T[t] : log_sum(b);
    if (o_.lse_out_T != nullptr) o_.lse_out_T[t] = lse;
    const double weight = o_.weights_T ? o_.weights_T.as<const double>()[t] : 1.0;
    losses_T_[t] = label >= 0 ? weight * (static_cast<double>(lse) - static_cast<double>(row.label_logit)) : 0.0;
    if (squares_T_ != nullptr)
      squares_T_[t] = label >= 0 ? weight * static_cast<double>(lse) * static_cast<double>(lse) : 0.0;
    if (!backward_) return;
    row.factor = 0;
    if (label >= 0) {
      const float slope = z_slope(z_weight_, lse), scale = scale_ * static_cast<float>(weight) * slope;
      // Q = e^lse · 2^-power, its bits from lse alone, then the power, exactly.
      const int32_t whole = power_of(lse);
      const double rest = static_cast<double>(lse) - whole * kLn2;
      row.factor = std::ldexp(scale * static_cast<float>(std::exp(-rest)), row.power - whole);
      const float less =
          static_cast<float>(std::exp(rest) * (std::expm1(static_cast<double>(row.label_logit) - lse) +
                                               (1 - 1 / static_cast<double>(slope))));
      const float at_label = std::ldexp(less, whole - row.power);
      if (label == V_) {  // another rank's part of the vocabulary has it
      } else if (X_ == Dtype::bf16) {
        reinterpret_cast<bf16*>(q_row(b))[label] = bf16(at_label);
      } else {
        reinterpret_cast<float*>(q_row(b))[label] = at_label;
      }
    }
    if (o_.dw_VH != nullptr) scale_row(x_row(b), X_, H_, row.factor, scaled_x_row(b), X_);
  }

  float log_sum(int64_t b) const {
    double sum = 0;
    float largest = -std::numeric_limits<float>::max();
    for (int64_t p = 0; p < layout_.parts; ++p) {
      sum += share(b, p).sum;
      largest = std::max(largest, share(b, p).largest);
    }
    if (!(largest < kMostLogit)) return std::numeric_limits<float>::quiet_NaN();
    return static_cast<float>(rows_[b].power * kLn2 + std::log(sum));
  }

  void input_gradient() {
    const int64_t chunks = ceil_div(H_, layout_.chunk), size = size_of(X_);
    const double flops = 2.0 * static_cast<double>(block_) * static_cast<double>(V_) * static_cast<double>(H_);
    over_pieces(chunks, flops, [&](int64_t begin, int64_t end, int64_t chunk) {
      std::byte* const scratch = thread_scratch();
      const int64_t h = chunk * layout_.chunk, columns = std::min(layout_.chunk, H_ - h);
      product(begin, end, h, columns, V_, H_, false, {q_row(begin), X_, layout_.stride}, scratch);
      for (int64_t b = begin; b < end; ++b) {
        scale_row(tile_of(scratch) + (b - begin) * layout_.chunk, Dtype::f32, columns, rows_[b].factor,
                  o_.dx_TH.as<std::byte>() + ((first_ + b) * H_ + h) * size, o_.dx_TH.dtype);
      }
    });
  }

  void weight_gradient() const {
    linear_wgrad({.groups = RowGroups::one(block_),
                  .n = V_,
                  .k = H_,
                  .dy = {q_row(0), X_, layout_.stride},
                  .x = {scaled_x_row(0), X_},
                  .dw = o_.dw_VH,
                  .overwrite = call_.overwrite && first_ == 0,
                  .scratch = {call_.scratch + layout_.threads, product_scratch_bytes({1, block_, V_, H_})}});
  }

  Share& share(int64_t b, int64_t part) { return shares_[b * layout_.parts + part]; }
  const Share& share(int64_t b, int64_t part) const { return shares_[b * layout_.parts + part]; }

  const KernelCall& call_;
  const Operands& o_;
  const int64_t T_, H_, V_;
  const Dtype X_;
  const bool backward_;
  const Engine engine_;
  const Layout layout_;
  Row* const rows_;
  Share* const shares_;
  double *const losses_T_, *const squares_T_;
  const float z_weight_;
  const int32_t* const labels_T_;
  float scale_ = 1;
  int64_t first_ = 0, block_ = 0;  // the block's first row, its rows
};

TensorView given(const KernelCall& call, size_t i) { return i < call.in.size() ? call.in[i] : TensorView{}; }
double* z_of(const KernelCall& call) { return call.out.size() > 2 ? call.out[2].as<double>() : nullptr; }

/// Runs on x, w and labels, which all these ops have first, and on what is of the one op.
void run_head(const KernelCall& call, Operands operands) {
  operands.x_TH = call.in[0];
  operands.w_VH = call.in[1];
  operands.labels_T = call.in[2];
  Head(call, operands).run();
}
void forward(const KernelCall& call) {
  run_head(call, {.weights_T = given(call, 4),
                  .lse_out_T = call.out[1].as<float>(),
                  .loss = call.out[0].as<double>(),
                  .z = z_of(call)});
}
void token_losses(const KernelCall& call) {
  run_head(call, {.lse_out_T = call.out[1].as<float>(), .losses_T = call.out[0].as<double>()});
}
Operands backward_operands(const KernelCall& call) {
  return {.scales = given(call, 4), .weights_T = given(call, 5), .lse_T = call.in[3].as<const float>()};
}
void dgrad(const KernelCall& call) {
  Operands operands = backward_operands(call);
  operands.dx_TH = call.out[0];
  run_head(call, operands);
}
void wgrad(const KernelCall& call) {
  Operands operands = backward_operands(call);
  operands.dw_VH = call.updates[0].as<float>();
  run_head(call, operands);
}
void train(const KernelCall& call) {
  run_head(call, {.scales = call.in[3],
                  .weights_T = given(call, 4),
                  .loss = call.out[0].as<double>(),
                  .z = z_of(call),
                  .dx_TH = call.out[1],
                  .dw_VH = call.updates[0].as<float>()});
}

Support supports(const ir::Listing& listing, const ir::Op& op) {
  for (const ir::ValueId id : op.updates) {
    if (listing.value(id).dtype != Dtype::f32) return Support::no("the accumulator is not f32");
  }
  return product_support(listing, op.in[0], op.in[1], ir::none);
}

}  // namespace

std::vector<KernelEntry> linear_cross_entropy_kernels() {
  return {{"linear_cross_entropy", "host", "gemm", supports, scratch_bytes, forward, product_engine},
          {"linear_token_losses", "host", "gemm", supports, scratch_bytes, token_losses, product_engine},
          {"linear_cross_entropy_part", "host", "gemm", supports, scratch_bytes, forward, product_engine},
          {"linear_cross_entropy_dgrad", "host", "gemm", supports, scratch_bytes, dgrad, product_engine},
          {"linear_cross_entropy_wgrad", "host", "gemm", supports, scratch_bytes, wgrad, product_engine},
          {"linear_cross_entropy_train", "host", "gemm", supports, scratch_bytes, train, product_engine}};
}

}  // namespace heddle::kernels::host
