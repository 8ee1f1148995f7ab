#include "heddle/session/run/peak.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heddle/observe/report.h"
#include "heddle/runtime/predict.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

namespace {

using PeakJson = nlohmann::json;

// Names the layout where a tensor's bytes don't follow from its type and shape.
std::string layout_of(const ir::Value& value, int64_t live_bytes) {
  if (value.layout == ir::Layout::packed) return "packed";
  int64_t bytes = size_of(value.dtype);
  for (const ir::Dim& dim : value.shape) {
    if (!dim.is_static()) return "as many rows as arrive";
    bytes *= dim.count;
  }
  return bytes == live_bytes ? "" : "padded";
}

std::string shape_of(const ir::Listing& listing, const ir::Value& value) {
  std::string text;
  for (const ir::Dim& dim : value.shape) {
    if (!text.empty()) text += " x ";
    if (dim.is_static() || dim.count > 1) text += fmt::format("{}", dim.count);
    if (!dim.is_static())
      text += fmt::format("{}rows of {}", dim.count > 1 ? " x " : "", listing.value(dim.rows_of).name);
  }
  return text;
}

PeakJson peak_json(const std::vector<ir::Walk::Live>& at_peak, const ir::StepProgram& program) {
  PeakJson tensors = PeakJson::array();
  for (const ir::Walk::Live& live : at_peak) {
    const ir::Listing& listing = program.listings[live.listing];
    const ir::ValueId id = listing.find(live.name);
    PeakJson tensor{live.name, "", "", ir::name_of(live.role), live.bytes, ""};
    if (id != ir::none) {
      const ir::Value& value = listing.value(id);
      tensor = {live.name,  name_of(value.dtype),        shape_of(listing, value), ir::name_of(live.role),
                live.bytes, layout_of(value, live.bytes)};
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

// All ranks know which holds most; that one tells the first what it holds.
PredictedPeak highest_peak(const runtime::MemoryPrediction& own, train::Trainer& trainer,
                           std::string_view backend) {
  train::RankExchange& ranks = trainer.ranks();
  std::vector<double> reserved(static_cast<size_t>(ranks.size()), 0);
  reserved[ranks.rank()] = static_cast<double>(own.reserved_bytes);
  ranks.sum(reserved);
  const auto most = std::max_element(reserved.begin(), reserved.end());
  PredictedPeak peak{static_cast<int>(most - reserved.begin()), *most, {}};
  PeakJson mine = PeakJson::array();
  if (ranks.rank() == peak.rank) {
    const ir::StepProgram& program = trainer.lowered().program;
    mine = peak_json(runtime::live_at_peak(program, peak.rank, backend, own.peak_live_bytes), program);
  }
  const std::vector<std::string> all = ranks.share(mine.dump());
  if (!ranks.leads()) return peak;
  for (const PeakJson& t : PeakJson::parse(all[peak.rank])) {
    peak.tensors.push_back({t[0].get<std::string>(), t[1].get<std::string>(), t[2].get<std::string>(),
                            t[3].get<std::string>(), t[4].get<double>(), t[5].get<std::string>()});
  }
  return peak;
}

}  // namespace heddle::session
