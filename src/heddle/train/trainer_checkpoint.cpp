#include "heddle/train/trainer_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/train/adapters/base.h"

namespace heddle::train {

namespace {

constexpr int64_t kPartBytes = 16 << 20;

// Calls act(run) for what of `runs` lies in [first, last) of the whole. `next` is where the search goes on.
template <class Act>
void runs_between(const std::vector<model::Extent>& runs, int64_t first, int64_t last, size_t& next, Act act) {
  for (; next < runs.size() && runs[next].whole < last; ++next) {
    const model::Extent& run = runs[next];
    const int64_t from = std::max(run.whole, first), to = std::min(run.whole + run.count, last);
    act(model::Extent{run.local + from - run.whole, from, to - from});
    if (run.whole + run.count > last) return;  // goes on in the next part
  }
}

// What a checkpoint holds: all but the frozen weights.
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

void gather_tensor(Trainer& trainer, const StateTensor& tensor,
                   const std::function<void(const void* data, size_t size_bytes)>& write) {
  const int64_t size = size_of(tensor.dtype), elements = tensor.elements();
  RankExchange& ranks = trainer.ranks();
  std::optional<StateElements> held;
  if (tensor.is_here()) held.emplace(tensor);
  void* const here = held ? held->view().data : nullptr;
  if (ranks.size() == 1) return write(here, static_cast<size_t>(elements * size));
  // Rank 0 knows of every rank what it will send, the others of themselves.
  std::vector<std::vector<model::Extent>> runs(static_cast<size_t>(ranks.size()));
  std::vector<size_t> next(runs.size(), 0);
  for (int r = 0; r < ranks.size(); ++r) {
    if (!ranks.leads() && r != ranks.rank()) continue;
    runs[static_cast<size_t>(r)] = owned_extents(tensor, trainer.lowered(), trainer.mesh(), r);
  }
  const int64_t most = std::max<int64_t>(1, kPartBytes / size);
  std::vector<std::byte> part(ranks.leads() ? static_cast<size_t>(std::min(most, elements) * size) : 0);
  for (int64_t first = 0; first < elements; first += most) {
    const int64_t last = std::min(elements, first + most);
    std::vector<comm::Piece> sends, receives;
    int64_t found = 0;
    for (int r = 0; r < ranks.size(); ++r) {
      const auto at = static_cast<size_t>(r);
      runs_between(runs[at], first, last, next[at], [&](const model::Extent& run) {
        if (r == ranks.rank()) sends.push_back({0, run.local * size, run.count * size});
        if (ranks.leads()) receives.push_back({r, (run.whole - first) * size, run.count * size});
        found += run.count;
      });
    }
    HEDDLE_CHECK(!ranks.leads() || found == last - first, "'{}': {} of elements {} to {} have an owner",
                 tensor.name, found, first, last);
    ranks.communicator()->exchange(here, sends, part.data(), receives);
    if (ranks.leads()) write(part.data(), static_cast<size_t>((last - first) * size));
  }
}

std::string save_trainer(const std::string& folder, CheckpointState state, Trainer& trainer, int keep) {
  state.step = trainer.steps_done();
  state.trained_s = trainer.done().seconds;
  state.model = trainer.options().model;
  state.adapters = adapters_note(trainer);
  state.outliers = trainer.outliers();
  state.expert_history = trainer.expert_history();
  const std::vector<StateTensor> tensors = kept_state(trainer);
  std::map<std::string_view, const StateTensor*> by_name;
  for (const StateTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  std::vector<formats::TensorHeading> headings = headings_of(tensors);
  std::string path;
  if (trainer.ranks().leads()) {
    const TensorBytes bytes_of = [&](const formats::TensorHeading& heading, const auto& write) {
      gather_tensor(trainer, *by_name.at(heading.name), write);
    };
    path = save_checkpoint(folder, state, std::move(headings), bytes_of, keep);
  } else {
    formats::sort_for_file(headings);
    for (const formats::TensorHeading& heading : headings) gather_tensor(trainer, *by_name.at(heading.name), {});
  }
  return trainer.ranks().told_by_first(path);
}

void load_trainer(const Checkpoint& checkpoint, Trainer& trainer) {
  restore_base(checkpoint.state().adapters, checkpoint.path(), trainer);
  const std::vector<StateTensor> tensors = kept_state(trainer);
  checkpoint.check_fits(trainer.options().model, headings_of(tensors));
  for (const StateTensor& tensor : tensors) {
    if (!tensor.is_here()) continue;
    const StateElements held(tensor);
    const int64_t size = size_of(tensor.dtype);
    auto* to = static_cast<std::byte*>(held.view().data);
    const uint8_t* from = checkpoint.file().at(tensor.name).bytes.data();
    // The end of the last run of a tensor that its ranks don't divide holds nothing.
    std::memset(to, 0, static_cast<size_t>(held.view().elements() * size));
    for (const model::Extent& run : trainer.held_extents(tensor)) {
      std::memcpy(to + run.local * size, from + run.whole * size, static_cast<size_t>(run.count * size));
    }
    held.put();
  }
  fill_rope_table(trainer.options().model, trainer.lowered(), trainer.executor(), trainer.mesh(),
                  trainer.ranks().rank());
  trainer.weights_changed();
  trainer.set_outliers(checkpoint.state().outliers);
  trainer.set_expert_history(checkpoint.state().expert_history);
  trainer.set_done({checkpoint.state().step, checkpoint.state().trained_s});
}

}  // namespace heddle::train
