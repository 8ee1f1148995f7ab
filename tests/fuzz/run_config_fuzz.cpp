// libFuzzer: any bytes as a run's configuration are either refused by a ConfigError of one line or give a
// configuration that, written out, is read back as the same. What follows a zero byte stands for --set arguments,
// one a line.
//
//   cmake --preset fuzz && ninja -C build-fuzz run_config_fuzz
//   build-fuzz/run_config_fuzz build-fuzz/run_config_corpus examples -max_len=4000
#include <cstdlib>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/config/run_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::string_view text = all.substr(0, all.find('\0'));
  std::vector<std::string> overrides;
  for (size_t at = text.size() + 1; at < size;) {
    const size_t end = std::min(all.find('\n', at), size);
    overrides.emplace_back(all.substr(at, end - at));
    at = end + 1;
  }
  if (all.find("hf") != std::string_view::npos) return 0;  // names a file to read; model_json_fuzz reads those
  heddle::config::RunConfig config;
  try {
    config = heddle::config::parse_run_config(text, "fuzz.toml", overrides);
  } catch (const heddle::ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    return 0;
  }
  if (!(heddle::config::parse_run_config(heddle::config::toml_of(config), "again.toml") == config)) std::abort();
  return 0;
}
