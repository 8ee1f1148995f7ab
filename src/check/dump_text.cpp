#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "check/dump.h"
#include "heddle/base/error.h"
#include "heddle/formats/json_text.h"

namespace heddle::check {

namespace {

using nlohmann::json;

constexpr int kMostDepth = 32;
constexpr int64_t kMostElements = int64_t{1} << 31;  // of a whole tensor
constexpr int64_t kMostDims = 8, kMostRanges = 1 << 16;
constexpr int64_t kMostRanks = 1024, kMostCount = 1 << 20;
constexpr const char* kFormat = "heddle-check 1";

// An object of which every key is known, with the place that begins each message.
class Fields {
 public:
  Fields(const json& object, std::string place, std::vector<std::string> known)
      : object_(object), place_(std::move(place)) {
    if (!object.is_object()) config_error("{}: an object is accepted, not {}", place_, formats::shown(object));
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end())
        config_error("{}: no key '{}'; known: {}{}", place_, formats::printable(key), fmt::join(known, ", "),
                     did_you_mean(key, known));
    }
  }
  const json* find(const char* key) const {
    const auto at = object_.find(key);
    return at == object_.end() ? nullptr : &*at;
  }
  const json& at(const char* key) const {
    const json* found = find(key);
    if (found == nullptr) config_error("{}: '{}' is missing", place_, key);
    return *found;
  }
  int64_t count(const char* key, int64_t least, int64_t most, std::optional<int64_t> otherwise = {}) const {
    const json* value = find(key);
    if (value == nullptr && otherwise) return *otherwise;
    const json& given = at(key);
    if (!given.is_number_integer() || given.get<double>() < static_cast<double>(least) ||
        given.get<double>() > static_cast<double>(most))
      config_error("{}: {}: a whole number from {} to {} is accepted, not {}", place_, key, least, most,
                   formats::shown(given));
    return given.get<int64_t>();
  }
  double number(const char* key, double otherwise, double least = 0, double most = 1e30) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most))
      config_error("{}: {}: a number from {} to {} is accepted, not {}", place_, key, least, most,
                   formats::shown(*value));
    return value->get<double>();
  }
  std::string text(const char* key, std::optional<std::string> otherwise = {}) const {
    const json* value = find(key);
    if (value == nullptr && otherwise) return *otherwise;
    const json& given = at(key);
    if (!given.is_string() || given.get_ref<const std::string&>().size() > 300)
      config_error("{}: {}: a text of at most 300 bytes is accepted, not {}", place_, key, formats::shown(given));
    return given.get<std::string>();
  }
  template <class E>
  E word(const char* key, std::optional<E> otherwise = {}) const {
    if (find(key) == nullptr && otherwise) return *otherwise;
    const std::string given = text(key);
    if (const std::optional<E> found = find_word<E>(given)) return *found;
    const std::vector<std::string> words = all_words<E>();
    config_error("{}: {}: '{}', accepted: {}{}", place_, key, formats::printable(given), fmt::join(words, ", "),
                 did_you_mean(given, words));
  }
  const std::string& place() const { return place_; }

 private:
  const json& object_;
  std::string place_;
};

Dtype dtype_of(const Fields& fields, const char* key, std::optional<Dtype> otherwise) {
  if (fields.find(key) == nullptr && otherwise) return *otherwise;
  const std::string word = fields.text(key);
  const std::vector<std::pair<std::string, Dtype>> words{
      {"fp32", Dtype::f32}, {"bf16", Dtype::bf16}, {"fp64", Dtype::f64}};
  for (const auto& [name, dtype] : words) {
    if (word == name) return dtype;
  }
  config_error("{}: {}: '{}', accepted: fp32, bf16, fp64", fields.place(), key, formats::printable(word));
}

std::vector<std::string> axis_words() {
  std::vector<std::string> words;
  for (int a = 0; a < ir::kAxes; ++a) words.emplace_back(ir::name_of(static_cast<ir::Axis>(a)));
  return words;
}

ir::Axis axis_of(const std::string& word, const std::string& place) {
  const std::vector<std::string> words = axis_words();
  const auto at = std::find(words.begin(), words.end(), word);
  if (at == words.end())
    config_error("{}: '{}', accepted: {}", place, formats::printable(word), fmt::join(words, ", "));
  return static_cast<ir::Axis>(at - words.begin());
}

int64_t whole_number(const json& value, const std::string& place, int64_t least, int64_t most) {
  if (!value.is_number_integer() || value.get<double>() < static_cast<double>(least) ||
      value.get<double>() > static_cast<double>(most))
    config_error("{}: a whole number from {} to {} is accepted, not {}", place, least, most, formats::shown(value));
  return value.get<int64_t>();
}

Slice read_slice(const json& of, const json& at, const std::string& place) {
  if (!of.is_array() || of.empty() || std::ssize(of) > kMostDims || !at.is_array() || at.size() != of.size())
    config_error("{}: 'of' and 'at' are lists of one entry a dim, of at most {}", place, kMostDims);
  Slice slice;
  double whole = 1;
  for (const json& dim : of) {
    slice.of.push_back(whole_number(dim, place + ": of", 1, kMostElements));
    whole *= static_cast<double>(slice.of.back());
  }
  if (whole > static_cast<double>(kMostElements)) config_error("{}: more than {} elements", place, kMostElements);
  for (size_t d = 0; d < at.size(); ++d) {
    const auto range = [&](const json& pair) {
      if (!pair.is_array() || pair.size() != 2)
        config_error("{}: at: [begin, end] or a list of these is accepted, not {}", place, formats::shown(pair));
      const int64_t begin = whole_number(pair[0], place + ": at", 0, slice.of[d]);
      return Range{begin, whole_number(pair[1], place + ": at", begin, slice.of[d])};
    };
    std::vector<Range> ranges;
    const json& given = at[d];
    if (!given.is_array() || given.empty() || std::ssize(given) > kMostRanges)
      config_error("{}: at: [begin, end] or a list of these is accepted, not {}", place, formats::shown(given));
    if (given[0].is_array()) {
      int64_t count = 0;
      for (const json& each : given) {
        ranges.push_back(range(each));
        count += ranges.back().end - ranges.back().begin;
      }
      if (count > slice.of[d]) config_error("{}: at: {} indices of a dim of {}", place, count, slice.of[d]);
    } else {
      ranges.push_back(range(given));
    }
    slice.at.push_back(std::move(ranges));
  }
  return slice;
}

}  // namespace

std::string Record::text() const {
  const std::string what =
      stage == Stage::local_gradient ? "gradient before reduction" : std::string(word_of(stage));
  return fmt::format("{} of {}{}", what, name, microbatch < 0 ? "" : fmt::format(", microbatch {}", microbatch));
}

Layout read_layout(std::string_view text, const std::string& place, const ReadModel& read_model) {
  const json root = formats::parse_json(text, place, kMostDepth);
  const Fields fields(root, place,
                      {"format", "trainer", "model", "mesh", "sequence_parallel", "dtype", "sums", "microbatches",
                       "sequences", "sequence_length", "loss", "optimizer"});
  if (fields.text("format") != kFormat)
    config_error("{}: format: '{}' is accepted, not {}", place, kFormat, formats::shown(fields.at("format")));
  Layout layout;
  layout.trainer = fields.text("trainer", "");
  const Fields mesh(fields.at("mesh"), place + ": mesh", {"tp", "cp", "dp", "pp", "ep", "etp"});
  const auto degree = [&](const char* axis) { return static_cast<int>(mesh.count(axis, 1, kMostRanks, 1)); };
  layout.mesh.tp = degree("tp"), layout.mesh.cp = degree("cp"), layout.mesh.dp = degree("dp");
  layout.mesh.pp = degree("pp"), layout.mesh.ep = degree("ep"), layout.mesh.etp = degree("etp");
  if (int64_t{layout.mesh.tp} * layout.mesh.cp > kMostRanks ||
      int64_t{layout.mesh.dp} * layout.mesh.pp > kMostRanks || layout.mesh.ranks() > kMostRanks ||
      int64_t{layout.mesh.ep} * layout.mesh.etp > layout.mesh.stage_ranks() ||
      layout.mesh.stage_ranks() % (layout.mesh.ep * layout.mesh.etp) != 0)
    config_error("{}: mesh: at most {} ranks are accepted, of which ep × etp divides tp × cp × dp", place,
                 kMostRanks);
  if (const json* given = fields.find("sequence_parallel")) {
    if (!given->is_boolean())
      config_error("{}: sequence_parallel: true or false is accepted, not {}", place, formats::shown(*given));
    layout.sequence_parallel = given->get<bool>();
  }
  layout.dtype = dtype_of(fields, "dtype", {});
  layout.sums = dtype_of(fields, "sums", layout.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  layout.microbatches = static_cast<int>(fields.count("microbatches", 1, kMostCount, 1));
  layout.sequences = fields.count("sequences", 1, kMostCount, 1);
  layout.sequence_length = fields.count("sequence_length", 1, kMostCount);
  if (static_cast<double>(layout.mesh.dp) * layout.microbatches * static_cast<double>(layout.sequences) *
          static_cast<double>(layout.sequence_length) >
      static_cast<double>(kMostElements))
    config_error("{}: a step of more than {} tokens", place, kMostElements);
  layout.loss = fields.word<LossMean>("loss", LossMean::tokens);
  if (const json* given = fields.find("optimizer")) {
    const Fields o(*given, place + ": optimizer", {"lr", "beta1", "beta2", "eps", "weight_decay", "clip_norm"});
    layout.optimizer = {o.number("lr", 0),     o.number("beta1", 0.9, 0, 1), o.number("beta2", 0.999, 0, 1),
                        o.number("eps", 1e-8), o.number("weight_decay", 0),  o.number("clip_norm", 0)};
  }
  layout.model = read_model(fields.at("model"), place, layout.sequence_length, layout.warnings);
  return layout;
}

RankDump read_index(std::string_view text, const std::string& place, const Layout& layout, int rank,
                    std::vector<std::string>& tensors) {
  const json root = formats::parse_json(text, place, kMostDepth);
  const Fields fields(root, place, {"rank", "at", "tensors"});
  if (fields.count("rank", 0, kMostRanks, rank) != rank)
    config_error("{}: rank: {} is accepted here, not {}", place, rank, formats::shown(fields.at("rank")));
  RankDump one;
  const plan::Degrees& mesh = layout.mesh;
  one.at.degree = {mesh.tp, mesh.cp, mesh.dp, mesh.pp, mesh.ep, mesh.etp, mesh.edp()};
  const Fields at(fields.at("at"), place + ": at", axis_words());
  for (int a = 0; a < ir::kAxes; ++a) {
    const std::string axis(ir::name_of(static_cast<ir::Axis>(a)));
    const int64_t absent = static_cast<ir::Axis>(a) == ir::Axis::edp ? -1 : 0;
    one.at.index[static_cast<size_t>(a)] =
        static_cast<int>(at.count(axis.c_str(), 0, one.at.degree[static_cast<size_t>(a)] - 1, absent));
  }
  const json& list = fields.at("tensors");
  if (!list.is_array()) config_error("{}: tensors: a list is accepted", place);
  for (size_t i = 0; i < list.size(); ++i) {
    const Fields row(list[i], fmt::format("{}: tensors[{}]", place, i),
                     {"tensor", "stage", "name", "microbatch", "of", "at", "sum_over", "scale", "group"});
    Record record;
    tensors.push_back(row.text("tensor"));
    record.stage = row.word<Stage>("stage");
    record.name = row.text("name");
    record.rank = rank;
    const bool in_microbatch = record.stage == Stage::forward || record.stage == Stage::backward;
    if (!in_microbatch && row.find("microbatch") != nullptr)
      config_error("{}: microbatch: only forward and backward are of one", row.place());
    if (in_microbatch) record.microbatch = static_cast<int>(row.count("microbatch", 0, layout.microbatches - 1));
    record.slice = read_slice(row.at("of"), row.at("at"), row.place());
    record.scale = row.number("scale", 1, 1e-30);
    record.group = row.text("group", "");
    if (const json* over = row.find("sum_over")) {
      if (!over->is_array() || record.stage != Stage::local_gradient)
        config_error("{}: sum_over: a list of axes of a local_gradient is accepted", row.place());
      for (const json& axis : *over)
        record.sum_over.push_back(axis_of(axis.is_string() ? axis.get<std::string>() : axis.dump(), row.place()));
    }
    one.records.push_back(std::move(record));
  }
  return one;
}

}  // namespace heddle::check
