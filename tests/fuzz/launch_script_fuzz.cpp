// libFuzzer: any bytes as a launch script are either refused by a ConfigError of one line or give a launch; what of
// it a script can say is written and read back the same.
//
//   cmake --preset fuzz && ninja -C build-fuzz launch_script_fuzz
//   build-fuzz/launch_script_fuzz build-fuzz/launch_script_corpus -max_len=4000
#include <cstdlib>
#include <cstring>

#include "advisor/script/emit.h"
#include "advisor/script/launch_script.h"
#include "heddle/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::advisor;
  ScriptContext context;
  LaunchScript read;
  try {
    read = read_launch_script({reinterpret_cast<const char*>(data), size}, "script", context);
  } catch (const heddle::ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    return 0;
  }
  if (!refusals_of(read.launch, read.dialect).empty()) return 0;
  context.device = read.launch.job.device;
  context.imbalance = read.launch.job.imbalance;
  const LaunchScript again = read_launch_script(emit(read.launch, read.dialect), "again", context);
  if (normalized(again.launch) != normalized(read.launch)) std::abort();
  return 0;
}
