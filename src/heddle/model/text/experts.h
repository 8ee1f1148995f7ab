// A mixture of experts: the router with its losses, the exchange of rows, routed and shared experts.
#pragma once

#include <functional>
#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// Copies of other ranks' experts that are there before the router has chosen; `none` where there are no such.
struct ReplicasAhead {
  ir::ValueId placement = ir::none,
              shares = ir::none;  // which there are, and how much of this rank's rows they take
  ir::ValueId expert_rows = ir::none, homes = ir::none;  // inputs that they follow from
  ir::ValueId gate_up = ir::none, down = ir::none;       // their weights
  ir::ValueId bias = ir::none;                           // of the first map, where experts have biases
};
/// To be written where the layer begins.
ReplicasAhead replicas_ahead(Writer& writer, const std::string& prefix);

/// Writes what a rank computes while rows are on their way to their experts; may be null.
using Meanwhile = std::function<void()>;

/// Updates the statistics of the load, of the sequence-wise auxiliary loss and of the z-loss of the writer's layer,
/// where it trains or evaluates. `stream_TH`: what x is the norm of, which model.expert_norms reads.
ir::ValueId experts(Writer& writer, ir::ValueId x_TH, ir::ValueId stream_TH, const std::string& prefix,
                    ReplicasAhead copies, const Meanwhile& meanwhile = nullptr);

}  // namespace heddle::model
