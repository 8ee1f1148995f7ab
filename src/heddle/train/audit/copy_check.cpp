#include "heddle/train/audit/copy_check.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"

namespace heddle::train {

namespace {

struct Copy {
  std::string name;
  std::string group;
  uint64_t digest = 0;
};

uint64_t digest_of(const device::TensorView& view) {
  return hash_bytes({view.as<const char>(), static_cast<size_t>(view.elements() * size_of(view.dtype))});
}

// What this rank holds that others have as well: by the order of the program's parameters, the same on all of them.
std::vector<Copy> copies_of(Trainer& trainer) {
  const ir::StepProgram& program = trainer.lowered().program;
  const int rank = trainer.ranks().rank();
  const int stage = trainer.mesh().at(rank).at(ir::Axis::pp);
  const ir::Listing& listing = program.listings[static_cast<size_t>(stage)];
  std::vector<Copy> copies;
  for (const model::Parameter& p : trainer.lowered().parameters[static_cast<size_t>(stage)]) {
    if (p.frozen || p.start == model::Parameter::Start::rope_table) continue;  // nothing changes it
    if (trainer.mesh().group(p.copies, rank).size() < 2) continue;
    const ir::Value& weight = listing.value(p.value);
    const ir::ValueId master = listing.find("master." + p.name);
    if (weight.layout != ir::Layout::packed) {
      copies.push_back({p.name, p.copies, digest_of(trainer.executor().view(stage, p.value))});
    } else if (master != ir::none && listing.value(master).shape == weight.shape) {
      copies.push_back({"master." + p.name, p.copies, digest_of(trainer.executor().view(stage, master))});
    }
  }
  return copies;
}

}  // namespace

std::string differing_copy(Trainer& trainer) {
  RankExchange& ranks = trainer.ranks();
  const std::vector<Copy> own = copies_of(trainer);
  std::string lines;
  for (const Copy& copy : own) lines += fmt::format("{} {:016x}\n", copy.name, copy.digest);
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
    // Most are right; of two there is no telling.
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
