// libFuzzer: any bytes as a schedule's text are either refused by a ConfigError of one line or give a schedule that
// is written and read back the same; the validator refuses or proves it without harm.
//
//   cmake --preset fuzz && ninja -C build-fuzz schedule_text_fuzz
//   build-fuzz/schedule_text_fuzz build-fuzz/schedule_text_corpus -max_len=2000
#include <cstdlib>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/schedule/text.h"
#include "heddle/schedule/timing.h"
#include "heddle/schedule/validate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::schedule;
  Schedule read;
  try {
    read = read_schedule({reinterpret_cast<const char*>(data), size});
  } catch (const heddle::ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    return 0;
  }
  if (read_schedule(text_of(read)) != read) std::abort();
  try {
    const Certificate certificate = validate(read);
    const Timing timing = timing_of(read, even_times(read.placement));
    if (certificate.peaks.size() != read.order.size() || timing.makespan < timing.work) std::abort();
  } catch (const heddle::ConfigError&) {
  }
  return 0;
}
