// The figures of experts: rows of each, how uneven they lie, and the effect of replicas, moves and a capacity.
#include "heddle/session/ranks/layer_replicas.h"
#include "heddle/session/ranks/rank_rows.h"
#include "heddle/session/services/services.h"
#include "heddle/train/controllers/expert_migration.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

namespace {

namespace figures = observe::figures;

class ExpertFigures final : public Service {
 public:
  using Service::Service;

  void after(StepRecord& record) override {
    const train::StepResult& result = record.result;
    observe::StepMetrics& metrics = record.metrics;
    const train::ExpertPlacements& placements = train::last_placements_in(run_.trainer->controllers());
    const std::vector<train::StepResult::Load> loads = result.loads();
    if (!loads.empty()) metrics.set(figures::kImbalance, result.imbalance());
    for (const auto& [layer, share] : result.dropped())
      metrics.set(figures::kDroppedShare, fmt::format("{}", layer), share);
    if (const auto fullest = run_.config.plan.parallel.exchange.replica_slots() > 0
                                 ? fullest_rank(result, placements, run_.trainer->mesh())
                                 : std::optional<FullestRank>()) {
      metrics.set(figures::kFullestRouted, fullest->routed);
      metrics.set(figures::kFullestWithReplicas, fullest->computed);
    }
    metrics.layers = layer_replicas(result, placements, run_.trainer->lowered(), run_.trainer->mesh());
    add_layers(metrics, figures::kCopies);
    metrics.layers.resize(loads.size());
    for (size_t i = 0; i < loads.size(); ++i)
      metrics.layers[i].set_list(figures::kExpertLoads, {loads[i].rows_E.begin(), loads[i].rows_E.end()});
  }
};

}  // namespace

std::unique_ptr<Service> make_expert_figures(RunContext& run) { return std::make_unique<ExpertFigures>(run); }

}  // namespace heddle::session
