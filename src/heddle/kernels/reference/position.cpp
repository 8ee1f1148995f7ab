// rope and the assembly of MLA's keys and values (DeepSeek-V2, arXiv 2405.04434, section 2.1).
// T tokens, h heads, d head dim, n part without rope, r rope dim, v value dim, S sequence length.
#include "heddle/kernels/mla_sizes.h"
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

/// The rotation of r elements of a head by the angles of position t mod S. A row of the table is r/2
/// cosines, then r/2 sines. Pairs are (2i, 2i+1) when interleaved, else (i, i + r/2).
template <class A>
struct Rotation {
  const Input<A>& table_Sr;
  int64_t S, r;
  bool interleaved, inverse;

  /// from and to: r elements each, or the same array.
  void rotate(int64_t t, const A* from, A* to) const {
    const A* row = table_Sr.at(t % S * r);
    for (int64_t i = 0; i < r / 2; ++i) {
      const int64_t p = interleaved ? 2 * i : i, q = interleaved ? 2 * i + 1 : i + r / 2;
      const A cosine = row[i], sine = inverse ? -row[r / 2 + i] : row[r / 2 + i];
      const A a = from[p], b = from[q];
      to[p] = a * cosine - b * sine;
      to[q] = a * sine + b * cosine;
    }
  }
};

template <class A>
void rope(const KernelCall& call) {
  const ir::Attributes& at = call.op->attributes;
  const int64_t h = at.integer("heads"), d = at.integer("head_dim"), r = at.integer("rope_dim");
  const Input<A> x(call.in[0]), table_Sr(call.in[1]);
  const Rotation<A> rotation{table_Sr, at.integer("sequence"), r, at.integer("interleaved") != 0,
                             at.integer_or("inverse", 0) != 0};
  const int64_t T = call.in[0].dim(0), first = at.integer_or("first", d - r);
  const Output<A> y(call.out[0]);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t j = 0; j < h; ++j) {
      const int64_t head = (t * h + j) * d;
      std::copy_n(x.at(head), d, y.at(head));
      rotation.rotate(t, x.at(head + first), y.at(head + first));
    }
  }
}

/// One token: per head kv = (k_nope, v); k = (k_nope, kr).
template <class A>
void assemble_token(const MlaSizes& mla, const A* kv, const A* kr, A* k, A* value) {
  const auto [h, n, r, v] = mla;
  for (int64_t j = 0; j < h; ++j) {
    std::copy_n(kv + j * (n + v), n, k + j * (n + r));
    std::copy_n(kr, r, k + j * (n + r) + n);
    std::copy_n(kv + j * (n + v) + n, v, value + j * v);
  }
}

/// One token: the adjoint. dkr sums over heads in increasing order.
template <class A>
void scatter_token(const MlaSizes& mla, const A* dk, const A* dvalue, A* dkv, A* dkr) {
  const auto [h, n, r, v] = mla;
  std::fill_n(dkr, r, A(0));
  for (int64_t j = 0; j < h; ++j) {
    std::copy_n(dk + j * (n + r), n, dkv + j * (n + v));
    std::copy_n(dvalue + j * v, v, dkv + j * (n + v) + n);
    for (int64_t i = 0; i < r; ++i) dkr[i] += dk[j * (n + r) + n + i];
  }
}

template <class A>
void mla_assemble(const KernelCall& call) {
  const MlaSizes mla(call.op->attributes);
  const auto [h, n, r, v] = mla;
  const Input<A> kv(call.in[0]), kr(call.in[1]);
  const int64_t T = call.in[0].dim(0);
  const Output<A> k(call.out[0]), value(call.out[1]);
  for (int64_t t = 0; t < T; ++t) {
    assemble_token(mla, kv.at(t * h * (n + v)), kr.at(t * r), k.at(t * h * (n + r)), value.at(t * h * v));
  }
}

template <class A>
void mla_assemble_dgrad(const KernelCall& call) {
  const MlaSizes mla(call.op->attributes);
  const auto [h, n, r, v] = mla;
  const Input<A> dk(call.in[0]), dvalue(call.in[1]);
  const int64_t T = call.in[0].dim(0);
  const Output<A> dkv(call.out[0]), dkr(call.out[1]);
  for (int64_t t = 0; t < T; ++t) {
    scatter_token(mla, dk.at(t * h * (n + r)), dvalue.at(t * h * v), dkv.at(t * h * (n + v)), dkr.at(t * r));
  }
}

template <class A>
Rotation<A> mla_rotation(const KernelCall& call, const Input<A>& table_Sr, bool inverse) {
  const ir::Attributes& at = call.op->attributes;
  return {table_Sr, at.integer("sequence"), at.integer("rope"), at.integer("interleaved") != 0, inverse};
}

/// Rotates the rope part of every head of a token's queries; copies the rest.
template <class A>
void rotate_queries(const MlaSizes& mla, const Rotation<A>& rotation, int64_t t, const A* from, A* to) {
  const auto [h, n, r, v] = mla;
  for (int64_t j = 0; j < h; ++j) {
    std::copy_n(from + j * (n + r), n, to + j * (n + r));
    rotation.rotate(t, from + j * (n + r) + n, to + j * (n + r) + n);
  }
}

/// Rope on q and kr, then assemble; kr is not rounded in between.
template <class A>
void mla_rope(const KernelCall& call) {
  const MlaSizes mla(call.op->attributes);
  const auto [h, n, r, v] = mla;
  const Input<A> q(call.in[0]), kv(call.in[1]), kr(call.in[2]), table_Sr(call.in[3]);
  const Rotation<A> rotation = mla_rotation(call, table_Sr, false);
  const int64_t T = call.in[0].dim(0);
  const Output<A> q_rotated(call.out[0]), k(call.out[1]), value(call.out[2]);
  std::vector<A> kr_rotated(static_cast<size_t>(r));
  for (int64_t t = 0; t < T; ++t) {
    rotate_queries(mla, rotation, t, q.at(t * h * (n + r)), q_rotated.at(t * h * (n + r)));
    rotation.rotate(t, kr.at(t * r), kr_rotated.data());
    assemble_token(mla, kv.at(t * h * (n + v)), kr_rotated.data(), k.at(t * h * (n + r)), value.at(t * h * v));
  }
}

/// dkr is summed over heads, rotated back, and rounded once.
template <class A>
void mla_rope_dgrad(const KernelCall& call) {
  const MlaSizes mla(call.op->attributes);
  const auto [h, n, r, v] = mla;
  const Input<A> dq_rotated(call.in[0]), dk(call.in[1]), dvalue(call.in[2]), table_Sr(call.in[3]);
  const Rotation<A> rotation = mla_rotation(call, table_Sr, true);
  const int64_t T = call.in[0].dim(0);
  const Output<A> dq(call.out[0]), dkv(call.out[1]), dkr(call.out[2]);
  for (int64_t t = 0; t < T; ++t) {
    rotate_queries(mla, rotation, t, dq_rotated.at(t * h * (n + r)), dq.at(t * h * (n + r)));
    scatter_token(mla, dk.at(t * h * (n + r)), dvalue.at(t * h * v), dkv.at(t * h * (n + v)), dkr.at(t * r));
    rotation.rotate(t, dkr.at(t * r), dkr.at(t * r));
  }
}

}  // namespace

std::vector<KernelEntry> position_kernels() {
  return {entry("rope", by_type<in0, rope<float>, rope<double>>),
          entry("mla_assemble", by_type<in0, mla_assemble<float>, mla_assemble<double>>),
          entry("mla_assemble_dgrad", by_type<in0, mla_assemble_dgrad<float>, mla_assemble_dgrad<double>>),
          entry("mla_rope", by_type<in0, mla_rope<float>, mla_rope<double>>),
          entry("mla_rope_dgrad", by_type<in0, mla_rope_dgrad<float>, mla_rope_dgrad<double>>)};
}

}  // namespace heddle::kernels::reference
