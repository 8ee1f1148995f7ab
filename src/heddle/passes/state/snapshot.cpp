#include "heddle/passes/state/snapshot.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "heddle/base/files/chunk_sums.h"
#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::ValueId;

// The values of a parameter that persist and are not made again of the rest.
std::vector<ValueId> state_of(const model::Parameter& p, const ir::Listing& listing) {
  std::vector<ValueId> state;
  const auto add = [&](const std::string& name) {
    const ValueId id = listing.find(name);
    if (id != none) state.push_back(id);
    return id != none;
  };
  if (add("rest." + p.name)) {
    if (!add("copy." + p.name)) state.push_back(p.value);
  } else if (!add("master." + p.name)) {
    state.push_back(p.value);
  }
  for (const char* beside : {"m.", "v.", "average."}) add(beside + p.name);
  return state;
}

class Copier {
 public:
  Copier(const ir::Listing& owner, int index) : owner_(owner), index_(index) {
    listing_.name = owner.name + ", snapshot";
  }

  void copy(ValueId state) {
    if (!known_.insert(state).second) return;
    ir::Value value = owner_.value(state);
    const bool on_host = value.space != ir::Space::device;
    value.shared_with = index_;
    const ValueId from = listing_.add_value(value);
    value.shared_with = -1;
    value.role = ir::Role::optimizer;  // it persists, whatever it is a copy of
    value.space = ir::Space::shared;
    value.frozen = false;
    ir::Value sums = value;
    sums.dtype = Dtype::i32;
    sums.shape = {ir::Dim{std::max<int64_t>(1, chunks_of(owner_.bytes(state, ir::FixedRows()))), none}};
    const auto place = [&](ir::Value like, const char* suffix) {
      like.name += suffix;
      return listing_.add_value(std::move(like));
    };
    const ValueId to = place(value, kSnap), before = place(value, kSnapBefore);
    const ValueId sums_to = place(sums, kSums), sums_before = place(sums, kSumsBefore);
    listing_.append({.def = &ops::find(on_host ? "snapshot" : "snapshot_out"),
                     .in = {from},
                     .updates = {to, sums_to},
                     .phase = ir::Phase::end,
                     .stream = std::string(on_host ? ir::kHostStream : ""),
                     .trails = true},
                    {});
    flip(to, before);
    flip(sums_to, sums_before);
  }

  ir::Listing take() { return std::move(listing_); }

 private:
  void flip(ValueId a, ValueId b) {
    listing_.append({.def = &ops::find("flip"), .updates = {a, b}, .phase = ir::Phase::end}, {});
  }

  const ir::Listing& owner_;
  const int index_;
  ir::Listing listing_;
  std::set<ValueId> known_;
};

}  // namespace

ir::Listing snapshot_listing(const model::RankText& text, int index) {
  Copier copier(text.listing, index);
  for (const model::Parameter& p : text.parameters) {
    if (p.frozen || p.start == model::Parameter::Start::rope_table) continue;
    for (const ValueId state : state_of(p, text.listing)) copier.copy(state);
  }
  return copier.take();
}

}  // namespace heddle::passes
