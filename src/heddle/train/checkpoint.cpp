#include "heddle/train/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"
#include "heddle/base/hash.h"
#include "heddle/config/model_json.h"
#include "heddle/train/audit/digest_sums.h"
#include "heddle/train/saved/checked_json.h"
#include "heddle/train/saved/shard.h"
#include "heddle/train/saved/state_json.h"

namespace heddle::train {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kCheckpointFormat = 1, kShardedFormat = 2;
constexpr int64_t kMostStateBytes = int64_t{1} << 28;
constexpr std::string_view kPrefix = "step-";
constexpr const char *kTensorFile = "model.safetensors", *kStateFile = "state.json", *kLatestFile = "latest";

std::string name_of_step(int64_t step) { return fmt::format("{}{:06}", kPrefix, step); }

// The step of a checkpoint's name, or -1.
int64_t step_of_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = -1;
  const char *first = name.data() + kPrefix.size(), *last = name.data() + name.size();
  const auto [end, error] = std::from_chars(first, last, step);
  return error == std::errc() && end == last && step >= 0 && name == name_of_step(step) ? step : -1;
}

// A link could be led elsewhere between two checks of it, and another folder's files would be replaced or removed.
void refuse_link(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_symlink(held_path(path), ignored)) return;
  config_error("{} is a symbolic link; checkpoints have folders of their own (the run's folder may be a link)",
               path);
}

// Steps that have a checkpoint, newest first. A folder that is there but can't be read is not taken for an empty
// one.
std::vector<int64_t> steps_in(const std::string& folder) {
  refuse_link(folder);
  std::vector<int64_t> steps;
  std::error_code failed;
  for (fs::directory_iterator at(held_path(folder), failed), end; !failed && at != end; at.increment(failed)) {
    const int64_t step = step_of_name(at->path().filename().string());
    if (step >= 0) steps.push_back(step);
  }
  if (failed && failed != std::errc::no_such_file_or_directory) {
    throw SystemError(failed.value(), fmt::format("cannot read {}: {}", folder, failed.message()));
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

[[noreturn]] void fail(const char* doing, const std::string& path, int code) {
  throw SystemError(code, fmt::format("cannot {} {}: {}", doing, path, disk_error(path, code)));
}

// The digest of the saved tensors, their checksums and the header's.
struct Written {
  StateDigest digest;
  json header, checksums = json::object();
};

Written write_tensors(const std::string& path, const std::vector<formats::TensorHeading>& headings,
                      const TensorBytes& bytes_of) {
  formats::SafetensorsWriter writer(path, headings);
  Written written;
  for (const formats::TensorHeading& heading : headings) {
    uint32_t checksum = 0;
    int64_t bytes = 0;
    const int64_t width = size_of(heading.dtype);
    const std::vector<Runs> all{{0, heading.size_bytes() / width, 0, 1, 0}};
    DigestStream stream(heading.name, width, all, written.digest.of(heading.name));
    bytes_of(heading, [&](const void* data, size_t size_bytes) {
      checksum = crc32c(data, size_bytes, checksum);
      stream.add(data, static_cast<int64_t>(size_bytes));
      writer.write(data, size_bytes);
      bytes += static_cast<int64_t>(size_bytes);
    });
    HEDDLE_CHECK(bytes == heading.size_bytes(), "the pieces of '{}' have {} bytes, the tensor {}", heading.name,
                 bytes, heading.size_bytes());
    written.checksums[heading.name] = checksum_text(checksum);
  }
  writer.commit();
  written.header = checksum_text(crc32c(writer.header().data(), writer.header().size()));
  return written;
}

// The state with the digests of what was written.
CheckpointState completed(CheckpointState state, const StateDigest& written, const std::string& path) {
  const auto take = [&](std::string& said, const DigestSums& sums, const char* what) {
    const std::string found = sums.text();
    if (!said.empty() && said != found)
      throw Error(
          fmt::format("cannot save {}: its {} had the digest {} at the end of their step and have {} now: a fault "
                      "has changed them",
                      path, what, said, found));
    said = found;
  };
  take(state.weights_digest, written.weights, "weights");
  take(state.moments_digest, written.beside, "moments");
  return state;
}

// The digests that the state says against those of the tensors.
void check_digests(const CheckpointState& state, const std::vector<SavedTensor>& tensors, const std::string& path) {
  if (state.weights_digest.empty() && state.moments_digest.empty()) return;
  const StateDigest found = digest_of(tensors);
  const auto check = [&](const std::string& said, const DigestSums& sums, const char* what) {
    if (!said.empty() && said != sums.text())
      config_error("{}: its {} have the digest {}, {} has {}: they are not the saved ones", path, what, sums.text(),
                   kStateFile, formats::printable(said));
  };
  check(state.weights_digest, found.weights, "weights");
  check(state.moments_digest, found.beside, "moments");
}

// The tensors of a file that holds all of them whole.
std::vector<SavedTensor> whole_tensors(const formats::SafetensorsFile& file, const json& state,
                                       Checkpoint::Verify what) {
  const auto check = [&](const std::string& part, std::span<const uint8_t> bytes, const std::string& expected) {
    const std::string sum = checksum_text(crc32c(bytes.data(), bytes.size()));
    if (sum != expected) {
      config_error("{}: {} has the checksum {}, {} is expected; the file is damaged", file.path(), part, sum,
                   shown(expected));
    }
  };
  check("the header", file.header(), state.at("header").get<std::string>());
  const json& checksums = state.at("tensors");
  if (checksums.size() != file.tensors().size()) {
    config_error("{}: {} tensors, {} are expected", file.path(), file.tensors().size(), checksums.size());
  }
  for (const formats::StoredTensor& tensor : file.tensors()) {
    if (!checksums.contains(tensor.name)) {
      config_error("{}: tensor '{}' is not listed in {}", file.path(), formats::printable(tensor.name), kStateFile);
    }
    if (what == Checkpoint::Verify::headings) continue;
    check(fmt::format("tensor '{}'", formats::printable(tensor.name)), tensor.bytes,
          checksums.at(tensor.name).get<std::string>());
  }
  std::vector<SavedTensor> tensors;
  for (const formats::StoredTensor& tensor : file.tensors()) {
    const int64_t elements = tensor.elements();
    SavedTensor& saved = tensors.emplace_back(SavedTensor{tensor.name, tensor.type, tensor.shape, {}});
    if (elements > 0) saved.parts.push_back({{{0, elements, 0, 1, 0}}, tensor.bytes});
  }
  return tensors;
}

// Puts `unfinished` at `path`. One that stands there is exchanged with it in one stroke, so that a reader finds the
// one or the other.
void give_name(const std::string& unfinished, const std::string& path) {
  std::error_code ignored;
  const std::string from = held_path(unfinished), to = held_path(path);
  if (fs::exists(to, ignored)) {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS) fail("replace", path, errno);
    fs::remove_all(to, ignored);  // a file system that can't exchange
  }
  if (::rename(from.c_str(), to.c_str()) != 0) fail("finish", path, errno);
}

// Writes the manifest, which commits what stands in the folder, reads it back, and gives it all its name.
void finish(const std::string& unfinished, const json& manifest, Checkpoint::Verify what, const std::string& path) {
  OutputFile file((fs::path(unfinished) / kStateFile).string(), OutputFile::Open::replace,
                  OutputFile::Access::owner);
  file.write(checked_text(manifest));
  file.commit();  // and with it the names of all files
  try {
    drop_cached(file.path());
    if (what == Checkpoint::Verify::all) drop_cached((fs::path(unfinished) / kTensorFile).string());
    const Checkpoint read_back(unfinished, what);
  } catch (const ConfigError& error) {
    throw SystemError(
        EIO, fmt::format("cannot save {}: the disk returns other bytes than were written: {}", path, error.what()));
  }
  give_name(unfinished, path);
  const fs::path folder = fs::path(path).parent_path();
  flush_folder(folder.string());
  try {
    write_file((folder / kLatestFile).string(), fs::path(path).filename().string() + "\n",
               OutputFile::Flush::to_system);
  } catch (const SystemError&) {
    // No reader uses it.
  }
}

// The new one stands: what can't be removed now is tried again at the next.
// `strays`: what a crash left behind goes too; not where the run itself may be writing.
void remove_old(const std::string& folder, int64_t newest, int keep, bool strays = true) {
  std::error_code ignored;
  int kept = 1;
  std::vector<int64_t> steps;
  try {
    steps = steps_in(folder);
  } catch (const SystemError&) {
    return;
  }
  for (const int64_t step : steps) {
    if (step >= newest || ++kept <= keep) continue;
    // Under a hidden name first: a reader must not meet it half removed.
    const std::string path = held_path((fs::path(folder) / name_of_step(step)).string()),
                      hidden = temporary_beside(path);
    if (::rename(path.c_str(), hidden.c_str()) == 0) fs::remove_all(hidden, ignored);
  }
  if (strays) remove_temporaries(folder);
}

}  // namespace

std::string save_checkpoint(const std::string& folder, const CheckpointState& state,
                            const std::vector<formats::LogicalTensor>& tensors, int keep) {
  std::vector<formats::TensorHeading> headings;
  std::map<std::string_view, const formats::LogicalTensor*> by_name;
  for (const formats::LogicalTensor& tensor : tensors) {
    headings.push_back({tensor.name, tensor.dtype, tensor.shape});
    by_name[tensor.name] = &tensor;
  }
  const TensorBytes bytes_of = [&](const formats::TensorHeading& heading, const auto& write) {
    for (const auto& piece : by_name.at(heading.name)->pieces) write(piece.data(), piece.size());
  };
  return save_checkpoint(folder, state, std::move(headings), bytes_of, keep);
}

std::string save_checkpoint(const std::string& folder, const CheckpointState& state,
                            std::vector<formats::TensorHeading> headings, const TensorBytes& bytes_of, int keep) {
  formats::sort_for_file(headings);
  HEDDLE_CHECK(keep >= 1, "keep {}", keep);
  const std::string path = (fs::path(folder) / name_of_step(state.step)).string();
  UnfinishedCheckpoint unfinished(folder, state.step);
  const Written written = write_tensors((fs::path(unfinished.path()) / kTensorFile).string(), headings, bytes_of);
  json json = json_of(completed(state, written.digest, path));
  json["format"] = kCheckpointFormat;
  json["header"] = written.header;
  json["tensors"] = written.checksums;
  finish(unfinished.path(), json, Checkpoint::Verify::all, path);
  remove_old(folder, state.step, keep);
  return path;
}

UnfinishedCheckpoint::UnfinishedCheckpoint(const std::string& folder, int64_t step, const std::string& shared)
    : folder_(folder), path_((fs::path(folder) / name_of_step(step)).string()), is_shared_(!shared.empty()) {
  HEDDLE_CHECK(step >= 0, "step {}", step);
  refuse_link(folder);
  std::error_code failed;
  if (fs::create_directories(held_path(folder), failed))
    flush_folder(fs::absolute(folder).lexically_normal().parent_path());
  if (failed) fail("create", folder, failed.value());
  unfinished_ = is_shared_ ? (fs::path(folder) / shared).string() : temporary_beside(path_);
  refuse_link(unfinished_);
  if (::mkdir(held_path(unfinished_).c_str(), 0755) != 0 && !(is_shared_ && errno == EEXIST))
    fail("create", unfinished_, errno);
}

UnfinishedCheckpoint::~UnfinishedCheckpoint() {
  if (is_shared_) return;
  std::error_code ignored;
  fs::remove_all(held_path(unfinished_), ignored);
}

std::string UnfinishedCheckpoint::commit(const CheckpointState& state,
                                         const std::vector<formats::TensorHeading>& headings,
                                         const std::vector<std::string>& shards, int keep) {
  HEDDLE_CHECK(keep >= 1, "keep {}", keep);
  json manifest = json_of(completed(state, digest_of(shards), path_));
  manifest["format"] = kShardedFormat;
  manifest["tensors"] = json::object();
  for (const formats::TensorHeading& heading : headings) {
    manifest["tensors"][heading.name] = {{"type", name_of(formats::stored_type(heading.dtype))},
                                         {"shape", heading.shape}};
  }
  manifest["shards"] = json::array();
  for (const std::string& shard : shards) manifest["shards"].push_back(json::parse(shard));
  finish(unfinished_, manifest, Checkpoint::Verify::headings, path_);
  std::error_code ignored;
  if (is_shared_) fs::remove_all(held_path(unfinished_), ignored);  // the one that stood there before
  remove_old(folder_, state.step, keep, !is_shared_);
  return path_;
}

Checkpoint::Checkpoint(CheckpointState state, std::vector<SavedTensor> tensors, std::shared_ptr<const void> holds,
                       std::string place)
    : path_(std::move(place)), tensors_(std::move(tensors)), state_(std::move(state)), holds_(std::move(holds)) {
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
}

Checkpoint::Checkpoint(const std::string& path, Verify what) : path_(path) {
  const std::string manifest = (fs::path(path) / kStateFile).string();
  const std::string text = read_file(manifest, kMostStateBytes);
  try {
    const json state = checked_json(text, manifest);
    state_ = state_from(state, manifest);
    const int format = state.at("format").get<int>();
    if (format != kCheckpointFormat && format != kShardedFormat) {
      config_error("{}: format {}, this program reads formats {} and {}", manifest, format, kCheckpointFormat,
                   kShardedFormat);
    }
    const auto files = std::make_shared<std::vector<formats::SafetensorsFile>>();
    if (format == kCheckpointFormat) {
      tensors_ = whole_tensors(files->emplace_back((fs::path(path) / kTensorFile).string()), state, what);
    } else {
      tensors_ = sharded_tensors(path, state, manifest, what == Verify::all, *files);
    }
    if (what == Verify::all) check_digests(state_, tensors_, path);
    holds_ = files;
  } catch (const json::exception&) {
    config_error("{}: not the state of a checkpoint: a key is missing or its value is of another type", manifest);
  }
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
  const fs::path at = fs::path(path).lexically_normal();
  const std::string name = (at.has_filename() ? at : at.parent_path()).filename().string();
  if (const int64_t named = step_of_name(name); named >= 0 && named != state_.step) {
    config_error("{}: named as of step {}, it holds step {}: a checkpoint keeps its name", path, named,
                 state_.step);
  }
}

const SavedTensor* Checkpoint::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}

const SavedTensor& Checkpoint::at(std::string_view name) const {
  if (const SavedTensor* found = find(name)) return *found;
  std::vector<std::string> names;
  for (const SavedTensor& tensor : tensors_) names.push_back(tensor.name);
  config_error("{}: no tensor '{}' in it{}", path_, formats::printable(name),
               did_you_mean(std::string(name), names));
}

void Checkpoint::check_fits(const model::ModelConfig& model,
                            const std::vector<formats::TensorHeading>& headings) const {
  if (const std::string other = config::difference(state_.model, model); !other.empty()) {
    config_error("{}: a checkpoint of another model: {}", path_, other);
  }
  std::set<std::string_view> wanted;
  for (const formats::TensorHeading& heading : headings) {
    const SavedTensor* stored = find(heading.name);
    if (stored == nullptr) config_error("{}: no tensor '{}' in it", path_, heading.name);
    if (stored->type != formats::stored_type(heading.dtype) || stored->shape != heading.shape) {
      config_error("{}: tensor '{}' is {} [{}], {} [{}] is expected", path_, heading.name, name_of(stored->type),
                   fmt::join(stored->shape, ", "), name_of(formats::stored_type(heading.dtype)),
                   fmt::join(heading.shape, ", "));
    }
    wanted.insert(heading.name);
  }
  for (const SavedTensor& stored : tensors_) {
    if (!wanted.contains(stored.name)) {
      config_error("{}: tensor '{}' belongs nowhere in this model", path_, formats::printable(stored.name));
    }
  }
}

void Checkpoint::load_into(const model::ModelConfig& model,
                           const std::vector<formats::LogicalTensor>& tensors) const {
  std::vector<formats::TensorHeading> headings;
  for (const formats::LogicalTensor& tensor : tensors)
    headings.push_back({tensor.name, tensor.dtype, tensor.shape});
  check_fits(model, headings);
  for (const formats::LogicalTensor& tensor : tensors) {
    int64_t bytes = 0;
    for (const auto& piece : tensor.pieces) bytes += std::ssize(piece);
    HEDDLE_CHECK(bytes == tensor.size_bytes(), "the pieces of '{}' have {} bytes, the tensor {}", tensor.name,
                 bytes, tensor.size_bytes());
  }
  for (const formats::LogicalTensor& tensor : tensors) {
    const SavedTensor& from = at(tensor.name);
    int64_t first = 0;
    for (const auto& piece : tensor.pieces) {
      const int64_t count = std::ssize(piece) / size_of(tensor.dtype);
      from.copy(first, count, piece.data());
      first += count;
    }
  }
}

namespace {

// A disk or a file server that fails for a moment says nothing of what lies there.
Checkpoint opened_in_time(const std::string& path) {
  constexpr int kAttempts = 5;
  for (int attempt = 1;; ++attempt) {
    try {
      return Checkpoint(path);
    } catch (const SystemError& error) {
      if (attempt == kAttempts)
        throw SystemError(error.code, fmt::format("{} (tried {} times); {} may be whole, so it is not skipped: try "
                                                  "again, or remove it to resume from the one before",
                                                  error.what(), kAttempts, path));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50 << (2 * attempt - 2)));
  }
}

}  // namespace

std::optional<Checkpoint> latest_checkpoint(const std::string& folder, std::vector<std::string>* refused,
                                            int64_t last_step) {
  const auto listed = [&] {
    std::vector<int64_t> steps = steps_in(folder);
    std::erase_if(steps, [&](int64_t step) { return step > last_step; });
    return steps;
  };
  constexpr int kAttempts = 100;
  for (int attempt = 1;; ++attempt) {
    const std::vector<int64_t> steps = listed();
    std::vector<std::string> reasons;
    for (const int64_t step : steps) {
      try {
        const std::string path = (fs::path(folder) / name_of_step(step)).string();
        refuse_link(path);
        Checkpoint checkpoint = opened_in_time(path);
        if (refused != nullptr) *refused = std::move(reasons);
        return checkpoint;
      } catch (const ConfigError& error) {
        reasons.emplace_back(error.what());
      }
    }
    if (steps.empty()) return std::nullopt;
    // A run that goes on may have replaced them all since they were listed.
    if (steps != listed() && attempt < kAttempts) continue;
    config_error("{}: none of {} checkpoints can be used; the newest: {}", folder, steps.size(), reasons.front());
  }
}

int64_t newest_step(const std::string& folder) {
  const std::vector<int64_t> steps = steps_in(folder);
  return steps.empty() ? -1 : steps.front();
}

Checkpoint open_checkpoint(const std::string& path, std::vector<std::string>* refused) {
  const fs::path at = fs::path(path).lexically_normal();
  const fs::path trimmed = at.has_filename() ? at : at.parent_path();
  std::error_code ignored;
  const bool single = fs::exists(trimmed / kStateFile, ignored) || fs::exists(trimmed / kTensorFile, ignored) ||
                      step_of_name(trimmed.filename().string()) >= 0;
  if (!single) {
    std::optional<Checkpoint> latest = latest_checkpoint(trimmed.string(), refused);
    if (!latest) config_error("{}: no checkpoint in it", path);
    return std::move(*latest);
  }
  try {
    return Checkpoint(trimmed.string());
  } catch (const ConfigError& error) {
    std::string other;
    try {
      const fs::path beside = trimmed.has_parent_path() ? trimmed.parent_path() : fs::path(".");
      if (const auto latest = latest_checkpoint(beside.string())) other = latest->path();
    } catch (const ConfigError&) {
      // The one that was asked for is the one to complain of.
    }
    if (other.empty()) throw;
    config_error("{}; {} is whole", error.what(), other);
  }
}

}  // namespace heddle::train
