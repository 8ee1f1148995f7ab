// Muon's steps between its products, on rows of the matrices that are worked on, cut among threads. f32 and bf16.
#include <cmath>

#include "heddle/base/dtype.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "heddle/kernels/matrix_places.h"

namespace heddle::kernels::host {
namespace {

using device::KernelCall;
using device::TensorView;

/// Calls body with a null pointer of the type.
template <class Body>
void by_type(Dtype dtype, const Body& body) {
  dtype == Dtype::bf16 ? body(static_cast<bf16*>(nullptr)) : body(static_cast<float*>(nullptr));
}

void muon_momentum(const KernelCall& call) {
  auto* m = call.updates[0].as<float>();
  const auto clip = static_cast<float>(call.in[0].as<const double>()[0]);
  const auto momentum = static_cast<float>(call.op->attributes.number("momentum"));
  const std::span<const TensorView> uses = call.in.subspan(1);
  by_type(call.out[0].dtype, [&]<class X>(X*) {
    X* u = call.out[0].as<X>();
    over_rows(
        call.updates[0].elements(), 4 * std::ssize(uses) + 12,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            float sum = uses[0].as<const float>()[i];
            for (size_t use = 1; use < uses.size(); ++use) sum += uses[use].as<const float>()[i];
            const float g = clip * sum;
            if (clip != 0) m[i] = momentum * m[i] + g;
            u[i] = X(clip != 0 ? g + momentum * m[i] : 0.0f);
          }
        },
        kElementsPerPiece);
  });
}

int64_t row_sums(const ir::Listing&, const ir::Op& op, const ir::RowCounts&) {
  const MatrixPlaces at(op.attributes);
  return at.count * at.height() * 8;
}

// Squares are summed row by row, and the rows' sums in order: the bits are the same for any number of threads.
void unit_matrices(const KernelCall& call) {
  const MatrixPlaces at(call.op->attributes);
  auto* sums = reinterpret_cast<double*>(call.scratch);
  const int64_t height = at.height(), width = at.width();
  by_type(call.in[0].dtype, [&]<class X>(X*) {
    const X* from = call.in[0].as<const X>();
    X* x = call.out[0].as<X>();
    over_rows(at.count * height, width * size_of(call.in[0].dtype), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const X* matrix = from + row / height * at.size();
        double sum = 0;
        for (int64_t j = 0; j < width; ++j) {
          const double u = static_cast<float>(matrix[at.of(row % height, j)]);
          sum += u * u;
        }
        sums[row] = sum;
      }
    });
    for (int64_t k = 0; k < at.count; ++k) {
      double sum = 0;
      for (int64_t i = 0; i < height; ++i) sum += sums[k * height + i];
      sums[k * height] = std::sqrt(sum) + kLeastMatrixNorm;
    }
    over_rows(at.count * height, 2 * width * size_of(call.in[0].dtype), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const X* matrix = from + row / height * at.size();
        const auto norm = static_cast<float>(sums[row / height * height]);
        for (int64_t j = 0; j < width; ++j)
          x[row * width + j] = X(static_cast<float>(matrix[at.of(row % height, j)]) / norm);
      }
    });
  });
}

void place_matrices(const KernelCall& call) {
  const MatrixPlaces at(call.op->attributes);
  const int64_t height = at.height(), width = at.width();
  by_type(call.in[0].dtype, [&]<class X>(X*) {
    const X* x = call.in[0].as<const X>();
    X* to = call.out[0].as<X>();
    over_rows(at.count * height, 2 * width * size_of(call.in[0].dtype), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        X* matrix = to + row / height * at.size();
        for (int64_t j = 0; j < width; ++j) matrix[at.of(row % height, j)] = x[row * width + j];
      }
    });
  });
}

void scaled_sum(const KernelCall& call) {
  const auto alpha = static_cast<float>(call.op->attributes.number("alpha"));
  const auto beta = static_cast<float>(call.op->attributes.number("beta"));
  by_type(call.in[0].dtype, [&]<class X>(X*) {
    const X *x = call.in[0].as<const X>(), *z = call.in[1].as<const X>();
    X* y = call.out[0].as<X>();
    over_rows(
        call.out[0].elements(), 3 * size_of(call.in[0].dtype),
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            y[i] = X(alpha * static_cast<float>(x[i]) + beta * static_cast<float>(z[i]));
        },
        kElementsPerPiece);
  });
}

void muon_step(const KernelCall& call) {
  auto* p = call.updates[0].as<float>();
  const auto clip = call.in[0].as<const double>()[0];
  const auto rate = static_cast<float>(call.in[1].as<const double>()[0]);
  const auto scale = static_cast<float>(call.op->attributes.number("scale"));
  const auto decay = static_cast<float>(call.op->attributes.number("decay"));
  const TensorView copy = call.updates.size() > 1 ? call.updates[1] : TensorView{};
  by_type(call.in[2].dtype, [&]<class X>(X*) {
    const X* o = call.in[2].as<const X>();
    over_rows(
        call.updates[0].elements(), 14,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; clip != 0 && i < end; ++i)
            p[i] -= rate * (scale * static_cast<float>(o[i]) + decay * p[i]);
          if (!copy) return;
          by_type(copy.dtype, [&]<class Y>(Y*) {
            for (int64_t i = begin; i < end; ++i) copy.as<Y>()[i] = Y(p[i]);
          });
        },
        kElementsPerPiece);
  });
}

Support narrow_result(const ir::Listing& listing, const ir::Op& op) {
  return listing.value(op.out[0]).dtype == Dtype::f64 ? Support::no("the result is f64")
                                                      : takes<"da*", "a">(listing, op);
}

}  // namespace

std::vector<KernelEntry> muon_kernels() {
  return {{"muon_momentum", "host", "rows", narrow_result, nullptr, muon_momentum},
          {"unit_matrices", "host", "rows", takes<"x">, row_sums, unit_matrices},
          {"place_matrices", "host", "rows", takes<"x">, nullptr, place_matrices},
          {"scaled_sum", "host", "rows", takes<"xx">, nullptr, scaled_sum},
          {"muon_step", "host", "rows", takes<"ddx", "ax">, nullptr, muon_step}};
}

}  // namespace heddle::kernels::host
