// Rows of a product on their way out through shared memory.
#pragma once

namespace heddle::kernels::cuda {

/// 64 columns in bf16, each row 16 bytes further on in the banks than the one before.
constexpr int kStorePitch = 64 + 8;

}  // namespace heddle::kernels::cuda
