#include "heddle/train/adapters/start_adapters.h"

#include <algorithm>
#include <map>
#include <set>

#include "heddle/base/error.h"
#include "heddle/train/adapters/peft_files.h"

namespace heddle::train {

void check_start_adapters(const std::string& folder, const passes::Adapters& lora) {
  if (lora.rank == 0) config_error("train.start_adapter: lora.rank is 0, so there are no adapters to begin");
  check_adapters(folder, lora);
  (void)adapter_tensors(folder);
}

void start_adapters_from(const std::string& folder, Trainer& trainer) {
  check_start_adapters(folder, trainer.options().plan.lora);
  const formats::ReleasedFiles files = adapter_tensors(folder);
  std::vector<ParameterTensor> parameters = master_tensors(trainer.lowered(), trainer.mesh());
  std::erase_if(parameters, [](const ParameterTensor& each) { return each.parameter.frozen; });
  std::map<std::string, std::vector<std::pair<ReleasedSlice, const formats::StoredTensor*>>> parts;
  std::set<std::string> used;
  for (const ReleasedSlice& slice : released_slices(parameters)) {
    const formats::StoredTensor* stored = find_adapter(files, slice.name);
    if (stored == nullptr)
      config_error("{}: no tensor of '{}': are lora.targets those of the adapter?", files.path(), slice.name);
    if (stored->shape != slice.shape)
      config_error("{}: tensor '{}' is [{}], [{}] is expected", files.path(), stored->name,
                   fmt::join(stored->shape, ", "), fmt::join(slice.shape, ", "));
    used.insert(stored->name);
    parts[parameters[slice.parameter].tensor.name].emplace_back(slice, stored);
  }
  for (const auto& [name, stored] : files.tensors()) {
    if (!used.contains(name))
      config_error("{}: tensor '{}' belongs nowhere: are lora.targets those of the adapter?", files.path(),
                   formats::printable(name));
  }
  for (const StateTensor& tensor : trainer.state()) {
    if (!tensor.is_here() || !tensor.is_master || tensor.is_frozen()) continue;
    const StateElements elements(tensor);
    auto* to = static_cast<std::byte*>(elements.view().data);
    for (const model::Extent& run : trainer.held_extents(tensor)) {
      for (const auto& [slice, stored] : parts.at(tensor.name)) {
        const int64_t from = std::max(run.whole, slice.first);
        const int64_t end = std::min(run.whole + run.count, slice.first + slice.count);
        if (from >= end) continue;
        stored->read(from - slice.first, end - from, tensor.dtype,
                     to + (run.local + from - run.whole) * size_of(tensor.dtype));
      }
    }
    elements.put();
  }
  copy_averages(trainer.state(), Average::begins_as_master);
  trainer.weights_changed();
}

}  // namespace heddle::train
