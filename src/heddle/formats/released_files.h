// The files that a released model lies in: a folder with model.safetensors, or with the shards that
// model.safetensors.index.json names, or one file.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/formats/safetensors.h"

namespace heddle::formats {

/// All tensors of the model, whichever file holds them.
class ReleasedFiles {
 public:
  /// ConfigError naming the file. None is there, the index is broken or names what is no file beside it, a tensor
  /// stands in two files, or a file is no safetensors.
  explicit ReleasedFiles(const std::string& path);

  /// Null when there is none of that name.
  const StoredTensor* find(std::string_view name) const;
  const std::map<std::string, const StoredTensor*, std::less<>>& tensors() const { return tensors_; }
  const std::string& path() const { return path_; }

 private:
  void open(const std::string& path);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const StoredTensor*, std::less<>> tensors_;
};

/// Names of the tensors that lie in a folder, read without opening shards. Nothing when there are none, or none
/// that can be read.
std::optional<std::vector<std::string>> released_names(const std::string& folder);

}  // namespace heddle::formats
