#include "heddle/planner/budget/kept_values.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "heddle/ir/walk/storage.h"
#include "heddle/passes/host/offload.h"
#include "heddle/passes/recompute.h"
#include "heddle/plan/costs/durations.h"
#include "heddle/planner/budget/text_shape.h"
#include "heddle/schedule/apart.h"

namespace heddle::planner {

namespace {

using ir::Listing;
using ir::none;
using ir::Op;
using ir::Phase;
using ir::ValueId;

// A value that the forward makes.
struct Made {
  int chunk = -1;              // -1: none of the forward
  Phase last_read = Phase::F;  // I or W: it is kept until then
  ir::Condition dropped;       // under which the forward gives it up
};

// By base.
std::vector<Made> made_in_forward(const Listing& listing) {
  std::vector<Made> made(listing.values.size());
  const auto of = [&](ValueId id) -> Made& { return made[listing.base(id)]; };
  for (const Op& op : listing.ops) {
    if (op.phase == Phase::F) {
      for (const ValueId id : op.out) {
        if (id != none && !ir::is_persistent(listing.value(id).role)) of(id).chunk = op.chunk;
      }
      if (op.def->drops) of(op.in[0]).dropped = op.condition;
    } else if (op.phase == Phase::I || op.phase == Phase::W) {
      for (const ValueId id : op.in) {
        if (id != none && !op.def->drops) of(id).last_read = std::max(of(id).last_read, op.phase);
      }
    }
  }
  return made;
}

// The bytes that the chunks keep where every rank's experts get so many rows.
std::vector<schedule::StageBytes> kept_with_rows(const Listing& listing, const std::vector<Made>& made,
                                                 int64_t rows, double& host_bytes) {
  std::vector<schedule::StageBytes> chunks(listing.chunks.size(), {0, 0});
  host_bytes = 0;
  const ir::FixedRows counts(rows);
  for (size_t v = 0; v < made.size(); ++v) {
    const Made& m = made[v];
    if (m.chunk < 0 || m.last_read == Phase::F || (m.dropped && m.dropped.holds(rows))) continue;
    const auto id = static_cast<ValueId>(v);
    const auto bytes = static_cast<double>(ir::storage_bytes(listing.bytes(id, counts)));
    if (listing.value(id).space != ir::Space::device) {
      host_bytes += bytes;
      continue;
    }
    schedule::StageBytes& of = chunks[m.chunk];
    (m.last_read == Phase::I ? of.until_input_grad : of.until_weight_grad) += bytes;
  }
  return chunks;
}

double sum_of(const std::vector<schedule::StageBytes>& chunks) {
  double sum = 0;
  for (const schedule::StageBytes& c : chunks) sum += c.until_input_grad + c.until_weight_grad;
  return sum;
}

// The numbers of rows at which something is decided otherwise, and the most.
std::set<int64_t> rows_to_try(const Listing& listing, int64_t most) {
  std::set<int64_t> rows{most};
  for (const Op& op : listing.ops) {
    if (op.condition && op.condition.limit < most) rows.insert(op.condition.limit);
  }
  return rows;
}

// The ops and sizes of a layer's forward, as far as they say what it keeps.
std::string kind_of_layer(const Listing& listing, int layer) {
  std::string kind;
  for (const Op& op : listing.ops) {
    if (op.layer != layer || op.phase != Phase::F) continue;
    kind += op.kind();
    for (const ValueId id : op.out) {
      if (id != none) kind += fmt::format(" {}", listing.bytes(id, ir::FixedRows(1)));
    }
    kind += ';';
  }
  return kind;
}

// Shortens the names: the text is copied for each choice that is evaluated, and nobody asks for its values by name.
Listing named_shortly(Listing text) {
  Listing copied;
  copied.chunks = std::move(text.chunks);
  copied.values = std::move(text.values);
  copied.ops = std::move(text.ops);
  copied.accumulators = std::move(text.accumulators);
  for (size_t v = 0; v < copied.values.size(); ++v) copied.values[v].name = std::to_string(v);
  return copied;
}

}  // namespace

double often_beyond(double times) {
  constexpr double kAtEven = 0.05, kFalls = 4;  // falls by a factor of e for a quarter of the even share
  return times < 1 ? 1 : kAtEven * std::exp(-kFalls * (times - 1));
}

KeptValues::KeptValues(Listing text, const std::vector<schedule::Action>& order, const std::vector<int>& stages,
                       passes::Durations duration_us, double bytes_per_us, double crowding)
    : text_(named_shortly(std::move(text))),
      first_layer_(first_layer_of(text_)),
      deferred_(schedule::defers_weight_gradients(order)),
      apart_(schedule::stands_apart(order, stages)),
      duration_us_(std::move(duration_us)),
      bytes_per_us_(bytes_per_us),
      crowding_(crowding),
      even_rows_(plan::balanced_rows(text_)) {
  shape_ = fmt::format("{} {} ", deferred_, crowding_);
  for (const bool apart : apart_) shape_ += apart ? '1' : '0';
  shape_ += shape_of(text_);
}

Kept KeptValues::with(const DroppedValues& given) const {
  Listing listing = text_;
  passes::recompute(listing, given.recompute, deferred_);
  passes::offload(listing, given.offload, deferred_, apart_, duration_us_);
  const std::vector<Made> made = made_in_forward(listing);
  const auto most = static_cast<int64_t>(std::ceil(crowding_ * static_cast<double>(even_rows_)));
  Kept kept;
  double largest = -1;
  for (const int64_t rows : rows_to_try(listing, most)) {
    double host_bytes = 0;
    std::vector<schedule::StageBytes> chunks = kept_with_rows(listing, made, rows, host_bytes);
    kept.host_bytes = std::max(kept.host_bytes, host_bytes);
    if (const double sum = sum_of(chunks); sum > largest) {
      largest = sum;
      kept.chunks = std::move(chunks);
    }
  }
  add_price(listing, kept);
  return kept;
}

void KeptValues::add_price(const Listing& listing, Kept& kept) const {
  for (const Op& op : listing.ops) {
    if (ir::once_a_step(op.phase)) continue;
    if (op.again) {
      const double often =
          op.condition ? often_beyond(static_cast<double>(op.condition.limit) / static_cast<double>(even_rows_))
                       : 1;
      kept.price_us += often * duration_us_(listing, op);
    } else if (ir::is_copy(op.def->moves)) {
      kept.price_us += static_cast<double>(listing.bytes(op.in[0], ir::FixedRows(even_rows_))) / bytes_per_us_;
    }
  }
}

std::vector<LayerRun> KeptValues::runs(int most) const {
  std::map<int, std::set<int>> layers_of_chunk;
  for (const Op& op : text_.ops) {
    if (op.phase == Phase::F && op.layer >= 0 && op.part != "head") layers_of_chunk[op.chunk].insert(op.layer);
  }
  std::set<int> routed;
  for (const Op& op : text_.ops) {
    if (op.def->moves == ir::Moves::to_experts) routed.insert(op.layer);
  }
  std::map<std::string, int> kinds;
  std::vector<LayerRun> runs;
  for (const auto& [chunk, layers] : layers_of_chunk) {
    std::vector<LayerRun> whole;
    for (const int layer : layers) {
      const int kind = kinds.try_emplace(kind_of_layer(text_, layer), static_cast<int>(kinds.size())).first->second;
      if (!whole.empty() && whole.back().last + 1 == layer && whole.back().alike == kind) {
        whole.back().last = layer;
      } else {
        whole.push_back({layer, layer, kind, routed.contains(layer)});
      }
    }
    for (const LayerRun& run : whole) {
      const int count = run.last - run.first + 1, parts = std::min(count, most);
      for (int p = 0; p < parts; ++p)
        runs.push_back(
            {run.first + count * p / parts, run.first + count * (p + 1) / parts - 1, run.alike, run.routed});
    }
  }
  return runs;
}

}  // namespace heddle::planner
