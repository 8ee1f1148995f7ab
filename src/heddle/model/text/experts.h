// A mixture of experts: the router with its losses, the exchange of rows, routed and shared experts.
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// Updates the statistics of the load, of the sequence-wise auxiliary loss and of the z-loss of the writer's layer,
/// where it trains or evaluates.
ir::ValueId experts(Writer& writer, ir::ValueId x_TH, const std::string& prefix);

}  // namespace heddle::model
