// The fused head (output projection, loss and both gradients in one op) beside its three products alone.
//
//   bench_linear_cross_entropy [--repeats 9] [--only SUBSTRING] [--wall]
//
// T rows, H hidden, V vocabulary; the weight packed, as training without tied embeddings has it, and in rows. Both
// are counted with the flops of three products, so that the last column says what the loss itself costs. Fused op
// and products take turns, medians are printed. Times are the process's on its cores, for a machine that others
// load too, times the count of cores; --wall takes the clock's.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/support/main.h"
#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/statistics.h"
#include "heddle/ir/listing.h"
#include "heddle/kernels/host/gemm/gemm.h"
#include "heddle/kernels/registry.h"
#include "heddle/ops/ops.h"

namespace {
using namespace heddle;
using namespace heddle::kernels::host;

bool wall = false;

struct Buffer {
  explicit Buffer(int64_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64)))) {
    std::memset(data, 0, static_cast<size_t>(bytes));
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { std::free(data); }
  std::byte* data;
};

/// Normal numbers of a deviation, rounded to bf16.
void fill(std::byte* to, Dtype dtype, int64_t count, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> numbers(4099);  // over and over: drawing them all would take longer than the benchmark
  std::normal_distribution<float> normal(0, deviation);
  for (float& number : numbers) number = static_cast<float>(bf16(normal(random)));
  for (int64_t i = 0; i < count; ++i) {
    const float value = numbers[static_cast<size_t>((i + i / 4099 * 7) % 4099)];
    if (dtype == Dtype::bf16) {
      reinterpret_cast<bf16*>(to)[i] = bf16(value);
    } else {
      reinterpret_cast<float*>(to)[i] = value;
    }
  }
}

double seconds() {
  if (!wall) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC / omp_get_max_threads();
  return now_s();
}

struct Shape {
  int64_t T, H, V;
};

device::TensorView view(void* data, Dtype dtype, int64_t rows, int64_t columns = 0) {
  device::TensorView v{.data = data, .dtype = dtype, .rank = static_cast<int8_t>(columns ? 2 : 1)};
  v.dims[0] = rows;
  if (columns) v.dims[1] = columns;
  return v;
}

void measure(const Shape& s, Dtype X, bool packed, int repeats) {
  const int64_t size = size_of(X), weights = s.V * s.H;
  Buffer x(s.T * s.H * size), dx(s.T * s.H * size), master(weights * 4), dw(weights * 4), labels(s.T * 4);
  Buffer w(packed ? packed_bytes(X, 1, s.V, s.H) : weights * size);
  fill(x.data, X, s.T * s.H, 1, 1);
  fill(master.data, Dtype::f32, weights, 2 / std::sqrt(static_cast<float>(s.H)), 2);
  if (packed) {
    pack_weights(X, master.data, Dtype::f32, 1, s.V, s.H, w.data);
  } else {
    fill(w.data, X, weights, 2 / std::sqrt(static_cast<float>(s.H)), 2);
  }
  for (int64_t t = 0; t < s.T; ++t) reinterpret_cast<int32_t*>(labels.data)[t] = static_cast<int32_t>(t * 77 % s.V);
  float scale = 1 / static_cast<float>(s.T);
  double loss = 0;

  ir::Listing listing;
  const auto value = [&](Dtype dtype, std::vector<int64_t> shape, bool pack = false) {
    ir::Value v{.name = fmt::format("v{}", listing.values.size()), .dtype = dtype};
    for (const int64_t dim : shape) v.shape.push_back({dim, ir::none});
    if (pack) v.layout = ir::Layout::packed, v.packed_bytes = packed_bytes(X, 1, s.V, s.H);
    return listing.add_value(std::move(v));
  };
  ir::Op op;
  op.def = &ops::find("linear_cross_entropy_train");
  op.in = {value(X, {s.T, s.H}), value(X, {s.V, s.H}, packed), value(Dtype::i32, {s.T}), value(Dtype::f32, {1})};
  op.updates = {value(Dtype::f32, {s.V, s.H})};
  op.attributes = {{"scale_index", 0}};
  std::vector<device::TensorView> in{view(x.data, X, s.T, s.H), view(w.data, X, s.V, s.H),
                                     view(labels.data, Dtype::i32, s.T), view(&scale, Dtype::f32, 1)};
  if (packed) in[1].layout = ir::Layout::packed;
  const std::vector<device::TensorView> out{view(&loss, Dtype::f64, 1), view(dx.data, X, s.T, s.H)};
  const std::vector<device::TensorView> updates{view(dw.data, Dtype::f32, s.V, s.H)};
  const kernels::KernelEntry& kernel = backends::named("host").select_kernel(listing, op);
  const int64_t scratch_bytes = kernel.scratch_bytes(listing, op, ir::FixedRows(0));
  Buffer scratch(scratch_bytes), logits(s.T * s.V * size), product_scratch(gemm_scratch_bytes(1));
  const auto fused = [&] {
    kernel.run({.op = &op, .in = in, .out = out, .updates = updates, .scratch = scratch.data});
  };
  const Scratch memory{product_scratch.data, gemm_scratch_bytes(1)};
  const Weights weight{w.data, X, packed};
  const RowGroups rows = RowGroups::one(s.T);
  const auto products = [&] {
    linear_forward({.groups = rows,
                    .n = s.V,
                    .k = s.H,
                    .x = {x.data, X},
                    .w = weight,
                    .y = {logits.data, X},
                    .scratch = memory});
    linear_dgrad({.groups = rows,
                  .n = s.V,
                  .k = s.H,
                  .dy = {logits.data, X},
                  .w = weight,
                  .dx = {dx.data, X},
                  .scratch = memory});
    linear_wgrad({.groups = rows,
                  .n = s.V,
                  .k = s.H,
                  .dy = {logits.data, X},
                  .x = {x.data, X},
                  .dw = reinterpret_cast<float*>(dw.data),
                  .scratch = memory});
  };
  std::vector<double> fused_times, product_times;
  for (int r = 0; r <= repeats; ++r) {  // the first turn warms up
    const double begin = seconds();
    fused();
    const double middle = seconds();
    products();
    if (r == 0) continue;
    fused_times.push_back(middle - begin);
    product_times.push_back(seconds() - middle);
  }
  const double flops = 6.0 * static_cast<double>(s.T) * static_cast<double>(s.H) * static_cast<double>(s.V);
  const double a = median(fused_times), b = median(product_times);
  std::printf("%-5s %-7s %5ld %5ld %7ld %9.1f %9.1f %8.0f %8.0f %8.2f %9.1f\n", std::string(name_of(X)).c_str(),
              packed ? "packed" : "rows", long(s.T), long(s.H), long(s.V), a * 1e3, b * 1e3, flops / a * 1e-9,
              flops / b * 1e-9, a / b, static_cast<double>(scratch_bytes) * 1e-6);
  std::fflush(stdout);
}

}  // namespace

int heddle::bench::run(Arguments& arguments) {
  int repeats = 9;
  std::string only;
  arguments.flag("--wall", wall);
  arguments.number("--repeats", repeats);
  arguments.word("--only", "SUBSTRING", only);
  arguments.read();
  std::printf("%d threads, medians of %d\n%-5s %-7s %5s %5s %7s %9s %9s %8s %8s %8s %9s\n", omp_get_max_threads(),
              repeats, "type", "weight", "T", "H", "V", "fused ms", "prod. ms", "GFLOP/s", "products", "ratio",
              "scratchMB");
  for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
    for (const bool packed : {true, false}) {
      if (packed && kernels::host::packed_bytes(X, 1, 8, 8) == 0) continue;  // the engine reads rows
      for (const Shape& s : {Shape{2048, 256, 8192}, Shape{2048, 512, 8192}, Shape{2048, 1024, 8192},
                             Shape{1024, 512, 32768}, Shape{512, 2048, 129280}}) {
        const std::string title =
            fmt::format("{} {} {}x{}x{}", name_of(X), packed ? "packed" : "rows", s.T, s.H, s.V);
        if (title.find(only) != std::string::npos) measure(s, X, packed, repeats);
      }
    }
  }
  return 0;
}
