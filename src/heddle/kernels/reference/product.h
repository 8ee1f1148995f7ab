// The matrix product of all reference kernels: c[m,n] = Σ_k a[m,k]·b[k,n], each sum in increasing k, in A.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace heddle::kernels::reference {

/// A matrix somewhere in memory: element (i, j) lies at data[i·row + j·column].
template <class A>
struct Strided {
  const A* data;
  int64_t row, column;
  A operator()(int64_t i, int64_t j) const { return data[i * row + j * column]; }
};

/// A row-major matrix with `columns` columns, and its transpose.
template <class A>
Strided<A> plain(const A* data, int64_t columns) {
  return {data, columns, 1};
}
template <class A>
Strided<A> transposed(const A* data, int64_t columns) {
  return {data, 1, columns};
}

/// Writes c (row-major, M×N) or, with `add`, adds the finished sums to it. Columns are taken in strips copied to
/// adjacent memory, so that many sums advance together; the order of each sum stays k = 0, 1, 2, …
template <class A>
void product(int64_t M, int64_t N, int64_t K, Strided<A> a, Strided<A> b, A* c, bool add = false) {
  std::vector<A> rows;
  if (a.column != 1) {  // walked K at a time, once a strip: worth a copy whose rows are contiguous
    rows.resize(static_cast<size_t>(M * K));
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t m = 0; m < M; ++m) rows[m * K + k] = a(m, k);
    }
    a = plain<A>(rows.data(), K);
  }
  constexpr int64_t kStrip = 16;
  std::vector<A> strip(static_cast<size_t>(K * kStrip));
  for (int64_t first = 0; first < N; first += kStrip) {
    const int64_t width = std::min(kStrip, N - first);
    for (int64_t j = 0; j < width; ++j) {
      for (int64_t k = 0; k < K; ++k) strip[k * kStrip + j] = b(k, first + j);
    }
    for (int64_t m = 0; m < M; ++m) {
      A sum[kStrip] = {};
      const A *a_row = a.data + m * a.row, *at = strip.data();
      for (int64_t k = 0; k < K; ++k, at += kStrip) {
        const A factor = a_row[k];
        for (int64_t j = 0; j < kStrip; ++j) sum[j] += factor * at[j];
      }
      A* row = c + m * N + first;
      for (int64_t j = 0; j < width; ++j) row[j] = add ? row[j] + sum[j] : sum[j];
    }
  }
}

}  // namespace heddle::kernels::reference
