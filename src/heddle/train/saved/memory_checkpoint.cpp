// A checkpoint out of the segments of a job's ranks, in any layout: newest_in_memory of segment.h.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/train/saved/segment.h"

namespace heddle::train {

namespace {

struct Found {
  std::shared_ptr<const Segment> segment;
  int set = 0;
  Seal seal;
};
/// The segments of a step, by rank.
using Ranks = std::map<int64_t, std::vector<Found>>;
/// Segments by generation and step, then by job: the last is the newest.
using Jobs = std::map<std::tuple<int64_t, int64_t, std::string>, Ranks>;

// Owner of the checkpoint's bytes.
struct Holds {
  std::vector<std::shared_ptr<const Segment>> segments;
  std::deque<std::vector<float>> made;
  std::vector<FileHold> holds;
};

// Returns one whole segment of each rank; none where a rank has none.
std::optional<std::vector<Found>> whole(const Ranks& ranks, bool sums, std::vector<std::string>& reasons) {
  std::vector<Found> all;
  const int64_t count = ranks.begin()->second.front().segment->index().ranks;
  for (int64_t r = 0; r < count; ++r) {
    const auto at = ranks.find(r);
    bool found = false;
    for (const Found& each : at == ranks.end() ? std::vector<Found>() : at->second) {
      try {
        if (each.segment->index().ranks != count) continue;
        if (sums) each.segment->verify(each.set);
        all.push_back(each);
        found = true;
        break;
      } catch (const ConfigError& error) {
        reasons.emplace_back(error.what());
      }
    }
    if (!found) {
      reasons.push_back(fmt::format("step {} in memory: what rank {} of {} held is not there",
                                    ranks.begin()->second.front().seal.step, r, count));
      return std::nullopt;
    }
  }
  return all;
}

// The places of the ranks' segments: on this host, with a partner, with other hosts.
std::string whereabouts(const std::vector<Found>& ranks) {
  std::vector<std::pair<std::string, std::string>> places;
  for (const Found& found : ranks) {
    const std::string& folder = found.segment->files().folder;
    if (places.empty() || places.back().first != folder) places.emplace_back(folder, "");
    places.back().second += fmt::format(" {}", found.segment->index().rank);
  }
  if (places.size() == 1) return places.front().first;
  std::string text;
  for (const auto& [folder, of] : places)
    text += fmt::format("{}rank{} in {}", text.empty() ? "" : ", ", of, folder);
  return text;
}

Checkpoint joined_checkpoint(const std::vector<Found>& ranks) {
  const auto holds = std::make_shared<Holds>();
  std::map<std::string, SavedTensor> tensors;
  for (const Found& found : ranks) {
    holds->segments.push_back(found.segment);
    const bool remote = found.segment->is_shared();
    const std::string hold_file = found.segment->files().hold(found.set);
    if (auto hold = remote ? std::nullopt : FileHold::take(hold_file, FileHold::How::shared, true))
      holds->holds.push_back(std::move(*hold));
    const SegmentIndex& index = found.segment->index();
    for (size_t i = 0; i < index.tensors.size(); ++i) {
      const SegmentIndex::Tensor& tensor = index.tensors[i];
      const std::vector<Runs>& runs = found.seal.runs_of(index, i);
      SavedTensor& saved = tensors[tensor.name];
      const formats::StoredType type = formats::stored_type(tensor.dtype);
      if (!saved.parts.empty() && (saved.type != type || saved.shape != tensor.shape))
        config_error("memory of rank {}: tensor '{}' is another than that of the ranks before it", index.rank,
                     formats::printable(tensor.name));
      saved.name = tensor.name;
      saved.type = type;
      saved.shape = tensor.shape;
      std::vector<float>& made = holds->made.emplace_back();
      if (remote) {
        const Segment* segment = found.segment.get();
        saved.parts.push_back({runs, {}, [segment, &tensor, set = found.set, &made](int64_t first, int64_t n) {
                                 return segment->fetch(tensor, set, first, n, made);
                               }});
      } else {
        saved.parts.push_back({runs, found.segment->bytes_of(tensor, found.set, made)});
      }
    }
  }
  std::vector<SavedTensor> all;
  for (auto& [name, tensor] : tensors) {
    std::vector<const std::vector<Runs>*> runs;
    for (const SavedTensor::Part& part : tensor.parts) runs.push_back(&part.runs);
    if (!cover(runs, tensor.elements()))
      config_error("memory: the ranks don't hold each element of tensor '{}' once", formats::printable(name));
    all.push_back(std::move(tensor));
  }
  const Seal& seal = ranks.front().seal;
  return {seal.state, std::move(all), holds, fmt::format("memory of step {} ({})", seal.step, whereabouts(ranks))};
}

}  // namespace

std::optional<Checkpoint> newest_in_memory(const std::vector<std::string>& folders, bool sums,
                                           std::vector<std::string>* refused, int64_t step, int64_t generation,
                                           const std::vector<std::shared_ptr<const Segment>>& remote,
                                           int64_t last_step) {
  Jobs jobs;
  std::vector<std::string> reasons;
  const auto add = [&](const std::shared_ptr<const Segment>& segment) {
    const SegmentIndex& index = segment->index();
    for (int set = 0; set < kSets; ++set) {
      const std::optional<Seal> seal = segment->seal(set);
      if (!seal || seal->step > last_step ||
          (step != 0 && (seal->step != step || (generation != 0 && index.generation != generation))))
        continue;
      jobs[{index.generation, seal->step, index.run}][index.rank].push_back({segment, set, *seal});
    }
  };
  for (const std::string& folder : folders) {
    for (const SegmentFiles& files : segments_in(folder)) {
      try {
        add(std::make_shared<const Segment>(files));
      } catch (const InternalError&) {
        throw;
      } catch (const Error& error) {
        reasons.emplace_back(error.what());
      }
    }
  }
  for (const auto& segment : remote) add(segment);
  std::optional<Checkpoint> found;
  for (auto at = jobs.rbegin(); at != jobs.rend() && !found; ++at) {
    try {
      if (const auto ranks = whole(at->second, sums, reasons)) found.emplace(joined_checkpoint(*ranks));
    } catch (const ConfigError& error) {
      reasons.emplace_back(error.what());
    }
  }
  if (refused != nullptr) refused->insert(refused->end(), reasons.begin(), reasons.end());
  return found;
}

}  // namespace heddle::train
