#include "bench/support/probe.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "heddle/base/clock.h"
#include "heddle/base/statistics.h"
#include "heddle/kernels/host/gemm/gemm.h"

namespace heddle::bench {

namespace {

void on_own_thread(int threads, const std::function<void()>& work) {
  std::thread([&] {
    omp_set_num_threads(threads);
    work();
  }).join();
}

struct FreeAligned {
  void operator()(std::byte* data) const { std::free(data); }
};
using Buffer = std::unique_ptr<std::byte[], FreeAligned>;
Buffer buffer(int64_t bytes) {
  Buffer made(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64))));
  std::memset(made.get(), 0, static_cast<size_t>(bytes));
  return made;
}

}  // namespace

ResidentBytes resident_bytes() {
  ResidentBytes found;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) found.most = kib * 1024;
    if (word == "VmRSS:" && status >> kib) found.now = kib * 1024;
  }
  return found;
}

struct MatrixProbe::Product {
  int64_t t, n, k;
  Buffer x, w, y, scratch;
  std::vector<double> rates;
};

MatrixProbe::MatrixProbe(Dtype dtype, int threads) : dtype_(dtype), threads_(threads) {
  using namespace kernels::host;
  constexpr int64_t shapes[][3] = {{2048, 2048, 2048}, {4096, 1024, 1024}, {2048, 4096, 1024}, {4096, 512, 2048}};
  for (const auto& [t, n, k] : shapes) {
    auto product = std::make_unique<Product>(Product{t,
                                                     n,
                                                     k,
                                                     buffer(t * k * size_of(dtype)),
                                                     buffer(n * k * size_of(dtype) + packed_bytes(dtype, 1, n, k)),
                                                     buffer(t * n * size_of(dtype)),
                                                     buffer(gemm_scratch_bytes(1, threads)),
                                                     {}});
    const auto value = [](int64_t i) { return static_cast<float>(i * 37 % 101 - 50) / 64; };
    for (int64_t i = 0; i < t * k; ++i) {
      if (dtype == Dtype::bf16) {
        reinterpret_cast<bf16*>(product->x.get())[i] = value(i);
      } else {
        reinterpret_cast<float*>(product->x.get())[i] = value(i);
      }
    }
    std::vector<float> master(static_cast<size_t>(n * k));
    for (int64_t i = 0; i < n * k; ++i) master[static_cast<size_t>(i)] = value(i + 11);
    on_own_thread(threads, [&] {
      if (packed_bytes(dtype, 1, n, k) > 0) {
        pack_weights(dtype, master.data(), Dtype::f32, 1, n, k, product->w.get());
      } else if (dtype == Dtype::bf16) {  // an engine that reads rows
        std::copy(master.begin(), master.end(), reinterpret_cast<bf16*>(product->w.get()));
      } else {
        std::copy(master.begin(), master.end(), reinterpret_cast<float*>(product->w.get()));
      }
    });
    products_.push_back(std::move(product));
  }
}

MatrixProbe::~MatrixProbe() = default;

void MatrixProbe::sample() {
  on_own_thread(threads_, [&] {
    for (const auto& p : products_) {
      const kernels::host::LinearForward call{
          .groups = kernels::host::RowGroups::one(p->t),
          .n = p->n,
          .k = p->k,
          .x = {p->x.get(), dtype_},
          .w = {p->w.get(), dtype_, kernels::host::packed_bytes(dtype_, 1, p->n, p->k) > 0},
          .y = {p->y.get(), dtype_},
          .scratch = {p->scratch.get(), kernels::host::gemm_scratch_bytes(1, threads_)}};
      linear_forward(call);  // the team and the caches are warm in a step, too
      const double begin = now_s();
      linear_forward(call);
      const double flops = 2.0 * static_cast<double>(p->t) * static_cast<double>(p->n) * static_cast<double>(p->k);
      p->rates.push_back(flops / (now_s() - begin));
    }
  });
}

size_t MatrixProbe::best() const {
  size_t best = 0;
  for (size_t i = 1; i < products_.size(); ++i) {
    if (median(products_[i]->rates) > median(products_[best]->rates)) best = i;
  }
  return best;
}

double MatrixProbe::best_flops_per_s() const { return median(best_rates()); }
const std::vector<double>& MatrixProbe::best_rates() const { return products_[best()]->rates; }

std::string MatrixProbe::best_shape() const {
  const Product& p = *products_[best()];
  return fmt::format("{}x{}x{}", p.t, p.n, p.k);
}

CopyProbe::CopyProbe(int threads) : threads_(threads), from_(kBytes), to_(kBytes) {
  from_.reach(kBytes);
  to_.reach(kBytes);
  std::memset(from_.base(), 1, kBytes);
  std::memset(to_.base(), 2, kBytes);
}

void CopyProbe::sample() {
  on_own_thread(threads_, [&] {
    const int64_t share = kBytes / threads_;
    double begin = 0;
#pragma omp parallel
    {
#pragma omp barrier
#pragma omp master
      begin = now_s();
#pragma omp barrier
      const int64_t at = omp_get_thread_num() * share;
      std::memcpy(to_.base() + at, from_.base() + at, static_cast<size_t>(share));
    }
    rates_.push_back(2.0 * static_cast<double>(share * threads_) / (now_s() - begin));
  });
}

double CopyProbe::bytes_per_s() const { return median(rates_); }

}  // namespace heddle::bench
