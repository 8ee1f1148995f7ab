// Stages read from texts with ops that exist for tests only, beside the real ones.
#pragma once

#include <string>
#include <string_view>

#include "heddle/ir/parse.h"
#include "heddle/ops/ops.h"

namespace heddle::test {

inline std::vector<ir::Value> like_first(const ir::Listing& listing, const ir::Op& op) {
  ir::Value value = listing.value(op.in[0]);
  value.name.clear();
  value.role = ir::Role::activation;
  value.part_of = ir::none;
  value.first_element = 0;
  value.stretches = 1;
  value.stretch_step = 0;
  return {value};
}
inline std::vector<ir::Value> nothing(const ir::Listing&, const ir::Op&) { return {}; }
inline ir::Cost no_cost(const ir::Listing&, const ir::Op&, const ir::RowCounts&) { return {}; }

/// Rows of ones, as many as it says.
inline const ir::OpDef source{.kind = "source",
                              .results = "x",
                              .attributes = "rows columns us?",
                              .infer =
                                  [](const ir::Listing&, const ir::Op& op) {
                                    ir::Value x;
                                    x.shape = {{op.attributes.integer("rows")}, {op.attributes.integer("columns")}};
                                    return std::vector{x};
                                  },
                              .cost = no_cost};
inline const ir::OpDef scaled{
    .kind = "scaled", .operands = "x", .results = "y", .attributes = "us?", .infer = like_first, .cost = no_cost};
/// What the host reads.
inline const ir::OpDef counted{.kind = "counted",
                               .operands = "x?",
                               .results = "n",
                               .attributes = "us?",
                               .stream = ir::StreamKind::copy_out,
                               .host_stall = true,
                               .infer =
                                   [](const ir::Listing&, const ir::Op&) {
                                     ir::Value n;
                                     n.dtype = Dtype::i32;
                                     n.shape = {{1}};
                                     n.role = ir::Role::metadata;
                                     return std::vector{n};
                                   },
                               .cost = no_cost};
inline const ir::OpDef joined{.kind = "joined",
                              .operands = "x",
                              .results = "y",
                              .attributes = "us?",
                              .stream = ir::StreamKind::comm,
                              .collective = true,
                              .infer = like_first,
                              .cost = no_cost};
/// A collective that leaves the same on all ranks.
inline const ir::OpDef agreed{.kind = "agreed",
                              .operands = "x",
                              .results = "y",
                              .attributes = "us?",
                              .stream = ir::StreamKind::comm,
                              .collective = true,
                              .alike = "y",
                              .infer = like_first,
                              .cost = no_cost};
/// Communicates while it computes.
inline const ir::OpDef fused_join{.kind = "fused_join",
                                  .operands = "x",
                                  .results = "y",
                                  .attributes = "us?",
                                  .collective = true,
                                  .infer = like_first,
                                  .cost = no_cost};
inline const ir::OpDef summed{
    .kind = "summed", .operands = "x", .updates = "sum", .attributes = "us?", .infer = nothing, .cost = no_cost};
inline const ir::OpDef adamw_like{
    .kind = "adamw_like", .operands = "m", .attributes = "us?", .infer = nothing, .cost = no_cost};

inline const ir::OpDef stepped{
    .kind = "stepped", .updates = "m", .attributes = "us?", .infer = nothing, .cost = no_cost};

inline const ir::OpDef& text_op(std::string_view kind) {
  for (const ir::OpDef* def :
       {&source, &scaled, &counted, &joined, &agreed, &fused_join, &summed, &adamw_like, &stepped}) {
    if (def->kind == kind) return *def;
  }
  return ops::find(kind);
}

inline ir::Listing text_listing(const std::string& text) { return ir::parse_listing(text, text_op); }

/// A table and the beginning of F: x is [8, 4], n is what the host has read.
inline const std::string kHead =
    "s\n  weight  w  f32[4, 4]\n  optimizer  m  f32[16]\ns, F\n  no layer\n    x = source {columns 4, rows 8}\n"
    "    n = counted  copy_out  stall\n";

/// With one blank for each run of blanks within a line.
inline std::string squeezed(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' && out.ends_with(' ')) continue;
    out += c;
  }
  std::string lines;
  for (size_t at = 0; at < out.size(); ++at) {
    if (out[at] == ' ' && at + 1 < out.size() && out[at + 1] == '\n') continue;
    lines += out[at];
  }
  return lines;
}

}  // namespace heddle::test
