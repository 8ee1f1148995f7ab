// Heddle's own program of the step, run in fp64 with every value at hand. On one rank it is the reference. The
// ranks of a layout are threads here, and their sums are at hand before they are reduced.
//
// Text and passes are plain: no fusion, no recomputation, no weaving. So each value of the model's forward text is
// made by one op, under the name that the text gives it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "check/dump.h"
#include "heddle/plan/plan.h"

namespace heddle::check {

using Numbers = std::vector<double>;
/// Whole parameters by Heddle's names, which join some released tensors (gate and up; all experts).
using Weights = std::map<std::string, Numbers>;

/// The names of released tensors, and their elements in Heddle's parameters.
class ReleasedNames {
 public:
  explicit ReleasedNames(const model::ModelConfig& model);
  /// The parameters that the released tensors make. ConfigError for what is missing, unknown or of another shape.
  Weights joined(const std::map<std::string, std::pair<std::vector<int64_t>, Numbers>>& released,
                 const std::string& place) const;
  /// A released tensor's elements out of its parameters; nothing where a parameter is not there.
  Numbers parted(const std::string& name, const Weights& parameters) const;
  /// Dims of a released tensor; null: there is none of that name.
  const std::vector<int64_t>* dims(const std::string& name) const;
  std::vector<std::string> names() const;
  /// The parameters that a released tensor is of.
  std::vector<std::string> parameters_of(const std::string& name) const;

 private:
  struct Piece {
    std::string parameter;
    int64_t first = 0, count = 0, columns = 1;  // elements of the parameter
    std::vector<int64_t> at;                    // of each, its place in the released tensor
  };
  struct Tensor {
    std::vector<int64_t> dims;
    std::vector<Piece> pieces;
  };
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, int64_t> sizes_;  // of the parameters
};

/// The plan of the dump's layout as it is run here; `on_one_rank`: all of its microbatches on one, in their order.
plan::Plan plan_of(const Layout& layout, bool on_one_rank);

struct Captured {
  std::vector<int64_t> dims;
  Numbers values;
};
using AtMicrobatch = std::pair<std::string, int>;

/// A rank's values, after a step.
struct RankValues {
  std::map<AtMicrobatch, Captured> values;    // by name
  std::map<AtMicrobatch, Numbers> gradients;  // a parameter's, this rank's part, as a whole tensor: zeros elsewhere
  std::map<std::string, Numbers> statistics;
};

struct RunRequest {
  std::function<bool(std::string_view value)> wanted;  // values of activations to keep
  bool keeps_gradients = true;                         // of parameters, for each microbatch
  /// Each number that an op makes is off by up to so much of itself, drawn from the seed: a rounding.
  double noise = 0;
  double noise_of_losses = 0, noise_of_sums = 0;  // the same, of ops that make a loss, and of sums of gradients
  uint64_t seed = 0;
  /// Changes the text of a lowered program.
  std::function<void(plan::Lowered&)> edit;
  /// Called after each op of the forward pass with each value that it has written and `changed` names; it may
  /// change it.
  std::function<bool(std::string_view value)> changed;
  std::function<void(std::string_view value, int microbatch, const ir::Coordinates& at, Captured& out)> after;
};

/// Runs one step. ConfigError where Heddle does not run the model so.
std::vector<RankValues> run_program(const model::ModelConfig& model, const plan::Plan& plan, const Weights& weights,
                                    const train::Sequences& sequences, const RunRequest& request);

}  // namespace heddle::check
