// CUDA's runtime by the names of its functions, for code that looks them up as in a shared library.
#pragma once

#include <string_view>

namespace heddle::kernels::cuda {

/// The function of the runtime that is linked into this program; null where the table lacks the name. The table has
/// every function that the headers of cuDNN's frontend look up. A test and not a run finds a new release that needs
/// more (cudnn_test reads the names out of these headers).
void* runtime_function(std::string_view name);

}  // namespace heddle::kernels::cuda
