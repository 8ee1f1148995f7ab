// The messages of ranks beside the data, and how an MPI error becomes an exception.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/comm/mpi/progress.h"

namespace heddle::comm::mpi {

struct Progress::ControlMessage {
  enum Kind : int32_t { ask, answer, introduce, abort };
  int32_t kind = ask;
  int32_t number = 0;  // introduce: of the channel; abort: the accused rank, or -1
  std::array<uint64_t, 2> hash{};
  int32_t input = 0;  // abort: whether the user's is to blame
  int32_t text_bytes = 0;
  char text[980];  // abort: the reason

  static constexpr size_t head_bytes =
      sizeof(kind) + sizeof(number) + sizeof(hash) + sizeof(input) + sizeof(text_bytes);
  int bytes() const { return static_cast<int>(head_bytes) + text_bytes; }
  void say(std::string_view words) {
    text_bytes = static_cast<int32_t>(std::min(words.size(), sizeof(text)));
    std::memcpy(text, words.data(), static_cast<size_t>(text_bytes));
  }
};

inline void must(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw SystemError(code, fmt::format("{}: {}", call, std::string_view(text, static_cast<size_t>(length))));
}

}  // namespace heddle::comm::mpi
