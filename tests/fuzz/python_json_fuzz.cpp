// libFuzzer: any bytes as JSON of Python's are refused by a ConfigError of one line, or read; what other readers
// read too is the same, and the end of a value is where the reader finds it.
#include <nlohmann/json.hpp>

#include "heddle/formats/python_json.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace heddle;
  using Json = nlohmann::ordered_json;
  if (size > (1 << 16)) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  fuzz::accepts([&] {
    const Json read = formats::parse_python_json(text);
    // Its own numbers and surrogates alone are Python's; a dump knows neither.
    const Json strict = Json::parse(text, nullptr, false);
    if (!strict.is_discarded() && strict.dump() != read.dump()) std::abort();
    const size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    formats::JsonValueEnd end;
    const size_t found = end.find(text.substr(first), true);
    if (found == std::string_view::npos ||
        text.substr(first + found).find_first_not_of(" \t\r\n") != std::string_view::npos)
      std::abort();
  });
  fuzz::accepts([&] { formats::parse_python_json(text, {.most_depth = 8, .any_bytes = true}); });
  return 0;
}
