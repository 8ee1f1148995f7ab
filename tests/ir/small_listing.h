// Two linear maps after a norm, with a residual, on a handful of rows: a listing small enough to read.
#pragma once

#include "heddle/ir/listing.h"
#include "heddle/ops/ops.h"

namespace heddle::test {

inline ir::ValueId small_weight(ir::Listing& listing, const std::string& name, std::vector<int64_t> sizes,
                                Dtype dtype) {
  ir::Value value;
  value.name = name;
  value.dtype = dtype;
  value.role = ir::Role::weight;
  for (const int64_t size : sizes) value.shape.push_back({size, ir::none});
  return listing.add_value(std::move(value));
}

inline std::vector<ir::ValueId> apply(ir::Listing& listing, const std::string& kind, std::vector<ir::ValueId> in,
                                      const std::vector<std::string>& names, ir::Attributes attributes = {},
                                      int layer = -1) {
  ir::Op op;
  op.def = &ops::find(kind);
  op.in = std::move(in);
  op.attributes = std::move(attributes);
  op.layer = layer;
  return listing.append(std::move(op), names);
}

struct SmallListing {
  ir::Listing listing;
  ir::ValueId x, y, z, gain, w;
};

/// z = add(y, linear(y, w)), y = rms_norm(x, gain); w is read twice: y = linear(norm, w).
inline SmallListing small_listing() {
  SmallListing s;
  s.listing.name = "listing 0";
  s.x = apply(
      s.listing, "receive", {}, {"x"},
      {{"step", int64_t{-1}}, {"dtype", std::string("bf16")}, {"rows", int64_t{6}}, {"columns", int64_t{4}}})[0];
  s.listing.ops.back().group = "pp";
  s.gain = small_weight(s.listing, "norm.weight", {4}, Dtype::f32);
  s.w = small_weight(s.listing, "map.weight", {4, 4}, Dtype::bf16);
  const ir::ValueId n = apply(s.listing, "rms_norm", {s.x, s.gain}, {"normed", "rstd"}, {{"epsilon", 1e-6}}, 0)[0];
  s.y = apply(s.listing, "linear", {n, s.w}, {"y"}, {}, 0)[0];
  const ir::ValueId u = apply(s.listing, "linear", {s.y, s.w}, {"u"}, {}, 1)[0];
  s.z = apply(s.listing, "add", {s.y, u}, {"z"}, {}, 1)[0];
  return s;
}

}  // namespace heddle::test
