#include "heddle/ir/walk/lifetimes.h"

#include <algorithm>
#include <map>
#include <set>

namespace heddle::ir {

Lifetimes::Lifetimes(const Listing& listing) : uses(listing.values.size(), 0), outlives(listing.values.size(), 0) {
  std::vector<const Op*> first(listing.values.size(), nullptr);
  for (const Op& op : listing.ops) {
    for (const std::vector<ValueId>* ids : {&op.out, &op.updates, &op.in}) {
      for (const ValueId id : *ids) {
        if (id == none) continue;
        const auto v = static_cast<size_t>(listing.base(id));
        ++uses[v];
        if (first[v] == nullptr) first[v] = &op;
        if (first[v]->phase != op.phase || first[v]->chunk != op.chunk) outlives[v] = 1;
      }
    }
  }
}

Segments::Segments(const StepProgram& program, const std::vector<int>& listings) : of_(program.listings.size()) {
  const FixedRows rows;
  const auto owner_of = [&](int s, ValueId id) {
    const Listing& listing = program.listings[static_cast<size_t>(s)];
    const Value& base = listing.value(listing.base(id));
    if (base.shared_with < 0) return std::pair{s, listing.base(id)};
    return std::pair{base.shared_with, program.listings[static_cast<size_t>(base.shared_with)].find(base.name)};
  };
  std::map<std::pair<int, ValueId>, std::set<int64_t>> cuts;  // of what has parts, its ends among them
  const auto each_part = [&](const auto& visit) {
    for (const int s : listings) {
      const Listing& listing = program.listings[static_cast<size_t>(s)];
      for (ValueId id = 0; id < std::ssize(listing.values); ++id) {
        if (listing.value(id).part_of != none) visit(s, listing, id);
      }
    }
  };
  each_part([&](int s, const Listing& listing, ValueId id) {
    const int64_t first = listing.value(id).first_element;
    cuts[owner_of(s, id)].insert(
        {0, listing.elements(listing.base(id), rows), first, first + listing.elements(id, rows)});
  });
  for (const int s : listings) {
    for (const Op& op : program.listings[static_cast<size_t>(s)].ops) {
      if (!op.def->flips) continue;
      const auto a = owner_of(s, op.updates[0]), b = owner_of(s, op.updates[1]);
      if (!cuts.contains(a) && !cuts.contains(b)) continue;
      cuts[a].insert(cuts[b].begin(), cuts[b].end());
      cuts[b] = cuts[a];
    }
  }
  for (const int s : listings) {
    const Listing& listing = program.listings[static_cast<size_t>(s)];
    std::vector<Of>& of = of_[static_cast<size_t>(s)];
    of.resize(listing.values.size());
    if (cuts.empty()) continue;
    for (ValueId id = 0; id < std::ssize(listing.values); ++id) {
      const auto at = cuts.find(owner_of(s, id));
      if (at == cuts.end()) continue;
      const auto place = [&](int64_t element) {
        return static_cast<uint32_t>(std::distance(at->second.begin(), at->second.find(element)));
      };
      const int64_t first = listing.value(id).first_element;
      Of& one = of[static_cast<size_t>(id)];
      one.count = static_cast<uint32_t>(at->second.size() - 1);
      one.range = {place(first), place(first + listing.elements(id, rows))};
    }
  }
}

}  // namespace heddle::ir
