// The controllers of a trainer (train/controllers/controller.h), each a row of one table. Their order in the table
// is the order in which they are called, on every rank.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/train/controllers/controller.h"

namespace heddle::plan {
class Mesh;
struct Lowered;
}  // namespace heddle::plan
namespace heddle::runtime {
class Executor;
}  // namespace heddle::runtime

namespace heddle::train {

class Controllers;
class RankExchange;
class Snapshots;
struct CheckpointState;
struct TrainerOptions;

/// The parts that controllers are made of. All that it refers to outlives them.
struct ControllerContext {
  const TrainerOptions& options;
  const plan::Lowered& lowered;
  const plan::Mesh& mesh;
  std::vector<int> node_of;  // each rank's node; empty: one for all
  RankExchange& ranks;
  runtime::Executor& executor;
  std::unique_ptr<Snapshots> snapshots;                          // null: the plan has none
  std::function<CheckpointState(CheckpointState)> state_of_now;  // the state with what the trainer knows of it
  /// The controllers of this table: to be asked when a controller is called, not when it is made.
  const Controllers& others;
};

struct ControllerRow {
  std::string_view name;  // name of its state in checkpoints
  bool (*wanted)(const TrainerOptions& options);
  std::unique_ptr<Controller> (*make)(ControllerContext& context);
  /// ConfigError naming `place`, or nlohmann::json::exception, where a checkpoint of `of` can't have this state.
  /// Null: it has none.
  void (*check)(const nlohmann::json& state, const CheckpointState& of, const std::string& place) = nullptr;
};
std::span<const ControllerRow> controller_rows();

/// The state of each controller that remembers something, by its name, as JSON.
using ControllerStates = std::map<std::string, std::string>;

class Controllers {
 public:
  Controllers() = default;
  /// Makes the controllers of the table that the options want. `context.others` is this.
  void make(ControllerContext context);

  void before(const NextStep& step, device::Inputs& inputs);
  void ran(device::Inputs& inputs);
  void after(const Readings& step, observe::Figures& figures);

  ControllerStates states() const;
  /// Restores the named controllers; the others begin anew.
  void restore(const ControllerStates& states);
  /// Compares the states of all ranks, which call it together. InternalError, the same on all of them, naming the
  /// first that differs. Costs one number a rank where all agree.
  void agree(RankExchange& ranks) const;

  /// Null: the trainer has none of the kind.
  template <class T>
  T* find() const {
    for (const Held& held : held_) {
      if (T* found = dynamic_cast<T*>(held.controller.get())) return found;
    }
    return nullptr;
  }
  /// The controller of a kind that every trainer has.
  template <class T>
  T& get() const {
    T* found = find<T>();
    HEDDLE_CHECK(found != nullptr, "the trainer has no such controller");
    return *found;
  }

 private:
  struct Held {
    std::string_view name;
    std::unique_ptr<Controller> controller;
  };
  void stand();

  runtime::Executor* executor_ = nullptr;
  std::vector<Held> held_;
};

}  // namespace heddle::train
