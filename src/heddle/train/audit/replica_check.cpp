#include "heddle/train/audit/replica_check.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"
#include "heddle/passes/shard/shard_weights.h"
#include "heddle/runtime/executor.h"

namespace heddle::train {

namespace {

struct Replica {
  std::string name;
  std::string group;
  uint64_t digest = 0;
};

uint64_t digest_of(const device::TensorView& view) {
  return hash_bytes({view.as<const char>(), static_cast<size_t>(view.elements() * size_of(view.dtype))});
}

// Digests of the weights that this rank and others hold, in the order of the program's parameters: the same on all
// of them.
std::vector<Replica> replicas_of(Trainer& trainer) {
  const ir::StepProgram& program = trainer.lowered().program;
  const int rank = trainer.ranks().rank();
  const int stage = trainer.mesh().at(rank).at(ir::Axis::pp);
  const ir::Listing& listing = program.listings[static_cast<size_t>(stage)];
  std::vector<Replica> replicas;
  for (const model::Parameter& p : trainer.lowered().parameters[static_cast<size_t>(stage)]) {
    if (p.frozen || p.start == model::Parameter::Start::rope_table) continue;  // nothing changes it
    const ir::Value& weight = listing.value(p.value);
    const bool is_cut = weight.space == ir::Space::nowhere;  // among ranks: others may hold the same run of it
    const std::string& group = is_cut ? p.across : p.replica_group;
    if (group.empty() || trainer.mesh().group(group, rank).size() < 2) continue;
    const ir::ValueId master = listing.find("master." + p.name);
    if (is_cut) {
      const ir::ValueId run = passes::run_of_weight(listing, p.name);
      replicas.push_back({listing.value(run).name, group, digest_of(trainer.executor().view(stage, run))});
      continue;
    }
    if (weight.layout != ir::Layout::packed) {
      replicas.push_back({p.name, p.replica_group, digest_of(trainer.executor().view(stage, p.value))});
    } else if (master != ir::none && listing.value(master).shape == weight.shape) {
      replicas.push_back({"master." + p.name, p.replica_group, digest_of(trainer.executor().view(stage, master))});
    }
  }
  return replicas;
}

}  // namespace

std::string differing_replica(Trainer& trainer) {
  RankExchange& ranks = trainer.ranks();
  const std::vector<Replica> own = replicas_of(trainer);
  std::string lines;
  for (const Replica& replica : own) lines += fmt::format("{} {:016x}\n", replica.name, replica.digest);
  const std::vector<std::string> all = ranks.share(lines);
  std::string found;
  for (size_t i = 0; i < own.size() && found.empty(); ++i) {
    std::map<std::string, std::vector<int>> by_digest;
    for (const int r : trainer.mesh().group(own[i].group, ranks.rank())) {
      // Ranks of another stage hold other weights beside it.
      const std::string& told = all[static_cast<size_t>(r)];
      const size_t at = ("\n" + told).find("\n" + own[i].name + " ");
      HEDDLE_CHECK(at != told.npos, "rank {} holds no copy of '{}'", r, own[i].name);
      by_digest[told.substr(at, told.find('\n', at) - at)].push_back(r);
    }
    if (by_digest.size() == 1) continue;
    // Most are right; two alone don't show which.
    const std::vector<int>*most = nullptr, *other = nullptr;
    for (const auto& [digest, of] : by_digest) {
      if (most == nullptr || of.size() > most->size()) most = &of;
    }
    for (const auto& [digest, of] : by_digest) {
      if (&of != most && (other == nullptr || of.size() < other->size())) other = &of;
    }
    found =
        fmt::format("'{}' on rank{} {} differs from that on rank{} {}", own[i].name, other->size() > 1 ? "s" : "",
                    fmt::join(*other, ", "), most->size() > 1 ? "s" : "", fmt::join(*most, ", "));
  }
  for (const std::string& first : ranks.share(found)) {
    if (!first.empty()) return first;
  }
  return "";
}

}  // namespace heddle::train
