#include "heddle/formats/released_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/formats/json_text.h"

namespace heddle::formats {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostIndexBytes = 100'000'000;
constexpr int kMostDepth = 4;

std::string whole_file(const std::string& folder) { return (fs::path(folder) / "model.safetensors").string(); }
std::string index_file(const std::string& folder) {
  return (fs::path(folder) / "model.safetensors.index.json").string();
}

// The file of each tensor, a plain name beside the index.
std::map<std::string, std::string> weight_map(const std::string& index) {
  const nlohmann::json json = parse_json(read_file(index, kMostIndexBytes), index, kMostDepth);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    config_error("{}: no index of tensors: an object with an object 'weight_map' is expected", index);
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) {
      config_error("{}: tensor '{}' lies in {}, the name of a file is expected", index, printable(tensor),
                   shown(file));
    }
    const auto& name = file.get_ref<const std::string&>();
    if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos ||
        !name.ends_with(".safetensors")) {
      config_error("{}: '{}' is no file beside it", index, printable(name));
    }
    files.emplace(tensor, name);
  }
  return files;
}

// Names the first file of weights that is not read.
std::string other_weights(const std::string& folder) {
  constexpr std::string_view kEndings[] = {".safetensors", ".bin", ".pt", ".pth", ".gguf"};
  std::error_code ignored;
  std::string first;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool of_weights = std::any_of(std::begin(kEndings), std::end(kEndings),
                                        [&](std::string_view ending) { return name.ends_with(ending); });
    if (of_weights && (first.empty() || name < first)) first = name;
  }
  return first.empty() ? "" : fmt::format(", but {}, which is not read by that name", printable(first));
}

}  // namespace

ReleasedFiles::ReleasedFiles(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    open(path);
  } else if (fs::exists(whole_file(path), ignored)) {
    open(whole_file(path));
  } else if (fs::exists(index_file(path), ignored)) {
    std::set<std::string> shards;
    for (const auto& [tensor, file] : weight_map(index_file(path))) shards.insert(file);
    for (const std::string& name : shards) open((fs::path(path) / name).string());
  } else {
    config_error("{}: neither model.safetensors nor model.safetensors.index.json in it{}", path,
                 other_weights(path));
  }
}

const StoredTensor* ReleasedFiles::find(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : at->second;
}

void ReleasedFiles::open(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const StoredTensor& tensor : files_.back()->tensors()) {
    if (!tensors_.emplace(tensor.name, &tensor).second) {
      config_error("{}: tensor '{}' is in another file of the model too", path, printable(tensor.name));
    }
  }
}

std::optional<std::vector<std::string>> released_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  try {
    if (fs::exists(whole_file(folder), ignored)) {
      const SafetensorsFile file(whole_file(folder));
      for (const StoredTensor& tensor : file.tensors()) names.push_back(tensor.name);
    } else if (fs::exists(index_file(folder), ignored)) {
      for (const auto& [tensor, file] : weight_map(index_file(folder))) names.push_back(tensor);
    }
  } catch (const Error&) {
    return std::nullopt;  // whoever reads the weights will say what is wrong with them
  }
  if (names.empty()) return std::nullopt;
  return names;
}

}  // namespace heddle::formats
