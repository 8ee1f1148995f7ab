// In the place of CUDA's own.
#pragma once
#include "heddle/device/hip/names.h"
