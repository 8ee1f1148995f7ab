// The op that a stream's own thread is running, for code that its kernel calls and that has to say on whose behalf.
#pragma once

#include <cstdint>

namespace heddle::device {

struct RunningOp {
  int32_t listing = -1;  // −1: none, the thread is no stream's or between two ops
  uint32_t index = 0;
};

inline thread_local RunningOp running_op;

}  // namespace heddle::device
