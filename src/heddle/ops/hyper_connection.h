// Bounds of hyper-connections, which kernels keep room for (ops/hyper_connection.cpp).
#pragma once

namespace heddle::ops {

constexpr int kMostStreams = 8, kMostStreamIterations = 64;

}  // namespace heddle::ops
