// What would be better than a given job that the same software could run: the whole space searched, restricted to
// what the software can say.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/search/search.h"

namespace heddle::search {

/// Narrows a search to what a target of `emit` can run, on the axes that aren't restricted already: schedules,
/// offload, recomputation and its choice by stage.
void restrict_to(std::string_view target, Restriction& space, Job& job);

struct Better {
  Ranked plan;
  Launch launch;
  std::vector<std::string> changes;  // "pp 8 → 4"
  double ratio = 1;                  // of the exact step to the given job's
};

/// What to search for beside a job: its model, devices, batch and routing, and what its software does, but for
/// switches that cost nothing: sharded optimizer states, and rows that cross to a node once. Heddle as the target
/// does as Heddle does, with what the job has chosen of it. ConfigError for an unknown target.
Query query_beside(const Launch& given, std::string_view target, double memory_bytes,
                   const Behaviour& behaviour = {});

/// A plan that was found, beside a job whose step takes so long.
Better better_of(const Launch& given, double given_step_s, Ranked plan);

struct BetterAnswer {
  std::optional<Better> best;  // none: nothing is faster by more than 0.2 % (or, for a job that does not fit, fits)
  double given_step_s = 0;     // exact, or by the closed forms where the job's schedule can't be made
  Answer answer;               // counts; its plans are moved from
};

/// By the query beside the job. `memory_bytes`: of a device, that a plan may use. ConfigError where the job can't
/// be, or the target is none.
BetterAnswer search_better(const Launch& given, std::string_view target, double memory_bytes,
                           const std::function<bool()>& stop = {}, const Behaviour& behaviour = {});

}  // namespace heddle::search
