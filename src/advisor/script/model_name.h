// Finds which published model a job trains: by its sizes, and where models share these, by what else a script says
// (the tokenizer's name, the base of its rotary positions).
#pragma once

#include <string>
#include <vector>

#include "advisor/script/launch_flags.h"

namespace heddle::advisor {

/// Evidence that tells models of equal sizes apart.
struct ModelEvidence {
  std::string names;       // the tokenizer's, data's and checkpoints' names, as they stand
  double rotary_base = 0;  // 0: not given
};
ModelEvidence evidence_of(const GivenFlags& flags);

struct NamedModel {
  std::string name;                 // "" when no published model has these sizes
  int64_t vocabulary = 0;           // its own
  std::vector<std::string> others;  // models of the same sizes but for their vocabulary
};

/// The model of the job's sizes; with a vocabulary of 0 the vocabulary doesn't count.
NamedModel name_of_shape(const Launch& launch, const ModelEvidence& evidence);

}  // namespace heddle::advisor
