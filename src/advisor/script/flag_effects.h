// Effects of flags of another trainer that no row of the table of flags reads. A flag changes nothing that is
// reported here, the time and memory of a step, or the values that the model computes. Or it changes the sizes or
// the kind of the model. A flag that is on no list may change the model.
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle::advisor {

enum class FlagEffect : uint8_t {
  none,         // data, rates, logs, checkpoints: neither time nor memory of a step as they are estimated
  pace,         // time or memory, which no estimate counts yet
  values,       // results of the model, not its work: the figures hold, another trainer needs the flag
  sizes,        // parameters or work of the model, which are not described
  other_model,  // a model of another kind: its figures would mean nothing
  unknown       // on no list
};

/// Effect of a flag with dashes, such as "--lr-decay-style".
FlagEffect effect_of(std::string_view flag);

}  // namespace heddle::advisor
