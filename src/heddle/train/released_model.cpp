#include "heddle/train/released_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/config/families/family.h"
#include "heddle/config/model_json.h"
#include "heddle/train/released_source.h"

namespace heddle::train {

namespace {

constexpr int64_t kMostTokenizerBytes = 1'000'000'000;
constexpr int64_t kChunkElements = 1 << 16;

std::string with_expert(std::string name, int64_t expert) {
  const size_t at = name.find("{}");
  HEDDLE_CHECK(at != std::string::npos, "'{}' has no place for the expert", name);
  return name.replace(at, 2, std::to_string(expert));
}

// Elements [first, first + count) of a tensor, piece by piece: body(bytes, elements).
void for_each_run(const formats::LogicalTensor& tensor, int64_t first, int64_t count,
                  const std::function<void(uint8_t*, int64_t)>& body) {
  const int64_t width = size_of(tensor.dtype);
  for (const std::span<uint8_t>& piece : tensor.pieces) {
    const int64_t elements = static_cast<int64_t>(piece.size()) / width;
    if (first < elements && count > 0) {
      const int64_t run = std::min(count, elements - first);
      body(piece.data() + first * width, run);
      first += run;
      count -= run;
    }
    first -= std::min(first, elements);
  }
  HEDDLE_CHECK(count == 0, "'{}' ends {} elements too early", tensor.name, count);
}

// Rows of queries, keys and values of each layer, in this order.
void join_rows(std::vector<ReleasedSlice>& slices) {
  constexpr std::array<std::string_view, 3> kLetters{"q_proj.", "k_proj.", "v_proj."};
  std::map<std::string, std::array<ReleasedSlice*, 3>> layers;
  for (ReleasedSlice& slice : slices) {
    const size_t dot = slice.name.rfind('.');
    for (size_t i = 0; i < kLetters.size() && dot != std::string::npos && slice.whole.empty(); ++i) {
      const std::string_view front = std::string_view(slice.name).substr(0, dot + 1);
      if (!front.ends_with(kLetters[i])) continue;
      layers[std::string(front.substr(0, front.size() - kLetters[i].size())) + slice.name.substr(dot)][i] = &slice;
    }
  }
  for (auto& [name, parts] : layers) {
    if (std::ranges::find(parts, nullptr) != parts.end()) continue;
    int64_t rows = 0;
    for (ReleasedSlice* part : parts) {
      part->joined.first = rows;
      rows += part->shape[0];
    }
    for (ReleasedSlice* part : parts) part->joined.rows = rows;
  }
}

}  // namespace

std::vector<ParameterTensor> master_tensors(const std::vector<StateTensor>& state) {
  std::vector<ParameterTensor> masters;
  for (const StateTensor& tensor : state) {
    HEDDLE_CHECK(!tensor.split, "the master of '{}' does not lie in one piece", tensor.name);
    if (tensor.is_master) masters.push_back({*tensor.parameter, formats::logical_tensor(tensor.name, tensor.view)});
  }
  return masters;
}

config::ReleasedPlace placed(config::ReleasedPlace place, const ReleasedSlice& slice) {
  if (slice.whole.empty()) return place;
  place.first = slice.first_row * (slice.shape.size() > 1 ? slice.columns() : 1);  // a number of a vector is a row
  const int64_t elements =
      std::accumulate(slice.whole.begin(), slice.whole.end(), int64_t{1}, std::multiplies<int64_t>());
  place.is_whole = elements == slice.count;
  place.shape = slice.whole;
  return place;
}

std::vector<ReleasedSlice> released_slices(const std::vector<ParameterTensor>& parameters) {
  std::vector<ReleasedSlice> slices;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const model::Parameter& p = parameters[i].parameter;
    const formats::LogicalTensor& tensor = parameters[i].tensor;
    const int64_t experts = std::max<int64_t>(1, p.experts);
    HEDDLE_CHECK(p.experts == 0 || (!tensor.shape.empty() && tensor.shape[0] == p.experts),
                 "'{}' is not all experts", p.name);
    std::vector<int64_t> shape(tensor.shape.begin() + (p.experts > 0 ? 1 : 0), tensor.shape.end());
    const int64_t rows = shape.empty() ? 1 : shape[0];
    const int64_t each = tensor.elements() / experts, row = rows == 0 ? 0 : each / rows;
    for (int64_t e = 0; e < experts; ++e) {
      for (const model::ReleasedPart& part : p.released) {
        HEDDLE_CHECK(part.row >= 0 && part.row + part.rows <= rows, "'{}' lies outside of '{}'", part.name, p.name);
        if (!shape.empty()) shape[0] = part.rows;
        slices.push_back({p.experts > 0 ? with_expert(part.name, e) : part.name,
                          i,
                          shape,
                          e * each + part.row * row,
                          part.rows * row,
                          p.experts,
                          part.first,
                          part.shape,
                          {}});
      }
    }
  }
  join_rows(slices);
  return slices;
}

plan::Lowered text_of_model(const model::ModelConfig& model, const passes::Adapters& adapters) {
  plan::Plan plan;
  plan.lora = adapters;
  plan.dtype = Dtype::bf16;
  plan.sequences = 1;
  plan.sequence_length = 16;
  return plan::lower(model, plan);
}

std::vector<ReleasedTensor> released_tensors(const config::Family& family,
                                             const std::vector<ReleasedSlice>& slices) {
  std::map<std::string, ReleasedTensor> tensors;
  std::set<std::string, std::less<>> names;
  for (const ReleasedSlice& slice : slices) names.insert(slice.name);
  for (const ReleasedSlice& slice : slices) {
    config::ReleasedPlace place =
        placed(config::place_in(family, slice.name, slice.shape, slice.experts, slice.joined), slice);
    if (family.spelt_beside != nullptr && place.is_whole)
      place.name = family.spelt_beside(slice.name, [&](std::string_view other) { return names.contains(other); });
    ReleasedTensor& tensor = tensors[place.name];
    tensor.name = place.name;
    tensor.shape = place.shape;
    tensor.parts.push_back({slice, std::move(place)});
  }
  std::vector<ReleasedTensor> all;
  for (auto& [name, tensor] : tensors) {
    std::sort(tensor.parts.begin(), tensor.parts.end(),
              [](const auto& a, const auto& b) { return a.place.first < b.place.first; });
    all.push_back(std::move(tensor));
  }
  return all;
}

std::vector<ParameterTensor> master_tensors(const plan::Lowered& lowered, const plan::Mesh& mesh) {
  std::vector<ParameterTensor> masters;
  for (const StateTensor& tensor : state_tensors(lowered, mesh)) {
    if (tensor.is_master) masters.push_back({*tensor.parameter, {tensor.name, tensor.dtype, tensor.shape, {}}});
  }
  return masters;
}

std::vector<ParameterTensor> masters_of_model(const model::ModelConfig& model, const passes::Adapters& adapters) {
  return master_tensors(text_of_model(model, adapters), plan::Mesh({}));
}

void import_released(const std::string& path, const std::vector<ParameterTensor>& parameters) {
  const ReleasedSource source(path, parameters);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const formats::LogicalTensor& into = parameters[i].tensor;
    int64_t done = 0;
    for_each_run(into, 0, into.elements(), [&](uint8_t* bytes, int64_t elements) {
      source.read(i, done, elements, into.dtype, bytes);
      done += elements;
    });
  }
}

namespace {

// A tensor of the folder to be.
struct Leaving {
  formats::TensorHeading heading;
  std::vector<ReleasedTensor::Part> parts;  // none: zeros
};

std::vector<Leaving> leaving(const model::ModelConfig& config, const std::vector<ParameterTensor>& parameters,
                             const std::vector<ReleasedSlice>& slices, Dtype stored) {
  const config::Family& family = config::family_of(config);
  const config::FurtherTensors further = family.further ? family.further(config) : config::FurtherTensors{};
  std::map<std::string, ReleasedTensor> tensors;
  for (ReleasedTensor& tensor : released_tensors(family, slices)) tensors.emplace(tensor.name, std::move(tensor));
  for (const auto& [name, original] : further.copies) tensors[name] = tensors.at(original);
  std::vector<Leaving> all;
  for (const auto& [name, tensor] : tensors) {
    const model::Parameter& p = parameters[tensor.parts[0].slice.parameter].parameter;
    const bool exact = p.balances || p.start == model::Parameter::Start::hashed_experts ||
                       (p.part == model::Parameter::Part::hyper_connection && !config.has_gated_streams());
    all.push_back({{name, exact ? Dtype::f32 : stored, tensor.shape}, tensor.parts});
  }
  for (const auto& [name, count] : further.zeros) all.push_back({{name, Dtype::f32, {count}}, {}});
  std::sort(all.begin(), all.end(),
            [](const Leaving& a, const Leaving& b) { return a.heading.name < b.heading.name; });
  return all;
}

// The tensors of each file: as many as fit, in the order of their names.
std::vector<std::vector<Leaving>> shards_of(std::vector<Leaving> all, int64_t most_bytes) {
  std::vector<std::vector<Leaving>> shards(1);
  int64_t bytes = 0;
  for (Leaving& each : all) {
    const int64_t size = each.heading.size_bytes();
    if (bytes + size > most_bytes && !shards.back().empty()) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += size;
    shards.back().push_back(std::move(each));
  }
  return shards;
}

// Elements of a parameter as `stored`, some at a time, in order: body(bytes, how many).
void for_each_stored(const formats::LogicalTensor& from, const ReleasedSlice& slice, Dtype stored,
                     const std::function<void(const uint8_t*, int64_t)>& body) {
  std::vector<uint8_t> chunk(static_cast<size_t>(kChunkElements) * 8);
  for_each_run(from, slice.first, slice.count, [&](uint8_t* bytes, int64_t elements) {
    const formats::StoredTensor run{slice.name,
                                    formats::stored_type(from.dtype),
                                    {elements},
                                    {bytes, static_cast<size_t>(elements * size_of(from.dtype))}};
    for (int64_t first = 0; first < elements; first += kChunkElements) {
      const int64_t count = std::min(kChunkElements, elements - first);
      run.read(first, count, stored, chunk.data());
      body(chunk.data(), count);
    }
  });
}

// Parts whose elements lie between one another: such a run is put together before it is written.
void write_run(formats::SafetensorsWriter& writer, std::span<const ReleasedTensor::Part> parts,
               const std::vector<ParameterTensor>& parameters, Dtype stored) {
  const int64_t width = size_of(stored);
  int64_t elements = 0, first = parts[0].place.first;
  for (const ReleasedTensor::Part& part : parts) elements += part.slice.count;
  std::vector<uint8_t> run(static_cast<size_t>(elements * width));
  for (const ReleasedTensor::Part& part : parts) {
    const ReleasedSlice& slice = part.slice;
    const config::ReleasedPlace& place = part.place;
    int64_t element = 0;
    for_each_stored(parameters[slice.parameter].tensor, slice, stored, [&](const uint8_t* bytes, int64_t count) {
      for (int64_t i = 0; i < count; ++i, ++element) {
        const int64_t to = place.at(element, slice.columns()) - first;
        HEDDLE_CHECK(to >= 0 && to < elements, "'{}' leaves its run of '{}'", slice.name, place.name);
        std::memcpy(run.data() + to * width, bytes + i * width, static_cast<size_t>(width));
      }
    });
  }
  writer.write(run.data(), run.size());
}

void write_tensor(formats::SafetensorsWriter& writer, const Leaving& tensor,
                  const std::vector<ParameterTensor>& parameters) {
  const Dtype stored = tensor.heading.dtype;
  const std::vector<ReleasedTensor::Part>& parts = tensor.parts;
  if (parts.empty()) {
    const std::vector<uint8_t> none(static_cast<size_t>(tensor.heading.size_bytes()));
    return writer.write(none.data(), none.size());
  }
  if (parts[0].place.is_whole) {
    const ReleasedSlice& slice = parts[0].slice;
    return for_each_stored(parameters[slice.parameter].tensor, slice, stored,
                           [&](const uint8_t* bytes, int64_t count) {
                             writer.write(bytes, static_cast<size_t>(count * size_of(stored)));
                           });
  }
  for (size_t from = 0, to = 0; from < parts.size(); from = to) {
    int64_t end = parts[from].place.first;
    for (; to < parts.size() && (to == from || parts[to].place.first < end); ++to) {
      const auto& [slice, place] = parts[to];
      end = std::max(end, place.at(slice.count - 1, slice.columns()) + 1);
    }
    write_run(writer, std::span(parts).subspan(from, to - from), parameters, stored);
  }
}

void write_shard(const std::string& path, const std::vector<Leaving>& shard,
                 const std::vector<ParameterTensor>& parameters) {
  std::vector<formats::TensorHeading> headings;
  std::map<std::string_view, const Leaving*> source;
  for (const Leaving& each : shard) {
    headings.push_back(each.heading);
    source[each.heading.name] = &each;
  }
  formats::sort_for_file(headings);
  formats::SafetensorsWriter writer(path, headings, {{"format", "pt"}});
  for (const formats::TensorHeading& heading : headings) write_tensor(writer, *source.at(heading.name), parameters);
  writer.commit();
}

}  // namespace

void export_released(const std::string& folder, const model::ModelConfig& config,
                     const std::vector<ParameterTensor>& parameters, const Release& how) {
  const Dtype stored = how.stored;
  HEDDLE_CHECK(stored == Dtype::f64 || stored == Dtype::f32 || stored == Dtype::bf16, "export as {}",
               name_of(stored));
  if (const std::string why = config::why_unpublished(config); !why.empty()) {
    config_error("{}: no published architecture is this model: {}", folder, why);
  }
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw SystemError(failed.value(), fmt::format("cannot create {}: {}", folder, failed.message()));
  const auto path = [&](const std::string& name) { return (std::filesystem::path(folder) / name).string(); };

  // config.json comes last: a folder with it is complete.
  const std::vector<ReleasedSlice> slices = released_slices(parameters);
  auto shards = shards_of(leaving(config, parameters, slices, stored), how.shard_bytes);
  nlohmann::ordered_json index{{"metadata", {{"total_size", 0}}}, {"weight_map", nlohmann::ordered_json::object()}};
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1
                                 ? std::string("model.safetensors")
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(path(name), shards[i], parameters);
    for (const Leaving& each : shards[i]) {
      index["weight_map"][each.heading.name] = name;
      total += each.heading.size_bytes();
    }
  }
  index["metadata"]["total_size"] = total;
  if (shards.size() > 1) write_file(path("model.safetensors.index.json"), index.dump(2) + "\n");
  nlohmann::ordered_json json = config::model_config_to_json(config);
  if (!how.tokenizer.empty()) {
    const std::string name = std::filesystem::path(how.tokenizer).filename().string();
    write_file(path(name), read_file(how.tokenizer, kMostTokenizerBytes));
  }
  for (const auto& [name, text] : how.files) write_file(path(name), text);
  for (const auto& [name, tokens] : how.special) {
    if (json.contains(name)) continue;  // a key of the model
    if (tokens.size() == 1) {
      json[name] = tokens[0];
    } else {
      json[name] = tokens;
    }
  }
  json["torch_dtype"] = stored == Dtype::bf16 ? "bfloat16" : stored == Dtype::f32 ? "float32" : "float64";
  json["use_cache"] = true;
  write_file(path("config.json"), json.dump(2) + "\n");
}

}  // namespace heddle::train
