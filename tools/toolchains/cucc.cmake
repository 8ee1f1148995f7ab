# A build for MetaX's devices, by the compiler of CUDA's source in MXMACA (cu-bridge):
#   cmake --toolchain tools/toolchains/cucc.cmake -B build-metax
# MACA_PATH of the environment names MXMACA's folder.
set(HEDDLE_VENDOR metax CACHE STRING "")
set(maca /opt/maca)
if(DEFINED ENV{MACA_PATH})
  set(maca $ENV{MACA_PATH})
endif()
set(bridge ${maca}/tools/cu-bridge)
find_program(HEDDLE_KERNEL_COMPILER cucc HINTS ${bridge}/bin NO_DEFAULT_PATH)
find_library(HEDDLE_DEVICE_RUNTIME mcruntime HINTS ${maca}/lib NO_DEFAULT_PATH)
find_library(HEDDLE_BRIDGE_LIBRARY runtime_cu HINTS ${maca}/lib ${bridge}/lib NO_DEFAULT_PATH)

# Its options are nvcc's. It takes a capability for the device's own architecture.
set(HEDDLE_KERNEL_OPTIONS -x cu -O3 -Xcompiler=-fPIC -fmad=false --expt-relaxed-constexpr -gencode=arch=compute_80,code=sm_80)
set(HEDDLE_DEVICE_HEADERS ${bridge}/include ${maca}/include)
set(HEDDLE_DEVICE_DEFINITIONS)
set(HEDDLE_DEVICE_OPTIONS)
set(HEDDLE_MESSAGE_HEADERS ${bridge}/include)
set(HEDDLE_PRODUCT_HEADERS ${bridge}/include)
