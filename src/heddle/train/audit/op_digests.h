// Digests of the results of each op of a step: where two runs of the same program part, the first op whose digest
// differs is where it happened.
//
//   FOLDER/step-000123/rank-0002.ops   the digests of a rank's ops, with the program's own and a checksum
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "heddle/train/trainer.h"

namespace heddle::train {

/// One run of an op within a step.
struct OpRun {
  int32_t listing = 0;
  uint32_t op = 0;
  int32_t microbatch = 0;
  auto operator<=>(const OpRun&) const = default;
};
/// The digest of an op's output; an op that ran more than once for a microbatch has one of all outputs in order.
using OpDigests = std::map<OpRun, uint64_t>;

/// Notes the digests of the steps that this rank takes while it lives. The device must share the host's memory
/// (ConfigError); the trainer must outlive it.
class OpRecorder {
 public:
  explicit OpRecorder(Trainer& trainer);
  ~OpRecorder();
  OpRecorder(const OpRecorder&) = delete;
  OpRecorder& operator=(const OpRecorder&) = delete;

  /// Those noted since they were last taken. Only between steps.
  OpDigests take();

 private:
  void note(const device::Launch& launch);

  Trainer& trainer_;
  std::mutex mutex_;
  OpDigests digests_;
};

/// One rank's digests in the files of a folder.
class OpDigestFiles {
 public:
  OpDigestFiles(std::string folder, Trainer& trainer);
  /// Writes a step's; removes those of steps before the last `keep`. SystemError.
  void write(int64_t step, const OpDigests& digests, int64_t keep) const;
  /// None where there are none of that step, or they are of another program. ConfigError naming the file and what
  /// is wrong with it.
  std::optional<OpDigests> read(int64_t step) const;

 private:
  std::string folder_of(int64_t step) const;
  std::string file_of(int64_t step) const;
  std::string folder_;
  int rank_;
  uint64_t program_;
};

/// The first op, over all ranks, whose digests differ, in words; "" where none does. All ranks call it together.
std::string first_difference(Trainer& trainer, const OpDigests& recorded, const OpDigests& now);

}  // namespace heddle::train
