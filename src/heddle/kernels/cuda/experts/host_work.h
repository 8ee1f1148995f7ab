// Work of the host in the order of a stream. Defined where launch.h's functions are.
#pragma once

#include "heddle/device/row_work.h"

namespace heddle::kernels::cuda {

/// Runs work of the host as RowWork::on_host.
void on_host(device::HostWork work, void* stream);

}  // namespace heddle::kernels::cuda
