#include "heddle/train/trainer_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <optional>

#include "heddle/ops/moment_byte.h"
#include "heddle/train/adapters/base.h"
#include "heddle/train/controllers/controllers.h"
#include "heddle/train/parameters.h"
#include "heddle/train/saved/read_state.h"
#include "heddle/train/saved/shard.h"
#include "heddle/train/step/numbers.h"

namespace heddle::train {

namespace {

// The state in a checkpoint: all but the frozen weights.
std::vector<StateTensor> kept_state(Trainer& trainer) {
  std::vector<StateTensor> state = trainer.state();
  std::erase_if(state, [](const StateTensor& tensor) { return tensor.is_frozen(); });
  return state;
}

std::vector<formats::TensorHeading> headings_of(const std::vector<StateTensor>& state) {
  std::vector<formats::TensorHeading> headings;
  for (const StateTensor& tensor : state) headings.push_back({tensor.name, tensor.dtype, tensor.shape});
  return headings;
}

}  // namespace

int64_t checkpoint_bytes(Trainer& trainer) {
  int64_t bytes = 0;
  for (const formats::TensorHeading& heading : headings_of(kept_state(trainer))) bytes += heading.size_bytes();
  return bytes;
}

CheckpointState state_of_trainer(CheckpointState state, Trainer& trainer) {
  state.step = trainer.steps_done();
  state.trained_s = trainer.done().seconds;
  state.model = trainer.options().model;
  state.adapters = adapters_note(trainer);
  state.controllers = trainer.controllers().states();
  return state;
}

namespace {

// The part of a tensor that this rank owns.
ShardPart part_of(const StateTensor& tensor, Trainer& trainer) {
  std::vector<model::Extent> extents = trainer.owned_extents(tensor);
  int64_t local = 0;
  for (model::Extent& e : extents) {  // packed: what others own is left out
    e.local = local;
    local += e.count;
  }
  return {tensor.name, tensor.dtype, runs_of(extents)};
}

std::string write_own_shard(const std::string& folder, Trainer& trainer, const std::vector<StateTensor>& tensors) {
  std::map<std::string_view, const StateTensor*> by_name;
  std::vector<ShardPart> parts;
  for (const StateTensor& tensor : tensors) {
    by_name[tensor.name] = &tensor;
    if (tensor.is_here()) parts.push_back(part_of(tensor, trainer));
  }
  return write_shard(folder, trainer.ranks().rank(), std::move(parts),
                     [&](const ShardPart& part, const auto& write) {
                       const StateTensor& tensor = *by_name.at(part.name);
                       const StateElements held(tensor);
                       const int64_t size = size_of(tensor.dtype);
                       for (const model::Extent& e : trainer.owned_extents(tensor)) {
                         write(static_cast<const std::byte*>(held.view().data) + e.local * size,
                               static_cast<size_t>(e.count * size));
                       }
                     });
}

// Moments of another type (train.moments) are converted as they are read.
void take_kept_type(const Checkpoint& checkpoint, formats::TensorHeading& heading) {
  const SavedTensor* saved = checkpoint.find(heading.name);
  if (saved == nullptr || !reads_from(saved->type, heading.name, heading.dtype)) return;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::u8}) {
    if (saved->type == formats::stored_type(dtype)) heading.dtype = dtype;
  }
}

}  // namespace

std::string save_trainer(const std::string& folder, CheckpointState state, Trainer& trainer, int keep) {
  RankExchange& ranks = trainer.ranks();
  trainer.controllers().agree(ranks);
  state = state_of_trainer(std::move(state), trainer);
  const std::vector<StateTensor> tensors = kept_state(trainer);
  if (ranks.size() == 1) {
    std::map<std::string_view, const StateTensor*> by_name;
    for (const StateTensor& tensor : tensors) by_name[tensor.name] = &tensor;
    return save_checkpoint(
        folder, state, headings_of(tensors),
        [&](const formats::TensorHeading& heading, const auto& write) {
          const StateElements held(*by_name.at(heading.name));
          write(held.view().data, static_cast<size_t>(heading.size_bytes()));
        },
        keep);
  }
  // Every rank writes beside the others; an error of any ends all, and the folder goes with rank 0's.
  std::optional<UnfinishedCheckpoint> unfinished;
  if (ranks.leads()) unfinished.emplace(folder, state.step);
  const std::string path = ranks.from_first_rank(unfinished ? unfinished->path() : "");
  std::string told;
  std::exception_ptr failure;
  try {
    told = write_own_shard(path, trainer, tensors);
    read_back_shard(path, told);
  } catch (...) {
    failure = std::current_exception();
  }
  if (ranks.any(failure != nullptr)) {
    // Nobody takes the folder away from under the others' writes, whose errors would hide the first.
    if (failure) std::rethrow_exception(failure);
    ranks.any(false);  // is ended by the rank that failed, with its reason
  }
  const std::vector<std::string> shards = ranks.share(told);
  return ranks.from_first_rank(ranks.leads() ? unfinished->commit(state, headings_of(tensors), shards, keep) : "");
}

void load_trainer(const Checkpoint& checkpoint, Trainer& trainer) {
  restore_base(checkpoint.state().adapters, checkpoint.path(), trainer);
  trainer.controllers().restore(checkpoint.state().controllers);
  const std::vector<StateTensor> tensors = kept_state(trainer);
  std::vector<formats::TensorHeading> headings = headings_of(tensors);
  for (formats::TensorHeading& heading : headings) take_kept_type(checkpoint, heading);
  checkpoint.check_fits(trainer.options().model, headings);
  for (const StateTensor& tensor : tensors) {
    if (!tensor.is_here()) continue;
    const StateElements held(tensor);
    const int64_t size = size_of(tensor.dtype);
    auto* to = static_cast<std::byte*>(held.view().data);
    // The end of the last run of a tensor that its ranks don't divide holds nothing.
    std::memset(to, 0, static_cast<size_t>(held.view().elements() * size));
    for (const model::Extent& run : trainer.held_extents(tensor)) {
      read_state(checkpoint, tensor, run.whole, run.count, to + run.local * size);
    }
    held.put();
  }
  fill_rope_table(trainer.options().model, trainer.lowered(), trainer.executor(), trainer.mesh(),
                  trainer.ranks().rank());
  trainer.weights_changed();
  trainer.set_done({checkpoint.state().step, checkpoint.state().trained_s});
}

namespace {

bool is_no_number(uint8_t moment) { return (moment & fp8::kNan) == fp8::kNan; }

}  // namespace

std::string not_finite_in(Trainer& trainer) {
  std::string own;
  for (const StateTensor& tensor : kept_state(trainer)) {
    if (!own.empty() || !tensor.is_here()) continue;
    const StateElements held(tensor);
    const auto* bytes = held.view().as<const uint8_t>();
    const bool finite = tensor.dtype == Dtype::u8
                            ? std::none_of(bytes, bytes + held.view().elements(), is_no_number)
                            : is_finite(held.view());
    if (!finite) own = tensor.name;
  }
  for (std::string& name : trainer.ranks().share(own)) {
    if (!name.empty()) return std::move(name);
  }
  return "";
}

}  // namespace heddle::train
