#include "check/parts.h"

#include <algorithm>
#include <set>

#include "heddle/base/error.h"
#include "heddle/model/parameter_layout.h"

namespace heddle::check {

namespace {

// The gradient's name in the listing that has the value; "": none has.
std::string gradient_in(const plan::Lowered& lowered, const std::string& value) {
  for (const ir::Listing& listing : lowered.program.listings) {
    if (listing.find(value) == ir::none) continue;
    const std::string found = gradient_of(listing, value);
    if (!found.empty()) return found;
  }
  return "";
}

bool has_auxiliary(const model::ModelConfig& model) {
  return model.sequence_aux_loss_alpha > 0 || model.z_loss_weight > 0;
}

}  // namespace

Parts::Parts(const Reference& reference) : reference_(reference), mesh_(reference.dump().layout.mesh) {
  const model::ModelConfig& model = reference.model();
  const plan::Plan plan = plan_of(reference.dump().layout, false);
  try {
    lowered_ = plan::lower(model, plan);
    std::set<std::string, std::less<>> wanted{"ce_next_token", "ce_sum_next_token"};
    for (const Module& module : reference.modules()) {
      wanted.insert(module.part);
      if (!module.gathered.empty()) wanted.insert(gradient_in(*lowered_, module.gathered));
    }
    wanted.erase("");
    RunRequest request;
    request.wanted = [&](std::string_view value) { return wanted.contains(value); };
    std::set<std::string, std::less<>> routers;
    for (const Module& module : reference.modules()) {
      if (is_router(module.name)) routers.insert(module.value);
    }
    request.changed = [&](std::string_view value) { return routers.contains(value); };
    request.after = [&](std::string_view value, int microbatch, const ir::Coordinates& at, Captured& logits) {
      reference.keep_choices(value, microbatch * plan.mesh.dp + at.at(ir::Axis::dp), at, logits);
    };
    const std::vector<RankValues> all =
        run_program(model, plan, reference.weights(), reference.sequences(), request);
    std::vector<RankValues> without;
    if (has_auxiliary(model)) {
      model::ModelConfig plain = model;
      plain.sequence_aux_loss_alpha = plain.z_loss_weight = 0;
      request.wanted = nullptr;
      without = run_program(plain, plan, reference.weights(), reference.sequences(), request);
    }
    add_gradients(all, without);
    add_losses(all);
    add_rows(all);
    add_squares();
  } catch (const ConfigError& error) {
    why_not_ = error.what();
    lowered_.reset();
  }
  for (auto& [key, parts] : parts_) {
    const Whole* whole = reference.find(key);
    if (whole == nullptr) continue;
    Numbers& rest = rests_[key] = whole->values;
    for (const Part& part : parts) {
      HEDDLE_CHECK(part.whole.size() == rest.size(), "a part of {} elements, of {}", part.whole.size(),
                   rest.size());
      for (size_t i = 0; i < rest.size(); ++i) rest[i] -= part.whole[i];
    }
  }
}

void Parts::add_gradients(const std::vector<RankValues>& all, const std::vector<RankValues>& without) {
  for (int rank = 0; rank < mesh_.ranks(); ++rank) {
    const auto of_rank = [&](const std::vector<RankValues>& runs, int microbatch) {
      Weights parts;
      for (const auto& [at, gradient] : runs[static_cast<size_t>(rank)].gradients) {
        if (at.second == microbatch) parts[at.first] = gradient;
      }
      return parts;
    };
    for (int m = 0; m < reference_.dump().layout.microbatches; ++m) {
      Weights main = of_rank(all, m), auxiliary;
      if (!without.empty()) {
        auxiliary = of_rank(without, m);
        for (auto& [name, numbers] : main) {
          const auto plain = auxiliary.find(name);
          if (plain == auxiliary.end()) continue;
          for (size_t i = 0; i < numbers.size(); ++i) {
            const double both = numbers[i];
            numbers[i] = plain->second[i];
            plain->second[i] = both - plain->second[i];
          }
        }
      }
      for (const std::string& name : reference_.names().names()) {
        const auto add = [&](const Weights& from, bool of_auxiliary) {
          Weights whole = from;  // a rank of a pipeline may hold some of a tensor's parameters alone
          bool any = false;
          for (const std::string& p : reference_.names().parameters_of(name)) any = any || from.contains(p);
          Numbers part = any ? reference_.names().parted(name, whole) : Numbers();
          if (!part.empty())
            parts_[{Stage::gradient, name, -1}].push_back({mesh_.at(rank), rank, m, of_auxiliary, std::move(part)});
        };
        add(main, false);
        if (!without.empty()) add(auxiliary, true);
      }
    }
  }
}

void Parts::add_losses(const std::vector<RankValues>& all) {
  for (int rank = 0; rank < mesh_.ranks(); ++rank) {
    for (const auto& [at, captured] : all[static_cast<size_t>(rank)].values) {
      if (at.first != "ce_next_token" && at.first != "ce_sum_next_token") continue;
      parts_[{Stage::norm, "loss", -1}].push_back(
          {mesh_.at(rank), rank, at.second, false, {captured.values[0] * reference_.loss_scale()}});
    }
  }
}

// Rows of all ranks of tp, of this rank's positions, in the whole tensor of a microbatch.
Numbers Parts::whole_rows(const Captured& captured, const ir::Coordinates& at, int64_t width) const {
  const Layout& layout = reference_.dump().layout;
  const int cp = at.of(ir::Axis::cp);
  const int64_t length = layout.sequence_length, local = length / cp;
  Numbers whole(static_cast<size_t>(layout.sequences * length * width), 0.0);
  if (std::ssize(captured.values) != layout.sequences * local * width) return {};
  for (int64_t b = 0; b < layout.sequences; ++b) {
    for (int64_t j = 0; j < local; ++j) {
      const int64_t row = b * length + ir::position(j, length, at.at(ir::Axis::cp), cp);
      for (int64_t i = 0; i < width; ++i)
        whole[static_cast<size_t>(row * width + i)] =
            captured.values[static_cast<size_t>((b * local + j) * width + i)];
    }
  }
  return whole;
}

void Parts::add_rows(const std::vector<RankValues>& all) {
  const int dp = reference_.dump().layout.mesh.dp;
  for (const Module& module : reference_.modules()) {
    const auto add = [&](const std::string& value, Stage stage) {
      if (value.empty()) return;
      for (int rank = 0; rank < mesh_.ranks(); ++rank) {
        const ir::Coordinates& at = mesh_.at(rank);
        for (int m = 0; m < reference_.dump().layout.microbatches; ++m) {
          const auto found = all[static_cast<size_t>(rank)].values.find({value, m});
          if (found == all[static_cast<size_t>(rank)].values.end()) continue;
          const Key key{stage, module.name, m * dp + at.at(ir::Axis::dp)};
          const Whole* whole = reference_.find(key);
          if (whole == nullptr) continue;
          Numbers rows = whole_rows(found->second, at, whole->dims.back());
          if (!rows.empty()) parts_[key].push_back({at, rank, m, false, std::move(rows)});
        }
      }
    };
    add(module.part, Stage::forward);
    if (!module.gathered.empty()) add(gradient_in(*lowered_, module.gathered), Stage::backward);
  }
}

void Parts::add_squares() {
  std::map<std::string, std::pair<std::vector<int64_t>, Numbers>> released;
  for (const std::string& name : reference_.names().names()) {
    const Whole* whole = reference_.find({Stage::gradient, name, -1});
    const std::vector<int64_t>& dims = *reference_.names().dims(name);
    int64_t elements = 1;
    for (const int64_t dim : dims) elements *= dim;
    released[name] = {dims, whole != nullptr ? whole->values : Numbers(static_cast<size_t>(elements), 0.0)};
  }
  const Weights joined = reference_.names().joined(released, "the reference");
  for (int rank = 0; rank < mesh_.ranks(); ++rank) {
    std::map<std::string, double>& own = squares_.emplace_back();
    const auto listing_index = static_cast<size_t>(lowered_->program.listing_of(rank, ir::Purpose::train));
    const ir::Listing& listing = lowered_->program.listings[listing_index];
    for (const model::Parameter& p : lowered_->parameters[listing_index]) {
      if (!listing.accumulators.contains(p.value)) continue;
      std::vector<int64_t> dims;
      for (const ir::Dim& dim : listing.value(p.value).shape) dims.push_back(dim.count);
      const Numbers& whole = joined.at(p.name);
      double square = 0;
      for (const model::Extent& run : model::extents_of(p, dims, mesh_.at(rank))) {
        for (int64_t i = run.whole; i < run.whole + run.count; ++i)
          square += whole[static_cast<size_t>(i)] * whole[static_cast<size_t>(i)];
      }
      own[p.name] = square;
    }
  }
}

const model::Parameter* Parts::parameter(const std::string& name) const {
  if (!lowered_) return nullptr;
  for (const std::vector<model::Parameter>& listing : lowered_->parameters) {
    for (const model::Parameter& p : listing) {
      if (p.name == name) return &p;
    }
  }
  return nullptr;
}

std::vector<const Part*> Parts::of(const Record& record) const {
  const Key key = reference_.key_of(record);
  std::vector<const Part*> found;
  if (const auto at = parts_.find(key); at != parts_.end()) {
    for (const Part& part : at->second) found.push_back(&part);
    return found;
  }
  const auto [at, made] = alone_.try_emplace(key);
  if (made) {
    at->second.at = reference_.dump().ranks[static_cast<size_t>(record.rank)].at;
    at->second.rank = -1;
    at->second.whole = reference_.of(record).values;
  }
  return {&at->second};
}

const Numbers& Parts::rest_of(const Record& record) const {
  static const Numbers none;
  const auto at = rests_.find(reference_.key_of(record));
  return at == rests_.end() ? none : at->second;
}

}  // namespace heddle::check
