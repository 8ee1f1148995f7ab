// The places of a walk's values, and what it knows of those who use them.
#pragma once

#include <vector>

#include "heddle/ir/walk/repeats.h"
#include "heddle/ir/walk/walk.h"

namespace heddle::ir {

struct Walk::Slot {
  struct Segment {
    Marks written{};  // the ops that wrote it
    Marks read{};     // the ops that read it since
  };
  int64_t offset = -1;  // -1: not there
  int64_t bytes = 0;
  int32_t uses_left = 0;  // 0: none has come yet, or all have
  Segment whole;
  std::vector<Segment> segments;  // instead, where its parts cut it

  bool in_use() const { return offset >= 0 || uses_left > 0; }
};

// A microbatch's values. Few of them are there at one time, and few of a step's microbatches are under way at once.
// A slot is large, so it goes to the next value that needs one. Once none of a frame is in use, its places go to
// the next frame of the listing. What rows were counted stays known.
struct Walk::Frame : RowCounts {
  int64_t rows(ValueId value) const override { return rows_of[value]; }
  std::vector<int32_t> places;   // by value: its slot, or -1
  std::vector<int64_t> rows_of;  // by counting value
  int in_use = 0;                // slots
};

// A step's actions that repeat, and the state in which the walk was after some of them.
struct Walk::Cycle {
  RepeatedActions actions;
  WalkState saved;
  size_t saved_at = 0;  // periods
};

}  // namespace heddle::ir
