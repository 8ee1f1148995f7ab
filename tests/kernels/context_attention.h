// Attention whose sequences are cut among ranks of cp, rank after rank, against the same sequences on one rank, on
// the kernels of any backend.
#pragma once

#include "tests/kernels/op_cases.h"

namespace heddle::op_runner::context {

struct Shape {
  int cp;
  int64_t sequences, length, heads, kv_heads, head_dim, value_dim;
  bool causal = true;
  int64_t window = 0;
  bool documents = false, sinks = false;
  double rate = 0;  // of dropout
  int inner = 1;    // ranks of an inner ring
};

/// The rank whose keys rank r has after so many turns, hop by hop: a place on in the inner ring, and after a round
/// of it the own place of the ring before.
inline int owner_after(const Shape& s, int r, int turns) {
  int owner = r;
  for (int turn = 1; turn <= turns; ++turn) {
    const int own = r % s.inner, rings = s.cp / s.inner;
    int ring = owner / s.inner, at = owner % s.inner;
    if (turn % s.inner == 0)
      ring = (ring + rings - 1) % rings, at = own;
    else
      at = (at + s.inner - 1) % s.inner;
    owner = ring * s.inner + at;
  }
  return owner;
}

/// Calls with (row of the whole, row of the share) for each row that rank `index` has.
template <class F>
void each_row(const Shape& s, int index, const F& f) {
  const int64_t own = s.length / s.cp;
  for (int64_t b = 0; b < s.sequences; ++b) {
    for (int64_t j = 0; j < own; ++j) f(b * s.length + ir::position(j, s.length, index, s.cp), b * own + j);
  }
}

/// What an op takes beside queries, keys and values; absent ones keep the others in their places.
struct Optional {
  /// Starts and sinks are of whole sequences on every rank, tokens those of rank `index`; none: of all.
  Optional(ListingRunner& runner, const Shape& s, Dtype X, std::optional<int> index = {}) {
    if (s.documents) starts = runner.add(document_starts(s.sequences, s.length), Role::input, "starts");
    if (s.sinks) sinks = runner.add(random_tensor(wide(X), {s.heads}, 5), Role::weight, "sinks");
    if (s.rate == 0) return;
    const int64_t rows = s.sequences * s.length;
    Tensor numbers(Dtype::i32, {index ? rows / s.cp : rows});
    for (int r = 0; r < s.cp; ++r) {
      if (index && r != *index) continue;
      each_row(s, r, [&](int64_t row, int64_t own) {
        numbers.values[static_cast<size_t>(index ? own : row)] = static_cast<double>(700 + row);
      });
    }
    tokens = runner.add(numbers, Role::input, "tokens");
    key = runner.add(Tensor(Dtype::i32, {3}, {11, 13, 17}), Role::input, "key");
  }
  ValueId starts = ir::none, sinks = ir::none, tokens = ir::none, key = ir::none;
};

struct Whole {
  Tensor q, k, v, d_o;  // [B·S, …]
  Tensor o, dq, dk, dv;
};

inline ir::Attributes attributes_of(const Shape& s) {
  ir::Attributes attributes{{"heads", s.heads},       {"kv_heads", s.kv_heads},
                            {"head_dim", s.head_dim}, {"value_dim", s.value_dim},
                            {"sequence", s.length},   {"causal", int64_t{s.causal}},
                            {"window", s.window},     {"scale", 1 / std::sqrt(static_cast<double>(s.head_dim))}};
  if (s.rate > 0) attributes.set("rate", s.rate).set("site", int64_t{3});
  return attributes;
}

/// Appends the op, its gradient for d_o, runs all and reads o, dq and the gradients of `keys`.
inline std::vector<Tensor> run(ListingRunner& runner, ValueId o, const Tensor& d_o,
                               const std::vector<ValueId>& of) {
  const ValueId seed = runner.add(d_o, Role::gradient, "do");
  const std::vector<ValueId> d = ir::differentiate(runner.listing, ops::find("add"), {{o, seed}}, of);
  runner.run();
  std::vector<Tensor> result{runner.read(o)};
  for (const ValueId id : d) result.push_back(runner.read(id));
  return result;
}

inline Whole whole(const Shape& s, Dtype X, const std::vector<kernels::KernelEntry>& kernels) {
  const int64_t rows = s.sequences * s.length;
  Whole w;
  w.q = random_tensor(X, {rows, s.heads * s.head_dim}, 1);
  w.k = random_tensor(X, {rows, s.kv_heads * s.head_dim}, 2);
  w.v = random_tensor(X, {rows, s.kv_heads * s.value_dim}, 3);
  w.d_o = random_tensor(X, {rows, s.heads * s.value_dim}, 4);
  ListingRunner runner(kernels);
  const std::vector<ValueId> in{runner.add(w.q, Role::activation, "q"), runner.add(w.k, Role::activation, "k"),
                                runner.add(w.v, Role::activation, "v")};
  const Optional also(runner, s, X);
  const auto out = runner.append("attention", {in[0], in[1], in[2], also.starts, also.sinks, also.tokens, also.key},
                                 attributes_of(s));
  const std::vector<Tensor> r = run(runner, out[0], w.d_o, in);
  w.o = r[0], w.dq = r[1], w.dk = r[2], w.dv = r[3];
  return w;
}

inline Tensor share(const Shape& s, const Tensor& x, int index) {
  Tensor part(x.dtype, {x.shape[0] / s.cp, x.shape[1]});
  each_row(s, index, [&](int64_t from, int64_t to) {
    for (int64_t c = 0; c < x.shape[1]; ++c) {
      part.values[static_cast<size_t>(to * x.shape[1] + c)] = x.values[static_cast<size_t>(from * x.shape[1] + c)];
    }
  });
  return part;
}

inline void add(Tensor& sum, const Tensor& x) {
  for (size_t i = 0; i < x.values.size(); ++i) sum.values[i] += x.values[i];
}

inline ir::Coordinates place(const Shape& s, int index) {
  ir::Coordinates at;
  at.index[static_cast<size_t>(ir::Axis::cp)] = index;
  at.degree[static_cast<size_t>(ir::Axis::cp)] = s.cp;
  return at;
}

inline std::vector<Tensor> check_gathered(const Shape& s, Dtype X, const std::vector<kernels::KernelEntry>& kernels,
                                          double tolerance, const std::string& wanted) {
  const Whole w = whole(s, X, kernels);
  std::vector<Tensor> all;
  Tensor dk(X, w.k.shape), dv(X, w.v.shape);
  for (int r = 0; r < s.cp; ++r) {
    ListingRunner runner(kernels);
    runner.place = place(s, r);
    const std::vector<ValueId> in{runner.add(share(s, w.q, r), Role::activation, "q"),
                                  runner.add(w.k, Role::activation, "k"), runner.add(w.v, Role::activation, "v")};
    ir::Attributes attributes = attributes_of(s);
    attributes.set("cp", int64_t{s.cp});
    const Optional also(runner, s, X, r);
    const auto out = runner.append(
        "attention", {in[0], in[1], in[2], also.starts, also.sinks, also.tokens, also.key}, attributes);
    const std::vector<Tensor> found = run(runner, out[0], share(s, w.d_o, r), in);
    all.insert(all.end(), found.begin(), found.end());
    EXPECT_TRUE(close(share(s, w.o, r), found[0], tolerance)) << "o of rank " << r;
    EXPECT_TRUE(close(share(s, w.dq, r), found[1], tolerance)) << "dq of rank " << r;
    add(dk, found[2]);
    add(dv, found[3]);
    for (const std::string& ran : runner.ran) {
      if (ran.starts_with("attention_sinks")) continue;
      EXPECT_NE(ran.find(wanted), std::string::npos) << ran;
    }
  }
  EXPECT_TRUE(close(w.dk, dk, tolerance));
  EXPECT_TRUE(close(w.dv, dv, tolerance));
  return all;
}

inline std::vector<Tensor> check_ring(const Shape& s, Dtype X, const std::vector<kernels::KernelEntry>& kernels,
                                      double tolerance, const std::string& wanted) {
  const Whole w = whole(s, X, kernels);
  std::vector<Tensor> all, dk, dv;
  for (int r = 0; r < s.cp; ++r) {
    dk.emplace_back(X, share(s, w.k, r).shape);
    dv.emplace_back(X, share(s, w.v, r).shape);
  }
  for (int r = 0; r < s.cp; ++r) {
    ListingRunner runner(kernels);
    runner.place = place(s, r);
    ir::Attributes attributes = attributes_of(s);
    attributes.set("cp", int64_t{s.cp});
    if (s.inner > 1) attributes.set("inner", int64_t{s.inner});
    const ValueId q = runner.add(share(s, w.q, r), Role::activation, "q");
    const Optional also(runner, s, X, r);
    std::vector<ValueId> before(2, ir::none), mentions{ir::none, q};
    for (int turn = 0; turn < s.cp; ++turn) {
      const int owner = owner_after(s, r, turn);
      const std::vector<ValueId> k_v{runner.add(share(s, w.k, owner), Role::activation, fmt::format("k{}", turn)),
                                     runner.add(share(s, w.v, owner), Role::activation, fmt::format("v{}", turn))};
      mentions.insert(mentions.end(), k_v.begin(), k_v.end());
      std::vector<ValueId> in{q, k_v[0], k_v[1]};
      in.insert(in.end(), before.begin(), before.end());
      in.insert(in.end(), {also.starts, turn == 0 ? also.sinks : ir::none, also.tokens, also.key});
      ir::Attributes part = attributes;
      part.set("turn", int64_t{turn});
      before = runner.append("attention_part", in, part);
    }
    mentions[0] = before[1];
    const ValueId o = runner.append("attention_finish", {before[0], also.starts, also.sinks, also.tokens, also.key},
                                    attributes, {}, ir::Phase::F, mentions)[0];
    const std::vector<Tensor> found =
        run(runner, o, share(s, w.d_o, r), std::vector<ValueId>(mentions.begin() + 1, mentions.end()));
    all.insert(all.end(), found.begin(), found.end());
    EXPECT_TRUE(close(share(s, w.o, r), found[0], tolerance)) << "o of rank " << r;
    EXPECT_TRUE(close(share(s, w.dq, r), found[1], tolerance)) << "dq of rank " << r;
    for (int turn = 0; turn < s.cp; ++turn) {
      const auto owner = static_cast<size_t>(owner_after(s, r, turn));
      add(dk[owner], found[static_cast<size_t>(2 + 2 * turn)]);
      add(dv[owner], found[static_cast<size_t>(3 + 2 * turn)]);
    }
    for (const std::string& ran : runner.ran) {
      if (ran.starts_with("attention_part")) {
        EXPECT_NE(ran.find(wanted), std::string::npos) << ran;
      }
    }
  }
  for (int r = 0; r < s.cp; ++r) {
    EXPECT_TRUE(close(share(s, w.dk, r), dk[static_cast<size_t>(r)], tolerance)) << "dk of rank " << r;
    EXPECT_TRUE(close(share(s, w.dv, r), dv[static_cast<size_t>(r)], tolerance)) << "dv of rank " << r;
  }
  return all;
}

}  // namespace heddle::op_runner::context
