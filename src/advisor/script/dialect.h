// The trainers whose launch scripts are read and written.
#pragma once

#include <cstdint>

namespace heddle::advisor {

/// The trainer in whose words a launch script is written.
enum class Dialect : uint8_t { megatron, mindspeed };
constexpr const char* name_of(Dialect dialect) {
  return dialect == Dialect::megatron ? "Megatron-LM" : "MindSpeed";
}

/// Returns the name that `--emit` takes.
constexpr const char* target_of(Dialect dialect) { return dialect == Dialect::megatron ? "megatron" : "mindspeed"; }

}  // namespace heddle::advisor
