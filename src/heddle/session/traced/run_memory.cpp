#include "heddle/session/traced/run_memory.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "heddle/observe/memory/memory_json.h"
#include "heddle/runtime/executor.h"
#include "heddle/runtime/memory_curves.h"

namespace heddle::session {

namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kPlaces = 600;  // points of a curve that goes from rank to rank and into the page

struct CurvesOfRank {
  std::vector<simulate::MemoryCurve> measured, predicted;
};

CurvesOfRank curves_of(train::Trainer& trainer, const simulate::MemoryLog& log, const RankSpans& own) {
  const std::vector<device::Span>& compute = own.of_stream.at(ir::StreamTable::compute);
  double until_us = 0;
  for (const std::vector<device::Span>& spans : own.of_stream) {
    for (const device::Span& span : spans) until_us = std::max(until_us, static_cast<double>(span.end_ns) * 1e-3);
  }
  struct Sum {
    double us = 0, count = 0;
  };
  std::map<std::pair<int, uint32_t>, Sum> took;
  for (const device::Span& span : compute) {
    Sum& sum = took[{span.listing, span.op_index}];
    sum.us += static_cast<double>(span.end_ns - span.start_ns) * 1e-3;
    ++sum.count;
  }
  CurvesOfRank curves;
  curves.measured = log.curves(
      [&](const simulate::MemoryLog::Issued& op) {
        return static_cast<double>(compute.at(op.number).start_ns) * 1e-3;
      },
      until_us);
  curves.predicted =
      runtime::predict_memory_curves(trainer.lowered().program, trainer.ranks().rank(), trainer.options().backend,
                                     [&](int, const ir::Issue& issue) {
                                       const auto at = took.find({issue.listing, issue.op_index});
                                       return at == took.end() ? 0.0 : at->second.us / at->second.count;
                                     });
  return curves;
}

Json json_of(const CurvesOfRank& curves, const ir::Walk& walk) {
  Json json{{"measured", Json::array()}, {"foretold", Json::array()}, {"reserved", Json::array()}};
  for (const simulate::MemoryCurve& curve : curves.measured) {
    json["measured"].push_back(observe::json_of(thinned(curve, kPlaces)));
    json["reserved"].push_back(walk.storage(curve.space).reserved_bytes());
  }
  for (const simulate::MemoryCurve& curve : curves.predicted)
    json["foretold"].push_back(observe::json_of(thinned(curve, kPlaces)));
  return json;
}

}  // namespace

std::vector<observe::MemoryView> memory_views(train::Trainer& trainer, const simulate::MemoryLog& log,
                                              const std::vector<RankSpans>& ranks, int fullest_rank, int64_t step) {
  if (fullest_rank >= std::ssize(ranks)) return {};
  std::string mine;
  if (trainer.ranks().rank() == fullest_rank) {
    const CurvesOfRank curves = curves_of(trainer, log, ranks[static_cast<size_t>(fullest_rank)]);
    mine = json_of(curves, trainer.executor().walk()).dump();
  }
  const std::vector<std::string> said = trainer.ranks().share(mine);
  if (!trainer.ranks().leads()) return {};
  const Json json = Json::parse(said[static_cast<size_t>(fullest_rank)]);
  const std::string of = trainer.ranks().size() > 1 ? fmt::format("rank {}, the fullest, ", fullest_rank) : "";
  std::vector<observe::MemoryView> views;
  for (size_t i = 0; i < json.at("measured").size(); ++i) {
    const observe::Level arena{"the arena", json.at("reserved").at(i)};
    views.push_back({fmt::format("{}step {}, measured", of, step),
                     "time in step",
                     observe::memory_curve_of(json.at("measured").at(i)),
                     {arena}});
    const simulate::MemoryCurve& measured = views.back().curve;
    const bool flat = measured.peak.bytes == measured.persistent_bytes;  // the same picture again
    if (flat || i >= json.at("foretold").size()) continue;
    views.push_back({of + "as predicted",
                     "computing time in step, by the ops' times",
                     observe::memory_curve_of(json.at("foretold").at(i)),
                     {arena}});
  }
  return views;
}

}  // namespace heddle::session
