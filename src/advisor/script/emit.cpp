#include "advisor/script/emit.h"

#include "heddle/base/error.h"

namespace heddle::advisor {

std::vector<std::string> refusals_of(const Launch& launch, Dialect dialect) {
  // A reason that makes the job itself impossible comes first.
  if (const std::string reason = impossible(launch); !reason.empty()) return {reason};
  return script_refusals(launch, dialect);
}

std::string emit(const Launch& launch, Dialect dialect) {
  if (const std::vector<std::string> refusals = refusals_of(launch, dialect); !refusals.empty())
    config_error("{} can't run this: {}", target_of(dialect), refusals.front());
  return script_text(launch, dialect);
}

}  // namespace heddle::advisor
