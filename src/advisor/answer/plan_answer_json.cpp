#include <cmath>
#include <nlohmann/json.hpp>

#include "advisor/answer/plan_answer.h"

namespace heddle::advisor {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Interval& i) { return {{"value", i.value}, {"low", i.low}, {"high", i.high}}; }

int64_t whole(double bytes) { return std::llround(bytes); }

Json json_of(const PlanChange& c) {
  return {{"change", c.change},
          {"speed_ratio", c.speed_ratio},
          {"peak_bytes", whole(c.peak_bytes)},
          {"fits", c.fits},
          {"add", c.add},
          {"remove", c.remove}};
}

const char* word_of(PlanKind kind) {
  switch (kind) {
    case PlanKind::model: return "model";
    case PlanKind::script: return "script";
    case PlanKind::config: return "config";
  }
  return "";
}

}  // namespace

Json json_of(const PlanAnswer& a) {
  Json json{{"subject", a.subject},
            {"kind", word_of(a.kind)},
            {"model", a.model},
            {"device", a.device},
            {"devices", a.devices},
            {"trainer", a.target},
            {"global_batch", a.global_batch},
            {"sequence", a.sequence},
            {"precision", a.precision},
            {"assumed", a.assumed},
            {"notes", a.notes},
            {"found", a.found},
            {"fits", a.good()},
            {"memory_bytes", whole(a.memory_bytes)},
            {"searched", a.searched},
            {"stopped", a.stopped},
            {"seconds", a.seconds}};
  if (!a.place.empty()) json["place"] = a.place;
  if (!a.nearest.empty() || a.fewest_devices > 0)
    json["nothing_fits"] = {{"nearest", a.nearest}, {"fewest_devices", a.fewest_devices}};
  if (a.beside) {
    json["beside"] = {{"subject", a.beside->subject}, {"fits", a.beside->fits}};
    if (a.beside->tokens_per_s > 0) {
      json["beside"]["tokens_per_s"] = a.beside->tokens_per_s;
      json["beside"]["peak_bytes"] = whole(a.beside->peak_bytes);
      if (a.found) json["beside"]["speed_ratio"] = a.tokens_per_s.value / a.beside->tokens_per_s;
    }
  }
  if (!a.found) return json;
  json["layout"] = a.layout;
  json["schedule"] = a.schedule;
  json["stages"] = a.stages;
  json["recompute"] = a.keeping;
  json["microbatch"] = a.microbatch;
  json["parameters"] = a.parameters;
  json["active_parameters"] = a.active_parameters;
  json["training_flops_per_token"] = a.flops_per_token;
  json["step_s"] = json_of(a.step_s);
  json["tokens_per_s"] = json_of(a.tokens_per_s);
  json["tokens_per_s_per_device"] = a.tokens_per_s_per_device();
  json["interval_from"] = a.interval_from;
  json["model_flops_utilization"] = a.model_flops_utilization;
  json["bound_by"] = a.bound_by;
  json["bound_why"] = a.bound_why;
  json["peak_bytes"] = whole(a.peak_bytes);
  json["bytes_are"] = a.counted ? "counted" : "estimated";
  json["ranks"] = Json::array();
  for (const RankBytes& r : a.ranks)
    json["ranks"].push_back({{"pipeline_rank", r.pipeline_rank},
                             {"ranks", r.ranks},
                             {"peak_bytes", whole(r.peak_bytes)},
                             {"fits", r.fits}});
  json["memory_parts_bytes"] = Json::object();
  for (const NamedBytes& part : a.memory) json["memory_parts_bytes"][part.name] = whole(part.bytes);
  json["changes"] = Json::array();
  for (const PlanChange& c : a.changes) json["changes"].push_back(json_of(c));
  json["words"] = Json::array();
  for (const TypedWords& t : a.typed)
    json["words"].push_back({{"trainer", t.program}, {"words", t.words}, {"refusal", t.refusal}});
  if (a.better)
    json["better"] = {{"layout", a.better->layout},
                      {"schedule", a.better->schedule},
                      {"changes", a.better->changes},
                      {"speed_ratio", a.better->speed_ratio},
                      {"tokens_per_s", a.better->tokens_per_s},
                      {"peak_bytes", whole(a.better->peak_bytes)},
                      {"add", a.better->add},
                      {"remove", a.better->remove}};
  return json;
}

}  // namespace heddle::advisor
