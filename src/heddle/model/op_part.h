// The parts of a layer that passes choose ops by (passes/op_groups).
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle::model {

enum class OpPart : uint8_t {
  none,
  queries_keys,   // queries, keys and values out of what attention keeps of a token, with positions
  sequence_keys,  // the same of other ranks' tokens
  mlp,
  router,
  shared,
  expert_up,
  expert_down,
  head,
};

/// As it stands in ir::Op::part; "" for none.
std::string_view word_of(OpPart part);

}  // namespace heddle::model
