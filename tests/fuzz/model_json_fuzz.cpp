// libFuzzer: any bytes as a model's config.json, a released one or one of our checkpoints, are either refused by a
// ConfigError of one line or give a model that is valid; ours, written out, is read back as the same.
//
//   cmake --preset fuzz && ninja -C build-fuzz model_json_fuzz
//   build-fuzz/model_json_fuzz build-fuzz/model_json_corpus tests/fixtures/yarn -max_len=4000
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/config/model_json.h"
#include "heddle/config/run_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = fmt::format("/proc/self/fd/{}", file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  for (const bool released : {true, false}) {
    try {
      std::vector<std::string> warnings;
      const heddle::model::ModelConfig config = released ? heddle::config::read_huggingface_config(path, &warnings)
                                                         : heddle::config::read_model_config(path);
      for (const std::string& warning : warnings) {
        if (warning.find('\n') != std::string::npos) std::abort();
      }
      heddle::model::validate(config);
      if (!(heddle::config::model_config_from_json(heddle::config::model_config_to_json(config), "again") ==
            config))
        std::abort();
    } catch (const heddle::ConfigError& error) {
      if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    }
  }
  return 0;
}
