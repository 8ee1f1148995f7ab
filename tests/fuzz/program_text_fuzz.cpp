// libFuzzer: any bytes as a program's text are either refused by a ConfigError of one line or give stages that are
// printed and read back the same; the verifier refuses or takes them without harm.
//
//   cmake --preset fuzz && ninja -C build-fuzz program_text_fuzz
//   build-fuzz/program_text_fuzz build-fuzz/program_text_corpus -max_len=4000
#include <cstdlib>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/ir/parse.h"
#include "heddle/ir/print.h"
#include "heddle/ir/verify/verify.h"
#include "heddle/ops/ops.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  std::vector<ir::Listing> stages;
  try {
    stages = ir::parse_listings({reinterpret_cast<const char*>(data), size}, ops::find);
  } catch (const ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    return 0;
  }
  for (const ir::Listing& listing : stages) {
    const std::string text = ir::text_of(listing);
    if (ir::text_of(ir::parse_listing(text, ops::find)) != text) std::abort();
    try {
      ir::verify(listing);
    } catch (const InternalError&) {
    }
  }
  return 0;
}
