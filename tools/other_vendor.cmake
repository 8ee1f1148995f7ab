# The parts of a build for devices of another vendor than NVIDIA, from what its toolchain file sets (tools/toolchains).
# Kernels are compiled with warps of 64 lanes and without PTX, each file by the vendor's compiler of its own: CMake's
# languages CUDA and HIP know neither cucc nor a ROCm of Debian's packages.
if(CMAKE_TOOLCHAIN_FILE)
  include(${CMAKE_TOOLCHAIN_FILE})  # again: where libraries lie is known once the host's compiler is
endif()
if(HEDDLE_SANITIZE OR HEDDLE_CUDA STREQUAL "OFF")
  message(FATAL_ERROR "HEDDLE_VENDOR is ${HEDDLE_VENDOR}: leave HEDDLE_CUDA and HEDDLE_SANITIZE as they are")
endif()
foreach(name HEDDLE_KERNEL_COMPILER HEDDLE_DEVICE_RUNTIME HEDDLE_DEVICE_HEADERS)
  if(NOT ${name})
    message(FATAL_ERROR "${name} is not set or not found, HEDDLE_VENDOR is ${HEDDLE_VENDOR}: give --toolchain "
                        "tools/toolchains/hipcc.cmake (amd) or tools/toolchains/cucc.cmake (metax), and the folder of "
                        "ROCm or MXMACA as ROCM_PATH or MACA_PATH")
  endif()
endforeach()
set(HEDDLE_HAS_CUDA ON)
set(HEDDLE_CUDA_ARCHITECTURES "")
set(CUDA_HEADERS ${HEDDLE_DEVICE_HEADERS})
set(CUDART_LIBRARY ${HEDDLE_DEVICE_RUNTIME})
if(HEDDLE_BRIDGE_LIBRARY)
  list(APPEND CUDART_LIBRARY ${HEDDLE_BRIDGE_LIBRARY})
endif()
set(NCCL_HEADERS ${HEDDLE_MESSAGE_HEADERS})
set(CUBLASLT_HEADERS ${HEDDLE_PRODUCT_HEADERS})
set(CUDNN_HEADERS "")
set(CUDNN_FRONTEND_HEADERS "")
set(CUTLASS_HEADERS "")
message(STATUS "Devices: ${HEDDLE_VENDOR}, kernels by ${HEDDLE_KERNEL_COMPILER}, runtime ${CUDART_LIBRARY}")

# Sets `out` to an object file of each source.
function(heddle_kernel_objects out)
  set(folder ${CMAKE_SOURCE_DIR}/src/heddle)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${folder}/kernels/cuda/*.h ${folder}/device/hip/*.h)
  set(objects)
  foreach(source IN LISTS ARGN)
    file(RELATIVE_PATH name ${folder} ${source})
    set(object ${CMAKE_BINARY_DIR}/kernels/${name}.o)
    get_filename_component(place ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${place})
    add_custom_command(OUTPUT ${object} DEPENDS ${source} ${headers} VERBATIM COMMENT "Compiling ${name} for ${HEDDLE_VENDOR}"
                       COMMAND ${HEDDLE_KERNEL_COMPILER} ${HEDDLE_KERNEL_OPTIONS} -std=c++17 -DHEDDLE_WARP=64
                               -DHEDDLE_PLAIN_TILES -I${CMAKE_SOURCE_DIR}/src -c ${source} -o ${object})
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
