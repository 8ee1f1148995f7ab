// The placement of experts, and its changes as a step ends (docs/features/expert_migration.md).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/train/controllers/controllers.h"
#include "heddle/train/step/expert_moves.h"

namespace heddle::train {

class ExpertMigration : public Controller {
 public:
  explicit ExpertMigration(const ControllerContext& context);
  static bool wanted(const TrainerOptions& options);
  static void check(const nlohmann::json& state, const CheckpointState& of, const std::string& place);

  void stand(device::Inputs& standing) const override;
  void before(const NextStep& step, device::Inputs& inputs) override;
  bool ran(device::Inputs& inputs) override;
  void after(const Readings& step, observe::Figures& figures) override;
  nlohmann::json state() const override;
  /// To be called before a load writes tensors: their elements go to where the experts live. Every expert is at the
  /// home of its number where the state is of another number of ranks than share the experts here. That holds
  /// beside frozen weights too, which a load makes anew.
  void restore(const nlohmann::json& state) override;

  const ExpertPlacements& placements() const { return placements_; }
  /// The placement in the last step.
  const ExpertPlacements& last_placements() const { return last_placements_; }

 private:
  const Controllers& others_;
  const int holders_;  // ranks that share the experts
  const bool stays_;   // true beside frozen weights
  const ExpertMoves chooser_;
  ExpertPlacements placements_, last_placements_;
  std::map<int, std::vector<int32_t>> next_;  // placement of layers whose experts move in the step that runs
  std::optional<MoveFigures> moves_;          // figures of the step that runs; none where it evaluates no move
};

/// The placement of experts now, and in the last step: that of their numbers where none ever move. It holds until
/// the next step.
const ExpertPlacements& placements_in(const Controllers& controllers);
const ExpertPlacements& last_placements_in(const Controllers& controllers);

}  // namespace heddle::train
