// A database of R's objects, of any bytes.
#include "heddle/data/corpus/r_strings.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  using namespace heddle;
  constexpr int64_t kMostBytes = 1 << 22;
  fuzz::accepts([&] {
    size_t bytes = 0;
    for (const std::string& text : data::r_texts({reinterpret_cast<const char*>(input), size}, "fuzz", kMostBytes))
      bytes += text.size();
    if (bytes > 2 * kMostBytes) std::abort();
  });
  return 0;
}
