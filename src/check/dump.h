// A dump: one training step of any trainer on its ranks, as a folder (docs/howto/check.md has the format).
//
// The folder comes from outside and is hostile: sizes are bounded and checked before they are used, and what is
// wrong is one ConfigError that names file and tensor.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "check/slice.h"
#include "heddle/base/words.h"
#include "heddle/formats/safetensors.h"
#include "heddle/ir/axes.h"
#include "heddle/model/model_config.h"
#include "heddle/plan/mesh.h"
#include "heddle/train/step/sequences.h"

namespace heddle::check {

/// The part of a step that a tensor is of, in the order of the step.
enum class Stage : uint8_t { forward, backward, local_gradient, gradient, norm, weight };
constexpr auto words_of(Stage) {
  return std::to_array<Word<Stage>>({{Stage::forward, "forward"},
                                     {Stage::backward, "backward"},
                                     {Stage::local_gradient, "local_gradient"},
                                     {Stage::gradient, "gradient"},
                                     {Stage::norm, "norm"},
                                     {Stage::weight, "weight"}});
}

/// The way in which losses of tokens become the step's.
enum class LossMean : uint8_t {
  tokens,        // over all labels of the step
  microbatches,  // over those of a microbatch, then over microbatches and dp ranks
};
constexpr auto words_of(LossMean) {
  return std::to_array<Word<LossMean>>({{LossMean::tokens, "tokens"}, {LossMean::microbatches, "microbatches"}});
}

/// AdamW's first step from moments of zero; matrices decay, vectors do not.
struct Adamw {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, clip_norm = 0;  // 0: not clipped
};

struct Layout {
  std::string trainer;
  model::ModelConfig model;
  std::vector<std::string> warnings;  // about the model's description
  plan::Degrees mesh;
  bool sequence_parallel = false;
  Dtype dtype = Dtype::f32;  // of activations
  Dtype sums = Dtype::f32;   // of sums of gradients
  int microbatches = 1;      // of a dp rank
  int64_t sequences = 1;     // of a microbatch
  int64_t sequence_length = 0;
  LossMean loss = LossMean::tokens;
  std::optional<Adamw> optimizer;
};

/// One tensor of one rank.
struct Record {
  Stage stage = Stage::forward;
  std::string name;     // of a module or a released tensor
  int microbatch = -1;  // of the dp rank; −1: of the step
  int rank = 0;
  Slice slice;
  std::vector<ir::Axis> sum_over;  // axes over which parts are still to be added
  double scale = 1;                // the tensor is so many times the true one
  std::string group;               // the trainer's name of it
  std::vector<double> values;      // true ones: divided by `scale`

  std::string text() const;  // "gradient of model.norm.weight"
};

struct RankDump {
  ir::Coordinates at;
  std::vector<Record> records;
};

struct Dump {
  std::string path;
  Layout layout;
  std::vector<RankDump> ranks;
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<double>>> start;  // weights by released name
  train::Sequences sequences;  // of the step, as Heddle orders them
};

/// Reads and checks a folder. ConfigError.
Dump read_dump(const std::string& path);
/// Reads the model of a layout (check/subject.h).
using ReadModel = std::function<model::ModelConfig(const nlohmann::json& model, const std::string& place,
                                                   int64_t sequence_length, std::vector<std::string>& warnings)>;
/// layout.json alone, out of a text; `place` begins every message.
Layout read_layout(std::string_view text, const std::string& place, const ReadModel& read_model);
/// index.json alone: the records have no values yet, and the name of each one's tensor is in `tensors`.
RankDump read_index(std::string_view text, const std::string& place, const Layout& layout, int rank,
                    std::vector<std::string>& tensors);

/// The ranks of the layout's mesh, in an order of its folds in which every rank of the dump stands where the mesh
/// has it. ConfigError where no order is the dump's.
std::vector<int> order_ranks(Dump& dump);

}  // namespace heddle::check
