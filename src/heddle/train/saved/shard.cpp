#include "heddle/train/saved/shard.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/chunk_sums.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"
#include "heddle/train/saved/checked_json.h"
#include "heddle/train/saved/runs_json.h"

namespace heddle::train {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string file_of(int64_t number) { return fmt::format("shard-{:05}.safetensors", number); }

// Nothing but a name that this program gives: no way out of the folder.
bool is_shard_file(const std::string& name) {
  constexpr std::string_view kFirst = "shard-", kLast = ".safetensors";
  if (!name.starts_with(kFirst) || !name.ends_with(kLast) || name.size() <= kFirst.size() + kLast.size())
    return false;
  return std::all_of(name.begin() + kFirst.size(), name.end() - kLast.size(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

constexpr const char *kWeights = "weights", *kBeside = "beside";
json json_of(const StateDigest& digest) {
  return {{kWeights, {digest.weights.low, digest.weights.high}},
          {kBeside, {digest.beside.low, digest.beside.high}}};
}

std::string sums_text(const std::vector<uint32_t>& sums) {
  std::string text;
  for (const uint32_t sum : sums) text += checksum_text(sum);
  return text;
}

formats::StoredType type_named(const std::string& name, const std::string& path) {
  using formats::StoredType;
  for (const StoredType type :
       {StoredType::f64, StoredType::f32, StoredType::f16, StoredType::bf16, StoredType::u8}) {
    if (name_of(type) == name) return type;
  }
  config_error("{}: a tensor of type '{}'", path, formats::printable(name));
}

// Compares a shard with the manifest at `path`.
void check_shard(const formats::SafetensorsFile& file, const json& said, bool sums) {
  if (file.size_bytes() != said.at("bytes").get<int64_t>()) {
    config_error("{}: {} bytes, {} are expected; the file is damaged, or of another checkpoint", file.path(),
                 file.size_bytes(), said.at("bytes").get<int64_t>());
  }
  const std::string header = checksum_text(crc32c(file.header().data(), file.header().size()));
  if (header != said.at("header").get<std::string>()) {
    config_error(
        "{}: the header has the checksum {}, {} is expected; the file is damaged, or of another checkpoint",
        file.path(), header, shown(said.at("header").get<std::string>()));
  }
  const json& parts = said.at("tensors");
  if (parts.size() != file.tensors().size())
    config_error("{}: parts of {} tensors, {} are expected", file.path(), file.tensors().size(), parts.size());
  for (const formats::StoredTensor& part : file.tensors()) {
    if (!parts.contains(part.name))
      config_error("{}: tensor '{}' is not listed in the manifest", file.path(), formats::printable(part.name));
    if (!sums) continue;
    const std::string found = sums_text(chunk_sums(part.bytes.data(), part.bytes.size()));
    if (const std::string expected = parts.at(part.name).at("sums").get<std::string>(); found != expected) {
      config_error("{}: tensor '{}' has other checksums than the manifest says; the file is damaged", file.path(),
                   formats::printable(part.name));
    }
  }
}

}  // namespace

int64_t ShardPart::elements() const { return elements_of(runs); }

std::string write_shard(const std::string& folder, int64_t number, std::vector<ShardPart> parts,
                        const PartBytes& bytes_of) {
  std::erase_if(parts, [](const ShardPart& part) { return part.elements() == 0; });
  std::map<std::string_view, const ShardPart*> by_name;
  std::vector<formats::TensorHeading> headings;
  for (const ShardPart& part : parts) {
    by_name[part.name] = &part;
    headings.push_back({part.name, part.dtype, {part.elements()}});
  }
  formats::sort_for_file(headings);
  const std::string path = (fs::path(folder) / file_of(number)).string();
  formats::SafetensorsWriter writer(path, headings);
  json said{{"file", file_of(number)}, {"tensors", json::object()}};
  StateDigest digest;
  for (const formats::TensorHeading& heading : headings) {
    const ShardPart& part = *by_name.at(heading.name);
    ChunkSums sums;
    DigestStream stream(part.name, size_of(part.dtype), part.runs, digest.of(part.name));
    int64_t bytes = 0;
    bytes_of(part, [&](const void* data, size_t size_bytes) {
      sums.add(data, size_bytes);  // sums of the source, before anybody else has it
      stream.add(data, static_cast<int64_t>(size_bytes));
      writer.write(data, size_bytes);
      bytes += static_cast<int64_t>(size_bytes);
    });
    HEDDLE_CHECK(bytes == heading.size_bytes(), "the pieces of '{}' have {} bytes, the part {}", part.name, bytes,
                 heading.size_bytes());
    said["tensors"][part.name] = {{"runs", json_of(part.runs)}, {"sums", sums_text(sums.sums())}};
  }
  writer.commit();
  said["digest"] = json_of(digest);
  said["bytes"] = fs::file_size(held_path(path));
  said["header"] = checksum_text(crc32c(writer.header().data(), writer.header().size()));
  return said.dump();
}

StateDigest digest_of(const std::vector<std::string>& shards) {
  StateDigest all;
  for (const std::string& shard : shards) {
    const json said = json::parse(shard).at("digest");
    const auto sums = [&](const char* of) {
      return DigestSums{said.at(of).at(0).get<uint32_t>(), said.at(of).at(1).get<uint32_t>()};
    };
    all.add({sums(kWeights), sums(kBeside)});
  }
  return all;
}

void read_back_shard(const std::string& folder, const std::string& told) {
  const json said = json::parse(told);
  const std::string path = (fs::path(folder) / said.at("file").get<std::string>()).string();
  try {
    drop_cached(path);
    check_shard(formats::SafetensorsFile(path), said, true);
  } catch (const ConfigError& error) {
    throw SystemError(
        EIO, fmt::format("cannot save {}: the disk returns other bytes than were written: {}", path, error.what()));
  }
}

std::vector<SavedTensor> sharded_tensors(const std::string& folder, const json& state, const std::string& path,
                                         bool sums, std::vector<formats::SafetensorsFile>& files) {
  const json& shards = state.at("shards");
  std::set<std::string> names;
  for (const json& shard : shards) {
    const auto name = shard.at("file").get<std::string>();
    if (!is_shard_file(name) || !names.insert(name).second)
      config_error("{}: '{}' is no shard of its own", path, formats::printable(name));
    files.emplace_back((fs::path(folder) / name).string());
  }
  for (size_t i = 0; i < files.size(); ++i) check_shard(files[i], shards[i], sums);
  std::vector<formats::TensorHeading> order;
  std::map<std::string, SavedTensor> tensors;
  for (const auto& [name, said] : state.at("tensors").items()) {
    SavedTensor& tensor = tensors[name];
    tensor = {name,
              type_named(said.at("type").get<std::string>(), path),
              said.at("shape").get<std::vector<int64_t>>(),
              {}};
    int64_t most = int64_t{1} << 48;
    for (const int64_t size : tensor.shape) {
      if (size < 0 || size > most)
        config_error("{}: tensor '{}' is [{}]", path, formats::printable(name), fmt::join(tensor.shape, ", "));
      most /= std::max<int64_t>(1, size);
    }
    const auto dtype = tensor.type == formats::StoredType::f64   ? Dtype::f64
                       : tensor.type == formats::StoredType::f32 ? Dtype::f32
                                                                 : Dtype::bf16;
    order.push_back({name, dtype, tensor.shape});
  }
  for (size_t i = 0; i < files.size(); ++i) {
    for (const formats::StoredTensor& part : files[i].tensors()) {
      const auto at = tensors.find(part.name);
      if (at == tensors.end() || at->second.type != part.type)
        config_error("{}: '{}' of {} is no part of any of its tensors", path, formats::printable(part.name),
                     files[i].path());
      // Runs of more than the part's own elements are not checked any further.
      std::vector<Runs> runs = runs_from(shards[i].at("tensors").at(part.name).at("runs"));
      if (!fit(runs, part.elements()))
        config_error("{}: tensor '{}' has {} elements in {}, its runs others", path, formats::printable(part.name),
                     part.elements(), files[i].path());
      at->second.parts.push_back({std::move(runs), part.bytes});
    }
  }
  formats::sort_for_file(order);
  std::vector<SavedTensor> all;
  for (const formats::TensorHeading& heading : order) {
    SavedTensor& tensor = tensors.at(heading.name);
    std::vector<const std::vector<Runs>*> runs;
    for (const SavedTensor::Part& part : tensor.parts) runs.push_back(&part.runs);
    if (!cover(runs, tensor.elements()))
      config_error("{}: the shards don't hold each element of tensor '{}' once", path,
                   formats::printable(tensor.name));
    for (SavedTensor::Part& part : tensor.parts) {
      int64_t local = 0;
      for (Runs& r : part.runs) {
        r.local = local;
        local += r.elements();
      }
    }
    all.push_back(std::move(tensor));
  }
  return all;
}

}  // namespace heddle::train
