#include "heddle/train/saved/snapshots.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/files/chunk_sums.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/random_id.h"
#include "heddle/passes/state/snapshot.h"

namespace heddle::train {

namespace {

constexpr const char* kMemory = "/dev/shm";
constexpr auto kLook = std::chrono::milliseconds(5), kGlance = std::chrono::milliseconds(1);
constexpr double kLongest_s = 600;  // the time for which a reader may hold a set whose turn it is

std::string own_folder() {
  const std::string path = fmt::format("{}/heddle-{}", kMemory, random_id());
  if (::mkdir(path.c_str(), 0700) != 0)
    throw SystemError(errno, fmt::format("cannot create {}: {}", path, std::strerror(errno)));
  return path;
}

void write_own(const std::string& path, const std::string& text) {
  OutputFile file(path, OutputFile::Open::replace, OutputFile::Access::owner, OutputFile::Flush::to_system);
  file.write(text);
  file.commit();
}

}  // namespace

Snapshots::Snapshots(SnapshotPlace place, int rank, int ranks)
    : own_folder_(place.folder.empty()), kept_(place.kept) {
  if (own_folder_) place.folder = own_folder();
  files_ = {place.folder, fmt::format("rank-{:05}-{}", rank, random_id())};
  index_.run = place.run;
  index_.generation = place.generation;
  index_.rank = rank;
  index_.ranks = ranks;
}

Snapshots::~Snapshots() {
  stop();
  std::error_code ignored;
  if (own_folder_) {
    std::filesystem::remove_all(files_.folder, ignored);
    return;
  }
  // Nobody can go on from what was never sealed: a start that was refused gives its memory back.
  for (int set = 0; set < kSets; ++set)
    if (std::filesystem::exists(files_.seal(set), ignored)) return;
  files_.remove();
  if (!kept_) ::rmdir(files_.folder.c_str());  // stays if another rank's lies there
}

void Snapshots::bind(const plan::Lowered& lowered, runtime::Executor& executor, const plan::Mesh& mesh) {
  executor_ = &executor;
  const int rank = static_cast<int>(index_.rank);
  listing_ = lowered.program.listing_of(rank, ir::Purpose::snapshot);
  const ir::Listing& copies = lowered.program.listings[static_cast<size_t>(listing_)];
  const auto find = [&](const std::string& name, const char* suffix) {
    const ir::ValueId id = copies.find(name + suffix);
    HEDDLE_CHECK(id != ir::none, "nothing copies '{}'", name);
    return id;
  };
  std::map<std::string, int64_t> known;
  const auto value_of = [&](const std::string& name) -> int64_t {
    if (const auto at = known.find(name); at != known.end()) return at->second;
    const ir::ValueId a = find(name, passes::kSnap), b = find(name, passes::kSnapBefore);
    SegmentIndex::Held held{name,
                            copies.bytes(a, ir::FixedRows()),
                            {executor.walk().offset_of(listing_, a), executor.walk().offset_of(listing_, b)},
                            {executor.walk().offset_of(listing_, find(name, passes::kSums)),
                             executor.walk().offset_of(listing_, find(name, passes::kSumsBefore))}};
    if (first_ == ir::none) first_ = a;
    bytes_ += held.bytes;
    index_.values.push_back(std::move(held));
    return known[name] = std::ssize(index_.values) - 1;
  };
  // A view that says which value it is of: nothing is read here.
  const auto stand_in = [](int /*listing*/, ir::ValueId id) {
    device::TensorView view;
    view.data = reinterpret_cast<void*>(static_cast<uintptr_t>(id) + 1);
    return view;
  };
  const ir::Listing& owner = lowered.program.listings[static_cast<size_t>(mesh.at(rank).at(ir::Axis::pp))];
  const auto held_in = [&](const device::TensorView& view) {
    return value_of(owner.value(static_cast<ir::ValueId>(reinterpret_cast<uintptr_t>(view.data) - 1)).name);
  };
  std::vector<StateTensor> copied;
  for (const StateTensor& tensor : state_tensors(lowered, mesh, rank, stand_in)) {
    if (tensor.is_frozen() || !tensor.is_here()) continue;
    SegmentIndex::Tensor& said = index_.tensors.emplace_back();
    said.name = tensor.name;
    said.dtype = tensor.dtype;
    said.shape = tensor.shape;
    if (tensor.split) {
      said.form = tensor.is_master ? SegmentIndex::Form::split_master : SegmentIndex::Form::split_moment;
      said.of = {held_in(tensor.split->nearest), held_in(tensor.split->low), held_in(tensor.split->second_moment)};
    } else {
      said.of = {held_in(tensor.view), 0, 0};
    }
    copied.push_back(tensor);
  }
  owned_ = [copied = std::move(copied), &lowered, &mesh, rank](size_t tensor, const ExpertPlacements& placements) {
    std::vector<model::Extent> owned = owned_extents(copied[tensor], lowered, mesh, rank, placements);
    std::sort(owned.begin(), owned.end(), [](const auto& a, const auto& b) { return a.local < b.local; });
    return runs_of(owned);
  };
  for (size_t i = 0; i < index_.tensors.size(); ++i) index_.tensors[i].runs = owned_(i, {});
  index_.bytes = executor.walk().storage(ir::Space::shared).reserved_bytes();
  for (int set = 0; set < kSets; ++set) FileHold::take(files_.hold(set), FileHold::How::alone, true);
  write_own(files_.index(), text_of(index_));
}

int64_t Snapshots::offset_of(ir::ValueId id) const { return executor_->walk().offset_of(listing_, id); }

bool Snapshots::begin(runtime::Executor& executor, RankExchange& ranks, bool must, SnapshotNote note,
                      const ExpertPlacements& placements) {
  HEDDLE_CHECK(!is_open(), "a copy of the state is under way");
  const double start_s = now_s();
  // The set that the next copy writes; on an empty stage, which copies nothing, the sets take turns all the same.
  set_ = first_ == ir::none ? (set_ == 0 ? 1 : 0) : offset_of(first_) == index_.values[0].at[0] ? 0 : 1;
  const auto take = [&] {
    if (auto taken = FileHold::take(files_.hold(set_), FileHold::How::alone, true))
      hold_.emplace(std::move(*taken));
    return is_open();
  };
  while (!take() && must && now_s() - start_s < kLongest_s) std::this_thread::sleep_for(kLook);
  std::array<double, 2> of_all{hold_ ? 0.0 : 1.0, lost_.empty() ? 0.0 : 1.0};
  ranks.sum(of_all);
  const bool left_out = of_all[0] > 0;
  if (of_all[1] > 0 && !std::exchange(is_lost_, true))
    note_ = fmt::format(
        "a snapshot of the state in memory is not whole ({}); until snapshots are again, the ranks write "
        "checkpoints to disk",
        lost_.empty() ? "of another rank" : lost_);
  if (of_all[1] == 0) is_lost_ = false;
  // All ranks are here: what this one sealed before, all have, unless one says otherwise.
  if (is_lost_) sealed_in_a_row_ = 0;
  if (sealed_in_a_row_ > 1) remove_superseded();
  if (left_out) {
    hold_.reset();
  } else {
    ::unlink(files_.seal(set_).c_str());
    const uint8_t* base = nullptr;
    if (first_ != ir::none)
      base = static_cast<const uint8_t*>(executor.view(listing_, first_).data) - offset_of(first_);
    executor.start_step(nothing_, ir::Purpose::snapshot);
    find_elsewhere(placements);
    lost_.clear();
    step_ended_ = stopped_ = false;
    sealer_ = std::thread([this, base, marks = executor.walk().issued(), note = std::move(note)] {
      try {
        seal_when_copied(marks, note, base);
      } catch (const SystemError& error) {  // no room, as a rule
        lost_ = error.what();
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }
  blocked_s_ += now_s() - start_s;
  return is_open();
}

void Snapshots::find_elsewhere(const ExpertPlacements& placements) {
  if (placements == placements_) return;
  placements_ = placements;
  elsewhere_.clear();
  for (size_t i = 0; i < index_.tensors.size(); ++i) {
    std::vector<Runs> runs = owned_(i, placements);
    if (runs != index_.tensors[i].runs) elsewhere_[i] = std::move(runs);
  }
}

void Snapshots::seal_when_copied(const ir::Marks& marks, const SnapshotNote& note, const uint8_t* base) {
  while (!step_ended_ && !stopped_ && !executor_->has_ended(marks)) std::this_thread::sleep_for(kGlance);
  if (stopped_) return;
  Seal seal{note.state.step, note.state, note.persists, elsewhere_};
  seal.state.generation = index_.generation;
  write_own(files_.seal(set_), text_of(seal, index_, sum_of_sums(index_, set_, base)));
}

void Snapshots::end() {
  const double start_s = now_s();
  HEDDLE_CHECK(is_open(), "no copy of the state is under way");
  step_ended_ = true;
  sealer_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  hold_.reset();
  if (lost_.empty()) {
    ++sealed_;
    ++sealed_in_a_row_;
  }
  blocked_s_ += now_s() - start_s;
}

void Snapshots::stop() {
  stopped_ = true;
  if (sealer_.joinable()) sealer_.join();
}

void Snapshots::remove_superseded() {
  for (const SegmentFiles& files : std::exchange(superseded_, {})) files.remove();
  if (!superseded_folder_.empty())
    ::rmdir(std::exchange(superseded_folder_, {}).c_str());  // stays if another writes
}

void Snapshots::remove() {
  remove_superseded();
  files_.remove();
}

}  // namespace heddle::train
