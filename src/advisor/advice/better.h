// Finds a better plan than a given job that the same software could run. It searches the whole space, restricted to
// what the software can say.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "advisor/words.h"
#include "heddle/search/search.h"

namespace heddle::advisor {

using search::Answer;
using search::Query;
using search::Ranked;
using search::Restriction;

/// Narrows a search to what a target of `emit` can run, on the axes that aren't restricted already: schedules,
/// offload, recomputation and its choice by stage.
void restrict_to(std::string_view target, Restriction& space, Job& job);

struct Better {
  Ranked plan;
  Launch launch;
  std::vector<std::string> changes;  // "pp 8 → 4"
  double ratio = 1;                  // the exact step to the given job's
};

/// Returns the query beside a job: its model, devices, batch and routing, and the behaviour of its software.
/// Switches that cost nothing may change: sharded optimizer states, rows that cross to a node once, and the way of
/// context ranks. As the target, Heddle behaves as Heddle, in bf16, with what the job has chosen of it. ConfigError
/// for an unknown target.
Query query_beside(const Launch& given, std::string_view target, double memory_bytes,
                   const Behaviour& behaviour = {});

/// Part of the step that a better plan gains at least.
inline constexpr double kWorthwhile = 0.002;

/// A plan that was found, beside a job whose step takes so long.
Better better_of(const Launch& given, double given_step_s, Ranked plan);

struct BetterAnswer {
  std::optional<Better> best;  // none: nothing is faster by more than 0.2 % (or, for a job that does not fit, fits)
  double given_step_s = 0;     // exact, or by the closed forms where the job's schedule can't be made
  Answer answer;               // counts; its plans are moved from
};

/// Searches by the query beside the job. `memory_bytes`: memory of a device that a plan may use. ConfigError where
/// the job can't be, or the target is none.
BetterAnswer search_better(const Launch& given, std::string_view target, double memory_bytes,
                           const std::function<bool()>& stop = {}, const Behaviour& behaviour = {});

}  // namespace heddle::advisor
