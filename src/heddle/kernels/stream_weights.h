// The weights of a token by which a block reads and writes the streams of the residual, and their gradient
// (ops/hyper_connection.cpp has the formulas). One text for all backends; A is their type of sums.
//
// The gradient goes back through every iteration. Each divides the columns, or the rows, of c by sums s + e and
// makes c′. Where c′ has the gradient G, c has (G − Σ G·c′) ÷ (s + e), summed as s is. The sums are kept, so that c
// is c′ times them, and no c is.
#pragma once

#include <cmath>

#include "heddle/ops/hyper_connection.h"

#ifdef __CUDACC__
#define HEDDLE_ANYWHERE __host__ __device__
#else
#define HEDDLE_ANYWHERE
#endif

namespace heddle::kernels {

using ops::kMostStreams, ops::kMostStreamIterations;
/// Weights of a token that writes.
constexpr int kMostStreamWeights = kMostStreams * (kMostStreams + 2);
/// Numbers of working room: the matrix, its gradient, its start without e, and all sums.
constexpr int kStreamRoom = 3 * kMostStreams * kMostStreams + 2 * kMostStreamIterations * kMostStreams;

template <class A>
struct StreamWeights {
  int n = 1, iterations = 1;
  bool writes = false, mixes = false;
  A epsilon = 0;
  A magnitude = 2;  // of independent ones, which mix no streams

  HEDDLE_ANYWHERE int count() const { return mixes ? n * (2 + n) : writes ? 2 * n : n; }

  /// The n weights of reading, the first of w.
  HEDDLE_ANYWHERE void make_pre(const A* q, A rstd, const A* base, const A* scale, A* pre) const {
    const A s0 = scale[0] * rstd;
    for (int i = 0; i < n; ++i) pre[i] = sigmoid(q[i] * s0 + base[i]) + epsilon;
  }

  /// The weights w of q. `room`: of kStreamRoom.
  HEDDLE_ANYWHERE void make(const A* q, A rstd, const A* base, const A* scale, A* w, A* room) const {
    make_pre(q, rstd, base, scale, w);
    if (!writes) return;
    const A s1 = scale[1] * rstd;
    const A added = mixes ? A(0) : epsilon;
    for (int i = n; i < 2 * n; ++i) w[i] = magnitude * sigmoid(q[i] * s1 + base[i]) + added;
    if (mixes) balance(q, rstd, base, scale, w + 2 * n, room);
  }

  /// Writes dq and adds to dbase and dscale. Returns the gradient of rstd. `dpre`: of the weights of reading,
  /// beside what dw has of them.
  HEDDLE_ANYWHERE A gradient(const A* q, A rstd, const A* base, const A* scale, const A* dpre, const A* dw, A* dq,
                             A* dbase, A* dscale, A* room) const {
    A drstd = 0;
    const auto take = [&](int i, int which, A dz) {
      dbase[i] += dz;
      dscale[which] += dz * q[i] * rstd;
      drstd += dz * q[i] * scale[which];
      dq[i] = dz * scale[which] * rstd;
    };
    for (int i = 0; i < n; ++i) {
      const A p = sigmoid(q[i] * scale[0] * rstd + base[i]);
      take(i, 0, (dpre[i] + dw[i]) * p * (1 - p));
    }
    if (!writes) return drstd;
    for (int i = n; i < 2 * n; ++i) {
      const A p = sigmoid(q[i] * scale[1] * rstd + base[i]);
      take(i, 1, magnitude * dw[i] * p * (1 - p));
    }
    if (!mixes) return drstd;
    A *c = room, *G = room + n * n;
    const A *start = G + n * n, *sums = start + n * n;
    balance(q, rstd, base, scale, c, room);
    for (int e = 0; e < n * n; ++e) G[e] = dw[2 * n + e];
    for (int step = 2 * iterations - 2; step >= 0; --step) undo(c, G, sums + step * n, step % 2 == 0 ? n : 1);
    for (int i = 0; i < n; ++i) {
      A along = 0;
      for (int j = 0; j < n; ++j) along += start[i * n + j] * G[i * n + j];
      for (int j = 0; j < n; ++j) take(2 * n + i * n + j, 2, start[i * n + j] * (G[i * n + j] - along));
    }
    return drstd;
  }

 private:
  HEDDLE_ANYWHERE static A sigmoid(A z) { return 1 / (1 + exp_of(-z)); }
  HEDDLE_ANYWHERE static double exp_of(double x) { return exp(x); }
  HEDDLE_ANYWHERE static float exp_of(float x) { return expf(x); }

  // The element of the line `at` that stands `along` behind its first: lines are columns where `stride` is n, else
  // rows.
  HEDDLE_ANYWHERE int element(int at, int along, int stride) const {
    return stride == n ? along * n + at : at * n + along;
  }

  HEDDLE_ANYWHERE void divide(A* c, A* sums, int stride) const {
    for (int at = 0; at < n; ++at) {
      A sum = 0;
      for (int i = 0; i < n; ++i) sum += c[element(at, i, stride)];
      sums[at] = sum + epsilon;
      for (int i = 0; i < n; ++i) c[element(at, i, stride)] /= sums[at];
    }
  }

  HEDDLE_ANYWHERE void undo(A* c, A* G, const A* sums, int stride) const {
    for (int at = 0; at < n; ++at) {
      A along = 0;
      for (int i = 0; i < n; ++i) along += G[element(at, i, stride)] * c[element(at, i, stride)];
      for (int i = 0; i < n; ++i) {
        A &g = G[element(at, i, stride)], &x = c[element(at, i, stride)];
        g = (g - along) / sums[at];
        x *= sums[at];
      }
    }
  }

  // The matrix in c; in the room its start without e and the sums of each step, from 2·n² on.
  HEDDLE_ANYWHERE void balance(const A* q, A rstd, const A* base, const A* scale, A* c, A* room) const {
    A *start = room + 2 * n * n, *sums = start + n * n;
    const A s2 = scale[2] * rstd;
    for (int i = 0; i < n; ++i) {
      A *row = start + i * n, most = 0, sum = 0;
      for (int j = 0; j < n; ++j) {
        row[j] = q[2 * n + i * n + j] * s2 + base[2 * n + i * n + j];
        if (j == 0 || row[j] > most) most = row[j];
      }
      for (int j = 0; j < n; ++j) sum += row[j] = exp_of(row[j] - most);
      for (int j = 0; j < n; ++j) {
        row[j] /= sum;
        c[i * n + j] = row[j] + epsilon;
      }
    }
    for (int step = 0; step <= 2 * iterations - 2; ++step) divide(c, sums + step * n, step % 2 == 0 ? n : 1);
  }
};

/// The first weight of writing: behind those of reading, or alone.
HEDDLE_ANYWHERE inline int first_of_writing(int64_t columns, int n) { return columns == n ? 0 : n; }

#undef HEDDLE_ANYWHERE

}  // namespace heddle::kernels
