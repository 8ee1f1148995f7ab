// libFuzzer: any bytes as a machine profile are either refused by a ConfigError of one line or give a profile that
// is written and read back.
#include <cstdlib>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/planner/profile_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  cost::MachineProfile profile;
  try {
    profile = heddle::planner::parse_profile({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    return 0;
  }
  const std::string text = heddle::planner::profile_text(profile);
  if (heddle::planner::profile_text(heddle::planner::parse_profile(text, "again")) != text) std::abort();
  return 0;
}
