#include "heddle/train/released_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/config/families/family.h"
#include "heddle/config/model_json.h"
#include "heddle/formats/released_files.h"

namespace heddle::train {

namespace {

constexpr int64_t kMostTokenizerBytes = 1'000'000'000;
constexpr int64_t kChunkElements = 1 << 16;
constexpr std::string_view kHead = "lm_head.weight";

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

void list_some(std::string& text, const char* what, const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  if (names.empty()) return;
  if (!text.empty()) text += "; ";
  text +=
      fmt::format("{} {}: {}", names.size(), what,
                  fmt::join(names.begin(), names.begin() + static_cast<long>(std::min(kMost, names.size())), ", "));
  if (names.size() > kMost) text += ", …";
}

}  // namespace

std::vector<ParameterTensor> master_tensors(const std::vector<StateTensor>& state) {
  std::vector<ParameterTensor> masters;
  for (const StateTensor& tensor : state) {
    if (tensor.is_master) masters.push_back({*tensor.parameter, formats::logical_tensor(tensor.name, tensor.view)});
  }
  return masters;
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
        slices.push_back({p.experts > 0 ? with_expert(part.name, e) : part.name, i, shape,
                          e * each + part.row * row, part.rows * row});
      }
    }
  }
  return slices;
}

void import_released(const std::string& path, const std::vector<ParameterTensor>& parameters) {
  const formats::ReleasedFiles files(path);
  const std::vector<ReleasedSlice> slices = released_slices(parameters);
  std::set<std::string_view> used;
  std::vector<std::string> missing, misshapen, copies, unknown;
  for (const ReleasedSlice& slice : slices) {
    HEDDLE_CHECK(used.insert(slice.name).second, "two parameters want '{}'", slice.name);
    const formats::StoredTensor* stored = files.find(slice.name);
    if (stored == nullptr) {
      missing.push_back(slice.name);
    } else if (stored->shape != slice.shape) {
      misshapen.push_back(fmt::format("{} [{}] instead of [{}]", slice.name, fmt::join(stored->shape, ", "),
                                      fmt::join(slice.shape, ", ")));
    }
  }
  const bool has_head = used.contains(kHead);
  for (const auto& [name, stored] : files.tensors()) {
    if (used.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
    if (stored->bytes.empty()) continue;  // Transformers stores shared experts of width 0
    const formats::StoredTensor* original = files.find(config::original_of(name, has_head));
    if (original == nullptr) {
      unknown.push_back(formats::printable(name));
    } else if (original->type != stored->type || !std::ranges::equal(original->bytes, stored->bytes)) {
      copies.push_back(name);
    }
  }
  std::string wrong;
  list_some(wrong, "tensors are missing", missing);
  list_some(wrong, "have another shape", misshapen);
  list_some(wrong, "belong nowhere", unknown);
  list_some(wrong, "should repeat the embedding or head but differ", copies);
  if (!wrong.empty()) config_error("{}: not this model: {}", files.path(), wrong);

  for (const ReleasedSlice& slice : slices) {
    const formats::StoredTensor& stored = *files.find(slice.name);
    const formats::LogicalTensor& into = parameters[slice.parameter].tensor;
    int64_t done = 0;
    for_each_run(into, slice.first, slice.count, [&](uint8_t* bytes, int64_t elements) {
      stored.read(done, elements, into.dtype, bytes);
      done += elements;
    });
  }
}

void export_released(const std::string& folder, const model::ModelConfig& config,
                     const std::vector<ParameterTensor>& parameters, Dtype stored, const std::string& tokenizer) {
  HEDDLE_CHECK(stored == Dtype::f64 || stored == Dtype::f32 || stored == Dtype::bf16, "export as {}",
               name_of(stored));
  if (const std::string why = config::why_unpublished(config); !why.empty()) {
    config_error("{}: no published architecture is this model: {}", folder, why);
  }
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw SystemError(failed.value(), fmt::format("cannot create {}: {}", folder, failed.message()));

  const std::vector<ReleasedSlice> slices = released_slices(parameters);
  std::map<std::string, const ReleasedSlice*> source;
  for (const ReleasedSlice& slice : slices) source[slice.name] = &slice;
  const config::Family& family = config::family_of(config);
  const config::FurtherTensors further = family.further ? family.further(config) : config::FurtherTensors{};
  for (const auto& [name, original] : further.copies) source[name] = source.at(original);
  std::map<std::string, int64_t> zeros;
  for (const auto& [name, count] : further.zeros) zeros[name] = count;

  std::vector<formats::TensorHeading> headings;
  for (const auto& [name, slice] : source) {
    const bool bias = parameters[slice->parameter].parameter.balances;
    headings.push_back({name, bias ? Dtype::f32 : stored, slice->shape});
  }
  for (const auto& [name, count] : zeros) headings.push_back({name, Dtype::f32, {count}});
  formats::sort_for_file(headings);

  // config.json comes last: a folder with it is complete.
  formats::SafetensorsWriter writer((std::filesystem::path(folder) / "model.safetensors").string(), headings,
                                    {{"format", "pt"}});
  std::vector<uint8_t> chunk(static_cast<size_t>(kChunkElements) * 8);
  for (const formats::TensorHeading& heading : headings) {
    if (zeros.contains(heading.name)) {
      const std::vector<float> none(static_cast<size_t>(zeros.at(heading.name)), 0.0F);
      writer.write(none.data(), none.size() * sizeof(float));
      continue;
    }
    const ReleasedSlice& slice = *source.at(heading.name);
    const formats::LogicalTensor& from = parameters[slice.parameter].tensor;
    for_each_run(from, slice.first, slice.count, [&](uint8_t* bytes, int64_t elements) {
      const formats::StoredTensor run{slice.name,
                                      formats::stored_type(from.dtype),
                                      {elements},
                                      {bytes, static_cast<size_t>(elements * size_of(from.dtype))}};
      for (int64_t first = 0; first < elements; first += kChunkElements) {
        const int64_t count = std::min(kChunkElements, elements - first);
        run.read(first, count, heading.dtype, chunk.data());
        writer.write(chunk.data(), static_cast<size_t>(count * size_of(heading.dtype)));
      }
    });
  }
  writer.commit();
  if (!tokenizer.empty()) {
    write_file((std::filesystem::path(folder) / "tokenizer.json").string(),
               read_file(tokenizer, kMostTokenizerBytes));
  }
  nlohmann::ordered_json json = config::model_config_to_json(config);
  json["torch_dtype"] = stored == Dtype::bf16 ? "bfloat16" : stored == Dtype::f32 ? "float32" : "float64";
  json["use_cache"] = true;
  write_file((std::filesystem::path(folder) / "config.json").string(), json.dump(2) + "\n");
}

}  // namespace heddle::train
