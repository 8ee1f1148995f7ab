# A build for AMD's devices, by ROCm's hipcc:
#   cmake --toolchain tools/toolchains/hipcc.cmake -B build-amd
# ROCM_PATH of the environment names ROCm's folder. HEDDLE_HIP_ARCHITECTURES names other devices.
set(HEDDLE_VENDOR amd CACHE STRING "")
set(HEDDLE_HIP_ARCHITECTURES "gfx90a;gfx942" CACHE STRING "AMD's devices that kernels are compiled for, with warps of 64 lanes")
find_program(HEDDLE_KERNEL_COMPILER hipcc HINTS $ENV{ROCM_PATH}/bin /opt/rocm/bin)
find_library(HEDDLE_DEVICE_RUNTIME amdhip64 HINTS $ENV{ROCM_PATH}/lib /opt/rocm/lib)
find_path(HEDDLE_PLATFORM_HEADERS hip/hip_runtime_api.h HINTS $ENV{ROCM_PATH}/include /opt/rocm/include)
find_path(HEDDLE_RCCL_HEADERS rccl/rccl.h HINTS $ENV{ROCM_PATH}/include /opt/rocm/include)

set(hip_names ${CMAKE_CURRENT_LIST_DIR}/../../src/heddle/device/hip)
set(HEDDLE_KERNEL_OPTIONS -x hip -O3 -fPIC -ffp-contract=off -include ${hip_names}/names.h -I${hip_names})
foreach(architecture IN LISTS HEDDLE_HIP_ARCHITECTURES)
  list(APPEND HEDDLE_KERNEL_OPTIONS --offload-arch=${architecture})
endforeach()
set(HEDDLE_DEVICE_HEADERS ${hip_names} ${HEDDLE_PLATFORM_HEADERS})
set(HEDDLE_DEVICE_DEFINITIONS __HIP_PLATFORM_AMD__)
# HIP's functions are nodiscard, CUDA's are not.
set(HEDDLE_DEVICE_OPTIONS -Wno-unused-result)
if(HEDDLE_RCCL_HEADERS)
  set(HEDDLE_MESSAGE_HEADERS ${HEDDLE_RCCL_HEADERS})
endif()
