#include "heddle/simulate/curve_builder.h"

#include <algorithm>
#include <utility>

namespace heddle::simulate {

CurveBuilder::CurveBuilder(const ir::StepProgram& program, int rank, size_t places, size_t events)
    : program_(program), most_places_(places), most_events_(events), kinds_(program.listings.size()) {
  for (const int s : program.listings_of(rank)) {
    const ir::Listing& listing = program.listings[s];
    std::vector<MemoryKind>& kinds = kinds_[s] = memory_kinds(listing);
    for (size_t v = 0; v < listing.values.size(); ++v) {
      const ir::Value& value = listing.values[v];
      if (!ir::is_persistent(value.role) || value.shared_with >= 0 || value.part_of != ir::none) continue;
      if (value.space == ir::Space::nowhere) continue;
      drawn_[static_cast<size_t>(value.space)].now[static_cast<size_t>(kinds[v])] +=
          ir::place_bytes(listing.bytes(static_cast<ir::ValueId>(v), ir::FixedRows()));
    }
  }
  for (Drawn& drawn : drawn_) drawn.persistent_bytes = drawn.live_bytes = sum_of(drawn.now);
}

ir::Space CurveBuilder::space_of(int listing, ir::ValueId id) const {
  return id == ir::none ? ir::Space::device : program_.listings[listing].value(id).space;
}

MemoryKind CurveBuilder::kind_of(int listing, ir::ValueId id) const {
  return id == ir::none ? MemoryKind::scratch : kinds_[listing][id];
}

void CurveBuilder::changes(int listing, ir::ValueId id, int microbatch, int64_t bytes) {
  if (events_.size() >= most_events_) fold_events();
  events_.push_back({listing, id, microbatch, bytes});
  Drawn& drawn = drawn_[static_cast<size_t>(space_of(listing, id))];
  drawn.now[static_cast<size_t>(kind_of(listing, id))] += bytes;
  drawn.live_bytes += bytes;
}

void CurveBuilder::begins(int listing, uint32_t op, int microbatch, double at_us) {
  for (Drawn& drawn : drawn_) {
    for (size_t k = 0; k < drawn.most.size(); ++k) drawn.most[k] = std::max(drawn.most[k], drawn.now[k]);
    draw(drawn, at_us);
    if (drawn.live_bytes <= drawn.peak.bytes) continue;
    const ir::Op& begun = program_.listings[listing].ops[op];
    drawn.peak.at_us = at_us;
    drawn.peak.bytes = drawn.live_bytes;
    drawn.peak.of_kinds = drawn.now;
    drawn.peak.op = begun.kind();
    drawn.peak.phase = begun.phase;
    drawn.peak.layer = begun.layer;
    drawn.peak.microbatch = microbatch;
    drawn.peak_events = events_.size();
    drawn.peak_is_kept = true;
  }
}

// The last place takes the op, if it has room for one more.
void CurveBuilder::draw(Drawn& drawn, double at_us) {
  if (drawn.ops == drawn.stride || drawn.places.empty()) {
    if (drawn.places.size() >= most_places_) halve(drawn);
    drawn.ops = 0;
  }
  if (drawn.ops++ == 0) {
    drawn.places.push_back({at_us, drawn.now, drawn.live_bytes});
  } else if (drawn.live_bytes > drawn.places.back().sum) {
    drawn.places.back() = {at_us, drawn.now, drawn.live_bytes};
  }
}

void CurveBuilder::halve(Drawn& drawn) const {
  std::vector<Place>& places = drawn.places;
  size_t kept = 0;
  for (size_t i = 0; i < places.size(); i += 2) {
    const bool second = i + 1 < places.size() && places[i + 1].sum > places[i].sum;
    places[kept++] = places[second ? i + 1 : i];
  }
  places.resize(kept);
  drawn.cycle = (drawn.cycle + 1) / 2;
  drawn.stride *= 2;
}

void CurveBuilder::apply(Held& held, size_t events) const {
  for (size_t e = 0; e < events; ++e) {
    const Event& event = events_[e];
    const auto at = held.try_emplace({event.listing, event.id, event.microbatch}).first;
    at->second += event.bytes;
    if (at->second == 0) held.erase(at);
  }
}

void CurveBuilder::fold_events() {
  for (Drawn& drawn : drawn_) {
    if (!std::exchange(drawn.peak_is_kept, false)) continue;
    drawn.at_peak = held_;
    apply(drawn.at_peak, drawn.peak_events);
  }
  apply(held_, events_.size());
  events_.clear();
}

void CurveBuilder::began_cycle() {
  for (Drawn& drawn : drawn_) {
    drawn.ops = drawn.stride;  // the next op has a place of its own
    drawn.cycle = drawn.places.size();
  }
}

void CurveBuilder::repeated(int64_t times, int microbatches, double each_us) {
  fold_events();
  Held moved;
  for (const auto& [key, bytes] : held_) {
    auto [listing, id, microbatch] = key;
    if (microbatch >= 0) microbatch += static_cast<int32_t>(times) * microbatches;
    moved[{listing, id, microbatch}] = bytes;
  }
  held_ = std::move(moved);
  for (Drawn& drawn : drawn_) {
    std::vector<Place>& places = drawn.places;
    const std::vector<Place> cycle(places.begin() + static_cast<std::ptrdiff_t>(drawn.cycle), places.end());
    if (cycle.empty()) continue;
    // As many as there is room for: of each cycle some places, else of some cycles one.
    const auto room = std::max<int64_t>(1, static_cast<int64_t>(most_places_ / 2));
    const int64_t each = std::clamp<int64_t>(room / times, 1, std::ssize(cycle));
    const int64_t every = (times + room - 1) / room;
    const auto fullest_of = [&](int64_t part) {
      const auto at = [&](int64_t i) { return cycle.begin() + i * std::ssize(cycle) / each; };
      return std::max_element(at(part), at(part + 1), [](const Place& a, const Place& b) { return a.sum < b.sum; });
    };
    for (int64_t time = 1; time <= times; time += every) {
      for (int64_t part = 0; part < each; ++part) {
        places.push_back(*fullest_of(part));
        places.back().at_us += static_cast<double>(time) * each_us;
      }
    }
    while (places.size() >= most_places_) halve(drawn);
    drawn.ops = drawn.stride;
    drawn.cycle = places.size();
  }
}

void CurveBuilder::finish_peak(Drawn& drawn, ir::Space space) const {
  Held held = drawn.peak_is_kept ? held_ : std::move(drawn.at_peak);
  if (drawn.peak_is_kept) apply(held, drawn.peak_events);
  MemoryPeak& peak = drawn.peak;
  std::map<int, int64_t> of_microbatch;
  for (const auto& [key, bytes] : held) {
    const auto& [listing, id, microbatch] = key;
    if (space_of(listing, id) != space) continue;
    if (is_activation(kind_of(listing, id)) && microbatch >= 0) of_microbatch[microbatch] += bytes;
    const bool scratch = id == ir::none;
    const ir::Listing& text = program_.listings[listing];
    peak.values.push_back({scratch ? "scratch of " + peak.op : text.value(id).name,
                           scratch ? ir::Role::activation : text.value(id).role, listing, microbatch, bytes});
  }
  for (const auto& [microbatch, bytes] : of_microbatch) peak.microbatches.push_back({microbatch, bytes});
  std::stable_sort(peak.values.begin(), peak.values.end(),
                   [](const ir::Walk::Live& a, const ir::Walk::Live& b) { return a.bytes > b.bytes; });
  if (peak.values.size() > MemoryLog::kPeakValues) peak.values.resize(MemoryLog::kPeakValues);
}

std::vector<MemoryCurve> CurveBuilder::curves(double until_us) {
  std::vector<MemoryCurve> all;
  for (size_t i = 0; i < drawn_.size(); ++i) {
    Drawn& drawn = drawn_[i];
    if (drawn.peak.bytes <= 0) continue;
    MemoryCurve& curve = all.emplace_back();
    curve.space = static_cast<ir::Space>(i);
    curve.until_us = until_us;
    curve.persistent_bytes = drawn.persistent_bytes;
    finish_peak(drawn, curve.space);
    curve.peak = std::move(drawn.peak);
    curve.most = drawn.most;
    curve.at_us.reserve(drawn.places.size());
    curve.bytes.reserve(drawn.places.size());
    for (const Place& place : std::exchange(drawn.places, {})) {
      curve.at_us.push_back(place.at_us);
      curve.bytes.push_back(place.bytes);
    }
  }
  return all;
}

}  // namespace heddle::simulate
