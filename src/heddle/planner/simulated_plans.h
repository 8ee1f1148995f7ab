// Heddle on accelerators that are only described: its layers lowered for a search, and the best plans' whole step
// programs counted and simulated.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heddle/runtime/step_prediction.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/search.h"

namespace heddle::planner {

/// Why Heddle can't train a job's model in its type and sequence; empty when it can.
std::vector<std::string> refusals_of_model(const search::Job& job);

/// Makes them for a job's model, type and sequence; null where Heddle can't train it.
std::unique_ptr<search::LoweredBlocks> lowered_blocks(const search::Job& job);

/// A step of Heddle's whole program of the launch on its device. `uncertainty`: of the experts' loads.
double simulated_step_s(const search::Launch& launch, const search::Behaviour& behaviour,
                        const runtime::Uncertainty& uncertainty = {});

/// Simulates the step programs of the answer's best `most` plans and puts those that Heddle can run first, in the
/// order of their simulated steps (Ranked::simulated_step_s).
void simulate_best(search::Answer& answer, const search::Behaviour& behaviour, int most);

/// True if the plan's program fits so many bytes of a device.
using Fits = std::function<bool(search::Ranked& plan, double memory_bytes)>;

/// Simulates the answer's first plan with each way of context parallelism that its search may choose from. The
/// shortest that fits takes its place; whether the first fits. Closed forms do not foresee the order of a whole
/// program: which end hides behind which backward, and who waits for whose memory.
bool simulate_ways(search::Answer& answer, const search::Query& query, const Fits& fits);

/// The best plans of Heddle's own, whoever asks for them: for a model on a cluster, or beside another trainer's
/// job. Those whose programs were counted and fit (fitting_plans), the best three simulated and in that order, the
/// first with its best way of context parallelism and counted in full. `search` runs a query; its jobs have
/// Heddle's blocks lowered. `simulating` is called before programs are simulated.
search::Answer heddle_plans(const search::Query& query,
                            const std::function<search::Answer(const search::Query&)>& search,
                            const std::function<void()>& simulating = {});

}  // namespace heddle::planner
