// Switches of a plan that don't go together, each pair a row.
#pragma once

#include <string>
#include <vector>

#include "heddle/plan/choices.h"

namespace heddle::plan {

/// The reason why a plan can't be: the key that it is reported at, and a sentence that says what was found and what
/// goes with it.
struct Refusal {
  std::string key, message;
};

/// Refusals of the choices alone, in the order of the rows.
std::vector<Refusal> refusals_of(const Choices& choices);

}  // namespace heddle::plan
