// Checkpoints: all that a run needs to go on exactly as if it had not stopped, whatever its layout before and
// after.
//
//   FOLDER/step-000123/model.safetensors   masters, moments ("m.NAME", "v.NAME"), balancing biases; whole tensors.
//                                          With adapters beside frozen weights, theirs alone.
//   FOLDER/step-000123/shard-00002.safetensors   Instead, where several ranks have written: what the rank of that
//                                          number owns of each tensor, in one dimension (train/saved/shard).
//   FOLDER/step-000123/state.json          The manifest: all else, which elements of the whole tensors each shard
//                                          has, and checksums (CRC-32C).
//   FOLDER/latest                          The name of the newest, for people; readers use manifests alone.
//
// Checksums are those of tensors or of their chunks, of headers and of the manifest itself. All files but the last
// are for their owner alone to read.
//
// A checkpoint is written under a hidden name, flushed to disk, read back and compared with its checksums, and only
// then renamed. What bears the name step-… is whole, for a reader at any moment and after any crash. One run writes
// into a folder at a time (it holds the run's FolderLock); any number may read. Neither the folder nor a step's may
// be a symbolic link.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/formats/logical_tensor.h"
#include "heddle/formats/safetensors.h"
#include "heddle/model/model_config.h"
#include "heddle/train/parameters.h"
#include "heddle/train/saved/saved_tensor.h"

namespace heddle::train {

struct CheckpointState {
  int64_t step = 0;                // steps done
  double trained_s = 0;            // spent in them; 0 in checkpoints that don't say
  int64_t consumed_sequences = 0;  // sequences of the data, in its shuffled order
  uint64_t seed = 0;               // random numbers are functions of seed and step: there is no other state of them
  model::ModelConfig model;
  std::map<std::string, std::string> data;      // the identity of tokenizer and data; compared by the caller
  std::map<std::string, std::string> adapters;  // the adapters, where only they are trained (train/adapters/base)
  std::map<std::string, std::string> layout;    // layout of the run, for people to read
  int64_t generation = 0;                       // times that the run was gone on with; a lower one writes no more
  /// Digests of the masters (train/audit/weight_digest), and of moments and averages. "" before they are saved: not
  /// taken at this step; in what was saved by older versions: not said.
  std::string weights_digest, moments_digest;
  std::string config_hash;  // hash of the configuration; "": not said
  /// The state of each controller (train/controllers), by its name: JSON. Tensors of experts lie by their numbers,
  /// whatever the placement was.
  std::map<std::string, std::string> controllers;
  bool operator==(const CheckpointState&) const = default;
};

/// Hands the bytes of a whole tensor to `write`, in order and in any number of parts.
using TensorBytes = std::function<void(const formats::TensorHeading& tensor,
                                       const std::function<void(const void* data, size_t size_bytes)>& write)>;

/// Writes FOLDER/step-NNNNNN, replacing one of the same step, and returns its path. Then removes older ones but the
/// newest `keep` − 1; later ones (of a run that went on from further back) stay. Holds no copy of the tensors.
/// Digests of the state are completed; Error where it says others than the tensors have. SystemError when the disk
/// says no; what stood in the folder before then still stands.
std::string save_checkpoint(const std::string& folder, const CheckpointState& state,
                            const std::vector<formats::LogicalTensor>& tensors, int keep = 3);
/// Saves tensors that come when they are asked for, in the order of sort_for_file.
std::string save_checkpoint(const std::string& folder, const CheckpointState& state,
                            std::vector<formats::TensorHeading> headings, const TensorBytes& bytes_of,
                            int keep = 3);

/// A checkpoint that several processes write together, each its shard (train/saved/shard.h), and one of them
/// commits. It has a hidden name, which is removed with this unless it was committed.
class UnfinishedCheckpoint {
 public:
  /// Begins FOLDER/step-NNNNNN. SystemError when the disk says no. `shared`: a hidden name that several processes
  /// know beforehand, each of which may commit it; it stays until one has.
  UnfinishedCheckpoint(const std::string& folder, int64_t step, const std::string& shared = "");
  ~UnfinishedCheckpoint();
  UnfinishedCheckpoint(const UnfinishedCheckpoint&) = delete;
  UnfinishedCheckpoint& operator=(const UnfinishedCheckpoint&) = delete;

  /// The folder for the shards.
  const std::string& path() const { return unfinished_; }
  /// Writes the manifest of these shards, as write_shard tells of them, reads it back and gives the checkpoint its
  /// name, which is returned; the shards have been read back (read_back_shard). Older ones go as with
  /// save_checkpoint.
  std::string commit(const CheckpointState& state, const std::vector<formats::TensorHeading>& headings,
                     const std::vector<std::string>& shards, int keep = 3);

 private:
  std::string folder_, path_, unfinished_;
  bool is_shared_;
};

class Checkpoint {
 public:
  /// The parts that are compared with their checksums: all, or everything but the tensors (for callers that know
  /// that another rank has read it all).
  enum class Verify : uint8_t { all, headings };
  /// Opens a step's folder and checks it: ConfigError naming the file, the place, what was found and expected. With
  /// all bytes the digests that its state says are compared too.
  explicit Checkpoint(const std::string& path, Verify verify = Verify::all);
  /// Takes tensors that were found whole elsewhere; `holds` owns their bytes, `place` is their name.
  Checkpoint(CheckpointState state, std::vector<SavedTensor> tensors, std::shared_ptr<const void> holds,
             std::string place);

  const CheckpointState& state() const { return state_; }
  /// Its folder, or of what lies elsewhere what to call it.
  const std::string& path() const { return path_; }
  /// The tensors in the order of their bytes.
  const std::vector<SavedTensor>& tensors() const { return tensors_; }
  /// Null when there is none of that name.
  const SavedTensor* find(std::string_view name) const;
  /// ConfigError, with the nearest name, when there is none of that name.
  const SavedTensor& at(std::string_view name) const;

  /// ConfigError when the checkpoint is of another model, or its tensors are not these by name, type and shape.
  void check_fits(const model::ModelConfig& model, const std::vector<formats::TensorHeading>& headings) const;
  /// Copies every tensor into its place, bit by bit. ConfigError when the checkpoint is of another model or the
  /// tensors differ in name, type or shape; nothing is written then.
  void load_into(const model::ModelConfig& model, const std::vector<formats::LogicalTensor>& tensors) const;

 private:
  std::string path_;
  std::vector<SavedTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  CheckpointState state_;
  std::shared_ptr<const void> holds_;
};

/// The newest whole checkpoint of a folder, of `last_step` at most, none when there is none at all. Each newer one
/// that is refused adds its reason to `refused`. ConfigError when there are checkpoints but none is whole;
/// SystemError when the folder can't be read, or the disk fails again and again for one: that is no damage, and
/// none is passed over for it.
std::optional<Checkpoint> latest_checkpoint(const std::string& folder, std::vector<std::string>* refused = nullptr,
                                            int64_t last_step = std::numeric_limits<int64_t>::max());

/// The step of the newest checkpoint that has a name in a folder, whole or not; −1: there is none.
int64_t newest_step(const std::string& folder);

/// `path` is one checkpoint, or a folder of them, of which the newest whole one is taken. ConfigError when there is
/// none; if another checkpoint beside the refused one is whole, the message names it.
Checkpoint open_checkpoint(const std::string& path, std::vector<std::string>* refused = nullptr);

}  // namespace heddle::train
