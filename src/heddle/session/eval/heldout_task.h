// A task out of a run's own held-out text: which of four continuations is a text's own; the others are those of
// texts beside it. It needs nothing but what the run was prepared from.
#pragma once

#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/session/eval/task.h"

namespace heddle::session {

struct RunData;

/// Up to `most` items, 0: as many as the held-out text gives. ConfigError where it gives none.
Task heldout_task(const RunData& data, const data::Tokenizer& tokenizer, int64_t most);

}  // namespace heddle::session
