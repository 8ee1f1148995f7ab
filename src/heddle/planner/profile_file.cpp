#include "heddle/planner/profile_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/formats/json_text.h"

namespace heddle::planner {

namespace {

using Json = nlohmann::json;  // the ordered one does not go with a watch on the parser

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr size_t kMostOps = 200'000, kMostLinks = 10'000;
constexpr int kMostCores = 1 << 16;

class ProfileReader {
 public:
  explicit ProfileReader(const std::string& place) : place_(place) {}

  template <class... Parts>
  [[noreturn]] void refuse(fmt::format_string<Parts...> text, Parts&&... parts) const {
    config_error("{}: {}", place_, fmt::format(text, std::forward<Parts>(parts)...));
  }
  const Json& member(const Json& of, const char* key) const {
    const auto at = of.find(key);
    if (at == of.end()) refuse("'{}' is missing", key);
    return *at;
  }
  double value(const Json& value, const char* what, double least, double most) const {
    if (!value.is_number()) refuse("'{}' is no number", what);
    const auto x = value.get<double>();
    if (!std::isfinite(x) || x < least || x > most) refuse("'{}' is {}, accepted: {} to {}", what, x, least, most);
    return x;
  }
  double number(const Json& of, const char* key, double least, double most) const {
    return value(member(of, key), key, least, most);
  }
  std::string word(const Json& of, const char* key) const {
    const Json& value = member(of, key);
    if (!value.is_string() || value.get_ref<const std::string&>().size() > 200)
      refuse("'{}' is no short text", key);
    return value.get<std::string>();
  }
  const Json& list(const Json& of, const char* key, size_t most) const {
    const Json& value = member(of, key);
    if (!value.is_array()) refuse("'{}' is no list", key);
    if (value.size() > most) refuse("'{}' has {} entries, at most {} are accepted", key, value.size(), most);
    return value;
  }

 private:
  const std::string& place_;
};

double five_digits(double x) {  // five digits: more would only be noise
  if (x == 0 || !std::isfinite(x)) return 0;
  const double scale = std::pow(10.0, 4 - std::floor(std::log10(std::abs(x))));
  return std::round(x * scale) / scale;
}

}  // namespace

std::string profile_text(const cost::MachineProfile& p) {
  nlohmann::ordered_json json;
  json["heddle_profile"] = kProfileVersion;
  json["machine"] = p.machine;
  json["date"] = p.date;
  json["backend"] = p.backend;
  json["cores"] = p.cores;
  json["bf16_flops_per_s"] = five_digits(p.bf16_flops_per_s);
  json["f32_flops_per_s"] = five_digits(p.f32_flops_per_s);
  json["copy_bytes_per_s"] = five_digits(p.copy_bytes_per_s);
  json["host_copy_bytes_per_s"] = five_digits(p.host_copy_bytes_per_s);
  json["launch_us"] = five_digits(p.launch_us);
  json["enqueue_us"] = five_digits(p.enqueue_us);
  json["wake_us"] = five_digits(p.wake_us);
  json["oversleep_us"] = five_digits(p.oversleep_us);
  json["others_share"] = five_digits(p.others_share);
  json["scalar"] = five_digits(p.scalar);
  json["engine_from_bytes"] = five_digits(p.engine_from_bytes);
  json["together"] = nlohmann::ordered_json::array();
  for (const double speed : p.together) json["together"].push_back(five_digits(speed));
  std::string text = json.dump(1);
  text.resize(text.size() - 2);  // "\n}"
  text += ",\n \"link_columns\": [\"over\", \"ranks\", \"bytes\", \"us\"],\n \"links\": [";
  const char* comma = "\n";
  for (const cost::LinkTime& l : p.links) {
    text += comma + Json::array({name_of(l.over), l.ranks, l.bytes, five_digits(l.us)}).dump();
    comma = ",\n";
  }
  text +=
      "],\n \"op_columns\": [\"kind\", \"dtype\", \"threads\", \"rows\", \"in\", \"out\", \"groups\", \"flops\", "
      "\"bytes\", \"resident_bytes\", \"us\"],\n \"ops\": [";
  comma = "\n";
  for (const cost::OpTime& t : p.ops.all()) {
    const cost::OpShape& s = t.shape;
    text += comma + Json::array({s.kind, name_of(s.dtype), t.threads, s.rows, s.in, s.out, s.groups, s.flops,
                                 s.bytes, t.resident_bytes, five_digits(t.us)})
                        .dump();
    comma = ",\n";
  }
  return text + "]\n}\n";
}

cost::MachineProfile parse_profile(const std::string& text, const std::string& place) {
  const ProfileReader reader(place);
  const Json json = formats::parse_json(text, place, 8);
  if (!json.is_object()) reader.refuse("no machine profile");
  const int version = static_cast<int>(reader.number(json, "heddle_profile", 0, 1e6));
  if (version != kProfileVersion) {
    reader.refuse("a profile of version {}, this program reads version {}: run heddle profile again", version,
                  kProfileVersion);
  }
  cost::MachineProfile p;
  p.machine = reader.word(json, "machine");
  p.date = reader.word(json, "date");
  p.cores = static_cast<int>(reader.number(json, "cores", 1, kMostCores));
  p.bf16_flops_per_s = reader.number(json, "bf16_flops_per_s", 0, 1e18);
  p.f32_flops_per_s = reader.number(json, "f32_flops_per_s", 0, 1e18);
  p.copy_bytes_per_s = reader.number(json, "copy_bytes_per_s", 1, 1e16);
  p.launch_us = reader.number(json, "launch_us", 0, 1e6);
  p.enqueue_us = reader.number(json, "enqueue_us", 0, 1e6);
  p.wake_us = reader.number(json, "wake_us", 0, 1e6);
  p.oversleep_us = reader.number(json, "oversleep_us", 0, 1e6);
  p.others_share = reader.number(json, "others_share", 0, 1);
  if (json.contains("backend")) p.backend = reader.word(json, "backend");  // older ones are the processor's
  if (json.contains("host_copy_bytes_per_s"))
    p.host_copy_bytes_per_s = reader.number(json, "host_copy_bytes_per_s", 0, 1e16);
  if (json.contains("scalar")) p.scalar = reader.number(json, "scalar", 0.01, 100);
  if (json.contains("engine_from_bytes")) p.engine_from_bytes = reader.number(json, "engine_from_bytes", 0, 1e15);
  for (const Json& speed : reader.list(json, "together", kMostCores)) {
    p.together.push_back(reader.value(speed, "together", 1e-3, 10));
  }
  for (const Json& row : reader.list(json, "links", kMostLinks)) {
    if (!row.is_array() || row.size() != 4 || !row[0].is_string()) reader.refuse("a row of 'links' is broken");
    cost::LinkTime& link = p.links.emplace_back();
    const std::string& over = row[0].get_ref<const std::string&>();
    bool known = false;
    for (const cost::Link each : {cost::Link::threads, cost::Link::node, cost::Link::nodes}) {
      if (name_of(each) != over) continue;
      link.over = each;
      known = true;
    }
    if (!known) reader.refuse("'links' over '{}', accepted: threads, node, nodes", escaped(over, 40));
    link.ranks = static_cast<int>(reader.value(row[1], "ranks", 2, 1e7));
    link.bytes = reader.value(row[2], "bytes", 1, 1e15);
    link.us = reader.value(row[3], "us", 0, 1e12);
  }
  for (const Json& row : reader.list(json, "ops", kMostOps)) {
    if (!row.is_array() || row.size() != 11 || !row[0].is_string() || !row[1].is_string()) {
      reader.refuse("a row of 'ops' is broken");
    }
    cost::OpTime time;
    cost::OpShape& s = time.shape;
    s.kind = row[0].get<std::string>().substr(0, 100);
    const std::string& dtype = row[1].get_ref<const std::string&>();
    bool known = false;
    for (const Dtype each : {Dtype::bf16, Dtype::f32, Dtype::f64}) {
      if (name_of(each) != dtype) continue;
      s.dtype = each;
      known = true;
    }
    if (!known) reader.refuse("'ops' of type '{}', accepted: bf16, f32, f64", escaped(dtype, 40));
    time.threads = static_cast<int>(reader.value(row[2], "threads", 1, kMostCores));
    s.rows = reader.value(row[3], "rows", 0, 1e15);
    s.in = reader.value(row[4], "in", 0, 1e15);
    s.out = reader.value(row[5], "out", 0, 1e15);
    s.groups = reader.value(row[6], "groups", 0, 1e9);
    s.flops = reader.value(row[7], "flops", 0, 1e21);
    s.bytes = reader.value(row[8], "bytes", 0, 1e18);
    time.resident_bytes = reader.value(row[9], "resident_bytes", 0, 1e18);
    time.us = reader.value(row[10], "us", 1e-6, 1e12);
    p.ops.add(std::move(time));
  }
  return p;
}

cost::MachineProfile read_profile(const std::string& path) {
  return parse_profile(read_file(path, kMostBytes), path);
}

}  // namespace heddle::planner
