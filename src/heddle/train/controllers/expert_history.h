// The load of a run's experts, by which replicas of hot ones are chosen before a step begins. It has the rows of
// the last steps, each counting half as much as the one after it, and whether each layer's load is uneven enough to
// be worth replicas. Of a layout it knows only how many ranks share the experts. A run whose plan makes no use of
// it keeps what an earlier part of the run has learnt.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/train/controllers/controllers.h"
#include "heddle/train/step/expert_placements.h"
#include "heddle/train/step/result.h"

namespace heddle::train {

struct ExpertHistory {
  struct Layer {
    std::vector<double> rows_E;
    bool uneven = false;
    bool operator==(const Layer&) const = default;
  };
  std::map<int, Layer> layers;
  bool operator==(const ExpertHistory&) const = default;

  /// A layer becomes uneven where the fullest of the ranks that share its experts has more than kUneven of the
  /// mean. It becomes even again below kEven; between them it stays what it was.
  static constexpr double kUneven = 1.125, kEven = 1.03125;
  /// Learns the load of a step; steps come in their order.
  void learn(const std::vector<StepResult::Load>& loads, int64_t holders, const ExpertPlacements& placements = {});
  /// The rows of the uneven layers: the inputs `expert_rows.LAYER`.
  std::map<int, std::vector<double>> uneven_rows() const;
};

/// Keeps the history of a run, and hands it to programs that choose copies by it.
class ExpertLoads : public Controller {
 public:
  explicit ExpertLoads(const ControllerContext& context);
  static bool wanted(const TrainerOptions& options);
  static void check(const nlohmann::json& state, const CheckpointState& of, const std::string& place);

  void before(const NextStep& step, device::Inputs& inputs) override;
  void after(const Readings& step, observe::Figures& figures) override;
  nlohmann::json state() const override;
  void restore(const nlohmann::json& state) override;

  const ExpertHistory& history() const { return history_; }

 private:
  const Controllers& others_;
  const ir::StepProgram& program_;
  const bool recalls_, learns_;
  const int holders_;  // ranks that share the experts
  ExpertHistory history_;
};

}  // namespace heddle::train
