# Builds for aarch64 on another machine: Debian's cross compiler, libraries of the architecture arm64 beside the
# machine's own (tools/arm_packages.txt), and qemu to run what was built. `./dev test --arm` uses it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# A processor with all that qemu knows; HEDDLE_CPU_WITHOUT masks what others lack.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# pkg-config would find the machine's own libraries.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
