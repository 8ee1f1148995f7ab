// Times of ops as a run leaves them (op_times.json), of any text: refused by one line, or a table whose rows can be
// shown.
#include "heddle/session/slow/read_op_times.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace heddle;
  fuzz::accepts([&] {
    const session::OpTimesTable table =
        session::read_op_times({reinterpret_cast<const char*>(bytes), size}, "fuzz");
    for (const session::OpTimesTable::Row& row : table.rows) {
      if (row.slowest_rank < 0) std::abort();
    }
  });
  return 0;
}
