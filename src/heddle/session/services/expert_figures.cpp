// The figures of experts: rows of each, how uneven they lie, and the effect of replicas, moves and a capacity.
#include <algorithm>

#include "heddle/observe/report.h"
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
    if (const model::Dispatcher& exchange = run_.config.plan.parallel.exchange;
        exchange.room_factor > 0 && exchange.second_round) {
      metrics.set(figures::kSecondRounds, result.second_rounds());
    }
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

  void report(observe::ReportData& data) override {
    const model::ModelConfig& model = run_.config.model;
    for (int64_t layer = 0; layer < model.num_hidden_layers + model.num_nextn_predict_layers; ++layer) {
      const bool predicts = layer >= model.num_hidden_layers;  // further tokens
      if (model.is_moe(layer))
        data.expert_layers.push_back(fmt::format("layer {}{}", layer, predicts ? " (predicts further)" : ""));
    }
    const int64_t dense = std::min(model.first_k_dense_replace, model.num_hidden_layers);
    if (dense <= 0 || model.interleaves()) return;
    data.expert_note =
        dense == 1 ? "layer 0 has no experts" : fmt::format("layers 0 to {} have no experts", dense - 1);
  }
};

}  // namespace

std::unique_ptr<Service> make_expert_figures(RunContext& run) { return std::make_unique<ExpertFigures>(run); }

}  // namespace heddle::session
