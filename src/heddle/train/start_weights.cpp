#include "heddle/train/start_weights.h"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>

#include "heddle/base/error.h"
#include "heddle/config/model_json.h"
#include "heddle/formats/released_files.h"
#include "heddle/train/adapters/base.h"
#include "heddle/train/checkpoint.h"
#include "heddle/train/released_source.h"
#include "heddle/train/saved/read_state.h"

namespace heddle::train {

namespace {

namespace fs = std::filesystem;

/// Elements first … first + count − 1 of a tensor of the state.
using Read = std::function<void(const StateTensor& tensor, int64_t first, int64_t count, void* into)>;

void remember_base(const std::string& path, Trainer& trainer) {
  if (!trainer.options().is_adapted()) return;
  const std::string digest =
      trainer.ranks().from_first_rank(trainer.ranks().leads() ? digest_of_weights(path) : "");
  trainer.set_base({fs::absolute(path).lexically_normal().string(), digest});
}

// "" where `path` holds no checkpoint of ours.
std::string checkpoints_at(const std::string& path) {
  if (fs::exists(fs::path(path) / "state.json")) return path;
  const fs::path inside = fs::path(path) / "checkpoints";
  if (fs::is_directory(inside)) return inside.string();
  if (!fs::is_directory(path)) return "";
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.path().filename().string().starts_with("step-")) return path;
  }
  return "";
}

// If there are adapters, only frozen tensors begin from weights.
bool begins_so(const StateTensor& tensor, bool moments, const Trainer& trainer) {
  if (tensor.is_average()) return false;  // it is made of the masters, once these are there
  return trainer.options().is_adapted() ? tensor.is_frozen() : tensor.is_master || moments;
}

void fill(Trainer& trainer, const std::vector<StateTensor>& state, bool moments, const Read& read) {
  for (const StateTensor& tensor : state) {
    if (!tensor.is_here() || !begins_so(tensor, moments, trainer)) continue;
    const StateElements elements(tensor);
    auto* to = static_cast<std::byte*>(elements.view().data);
    for (const model::Extent& run : trainer.held_extents(tensor))
      read(tensor, run.whole, run.count, to + run.local * size_of(tensor.dtype));
    elements.put();
  }
  copy_averages(state, Average::begins_as_master);
  trainer.weights_changed();
}

std::vector<std::string> from_checkpoint(const std::string& path, bool moments, Trainer& trainer) {
  std::vector<std::string> notes;
  const Checkpoint from = open_checkpoint(path, &notes);
  for (std::string& refused : notes) refused = "passed over: " + refused;
  const std::vector<StateTensor> state = trainer.state();
  if (!from.state().adapters.empty())
    config_error("{}: it holds adapters alone; heddle convert --merge makes weights of them", from.path());
  for (const StateTensor& tensor : state) {
    if (!begins_so(tensor, moments, trainer)) continue;
    const SavedTensor& stored = from.at(tensor.name);
    if (stored.shape != tensor.shape)
      config_error("{}: tensor '{}' is [{}], [{}] is expected", from.path(), tensor.name,
                   fmt::join(stored.shape, ", "), fmt::join(tensor.shape, ", "));
  }
  for (std::string& difference : config::differences(from.state().model, trainer.options().model))
    notes.push_back(fmt::format("{}: {}", from.path(), difference));
  fill(trainer, state, moments, [&](const StateTensor& tensor, int64_t first, int64_t count, void* into) {
    read_state(from, tensor, first, count, into);
  });
  remember_base(from.path(), trainer);
  return notes;
}

std::vector<std::string> from_released(const std::string& path, Trainer& trainer) {
  std::vector<ParameterTensor> parameters = master_tensors(trainer.lowered(), trainer.mesh());
  if (trainer.options().is_adapted())
    std::erase_if(parameters, [](const ParameterTensor& each) { return !each.parameter.frozen; });
  const ReleasedSource from(path, parameters);
  std::vector<std::string> notes;
  const fs::path beside = (fs::is_directory(path) ? fs::path(path) : fs::path(path).parent_path()) / "config.json";
  if (fs::exists(beside)) {
    const model::ModelConfig found = config::read_huggingface_config(beside.string());
    for (std::string& difference : config::differences(found, trainer.options().model))
      notes.push_back(fmt::format("{}: {}", beside.string(), difference));
  }
  std::map<std::string_view, size_t> index;
  for (size_t i = 0; i < parameters.size(); ++i) index[parameters[i].tensor.name] = i;
  fill(trainer, trainer.state(), false, [&](const StateTensor& tensor, int64_t first, int64_t count, void* into) {
    from.read(index.at(tensor.name), first, count, tensor.dtype, into);
  });
  remember_base(path, trainer);
  return notes;
}

}  // namespace

void check_start(const std::string& path, config::StartMoments moments, const passes::Adapters& lora) {
  if (!fs::exists(path)) config_error("train.start: {}: nothing is there", path);
  const bool kept = moments == config::StartMoments::kept;
  if (kept && lora.rank > 0)
    config_error("train.start_moments is kept, but frozen weights have no moments (lora.rank {})", lora.rank);
  if (!checkpoints_at(path).empty()) return;
  if (kept) config_error("{}: a released model has no moments of an optimizer to keep", path);
  const formats::ReleasedFiles opened(path);
}

std::vector<std::string> start_from(const std::string& path, config::StartMoments moments, Trainer& trainer) {
  check_start(path, moments, trainer.options().plan.lora);
  const std::string checkpoints = checkpoints_at(path);
  const bool kept = moments == config::StartMoments::kept;
  return checkpoints.empty() ? from_released(path, trainer) : from_checkpoint(checkpoints, kept, trainer);
}

}  // namespace heddle::train
