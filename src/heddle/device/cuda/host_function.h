// Work of the host in the order of a stream.
#pragma once

#include <cuda_runtime_api.h>

namespace heddle::device {

/// Calls `run(with)` on a thread of the host once what stands before it on the stream has ended. What is put behind
/// it begins once it has returned. It calls no CUDA and throws nothing. Each stream has a thread of its own. For
/// the driver runs the host functions of all streams of a context on one thread, where a sum over gigabytes would
/// hold up what other streams wait for. SystemError where the driver refuses.
void call_on_host(cudaStream_t stream, void (*run)(void*), void* with);

}  // namespace heddle::device
