#include "heddle/train/adapters/peft_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/config/families/family.h"
#include "heddle/formats/json_text.h"
#include "heddle/formats/released_files.h"

namespace heddle::train {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using passes::kAdapterDown, passes::kAdapterUp;

constexpr std::string_view kWeight = ".weight";
constexpr const char *kPrefix = "base_model.model.", *kConfig = "adapter_config.json",
                     *kTensors = "adapter_model.safetensors";

// The module of a weight or an adapter: "a.q_proj" of "a.q_proj.weight" and of "a.q_proj.lora_A.weight"; "" where
// `name` does not end so.
std::string without(const std::string& name, std::string_view end) {
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : "";
}

// The name of an adapter's tensor in the file, where the model beneath calls its weights as `spelt` says.
std::string name_in_file(const std::string& name, const config::Family& family) {
  const std::string_view end = name.ends_with(kAdapterDown) ? kAdapterDown : kAdapterUp;
  const std::string published = config::name_in(family, without(name, end) + std::string(kWeight));
  return kPrefix + without(published, kWeight) + std::string(end);
}

// Modules that PEFT finds: by their last name where all modules of that name have adapters, else in full.
std::vector<std::string> target_modules(const config::Family& family,
                                        const std::vector<ParameterTensor>& parameters, int64_t layers) {
  std::set<std::string> adapted, frozen;
  for (const ReleasedSlice& slice : released_slices(parameters)) {
    const model::Parameter& p = parameters[slice.parameter].parameter;
    if (p.layer >= layers) continue;
    if (!p.frozen) {
      if (const std::string name = name_in_file(slice.name, family); name.ends_with(kAdapterDown))
        adapted.insert(without(name, kAdapterDown).substr(std::string_view(kPrefix).size()));
    } else if (slice.shape.size() > 1) {
      frozen.insert(without(config::name_in(family, slice.name), kWeight));
    }
  }
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  std::set<std::string> partly;
  for (const std::string& name : frozen) {
    if (!adapted.contains(name)) partly.insert(last(name));
  }
  std::set<std::string> targets;
  for (const std::string& name : adapted) targets.insert(partly.contains(last(name)) ? name : last(name));
  return {targets.begin(), targets.end()};
}

double number(const formats::LogicalTensor& tensor, int64_t at) {
  for (const std::span<uint8_t>& piece : tensor.pieces) {
    const int64_t elements = std::ssize(piece) / size_of(tensor.dtype);
    if (at < elements) {
      return tensor.dtype == Dtype::f64 ? reinterpret_cast<const double*>(piece.data())[at]
                                        : double{reinterpret_cast<const float*>(piece.data())[at]};
    }
    at -= elements;
  }
  internal_error("'{}' ends too early", tensor.name);
}

std::vector<float> numbers(const ParameterTensor& from, const ReleasedSlice& slice) {
  std::vector<float> all(static_cast<size_t>(slice.count));
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<float>(number(from.tensor, slice.first + static_cast<int64_t>(i)));
  return all;
}

// to[n, k] += s · Σ_r up[n, r] down[r, k], each sum in fp32.
template <class T>
void add_product(T* to, const std::vector<float>& up, const std::vector<float>& down, int64_t rank, float scale) {
  const int64_t rows = std::ssize(up) / rank, columns = std::ssize(down) / rank;
#pragma omp parallel for schedule(static) if (rows * columns > 4096)
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < columns; ++k) {
      float sum = 0;
      for (int64_t r = 0; r < rank; ++r)
        sum += up[static_cast<size_t>(n * rank + r)] * down[static_cast<size_t>(r * columns + k)];
      to[n * columns + k] = static_cast<T>(to[n * columns + k] + scale * sum);
    }
  }
}

}  // namespace

void export_adapters(const std::string& folder, const model::ModelConfig& model, const passes::Adapters& chosen,
                     const std::vector<ParameterTensor>& parameters, const std::string& base) {
  const config::Family& family = config::family_of(model);
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw SystemError(failed.value(), fmt::format("cannot create {}: {}", folder, failed.message()));
  const std::vector<ReleasedSlice> slices = released_slices(parameters);
  std::map<std::string, const ReleasedSlice*> by_name;
  std::vector<formats::TensorHeading> headings;
  for (const ReleasedSlice& slice : slices) {
    if (parameters[slice.parameter].parameter.frozen) continue;
    const std::string name = name_in_file(slice.name, family);
    by_name[name] = &slice;
    headings.push_back({name, Dtype::f32, slice.shape});
  }
  formats::sort_for_file(headings);
  formats::SafetensorsWriter writer((fs::path(folder) / kTensors).string(), headings, {{"format", "pt"}});
  for (const formats::TensorHeading& heading : headings) {
    const ReleasedSlice& slice = *by_name.at(heading.name);
    const std::vector<float> values = numbers(parameters[slice.parameter], slice);
    writer.write(values.data(), values.size() * sizeof(float));
  }
  writer.commit();
  const ordered_json config{{"peft_type", "LORA"},
                            {"task_type", "CAUSAL_LM"},
                            {"base_model_name_or_path", base},
                            {"r", chosen.rank},
                            {"lora_alpha", chosen.alpha},
                            {"lora_dropout", 0.0},
                            {"use_rslora", chosen.rank_stabilized},
                            {"bias", "none"},
                            {"fan_in_fan_out", false},
                            {"inference_mode", true},
                            {"target_modules", target_modules(family, parameters, model.num_hidden_layers)}};
  write_file((fs::path(folder) / kConfig).string(), config.dump(2) + "\n");
}

void merge_adapters(const passes::Adapters& chosen, const std::vector<ParameterTensor>& adapters,
                    const std::vector<ParameterTensor>& weights) {
  std::map<std::string, std::pair<std::vector<float>, std::vector<float>>> pairs;  // by module: B, A
  for (const ReleasedSlice& slice : released_slices(adapters)) {
    if (const std::string module = without(slice.name, kAdapterDown); !module.empty())
      pairs[module].second = numbers(adapters[slice.parameter], slice);
    if (const std::string module = without(slice.name, kAdapterUp); !module.empty())
      pairs[module].first = numbers(adapters[slice.parameter], slice);
  }
  const auto scale = static_cast<float>(chosen.scale());
  for (const ReleasedSlice& slice : released_slices(weights)) {
    const auto pair = pairs.find(without(slice.name, kWeight));
    if (pair == pairs.end()) continue;
    const formats::LogicalTensor& to = weights[slice.parameter].tensor;
    HEDDLE_CHECK(to.pieces.size() == 1, "'{}' does not lie in one piece", to.name);
    const auto& [up, down] = pair->second;
    uint8_t* bytes = to.pieces[0].data() + slice.first * size_of(to.dtype);
    if (to.dtype == Dtype::f64) {
      add_product(reinterpret_cast<double*>(bytes), up, down, chosen.rank, scale);
    } else {
      add_product(reinterpret_cast<float*>(bytes), up, down, chosen.rank, scale);
    }
    pairs.erase(pair);
  }
  HEDDLE_CHECK(pairs.empty(), "no weight is beside the adapters of '{}'", pairs.begin()->first);
}

namespace {

// ConfigError where the folder's adapters are of another kind than the run's.
void check_config(const std::string& path, const passes::Adapters& chosen) {
  constexpr int64_t kMostBytes = 16 << 20;
  const nlohmann::json config = formats::parse_json(read_file(path, kMostBytes), path, 16);
  if (!config.is_object()) config_error("{}: no object", path);
  const auto refuse = [&](const char* key, const std::string& accepted) {
    config_error("{}: '{}' is {}, accepted: {}", path, key, formats::shown(config.value(key, nlohmann::json())),
                 accepted);
  };
  const auto is = [&](const char* key, const nlohmann::json& wanted) {
    return config.value(key, nlohmann::json()) == wanted;
  };
  if (!is("peft_type", "LORA")) refuse("peft_type", "\"LORA\"");
  if (!is("r", chosen.rank)) refuse("r", fmt::format("lora.rank, {}", chosen.rank));
  if (!is("lora_alpha", chosen.alpha)) refuse("lora_alpha", fmt::format("lora.alpha, {}", chosen.alpha));
  if (config.value("use_rslora", nlohmann::json(false)) != nlohmann::json(chosen.rank_stabilized))
    refuse("use_rslora", fmt::format("lora.rslora, {}", chosen.rank_stabilized));
  if (config.value("bias", nlohmann::json("none")) != nlohmann::json("none")) refuse("bias", "\"none\"");
  for (const char* key : {"use_dora", "lora_bias", "fan_in_fan_out", "alora_invocation_tokens"}) {
    const nlohmann::json found = config.value(key, nlohmann::json());
    if (!found.is_null() && found != nlohmann::json(false)) refuse(key, "false");
  }
  for (const char* key : {"rank_pattern", "alpha_pattern", "modules_to_save", "target_parameters"}) {
    const nlohmann::json found = config.value(key, nlohmann::json());
    if (!found.is_null() && !found.empty()) refuse(key, "nothing");
  }
}

}  // namespace

void start_adapters_from(const std::string& folder, Trainer& trainer) {
  if (!trainer.is_adapted()) config_error("train.start_adapter: lora.rank is 0, so there are no adapters to begin");
  check_config((fs::path(folder) / kConfig).string(), trainer.options().plan.lora);
  const formats::ReleasedFiles files((fs::path(folder) / kTensors).string());
  std::vector<ParameterTensor> parameters = master_tensors(trainer.lowered());
  std::erase_if(parameters, [](const ParameterTensor& each) { return each.parameter.frozen; });
  std::map<std::string, std::vector<std::pair<ReleasedSlice, const formats::StoredTensor*>>> parts;
  std::set<std::string> used;
  for (const ReleasedSlice& slice : released_slices(parameters)) {
    const formats::StoredTensor* stored = nullptr;
    for (const config::Family& family : config::families()) {
      const std::string name = name_in_file(slice.name, family);
      stored = files.find(name);
      if (stored == nullptr) continue;
      used.insert(name);
      break;
    }
    if (stored == nullptr)
      config_error("{}: no tensor '{}{}': are lora.targets those of the adapter?", files.path(), kPrefix,
                   slice.name);
    if (stored->shape != slice.shape)
      config_error("{}: tensor '{}' is [{}], [{}] is expected", files.path(), stored->name,
                   fmt::join(stored->shape, ", "), fmt::join(slice.shape, ", "));
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
