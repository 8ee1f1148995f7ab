// load: an input of the step becomes a value. shift_ids: token ids as this rank's part of the vocabulary has them.
#include <cstring>

#include "heddle/ir/axes.h"
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

void load(const KernelCall& call) {
  HEDDLE_CHECK(call.input != nullptr, "op '{}' runs without inputs", call.op->kind());
  const TensorView& value = call.out[0];
  std::memcpy(value.data, call.input, static_cast<size_t>(value.elements() * size_of(value.dtype)));
}

/// ids − first, where `first` starts this rank's part of the vocabulary; `outside` for ids of other parts.
void shift_ids(const KernelCall& call) {
  const auto size = static_cast<int32_t>(call.op->attributes.integer("size"));
  const auto outside = static_cast<int32_t>(call.op->attributes.integer("outside"));
  HEDDLE_CHECK(call.place != nullptr, "op '{}' runs without a place in the mesh", call.op->kind());
  const int32_t first = size * call.place->at(ir::Axis::tp);
  for (int64_t t = 0; t < call.in[0].elements(); ++t) {
    const int32_t id = call.in[0].as<const int32_t>()[t];
    const bool here = id >= first && id - first < size;
    call.out[0].as<int32_t>()[t] = id < 0 ? -1 : here ? id - first : outside;
  }
}

}  // namespace

std::vector<KernelEntry> load_kernels() { return {entry("load", load), entry("shift_ids", shift_ids)}; }

}  // namespace heddle::kernels::reference
