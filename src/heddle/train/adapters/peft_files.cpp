#include "heddle/train/adapters/peft_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/config/families/family.h"
#include "heddle/config/model_json.h"
#include "heddle/formats/json_text.h"
#include "heddle/passes/adapter_targets.h"
#include "heddle/passes/adapters.h"

namespace heddle::train {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using passes::kAdapterDown, passes::kAdapterUp;

constexpr std::string_view kWeight = ".weight";
constexpr const char *kPeftPrefix = "base_model.model.", *kConfig = "adapter_config.json",
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
  return kPeftPrefix + without(published, kWeight) + std::string(end);
}

// The reason why an adapter's weight is no module by itself in the family's folders; "": it is one.
std::string why_no_module(const ReleasedSlice& slice, const config::Family& family) {
  const std::string_view end = slice.name.ends_with(kAdapterDown) ? kAdapterDown : kAdapterUp;
  const std::string weight = without(slice.name, end) + std::string(kWeight);
  const config::ReleasedPlace place = config::place_in(family, weight, slice.shape, slice.experts);
  if (place.is_whole) return "";
  return fmt::format("the adapters of '{}' are of no module in files of {}, which hold its weight in '{}'",
                     without(weight, kWeight), family.architecture, place.name);
}

// The modules and parameters that PEFT adapts. Modules by their last name where all modules of that name have
// adapters, else in full. Since Transformers 5 joins the experts' modules into parameters, PEFT takes every module
// with the name of one of these for an expert's. It passes over those of dense layers and shared experts, but finds
// their weights if they are named as parameters. Files have the same tensors either way.
struct Targets {
  std::set<std::string> modules, parameters;
};
Targets targets_of(const config::Family& family, const std::vector<ParameterTensor>& parameters, int64_t layers) {
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  std::set<std::string> of_experts;  // last names
  for (const ReleasedSlice& slice : released_slices(parameters)) {
    const model::Parameter& p = parameters[slice.parameter].parameter;
    if (p.part == model::Parameter::Part::experts && slice.name.ends_with(kWeight) && p.frozen)
      of_experts.insert(last(without(config::name_in(family, slice.name), kWeight)));
  }
  std::set<std::string> adapted, frozen;
  Targets targets;
  for (const ReleasedSlice& slice : released_slices(parameters)) {
    const model::Parameter& p = parameters[slice.parameter].parameter;
    if (p.layer >= layers) continue;
    if (!p.frozen) {
      const std::string name = name_in_file(slice.name, family);
      if (!name.ends_with(kAdapterDown)) continue;
      const std::string module = without(name, kAdapterDown).substr(std::string_view(kPeftPrefix).size());
      if (p.part != model::Parameter::Part::experts && of_experts.contains(last(module))) {
        targets.parameters.insert(module + std::string(kWeight));
      }
      adapted.insert(module);
    } else if (slice.shape.size() > 1) {
      frozen.insert(without(config::name_in(family, slice.name), kWeight));
    }
  }
  std::set<std::string> partly;
  for (const std::string& name : frozen) {
    if (!adapted.contains(name)) partly.insert(last(name));
  }
  for (const std::string& name : adapted) {
    if (targets.parameters.contains(name + std::string(kWeight))) continue;
    targets.modules.insert(partly.contains(last(name)) ? name : last(name));
  }
  return targets;
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
      for (int64_t r = 0; r < rank; ++r) sum += up[n * rank + r] * down[r * columns + k];
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
    if (const std::string why = why_no_module(slice, family); !why.empty())
      config_error("{}: merge them into the weights (--merge), or leave them out of lora.targets", why);
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
  const Targets targets = targets_of(family, parameters, model.num_hidden_layers);
  ordered_json config{{"peft_type", "LORA"},
                      {"task_type", "CAUSAL_LM"},
                      {"base_model_name_or_path", base},
                      {"r", chosen.rank},
                      {"lora_alpha", chosen.alpha},
                      {"lora_dropout", 0.0},
                      {"use_rslora", chosen.rank_stabilized},
                      {"bias", "none"},
                      {"fan_in_fan_out", false},
                      {"inference_mode", true},
                      {"target_modules", targets.modules}};
  if (!targets.parameters.empty()) config["target_parameters"] = targets.parameters;
  write_file((fs::path(folder) / kConfig).string(), config.dump(2) + "\n");
}

std::string why_no_adapter_files(const model::ModelConfig& model, const passes::Adapters& chosen) {
  if (!config::why_unpublished(model).empty()) return "";  // no files at all
  const config::Family& family = config::family_of(model);
  if (family.stacked == nullptr) return "";
  const std::vector<ParameterTensor> parameters = masters_of_model(model, chosen);
  for (const ReleasedSlice& slice : released_slices(parameters)) {
    if (parameters[slice.parameter].parameter.frozen) continue;
    if (std::string why = why_no_module(slice, family); !why.empty()) return why;
  }
  return "";
}

void merge_adapters(const passes::Adapters& chosen, const std::vector<ParameterTensor>& adapters,
                    const std::vector<ParameterTensor>& weights) {
  std::map<std::string, std::pair<std::vector<float>, std::vector<float>>> pairs;  // B and A by module
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

nlohmann::json read_config(const std::string& path) {
  constexpr int64_t kMostBytes = 16 << 20;
  nlohmann::json config = formats::parse_json(read_file(path, kMostBytes), path, 16);
  if (!config.is_object()) config_error("{}: no object", path);
  return config;
}

// ConfigError where the folder's adapters are of another kind than the run's.
void check_config(const std::string& path, const passes::Adapters& chosen) {
  const nlohmann::json config = read_config(path);
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
  for (const char* key :
       {"use_dora", "lora_bias", "fan_in_fan_out", "alora_invocation_tokens", "use_qalora", "use_bdlora"}) {
    const nlohmann::json found = config.value(key, nlohmann::json());
    if (!found.is_null() && found != nlohmann::json(false)) refuse(key, "false");
  }
  for (const char* key : {"rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication",
                          "trainable_token_indices", "arrow_config"}) {
    const nlohmann::json found = config.value(key, nlohmann::json());
    if (!found.is_null() && !found.empty()) refuse(key, "nothing");
  }
}

}  // namespace

const formats::StoredTensor* find_adapter(const formats::ReleasedFiles& files, const std::string& name) {
  for (const config::Family& family : config::families()) {
    if (const formats::StoredTensor* stored = files.find(name_in_file(name, family)); stored != nullptr)
      return stored;
  }
  return nullptr;
}

void check_adapters(const std::string& folder, const passes::Adapters& chosen) {
  check_config((fs::path(folder) / kConfig).string(), chosen);
}

formats::ReleasedFiles adapter_tensors(const std::string& folder) {
  return formats::ReleasedFiles((fs::path(folder) / kTensors).string());
}

passes::Adapters adapters_in(const std::string& folder, const model::ModelConfig& model) {
  const std::string path = (fs::path(folder) / kConfig).string();
  const nlohmann::json config = read_config(path);
  const auto number = [&](const char* key, double least, double most) {
    const nlohmann::json found = config.value(key, nlohmann::json());
    const double value = found.is_number() ? found.get<double>() : -1;
    if (!(value >= least && value <= most))
      config_error("{}: '{}' is {}, accepted: a number from {} to {}", path, key, formats::shown(found), least,
                   most);
    return value;
  };
  passes::Adapters chosen;
  const double rank = number("r", 1, 65536);
  chosen.rank = static_cast<int64_t>(rank);
  chosen.alpha = number("lora_alpha", 0, 1e6);
  chosen.rank_stabilized = config.value("use_rslora", nlohmann::json(false)) == nlohmann::json(true);
  check_config(path, chosen);

  const formats::ReleasedFiles files = adapter_tensors(folder);
  const std::vector<ParameterTensor> parameters = masters_of_model(model);
  std::map<std::string, std::array<std::string, 2>> examples;  // weights by word: one without an adapter, one with
  for (const ReleasedSlice& slice : released_slices(parameters)) {
    const ParameterTensor& of = parameters[slice.parameter];
    const std::string stem = without(slice.name, kWeight);
    if (stem.empty()) continue;
    const std::string word =
        passes::word_of_module(of.parameter, of.tensor.shape.size(), slice.name, model.num_hidden_layers);
    if (word.empty()) continue;
    const bool adapted = find_adapter(files, stem + std::string(kAdapterDown)) != nullptr;
    examples[word][adapted ? 1 : 0] = stem;
  }
  std::vector<std::string> words;
  for (const auto& [word, example] : examples) {
    const auto& [bare, adapted] = example;
    if (adapted.empty()) continue;
    if (!bare.empty())
      config_error("{}: it has adapters of {} and none of {}, accepted: of all modules of a kind, or of none",
                   files.path(), adapted, bare);
    words.push_back(word);
  }
  if (words.empty())
    config_error("{}: it has adapters of no module of the model: is it of another model?", files.path());
  chosen.targets = fmt::format("{}", fmt::join(words, ", "));
  return chosen;
}

}  // namespace heddle::train
