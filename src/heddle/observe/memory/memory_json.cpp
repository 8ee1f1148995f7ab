#include "heddle/observe/memory/memory_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"

namespace heddle::observe {

namespace {

using Json = nlohmann::ordered_json;
using simulate::MemoryCurve;
using simulate::MemoryKind;

Json of_kinds(const simulate::BytesOfKinds& kinds) {
  Json json = Json::object();
  for (size_t k = 0; k < kinds.size(); ++k)
    if (kinds[k] != 0) json[std::string(word_of(static_cast<MemoryKind>(k)))] = kinds[k];
  return json;
}

// The value of an enumeration with consecutive values whose name is `name`.
template <class E>
E named(E last, const std::string& name) {
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (ir::name_of(static_cast<E>(i)) == name) return static_cast<E>(i);
  internal_error("no such name: '{}'", name.substr(0, 60));
}

}  // namespace

Json json_of(const MemoryCurve& curve) {
  const simulate::MemoryPeak& peak = curve.peak;
  Json microbatches = Json::array(), values = Json::array(), bytes = Json::object(), at = Json::array();
  for (const auto& m : peak.microbatches)
    microbatches.push_back({{"microbatch", m.microbatch}, {"bytes", m.bytes}});
  for (const ir::Walk::Live& live : peak.values)
    values.push_back({{"name", live.name},
                      {"role", ir::name_of(live.role)},
                      {"listing", live.listing},
                      {"microbatch", live.microbatch},
                      {"bytes", live.bytes}});
  for (const double us : curve.at_us) at.push_back(us * 1e-6);
  for (size_t k = 0; k < simulate::kMemoryKinds; ++k) {
    Json of = Json::array();
    bool any = false;
    for (const simulate::BytesOfKinds& kinds : curve.bytes) {
      of.push_back(kinds[k]);
      any = any || kinds[k] != 0;
    }
    if (any) bytes[std::string(word_of(static_cast<MemoryKind>(k)))] = std::move(of);
  }
  return {{"memory", ir::name_of(curve.space)},
          {"until_seconds", curve.until_us * 1e-6},
          {"persistent_bytes", curve.persistent_bytes},
          {"peak",
           {{"bytes", peak.bytes},
            {"at_seconds", peak.at_us * 1e-6},
            {"op", peak.op},
            {"phase", ir::name_of(peak.phase)},
            {"layer", peak.layer},
            {"microbatch", peak.microbatch},
            {"of_kinds", of_kinds(peak.of_kinds)},
            {"microbatches", microbatches},
            {"values", values}}},
          {"at_seconds", at},
          {"bytes", bytes}};
}

MemoryCurve memory_curve_of(const Json& json) {
  MemoryCurve curve;
  curve.space = named(ir::Space::shared, json.at("memory"));
  curve.until_us = json.at("until_seconds").get<double>() * 1e6;
  curve.persistent_bytes = json.at("persistent_bytes");
  const Json& from = json.at("peak");
  simulate::MemoryPeak& peak = curve.peak;
  peak.bytes = from.at("bytes");
  peak.at_us = from.at("at_seconds").get<double>() * 1e6;
  peak.op = from.at("op");
  peak.phase = named(ir::Phase::end, from.at("phase"));
  peak.layer = from.at("layer");
  peak.microbatch = from.at("microbatch");
  for (const auto& [word, bytes] : from.at("of_kinds").items())
    peak.of_kinds[static_cast<size_t>(from_word<MemoryKind>(word))] = bytes;
  for (const Json& m : from.at("microbatches")) peak.microbatches.push_back({m.at("microbatch"), m.at("bytes")});
  for (const Json& v : from.at("values"))
    peak.values.push_back(
        {v.at("name"), named(ir::Role::cache, v.at("role")), v.at("listing"), v.at("microbatch"), v.at("bytes")});
  for (const Json& at : json.at("at_seconds")) curve.at_us.push_back(at.get<double>() * 1e6);
  curve.bytes.resize(curve.at_us.size());
  for (const auto& [word, of] : json.at("bytes").items()) {
    const auto k = static_cast<size_t>(from_word<MemoryKind>(word));
    for (size_t i = 0; i < curve.bytes.size(); ++i) {
      curve.bytes[i][k] = of.at(i);
      curve.most[k] = std::max(curve.most[k], curve.bytes[i][k]);
    }
  }
  return curve;
}

}  // namespace heddle::observe
