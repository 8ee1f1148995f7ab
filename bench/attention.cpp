// Speed of the CPU attention kernels: GFLOP/s forward and backward, counting only the half that a causal mask
// leaves.
//
//   forward 2·(D + Dv), backward 2·(3D + 2Dv) operations for each of B·Hq·S²/2 pairs of query and key
//
// The rate of the tile unit alone (products of tiles in the first-level cache, on as many threads) is measured in
// turn with every kernel, so that a share of it means something on a shared machine. Medians of `--rounds`.
//
//   bench_attention [--json] [--rounds N]         threads: OMP_NUM_THREADS
#include "heddle/kernels/host/attention/attention.h"

#include <fmt/format.h>
#include <omp.h>

#include <functional>
#include <string_view>
#include <vector>

#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/kernels/host/attention/attention_amx_tiles.h"
#include "heddle/kernels/host/cpu_features.h"

namespace heddle::kernels::host {
namespace {

struct Shape {
  int64_t sequences, length, heads, kv_heads, head_dim, value_dim;
  int64_t rows() const { return sequences * length; }
  double pairs() const { return 0.5 * double(sequences * heads) * double(length) * double(length); }
};

constexpr Shape kShapes[] = {
    {8, 256, 4, 4, 48, 32}, {8, 512, 8, 8, 96, 64}, {4, 512, 8, 8, 64, 64}, {2, 2048, 8, 8, 192, 128}};

double seconds(const std::function<void()>& work) {
  const double begin = now_s();
  work();
  return now_s() - begin;
}

/// Rows × columns of one dtype, filled with normal numbers.
struct Tensor {
  Tensor(const char* name, Dtype dtype, int64_t rows, int64_t columns)
      : bytes(static_cast<size_t>(rows * columns * size_of(dtype))) {
    view.data = bytes.data();
    view.dtype = dtype;
    view.rank = 2;
    view.dims = {rows, columns, 1, 1};
    const RandomKey key = RandomKey(3).with(name);
    for (int64_t i = 0; i < rows * columns; ++i) {
      const auto x = static_cast<float>(key.normal(static_cast<uint64_t>(i)));
      if (dtype == Dtype::bf16) {
        view.as<bf16>()[i] = x;
      } else {
        view.as<float>()[i] = x;
      }
    }
  }
  std::vector<std::byte> bytes;
  device::TensorView view;
};

/// Both passes of one shape and dtype.
class Case {
 public:
  Case(const Shape& s, Dtype dtype, std::string_view way)
      : q_("q", dtype, s.rows(), s.heads * s.head_dim),
        k_("k", dtype, s.rows(), s.kv_heads * s.head_dim),
        v_("v", dtype, s.rows(), s.kv_heads * s.value_dim),
        dout_("do", dtype, s.rows(), s.heads * s.value_dim),
        out_("o", dtype, s.rows(), s.heads * s.value_dim),
        lse_("lse", Dtype::f32, s.rows(), s.heads),
        dq_("dq", dtype, s.rows(), s.heads * s.head_dim),
        dk_("dk", dtype, s.rows(), s.kv_heads * s.head_dim),
        dv_("dv", dtype, s.rows(), s.kv_heads * s.value_dim),
        forward_in_{q_.view, k_.view, v_.view},
        forward_out_{out_.view, lse_.view},
        backward_in_{dout_.view, q_.view, k_.view, v_.view, out_.view, lse_.view},
        backward_out_{dq_.view, dk_.view, dv_.view} {
    prepare(forward_, {"attention"}, s, way, forward_in_, forward_out_);
    prepare(backward_, {"attention_dgrad"}, s, way, backward_in_, backward_out_);
    forward();
    backward();
  }
  void forward() { forward_.entry->run(forward_.call); }
  void backward() { backward_.entry->run(backward_.call); }

 private:
  struct Pass {
    ir::OpDef def;
    ir::Listing listing;
    ir::Op op;
    const KernelEntry* entry = nullptr;
    std::vector<std::byte> scratch;
    device::KernelCall call;
  };

  static void prepare(Pass& pass, ir::OpDef def, const Shape& s, std::string_view way,
                      std::span<const device::TensorView> in, std::span<const device::TensorView> out) {
    pass.def = def;
    pass.op.def = &pass.def;
    for (const device::TensorView& view : in) {
      ir::Value value;
      value.name = fmt::format("in{}", pass.op.in.size());
      value.dtype = view.dtype;
      value.shape = {ir::Dim{view.dim(0)}, ir::Dim{view.dim(1)}};
      pass.op.in.push_back(pass.listing.add_value(value));
    }
    pass.op.attributes = {{"heads", s.heads},
                          {"kv_heads", s.kv_heads},
                          {"head_dim", s.head_dim},
                          {"value_dim", s.value_dim},
                          {"sequence", s.length},
                          {"causal", int64_t{1}},
                          {"scale", 1.0 / std::sqrt(double(s.head_dim))}};
    for (const KernelEntry& entry : attention_kernels()) {
      if (entry.op_kind == def.kind && entry.name == way && entry.supports(pass.listing, pass.op))
        pass.entry = &entry;
    }
    HEDDLE_CHECK(pass.entry, "{} does not do {}", way, def.kind);
    const auto bytes = static_cast<size_t>(pass.entry->scratch_bytes(pass.listing, pass.op, ir::FixedRows()));
    pass.scratch.resize(bytes + 64);
    pass.call.op = &pass.op;
    pass.call.in = in;
    pass.call.out = out;
    pass.call.scratch =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(pass.scratch.data()) + 63) / 64 * 64);
  }

  Tensor q_, k_, v_, dout_, out_, lse_, dq_, dk_, dv_;
  std::vector<device::TensorView> forward_in_, forward_out_, backward_in_, backward_out_;
  Pass forward_, backward_;
};

/// Operations a second of tile products alone on all threads, in 10^9; 0 without tiles.
double tile_rate() {
  if (!amx_bf16()) return 0;
  constexpr int kTimes = 4000, kDepth = 4;
  const auto work = [] {
#pragma omp parallel
    {
      alignas(64) static thread_local bf16 a[2 * kDepth * attention::kTile], b[2 * kDepth * attention::kTile];
      alignas(64) float c[4 * 256];
      const attention::TileState tiles;
      using attention::kTile;
      attention::zero_sums<2, 2>();
      for (int i = 0; i < kTimes; ++i) {
        attention::add_products<2, 2>({a, kDepth * kTile, kTile}, {b, kDepth * kTile, kTile}, kDepth);
      }
      attention::store_sums<2, 2>({c, 512, 256, 16});
    }
  };
  return 2.0 * 16 * 16 * 32 * 4 * kDepth * kTimes * omp_get_max_threads() / seconds(work) * 1e-9;
}

int run(bool json, int rounds) {
  if (!json) {
    fmt::print("{} threads, medians of {} rounds; share: of the rate of tile products alone\n",
               omp_get_max_threads(), rounds);
    fmt::print("{:>4} {:>5} {:>3} {:>3} {:>4} {:>4}  {:<14} {:>12} {:>6} {:>12} {:>6} {:>10}\n", "B", "S", "Hq",
               "Hk", "D", "Dv", "kernel", "fwd GFLOP/s", "share", "bwd GFLOP/s", "share", "tile rate");
  }
  if (json) bench::so_far("[]");
  bool first = true;
  static const Support everywhere = Support::yes();
  struct Way {
    const char* name;
    Dtype dtype;
    const Support& machine;
  };
  for (const auto& [way, dtype, machine] :
       {Way{"amx", Dtype::bf16, amx_bf16()}, Way{"avx512_bf16", Dtype::bf16, avx512_bf16()},
        Way{"avx512_widened", Dtype::bf16, avx512()}, Way{"avx512", Dtype::f32, avx512()},
        Way{"highway_widened", Dtype::bf16, everywhere}, Way{"highway", Dtype::f32, everywhere}}) {
    if (!machine) continue;
    for (const Shape& s : kShapes) {
      Case work(s, dtype, way);
      const double forward_flops = 2.0 * s.pairs() * double(s.head_dim + s.value_dim);
      const double backward_flops = 2.0 * s.pairs() * double(3 * s.head_dim + 2 * s.value_dim);
      std::vector<double> forward, backward, tile, forward_share, backward_share;
      for (int i = 0; i < rounds; ++i) {
        tile.push_back(tile_rate());
        forward.push_back(forward_flops / seconds([&] { work.forward(); }) * 1e-9);
        backward.push_back(backward_flops / seconds([&] { work.backward(); }) * 1e-9);
        if (tile.back() == 0) continue;
        forward_share.push_back(forward.back() / tile.back());
        backward_share.push_back(backward.back() / tile.back());
      }
      if (forward_share.empty()) forward_share = backward_share = {0.0};
      if (json) {
        fmt::print(
            "{}{{\"B\": {}, \"S\": {}, \"Hq\": {}, \"Hk\": {}, \"D\": {}, \"Dv\": {}, \"dtype\": \"{}\", "
            "\"kernel\": \"{}\", "
            "\"threads\": {}, \"forward_gflops\": {:.1f}, \"backward_gflops\": {:.1f}, \"tile_gflops\": {:.1f}, "
            "\"forward_share\": {:.3f}, \"backward_share\": {:.3f}}}",
            first ? "[" : ",\n ", s.sequences, s.length, s.heads, s.kv_heads, s.head_dim, s.value_dim,
            name_of(dtype), way, omp_get_max_threads(), median(forward), median(backward), median(tile),
            median(forward_share), median(backward_share));
      } else {
        fmt::print(
            "{:>4} {:>5} {:>3} {:>3} {:>4} {:>4}  {:<14} {:>12.1f} {:>5.0f}% {:>12.1f} {:>5.0f}% {:>10.0f}\n",
            s.sequences, s.length, s.heads, s.kv_heads, s.head_dim, s.value_dim, way, median(forward),
            100 * median(forward_share), median(backward), 100 * median(backward_share), median(tile));
      }
      first = false;
      if (json) bench::so_far("]");
    }
  }
  if (json) fmt::print("{}]\n", first ? "[" : "");
  return 0;
}

}  // namespace
}  // namespace heddle::kernels::host

int heddle::bench::run(Arguments& arguments) {
  bool json = false;
  int rounds = 21;
  arguments.flag("--json", json);
  arguments.number("--rounds", rounds);
  arguments.read();
  return kernels::host::run(json, rounds);
}
