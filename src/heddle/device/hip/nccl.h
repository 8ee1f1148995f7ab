// RCCL has the names of NCCL.
#pragma once
#include <rccl/rccl.h>
