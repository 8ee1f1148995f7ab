#include "heddle/session/audit/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "heddle/base/error.h"
#include "heddle/formats/safetensors.h"
#include "heddle/ir/print.h"
#include "heddle/runtime/executor.h"

namespace heddle::session {

namespace {

constexpr int64_t kMostReplayBytes = int64_t{1} << 34;  // kept in all

struct Kept {
  std::vector<int64_t> shape;
  Dtype dtype;
  std::string bytes;
};

bool writes(const ir::Listing& listing, const ir::Op& op, const std::string& name) {
  const auto is = [&](ir::ValueId id) { return id != ir::none && listing.value(id).name == name; };
  return op.kind() == name || std::any_of(op.out.begin(), op.out.end(), is) ||
         std::any_of(op.updates.begin(), op.updates.end(), is);
}

// The ops of a rank's step that are meant.
std::vector<uint32_t> meant(const ir::Listing& listing, const std::string& name) {
  std::vector<uint32_t> ops;
  std::vector<std::string> names;
  for (uint32_t i = 0; i < listing.ops.size(); ++i) {
    const ir::Op& op = listing.ops[i];
    if (ir::runs(*op.def) && writes(listing, op, name)) ops.push_back(i);
    names.emplace_back(op.kind());
    for (const ir::ValueId id : op.out) names.push_back(id == ir::none ? "" : listing.value(id).name);
  }
  if (ops.empty()) {
    const std::string near = nearest_name(name, names);
    config_error("--op {}: no op of that kind, and none that writes a value of that name{}", name,
                 near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
  }
  return ops;
}

// Catches the launches of one rank.
class Catch {
 public:
  Catch(const ir::Listing& listing, int index, std::vector<uint32_t> ops, int microbatch)
      : listing_(listing), index_(index), ops_(std::move(ops)), microbatch_(microbatch) {}

  void look(const device::Launch& launch) {
    if (launch.listing != index_ || !std::binary_search(ops_.begin(), ops_.end(), launch.op_index)) return;
    const ir::Op& op = listing_.ops[launch.op_index];
    if (!ir::once_a_step(op.phase) && launch.call.microbatch != microbatch_) return;
    const std::lock_guard lock(mutex_);
    if (done_.contains(launch.op_index)) return;
    ReplayedOp& done = done_[launch.op_index];
    done.op = ir::text_of(listing_, op);
    done.microbatch = launch.call.microbatch;
    keep(done, launch.op_index, op.in, launch.call.in, "in");
    keep(done, launch.op_index, op.out, launch.call.out, "out");
    keep(done, launch.op_index, op.updates, launch.call.updates, "updated");
  }

  const std::map<std::string, Kept>& tensors() const { return tensors_; }
  std::vector<ReplayedOp> ops() const {
    std::vector<ReplayedOp> ops;
    for (const auto& [index, op] : done_) ops.push_back(op);
    return ops;
  }

 private:
  void keep(ReplayedOp& done, uint32_t index, const std::vector<ir::ValueId>& ids,
            std::span<const device::TensorView> views, const char* as) {
    for (size_t i = 0; i < views.size(); ++i) {
      const device::TensorView& view = views[i];
      if (!view || view.layout == ir::Layout::packed) continue;
      const int64_t bytes = view.elements() * size_of(view.dtype);
      bytes_ += bytes;
      if (bytes_ > kMostReplayBytes) config_error("--op: more than {} bytes; name one op", kMostReplayBytes);
      const std::string name = fmt::format("{}.{}.{}", index, listing_.value(ids[i]).name, as);
      Kept& kept = tensors_[name];
      kept.shape.assign(view.dims.begin(), view.dims.begin() + view.rank);
      kept.dtype = view.dtype;
      if (view.dtype == Dtype::u16) {  // the format has no such type: its bytes
        kept.shape.push_back(2);
        kept.dtype = Dtype::u8;
      }
      kept.bytes.clear();
      for (int64_t s = 0; s < view.stretches; ++s)
        kept.bytes.append(view.stretch(s).as<const char>(), static_cast<size_t>(bytes / view.stretches));
      done.tensors.push_back(name);
    }
  }

  const ir::Listing& listing_;
  int index_;
  std::vector<uint32_t> ops_;
  int microbatch_;
  std::mutex mutex_;
  int64_t bytes_ = 0;
  std::map<uint32_t, ReplayedOp> done_;
  std::map<std::string, Kept> tensors_;
};

void write(const std::string& path, const std::map<std::string, Kept>& tensors) {
  std::vector<formats::TensorHeading> headings;
  for (const auto& [name, kept] : tensors) headings.push_back({name, kept.dtype, kept.shape});
  formats::sort_for_file(headings);
  formats::SafetensorsWriter writer(path, headings, {{"format", "pt"}});
  for (const formats::TensorHeading& heading : headings) {
    const std::string& bytes = tensors.at(heading.name).bytes;
    writer.write(bytes.data(), bytes.size());
  }
  writer.commit();
}

// One op a line, its tensors behind it, so that a rank can tell the others.
std::string text_of(const std::vector<ReplayedOp>& ops) {
  std::string text;
  for (const ReplayedOp& op : ops)
    text += fmt::format("{}\t{}\t{}\n", op.microbatch, op.op, fmt::join(op.tensors, "\t"));
  return text;
}

std::vector<ReplayedOp> ops_of(const std::string& text) {
  std::vector<ReplayedOp> ops;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    std::vector<std::string> words;
    for (size_t word = at; word <= end;) {
      const size_t stop = std::min(text.find('\t', word), end);
      words.push_back(text.substr(word, stop - word));
      word = stop + 1;
    }
    ops.push_back({words.at(1), std::stoi(words.at(0)), {words.begin() + 2, words.end()}});
    at = end + 1;
  }
  return ops;
}

}  // namespace

std::vector<ReplayedOp> replay(const RunFolder& folder, const config::RunConfig& config, int64_t step,
                               const std::string& name, int rank, int microbatch, const std::string& path,
                               comm::World* world) {
  Rerun rerun(folder, config, step, step, world);
  train::Trainer& trainer = rerun.trainer();
  train::RankExchange& ranks = trainer.ranks();
  const plan::Plan& plan = trainer.options().plan;
  if (rank >= ranks.size()) config_error("--rank {}: there are ranks 0 to {}", rank, ranks.size() - 1);
  if (microbatch >= plan.microbatches)
    config_error("--microbatch {}: a step has 0 to {}", microbatch, plan.microbatches - 1);
  const ir::StepProgram& program = trainer.lowered().program;
  const int index = program.listing_of(rank, ir::Purpose::train);
  const ir::Listing& listing = program.listings[static_cast<size_t>(index)];
  Catch caught(listing, index, meant(listing, name), microbatch);
  while (trainer.steps_done() < step - 1) rerun.step();
  if (ranks.rank() == rank) trainer.executor().watch([&](const device::Launch& launch) { caught.look(launch); });
  rerun.step();
  if (ranks.rank() == rank) {
    trainer.executor().watch({});
    write(path, caught.tensors());
  }
  return ops_of(ranks.share(text_of(caught.ops())).at(static_cast<size_t>(rank)));
}

}  // namespace heddle::session
