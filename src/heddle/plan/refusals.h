// Switches of a plan that don't go together, each pair a row.
#pragma once

#include "heddle/plan/choices.h"

namespace heddle::plan {

/// ConfigError that says what of the choices does not go with what, and why.
void refuse_what_does_not_go_together(const Choices& choices);

}  // namespace heddle::plan
