// The experts that the trainer's own routers chose, read from the logits of the dump.
//
// Where two experts' logits are as near as rounding, either choice is right, and what follows from it differs. A
// bound that allows both hides faults. So the reference takes the dump's choice where rounding can have made it.
// Logits on the wrong side of the choice are moved onto the line between the chosen and the others, which is less
// than their rounding.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "check/dump.h"
#include "check/modules.h"
#include "check/program_run.h"

namespace heddle::check {

/// Experts of a row in increasing order; none: not known.
using Chosen = std::vector<size_t>;
/// Each row's choice, by the name of the router's logits and the microbatch of the whole step.
using ChosenRows = std::map<AtMicrobatch, std::vector<Chosen>>;

bool is_router(const std::string& module);

/// The `count` experts of the largest logits. A row in which fp32 may not tell the last from the next has none.
Chosen largest(std::span<const double> logits, size_t count, bool surely);

/// The choices of the dump's forward pass. Nothing where more than softmax decides: a bias on the choice, or groups
/// of experts.
ChosenRows chosen_rows(const Dump& dump, const std::vector<Module>& modules);

/// How far the largest logit that is not chosen lies above the least that is; below zero, the row's choice is this.
double overlap(std::span<const double> logits, const Chosen& chosen);

/// Moves logits on the wrong side of the line between the chosen and the others onto it.
void choose(std::span<double> logits, const Chosen& chosen);

}  // namespace heddle::check
