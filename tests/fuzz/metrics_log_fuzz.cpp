// libFuzzer: any bytes as metrics.jsonl are either refused by a ConfigError of one line or give steps.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/observe/metrics_log.h"
#include "heddle/observe/runs/metrics_tail.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = fmt::format("/proc/self/fd/{}", file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    heddle::observe::read_metrics(path);
  } catch (const heddle::ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  heddle::observe::MetricsTail tail(path);
  tail.read();
  for (size_t i = 1; i < tail.steps().size(); ++i) {
    if (tail.steps()[i].step <= tail.steps()[i - 1].step) std::abort();
  }
  return 0;
}
