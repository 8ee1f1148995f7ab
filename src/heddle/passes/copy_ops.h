// The op with which a pass moves a value between the device and the host, or drops it, beside another op.
#pragma once

#include <string_view>

#include "heddle/ops/ops.h"

namespace heddle::passes {

/// copy_out, copy_in or drop of `value`, in phase, layer and chunk of `beside`; not yet in any list.
inline ir::Op op_beside(std::string_view kind, ir::ValueId value, const ir::Op& beside) {
  return {
      .def = &ops::find(kind), .in = {value}, .phase = beside.phase, .layer = beside.layer, .chunk = beside.chunk};
}

}  // namespace heddle::passes
