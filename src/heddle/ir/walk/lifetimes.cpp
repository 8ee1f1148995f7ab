#include "heddle/ir/walk/lifetimes.h"

#include <algorithm>
#include <map>
#include <numeric>
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

namespace {

/// The place of a part in its base.
struct Place {
  int64_t first, length, stretches, step;
  auto operator<=>(const Place&) const = default;
  template <class Visit>
  void each_stretch(const Visit& visit) const {
    for (int64_t i = 0; i < stretches; ++i) visit(first + i * step, first + i * step + length);
  }
};

/// The segments of a base: what the same parts cover is one, wherever it lies.
class Cut {
 public:
  Cut(const std::set<Place>& parts, int64_t elements) {
    std::set<int64_t> ends{0, elements};
    for (const Place& part : parts) {
      part.each_stretch([&](int64_t first, int64_t end) { ends.insert({first, end}); });
    }
    const std::vector<int64_t> at(ends.begin(), ends.end());
    std::vector<std::vector<uint32_t>> covered_by(at.size() - 1);  // by pieces between neighbouring ends
    uint32_t number = 0;
    for (const Place& part : parts) {
      part.each_stretch([&](int64_t first, int64_t end) {
        for (auto i = std::lower_bound(at.begin(), at.end(), first) - at.begin(); at[i] < end; ++i)
          covered_by[i].push_back(number);
      });
      ++number;
    }
    std::map<std::vector<uint32_t>, uint32_t> segments;
    std::vector<std::set<uint32_t>> of(parts.size());
    for (const std::vector<uint32_t>& covering : covered_by) {
      const uint32_t segment = segments.try_emplace(covering, static_cast<uint32_t>(segments.size())).first->second;
      for (const uint32_t part : covering) of[part].insert(segment);
    }
    count_ = static_cast<uint32_t>(segments.size());
    number = 0;
    for (const Place& part : parts) {
      const std::set<uint32_t>& own = of[number++];
      of_[part] = {own.begin(), own.end()};
    }
  }
  uint32_t count() const { return count_; }
  const std::vector<uint32_t>& of(const Place& part) const { return of_.at(part); }

 private:
  uint32_t count_ = 1;
  std::map<Place, std::vector<uint32_t>> of_;
};

}  // namespace

Segments::Segments(const StepProgram& program, const std::vector<int>& listings) : of_(program.listings.size()) {
  const FixedRows rows;
  const auto owner_of = [&](int s, ValueId id) {
    const Listing& listing = program.listings[s];
    const Value& base = listing.value(listing.base(id));
    if (base.shared_with < 0) return std::pair{s, listing.base(id)};
    return std::pair{base.shared_with, program.listings[base.shared_with].find(base.name)};
  };
  const auto place_of = [&](const Listing& listing, ValueId id) {
    const Value& value = listing.value(id);
    return Place{value.first_element, listing.elements(id, rows) / value.stretches, value.stretches,
                 value.stretch_step};
  };
  std::map<std::pair<int, ValueId>, std::set<Place>> parts;  // of what has any
  for (const int s : listings) {
    const Listing& listing = program.listings[s];
    for (ValueId id = 0; id < std::ssize(listing.values); ++id) {
      if (listing.value(id).part_of != none) parts[owner_of(s, id)].insert(place_of(listing, id));
    }
  }
  for (const int s : listings) {
    for (const Op& op : program.listings[s].ops) {
      if (!op.def->flips) continue;
      const auto a = owner_of(s, op.updates[0]), b = owner_of(s, op.updates[1]);
      if (!parts.contains(a) && !parts.contains(b)) continue;
      parts[a].insert(parts[b].begin(), parts[b].end());
      parts[b] = parts[a];
    }
  }
  std::map<std::pair<int, ValueId>, Cut> cuts;
  for (const auto& [owner, places] : parts) {
    const Listing& listing = program.listings[owner.first];
    cuts.emplace(owner, Cut(places, listing.elements(owner.second, rows)));
  }
  for (const int s : listings) {
    const Listing& listing = program.listings[s];
    std::vector<Of>& of = of_[s];
    of.resize(listing.values.size());
    if (cuts.empty()) continue;
    for (ValueId id = 0; id < std::ssize(listing.values); ++id) {
      const auto at = cuts.find(owner_of(s, id));
      if (at == cuts.end()) continue;
      Of& one = of[id];
      one.count = at->second.count();
      if (listing.value(id).part_of != none) {
        one.segments = at->second.of(place_of(listing, id));
      } else {
        one.segments.resize(one.count);
        std::iota(one.segments.begin(), one.segments.end(), 0u);
      }
    }
  }
}

}  // namespace heddle::ir
