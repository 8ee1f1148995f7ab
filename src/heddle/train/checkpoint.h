// Checkpoints: all that a run needs to go on exactly as if it had not stopped, whatever its layout before and
// after.
//
//   FOLDER/step-000123/model.safetensors   masters, moments ("m.NAME", "v.NAME"), balancing biases; whole tensors
//                                          ; where adapters are trained beside frozen weights, theirs alone
//   FOLDER/step-000123/state.json          the rest, and the checksum (CRC-32C) of every tensor, of the header and
//   of
//                                          itself
//
// Both files are for their owner alone to read.
//
// A checkpoint is written under a hidden name, flushed to disk, read back and compared with its checksums, and only
// then renamed: what bears the name step-… is whole, for a reader at any moment and after any crash. One run writes
// into a folder at a time (it holds the run's FolderLock); any number may read. Neither the folder nor a step's may
// be a symbolic link.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/formats/logical_tensor.h"
#include "heddle/formats/safetensors.h"
#include "heddle/model/model_config.h"
#include "heddle/train/parameters.h"
#include "heddle/train/step/expert_history.h"
#include "heddle/train/step/outliers.h"

namespace heddle::train {

struct CheckpointState {
  int64_t step = 0;                // steps done
  double trained_s = 0;            // spent in them; 0 in checkpoints that don't say
  int64_t consumed_sequences = 0;  // of the data, in its shuffled order
  uint64_t seed = 0;               // random numbers are functions of seed and step: there is no other state of them
  model::ModelConfig model;
  std::map<std::string, std::string> data;      // what identifies tokenizer and data; compared by the caller
  std::map<std::string, std::string> adapters;  // where only they are trained: what they are (train/adapters/base)
  std::map<std::string, std::string> layout;    // how the run was laid out, for people to read
  OutlierHistory outliers;                      // of the steps left out
  ExpertHistory expert_history;                 // where copies of experts are chosen by it
  bool operator==(const CheckpointState&) const = default;
};

/// Hands the bytes of a whole tensor to `write`, in order and in any number of parts.
using TensorBytes = std::function<void(const formats::TensorHeading& tensor,
                                       const std::function<void(const void* data, size_t size_bytes)>& write)>;

/// Writes FOLDER/step-NNNNNN, replacing one of the same step, and returns its path. Then removes older ones but the
/// newest `keep` − 1; later ones (of a run that went on from further back) stay. Holds no copy of the tensors.
/// SystemError when the disk says no; what stood in the folder before then still stands.
std::string save_checkpoint(const std::string& folder, const CheckpointState& state,
                            const std::vector<formats::LogicalTensor>& tensors, int keep = 3);
/// The same of tensors that come when they are asked for, in the order of sort_for_file.
std::string save_checkpoint(const std::string& folder, const CheckpointState& state,
                            std::vector<formats::TensorHeading> headings, const TensorBytes& bytes_of,
                            int keep = 3);

class Checkpoint {
 public:
  /// What is compared with its checksums: all, or everything but the tensors (for those who know that another rank
  /// has read it all).
  enum class Verify : uint8_t { all, headings };
  /// Opens a step's folder and checks it: ConfigError naming the file, the place, what was found and expected.
  explicit Checkpoint(const std::string& path, Verify verify = Verify::all);

  const CheckpointState& state() const { return state_; }
  const std::string& path() const { return path_; }
  const formats::SafetensorsFile& file() const { return file_; }

  /// ConfigError when the checkpoint is of another model, or its tensors are not these by name, type and shape.
  void check_fits(const model::ModelConfig& model, const std::vector<formats::TensorHeading>& headings) const;
  /// Copies every tensor into its place, bit by bit. ConfigError when the checkpoint is of another model or the
  /// tensors differ in name, type or shape; nothing is written then.
  void load_into(const model::ModelConfig& model, const std::vector<formats::LogicalTensor>& tensors) const;

 private:
  void verify(const std::string& path, Verify what);

  std::string path_;
  formats::SafetensorsFile file_;
  CheckpointState state_;
};

/// The newest whole checkpoint of a folder, of `last_step` at most, none when there is none at all. Each newer one
/// that is refused adds its reason to `refused`. ConfigError when there are checkpoints but none is whole;
/// SystemError when the folder can't be read.
std::optional<Checkpoint> latest_checkpoint(const std::string& folder, std::vector<std::string>* refused = nullptr,
                                            int64_t last_step = std::numeric_limits<int64_t>::max());

/// `path` is one checkpoint, or a folder of them, of which the newest whole one is taken. ConfigError when there is
/// none; if another checkpoint beside the refused one is whole, the message names it.
Checkpoint open_checkpoint(const std::string& path, std::vector<std::string>* refused = nullptr);

}  // namespace heddle::train
