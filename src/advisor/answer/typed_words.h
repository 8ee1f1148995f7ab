// The words that make a trainer run a plan, and those that change from one plan to another.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "advisor/answer/plan_answer.h"
#include "advisor/script/launch_script.h"

namespace heddle::advisor {

/// The flags of Megatron-LM or MindSpeed that say how the launch runs ("--micro-batch-size 2"), or Heddle's
/// settings
/// ("train.microbatch=2"); the model's own are left out. `refusal` where the target can't run it.
TypedWords typed_words(const Launch& launch, std::string_view target);

/// Words to add and to remove.
struct WordChanges {
  std::vector<std::string> add, remove;
};
/// From one launch to another, for the target. `script`: the flags as it spells them; null: as they would be
/// written.
WordChanges word_changes(const Launch& from, const Launch& to, std::string_view target,
                         const LaunchScript* script = nullptr);

}  // namespace heddle::advisor
