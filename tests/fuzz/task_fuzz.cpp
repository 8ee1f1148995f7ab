// Tasks of lm-evaluation-harness: lines of any text.
#include "heddle/session/eval/task.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  fuzz::accepts([&] {
    const session::Task task = session::parse_task({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const session::TaskItem& item : task.items) {
      if (item.choices.size() < 2 || item.gold >= item.choices.size()) std::abort();
    }
  });
  return 0;
}
