// The memory in which a rank keeps copies of its state (passes/state/snapshot). It lies in a folder of a file
// system in memory, where an agent, or a run that goes on in any layout, finds it.
//
//   `rank-00003-RANDOM.data`     The values, twice: two sets, written in turn; locked (flock) by the living rank.
//   `rank-00003-RANDOM.index`    The place of each value, and the elements of the whole tensors that it has.
//   `rank-00003-RANDOM.seal-0`   Set 0 is whole: its step, the state beside the tensors, and a checksum over the
//                                checksums of its chunks. It goes before the set is written again.
//   `rank-00003-RANDOM.hold-0`   Locked by a reader of set 0 that needs it to stay, or by the rank that writes it.
//
// All are for their owner alone. Index and seal have checksums of their own; nothing is trusted before it is
// checked.
#pragma once

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heddle/train/checkpoint.h"
#include "heddle/train/saved/shard.h"

namespace heddle::train {

inline constexpr int kSets = 2;
/// Under a folder of segments: copies of those in another host's memory.
inline constexpr const char* kPartnerFolder = "partner";

struct SegmentIndex {
  std::string run;  // a name for all ranks of a job, and of no other
  int64_t generation = 0, rank = 0, ranks = 1;
  int64_t bytes = 0;  // bytes of the values

  struct Held {
    std::string name;
    int64_t bytes = 0;
    std::array<int64_t, kSets> at{}, sums_at{};  // places in each set, of it and of the checksums of its chunks
  };
  std::vector<Held> values;

  /// The way in which a tensor is made of values: as it lies, or put together (base/numbers/split_float.h).
  enum class Form : uint8_t { plain, split_master, split_moment };
  struct Tensor {
    std::string name;
    Dtype dtype = Dtype::f32;
    std::vector<int64_t> shape;  // shape of the whole tensor
    std::vector<Runs> runs;      // with every expert at the home of its number
    Form form = Form::plain;
    std::array<int64_t, 3> of{};  // values: itself; or the nearest, the low half and the second moment
    int64_t elements() const { return elements_of(runs); }
  };
  std::vector<Tensor> tensors;
};

std::string text_of(const SegmentIndex& index);

struct Seal {
  int64_t step = 0;
  CheckpointState state;
  bool persists = false;  // an agent is to write it to disk
  /// Runs of experts' tensors that lived elsewhere then, by their place in the index.
  std::map<size_t, std::vector<Runs>> elsewhere;
  const std::vector<Runs>& runs_of(const SegmentIndex& index, size_t tensor) const {
    const auto at = elsewhere.find(tensor);
    return at == elsewhere.end() ? index.tensors[tensor].runs : at->second;
  }
};
std::string text_of(const Seal& seal, const SegmentIndex& index, uint32_t sums);

/// The names beside a segment's data.
struct SegmentFiles {
  std::string folder, name;  // "rank-00003-RANDOM"
  std::string data() const { return at(".data"); }
  std::string index() const { return at(".index"); }
  std::string seal(int set) const { return at(set == 0 ? ".seal-0" : ".seal-1"); }
  std::string hold(int set) const { return at(set == 0 ? ".hold-0" : ".hold-1"); }
  void remove() const;

 private:
  std::string at(const char* suffix) const { return folder + "/" + name + suffix; }
};
/// The segments in a folder; none where there is no such folder.
std::vector<SegmentFiles> segments_in(const std::string& folder);

/// Locks a file for as long as it lives: for itself, or beside other readers.
class FileHold {
 public:
  enum class How : uint8_t { alone, shared };
  /// None where somebody else holds it, or it is no plain file of this user.
  static std::optional<FileHold> take(const std::string& path, How how, bool make = false);
  ~FileHold();
  FileHold(FileHold&& other) noexcept;
  FileHold& operator=(FileHold&&) = delete;

 private:
  explicit FileHold(int file) : file_(file) {}
  int file_;
};

/// The owner of a segment in another host's memory that shares it.
class SegmentOwner {
 public:
  virtual ~SegmentOwner() = default;
  /// Reads so many bytes of its values. SystemError when it is no longer there.
  virtual void read(int64_t at, std::span<uint8_t> into) = 0;
  /// Has all bytes of a set compared with their checksums there. ConfigError where they differ.
  virtual void verify(int set) = 0;
};

/// The description of a shared segment. Each set has the text of its seal ("": none) and the checksums of all
/// chunks, in the order of the index's values.
struct SharedSegment {
  std::string index;
  std::array<std::string, kSets> seals;
  std::array<std::vector<uint32_t>, kSets> sums;
};

/// A segment opened for reading.
class Segment {
 public:
  /// ConfigError where it is none: another's, cut, damaged.
  explicit Segment(SegmentFiles files);
  /// One in another host's memory, whose bytes come as they are read, each 4 MiB compared with its checksum.
  /// `files.folder` is only told.
  Segment(SegmentFiles files, SharedSegment remote, std::shared_ptr<SegmentOwner> owner);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const SegmentFiles& files() const { return files_; }
  const SegmentIndex& index() const { return index_; }
  /// The seal of a set, if it is whole by its seal; else none.
  std::optional<Seal> seal(int set) const;
  /// The set of a step; -1: none.
  int set_of(int64_t step) const;
  /// Compares all bytes of a set with their checksums: ConfigError naming the value.
  void verify(int set) const;
  /// The bytes of a tensor in a set. What is split is put together in `made`.
  std::span<const uint8_t> bytes_of(const SegmentIndex::Tensor& tensor, int set, std::vector<float>& made) const;
  /// Fetches them from a shared segment, as SavedTensor::Part::fetch does.
  std::span<const uint8_t> fetch(const SegmentIndex::Tensor& tensor, int set, int64_t first, int64_t count,
                                 std::vector<float>& made) const;
  bool is_shared() const { return owner_ != nullptr; }
  /// The description of it for those with whom it is shared.
  SharedSegment description() const;
  /// The begin of its values.
  const uint8_t* data() const;
  /// True if the rank that writes it still lives.
  bool is_written() const;

 private:
  std::span<const uint8_t> value(const SegmentIndex::Held& held, int set) const;
  std::span<const uint8_t> sums(const SegmentIndex::Held& held, int set) const;
  void map(int file);
  void fetch_bytes(const SegmentIndex::Held& held, int set, int64_t first, int64_t count) const;

  SegmentFiles files_;
  SegmentIndex index_;
  uint32_t index_sum_ = 0;
  uint8_t* mapped_ = nullptr;
  int64_t mapped_bytes_ = 0;
  std::array<std::string, kSets> seals_;      // seals of a shared segment, likewise the two below
  std::shared_ptr<SegmentOwner> owner_;       // null: it lies here
  mutable std::set<int64_t> fetched_chunks_;  // chunks by their places
};

/// The bytes of the values that an index names. ConfigError where it is none.
int64_t bytes_of_index(const std::string& path);

/// The checksum over all checksums of a set, whose segment lies at `base`.
uint32_t sum_of_sums(const SegmentIndex& index, int set, const uint8_t* base);

/// The newest step that is whole in these folders, of every rank of its job, as a checkpoint; none where there is
/// none. `sums`: all bytes are looked at. What was passed over adds its reason to `refused`. `step`: that one
/// alone, and of that generation; 0: any, up to `last_step`. `lent`: what other hosts' memory holds beside; what
/// lies here goes first.
std::optional<Checkpoint> newest_in_memory(const std::vector<std::string>& folders, bool sums,
                                           std::vector<std::string>* refused = nullptr, int64_t step = 0,
                                           int64_t generation = 0,
                                           const std::vector<std::shared_ptr<const Segment>>& remote = {},
                                           int64_t last_step = std::numeric_limits<int64_t>::max());

}  // namespace heddle::train
