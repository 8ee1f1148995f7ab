// A shard of a checkpoint: the part of the tensors that one rank of a job owns, in a file of its own. So all ranks
// write at once and none waits for another's bytes.
//
// The file is a safetensors file of its own, each part of a tensor in one dimension. The checkpoint's manifest has
// the parts' places in the whole tensors, and the CRC-32C of each 4 MiB of them (base/files/chunk_sums). It uses
// logical coordinates alone: a reader needs no layout.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heddle/formats/safetensors.h"
#include "heddle/train/audit/digest_sums.h"
#include "heddle/train/saved/saved_tensor.h"

namespace heddle::train {

struct ShardPart {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<Runs> runs;
  int64_t elements() const;
};

/// Hands the bytes of a part to `write`, in order and in any number of pieces.
using PartBytes = std::function<void(const ShardPart& part,
                                     const std::function<void(const void* data, size_t size_bytes)>& write)>;

/// Writes the shard of a number into a folder, on disk when it returns: what a manifest says of it, as JSON. Parts
/// without elements are left out. SystemError when the disk says no.
std::string write_shard(const std::string& folder, int64_t number, std::vector<ShardPart> parts,
                        const PartBytes& bytes_of);

/// The digest of all that these shards hold, as write_shard told of them.
StateDigest digest_of(const std::vector<std::string>& shards);

/// Reads a shard back and compares it with the result of write_shard. SystemError when the disk gives back other
/// bytes.
void read_back_shard(const std::string& folder, const std::string& told);

/// The tensors of the manifest `state` at `path`, whose shards lie in `folder`, files opened into `files`.
/// ConfigError where a shard is not the one that the manifest means, is damaged (`sums`: all bytes are looked at),
/// or the parts don't cover a tensor.
std::vector<SavedTensor> sharded_tensors(const std::string& folder, const nlohmann::json& state,
                                         const std::string& path, bool sums,
                                         std::vector<formats::SafetensorsFile>& files);

}  // namespace heddle::train
