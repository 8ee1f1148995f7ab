// The op with which a pass moves a value between the device and the host, beside another op.
#pragma once

#include <string_view>

#include "heddle/ops/ops.h"

namespace heddle::passes {

/// copy_out or copy_in of `value`, in phase, layer and chunk of `beside`; not yet in any list.
inline ir::Op copy_beside(std::string_view kind, ir::ValueId value, const ir::Op& beside) {
  ir::Op copy;
  copy.def = &ops::find(kind);
  copy.in = {value};
  copy.phase = beside.phase;
  copy.layer = beside.layer;
  copy.chunk = beside.chunk;
  return copy;
}

}  // namespace heddle::passes
