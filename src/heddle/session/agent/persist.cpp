#include "heddle/session/agent/persist.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"
#include "heddle/config/run_config.h"
#include "heddle/session/agent/run_memory.h"
#include "heddle/train/saved/checked_json.h"
#include "heddle/train/saved/state_json.h"

namespace heddle::session {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMostPersistText = int64_t{1} << 28;
constexpr const char* kPending = ".pending-";

std::string told_file(const std::string& folder, int64_t rank) {
  return fmt::format("{}/shard-{:05}.json", folder, rank);
}

int keeps(const RunFolder& folder) {
  try {
    return static_cast<int>(config::read_run_config(folder.config()).train.keep_checkpoints);
  } catch (const Error&) {
    return static_cast<int>(config::RunConfig().train.keep_checkpoints);
  }
}

// The bytes of a segment's set as the shard of its rank, and what a manifest says of it and of the tensors.
int64_t write_rank(const std::string& folder, const train::Segment& segment, int64_t step) {
  const int set = segment.set_of(step);
  if (set < 0) config_error("{}: step {} is not whole in it", segment.files().data(), step);
  const std::optional<train::FileHold> hold =
      train::FileHold::take(segment.files().hold(set), train::FileHold::How::shared, true);
  const std::optional<train::Seal> seal = hold ? segment.seal(set) : std::nullopt;
  if (!seal || seal->step != step) config_error("{}: step {} is being written", segment.files().data(), step);
  segment.verify(set);
  std::map<std::string_view, const train::SegmentIndex::Tensor*> by_name;
  std::vector<train::ShardPart> parts;
  json tensors = json::object();
  for (size_t i = 0; i < segment.index().tensors.size(); ++i) {
    const train::SegmentIndex::Tensor& tensor = segment.index().tensors[i];
    by_name[tensor.name] = &tensor;
    parts.push_back({tensor.name, tensor.dtype, seal->runs_of(segment.index(), i)});
    tensors[tensor.name] = {{"dtype", static_cast<int>(tensor.dtype)}, {"shape", tensor.shape}};
  }
  int64_t bytes = 0;
  const std::string shard = train::write_shard(
      folder, segment.index().rank, std::move(parts), [&](const train::ShardPart& part, const auto& write) {
        std::vector<float> made;
        const auto from = segment.bytes_of(*by_name.at(part.name), set, made);
        bytes += std::ssize(from);
        write(from.data(), from.size());
      });
  train::read_back_shard(folder, shard);
  write_file(told_file(folder, segment.index().rank),
             train::checked_text({{"told", shard}, {"tensors", tensors}, {"state", train::json_of(seal->state)}}));
  return bytes;
}

}  // namespace

void remove_pending(const RunFolder& folder, int64_t step) {
  std::error_code ignored;
  std::vector<fs::path> old;
  for (fs::directory_iterator at(held_path(folder.checkpoints()), ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(kPending)) continue;
    if (std::atoll(name.c_str() + std::strlen(kPending)) <= step) old.push_back(at->path());
  }
  for (const fs::path& path : old) fs::remove_all(path, ignored);
}

Persisted persist(const RunFolder& folder, const std::vector<std::shared_ptr<const train::Segment>>& segments,
                  int64_t step) {
  HEDDLE_CHECK(!segments.empty(), "no segment to persist");
  const train::SegmentIndex& job = segments.front()->index();
  const auto check_fence = [&] {
    if (const int64_t now = generation_of(folder); job.generation < now)
      config_error("{}: generation {} is over, {} trains", folder.path, job.generation, now);
  };
  check_fence();
  const double start_s = now_s();
  train::UnfinishedCheckpoint unfinished(folder.checkpoints(), step,
                                         fmt::format("{}{}-{}-{}", kPending, step, job.generation, job.run));
  Persisted done;
  for (const auto& segment : segments) {
    std::error_code ignored;
    if (fs::exists(held_path(told_file(unfinished.path(), segment->index().rank)), ignored))
      continue;  // written by another agent
    done.bytes += write_rank(unfinished.path(), *segment, step);
  }
  std::vector<std::string> shards;
  std::map<std::string, formats::TensorHeading> headings;
  train::CheckpointState state;  // state sent with the shards: memory may hold a later step by now
  for (int64_t rank = 0; rank < job.ranks; ++rank) {
    const std::string path = told_file(unfinished.path(), rank);
    std::error_code ignored;
    if (!fs::exists(held_path(path), ignored)) break;
    const json said = train::checked_json(read_file(path, kMostPersistText), path);
    shards.push_back(said.at("told").get<std::string>());
    if (rank == 0) state = train::state_from(said.at("state"), path);
    for (const auto& [name, tensor] : said.at("tensors").items()) {
      headings[name] = {name, static_cast<Dtype>(tensor.at("dtype").get<int>()),
                        tensor.at("shape").get<std::vector<int64_t>>()};
    }
  }
  done.seconds = now_s() - start_s;
  if (std::ssize(shards) < job.ranks) return done;
  // One of the agents that find them all; the others find it done.
  const auto alone =
      train::FileHold::take(held_path(unfinished.path() + "/.commit"), train::FileHold::How::alone, true);
  if (!alone) return done;
  if (state.step != step) config_error("{}: of step {}, not {}", unfinished.path(), state.step, step);
  std::vector<formats::TensorHeading> all;
  for (auto& [name, heading] : headings) all.push_back(std::move(heading));
  for (int64_t rank = 0; rank < job.ranks; ++rank) fs::remove(held_path(told_file(unfinished.path(), rank)));
  remove_temporaries(unfinished.path());  // left by an agent that was killed before another wrote that shard
  check_fence();
  done.path = unfinished.commit(state, all, shards, keeps(folder));
  fs::remove(held_path(done.path + "/.commit"));
  remove_pending(folder, step);
  done.seconds = now_s() - start_s;
  return done;
}

}  // namespace heddle::session
