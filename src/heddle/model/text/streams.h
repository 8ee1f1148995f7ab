// Hyper-connections: the residual as several streams, side by side in one row (ops/hyper_connection.cpp). A model
// without them has one, to which blocks are plainly added.
#pragma once

#include <string>
#include <vector>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// The residual of embedded tokens: each stream begins as they are.
ir::ValueId begin_streams(Writer& writer, ir::ValueId x_TH);
/// The streams of a row, each by itself, and a row of them; `name` is in the names of values.
std::vector<ir::ValueId> streams_of(Writer& writer, ir::ValueId x, const std::string& name);
ir::ValueId join_streams(Writer& writer, const std::vector<ir::ValueId>& streams, const std::string& name);

/// The row that a block reads, and the weights by which it writes; these are none without streams.
struct BlockInput {
  ir::ValueId x_TH = ir::none, weights = ir::none;
};
/// `name` is in the names of values, and behind the layer's `prefix` in those of parameters.
BlockInput read_streams(Writer& writer, ir::ValueId x, const std::string& prefix, const std::string& name);
/// The residual behind a block that has made a.
ir::ValueId write_streams(Writer& writer, ir::ValueId x, ir::ValueId a_TH, const BlockInput& read,
                          const std::string& sum);
/// The row that the head reads. `prefix` stands before the names of its parameters, "model." or a layer's.
ir::ValueId end_streams(Writer& writer, ir::ValueId x, const std::string& prefix, const std::string& name);

}  // namespace heddle::model
