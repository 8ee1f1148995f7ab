// What the host works out in the order of a stream. Defined where launch.h's functions are.
#pragma once

#include "heddle/device/row_work.h"

namespace heddle::kernels::cuda {

/// As RowWork::on_host.
void on_host(device::HostWork work, void* stream);

}  // namespace heddle::kernels::cuda
