#include "heddle/train/step/numbers.h"

#include <cmath>

#include "heddle/base/error.h"

namespace heddle::train {

double number(const device::TensorView& view, int64_t i) {
  switch (view.dtype) {
    case Dtype::f64: return view.as<double>()[i];
    case Dtype::f32: return view.as<float>()[i];
    default: internal_error("a statistic in {}", name_of(view.dtype));
  }
}

bool is_finite(const device::TensorView& view) {
  for (int64_t i = 0; i < view.elements(); ++i) {
    switch (view.dtype) {
      case Dtype::f64:
        if (!std::isfinite(view.as<double>()[i])) return false;
        break;
      case Dtype::f32:
        if (!std::isfinite(view.as<float>()[i])) return false;
        break;
      case Dtype::bf16:
        if (!std::isfinite(static_cast<float>(view.as<bf16>()[i]))) return false;
        break;
      default: return true;
    }
  }
  return true;
}

}  // namespace heddle::train
