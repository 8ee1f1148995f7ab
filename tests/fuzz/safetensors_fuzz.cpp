// libFuzzer: any bytes as a safetensors file are either refused by a ConfigError of one line or give tensors that
// fill the file, without a byte outside of it being read.
//
//   cmake --preset fuzz && ninja -C build-fuzz safetensors_fuzz
//   build-fuzz/safetensors_fuzz build-fuzz/safetensors_corpus tests/fixtures/grouped -max_len=4000
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "heddle/formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = fmt::format("/proc/self/fd/{}", file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    const heddle::formats::SafetensorsFile opened(path);
    size_t sum = opened.header().size();
    std::vector<double> values;
    for (const heddle::formats::StoredTensor& tensor : opened.tensors()) {
      sum += tensor.bytes.size();
      values.resize(static_cast<size_t>(tensor.elements()));
      try {
        tensor.read(0, tensor.elements(), heddle::Dtype::f64, values.data());
      } catch (const heddle::ConfigError&) {  // whole numbers
      }
      if (opened.find(tensor.name) != &tensor) std::abort();
    }
    if (sum != size) std::abort();
  } catch (const heddle::ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return 0;
}
