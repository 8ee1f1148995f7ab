#include "heddle/model/text/writer.h"

#include "heddle/base/error.h"
#include "heddle/model/loss_scale.h"
#include "heddle/model/microbatch_inputs.h"
#include "heddle/model/rope_table.h"
#include "heddle/ops/ops.h"

namespace heddle::model {

using ir::Axis;
using ir::none;
using ir::ValueId;

std::string_view word_of(OpPart part) {
  switch (part) {
    case OpPart::none: return "";
    case OpPart::queries_keys: return "mla_up";
    case OpPart::sequence_keys: return "sequence_keys";
    case OpPart::mlp: return "mlp";
    case OpPart::router: return "router";
    case OpPart::shared: return "shared";
    case OpPart::expert_up: return "expert_up";
    case OpPart::expert_down: return "expert_down";
    case OpPart::head: return "head";
  }
  return "";
}

Writer::Writer(const ModelConfig& config, const RankSpec& spec) : config_(config), spec_(spec) {
  text_.listing.name = fmt::format("listing {}", spec.rank);
  text_.listing.chunks.clear();
  runs_ = spec.sequences;
  whole_ = decodes() ? 1 : spec.sequence_length;
  local_ = whole_ / spec.mesh.of(Axis::cp);
  tokens_ = runs_ * local_ / tp();
  wide_ = spec.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}

int Writer::begin_chunk(const ir::Chunk& microbatches) {
  chunk_ = static_cast<int>(text_.listing.chunks.size());
  text_.listing.chunks.push_back(microbatches);
  chosen_ = none;
  kept_keys_ = {};
  layer_rows_.clear();
  return chunk_;
}

std::vector<ValueId> Writer::op(std::string_view kind, std::vector<ValueId> in, std::vector<std::string> names,
                                ir::Attributes attributes, std::string group, std::vector<ValueId> updates,
                                std::vector<ValueId> mentions) {
  ir::Op op;
  op.def = &ops::find(kind);
  op.in = std::move(in);
  op.updates = std::move(updates);
  op.mentions = std::move(mentions);
  op.group = std::move(group);
  op.layer = layer_;
  op.chunk = chunk_;
  op.part = word_of(part_);
  op.attributes = std::move(attributes);
  if (layer_ >= 0) {
    for (std::string& name : names) name = fmt::format("{}.{}", layer_, name);
  }
  return text_.listing.append(std::move(op), names);
}

ValueId Writer::load(const std::string& name, const ir::Input& input) {
  text_.listing.add_input(input);
  return op("load", {}, {name}, {{"input", input.name}})[0];
}

ValueId Writer::load_rows(const std::string& name, std::string_view what, int64_t rows, ir::Attributes attributes,
                          Dtype dtype) {
  attributes.set("what", std::string(what));
  return load(name, {.name = name,
                     .dtype = dtype,
                     .shape = {rows},
                     .given = ir::Given::microbatch,
                     .owner = std::string(kMicrobatchOwner),
                     .attributes = std::move(attributes)});
}

ValueId Writer::gather(ValueId x_T, const std::string& name) {
  if (tp() == 1) return x_T;
  if (config_.has_blocks_beside() && gathered_.first == x_T) return gathered_.second;
  gathered_ = {x_T, op("all_gather", {x_T}, {name + "_all"}, {{"ranks", tp()}, {"runs", runs_}}, "tp")[0]};
  return gathered_.second;
}

ValueId Writer::scatter_sum(ValueId x_U, const std::string& name) {
  if (tp() == 1) return x_U;
  return op("reduce_scatter", {x_U}, {name}, {{"ranks", tp()}, {"runs", runs_}}, "tp")[0];
}

ValueId Writer::parameter(Parameter p, Dtype dtype, std::vector<int64_t> shape) {
  if (const ValueId known = text_.listing.find(p.name); known != none) return known;
  const int64_t rows = shape[0];
  std::erase_if(p.cuts, [&](const Cut& cut) { return spec_.mesh.of(cut.axis) == 1; });
  for (const Cut& cut : p.cuts) {
    shape[static_cast<size_t>(cut.dim)] /= spec_.mesh.of(cut.axis);
    if (cut.axis == Axis::tp) p.replica_group = "dense";
  }
  ir::Value value;
  value.name = p.name;
  value.dtype = dtype;
  for (const int64_t size : shape) value.shape.push_back({size, none});
  value.role = ir::Role::weight;
  p.value = text_.listing.add_value(std::move(value));
  // The ends serve the depths too, but are of no layer.
  p.layer = p.part == Parameter::Part::embedding || p.part == Parameter::Part::head ? -1 : layer_;
  if (p.released.empty() && p.start != Parameter::Start::rope_table) p.released = {{p.name, 0, rows}};
  text_.parameters.push_back(p);
  return p.value;
}

ValueId Writer::matrix(Parameter::Part part, const std::string& name, int64_t n, int64_t k,
                       std::vector<ReleasedPart> released, std::vector<Cut> cuts) {
  return parameter({.name = name,
                    .part = part,
                    .deviation = config_.initializer_range,
                    .decays = true,
                    .cuts = std::move(cuts),
                    .released = std::move(released)},
                   spec_.dtype, {n, k});
}

ValueId Writer::add_bias(ValueId y, Parameter::Part part, const std::string& name, int64_t n,
                         const std::string& out, std::vector<ReleasedPart> released, std::vector<Cut> cuts) {
  const ValueId bias = parameter({.name = name,
                                  .part = part,
                                  .start = Parameter::Start::zeros,
                                  .cuts = std::move(cuts),
                                  .released = std::move(released)},
                                 wide_, {n});
  return op("add_bias", {y, bias}, {out})[0];
}

ValueId Writer::linear(ValueId x, Parameter::Part part, const std::string& prefix, const std::string& name,
                       int64_t n) {
  return op("linear", {x, matrix(part, prefix + name + ".weight", n, columns(x))}, {name})[0];
}

ValueId Writer::column_linear(ValueId x_U, Parameter::Part part, const std::string& prefix, const std::string& name,
                              int64_t n, bool bias) {
  const ValueId w = matrix(part, prefix + name + ".weight", n, columns(x_U), {}, {{0, Axis::tp}});
  const ValueId y = op("linear", {x_U, w}, {bias ? name + "_product" : name})[0];
  return bias ? add_bias(y, part, prefix + name + ".bias", n, name, {}, {{0, Axis::tp}}) : y;
}

ValueId Writer::row_linear(ValueId x_U, Parameter::Part part, const std::string& prefix, const std::string& name,
                           int64_t k, const std::string& out, bool bias) {
  const ValueId w = matrix(part, prefix + name + ".weight", config_.hidden_size, k, {}, {{1, Axis::tp}});
  const std::string product = bias ? out + "_product" : out;
  const ValueId y = scatter_sum(op("linear", {x_U, w}, {partial(product)})[0], product);
  return bias ? add_bias(y, part, prefix + name + ".bias", config_.hidden_size, out) : y;
}

ValueId Writer::norm(ValueId x, const std::string& name, const std::string& out) {
  if (config_.norm == Norm::rms) return norm(x, name, out, config_.rms_norm_eps, columns(x));
  constexpr std::string_view kGain = "weight";
  HEDDLE_CHECK(name.ends_with(kGain), "the gain of a norm is called '{}'", name);
  const ValueId gain = parameter({.name = name, .part = Parameter::Part::norm, .start = Parameter::Start::ones},
                                 wide_, {columns(x)});
  const ValueId bias = config_.norm_bias ? parameter({.name = name.substr(0, name.size() - kGain.size()) + "bias",
                                                      .part = Parameter::Part::norm,
                                                      .start = Parameter::Start::zeros},
                                                     wide_, {columns(x)})
                                         : constant(zero_bias(columns(x)), columns(x));
  return op("layer_norm", {x, gain, bias}, {out, out + "_mean", out + "_rstd"},
            {{"epsilon", config_.rms_norm_eps}})[0];
}

ValueId Writer::norm(ValueId x, const std::string& name, const std::string& out, double epsilon, int64_t width) {
  const bool centered = config_.zero_centered_norms;
  const ValueId gain = parameter({.name = name,
                                  .part = Parameter::Part::norm,
                                  .start = centered ? Parameter::Start::zeros : Parameter::Start::ones},
                                 wide_, {width});
  ir::Attributes attributes{{"epsilon", epsilon}};
  if (centered) attributes.set("offset", 1.0);
  return op("rms_norm", {x, gain}, {out, out + "_rstd"}, std::move(attributes))[0];
}

// Kernels of norms read gains and biases: these are made as rotary tables are made, and have no gradient.
ValueId Writer::constant(const std::string& name, int64_t width) {
  const ValueId made = parameter(
      {.name = name, .part = Parameter::Part::rope_table, .start = Parameter::Start::rope_table, .trained = false},
      wide_, {width});
  text_.listing.value(made).frozen = true;
  return made;
}

ValueId Writer::unit_norm(ValueId x, const std::string& out, int64_t width) {
  const ValueId gain = constant(unit_gain(width), width);
  return op("rms_norm", {x, gain}, {out, out + "_rstd"}, {{"epsilon", config_.rms_norm_eps}})[0];
}

ValueId Writer::scaled(ValueId x, double factor, const std::string& name) {
  return factor == 1.0 ? x : op("scale", {x}, {name}, {{"factor", factor}})[0];
}

ValueId Writer::dropout(ValueId x, Site site, const std::string& name) {
  const double rate = site == Site::embedding ? config_.embedding_dropout : config_.residual_dropout;
  if (!trains_with(rate)) return x;
  return op("dropout", {x, drawn_tokens_, drawn_key_}, {name}, {{"rate", rate}, {"site", this->site(site)}})[0];
}

ValueId Writer::statistic(const Statistic& what, const std::vector<int64_t>& shape, Dtype dtype) {
  ir::Shape dims;
  for (const int64_t size : shape) dims.push_back({size, none});
  return add_statistic(text_.listing, text_.statistics, what, std::move(dims), dtype);
}

void Writer::scales_with_heads(const std::string& prefix, std::string_view name, const HeadRows& heads) {
  for (Parameter& p : text_.parameters) {
    if (p.name.starts_with(prefix) && (p.name.substr(prefix.size()) == fmt::format("{}.weight", name) ||
                                       p.name.substr(prefix.size()) == fmt::format("{}.bias", name)))
      p.heads = heads;
  }
}

void Writer::keep(ValueId loss, const Statistic& what) {
  op("accumulate", {loss}, {}, {}, "", {statistic(what, {1})});
}

void Writer::load_scales() {
  scales_ =
      load("scales", {.name = "scales", .dtype = wide_, .shape = {kScaleDepth + depths()}, .owner = "losses"});
}

ValueId Writer::rope_table_of(const ModelConfig& rotation, const char* name, int64_t parts) {
  return parameter(
      {.name = name, .part = Parameter::Part::rope_table, .start = Parameter::Start::rope_table, .trained = false},
      wide_, {spec_.sequence_length / (cp() * parts), rotation.rotary_width()});
}

void Writer::load_rope_table() {
  rope_ = rope_table_of(config_, kRopeTable);
  if (config_.selects()) own_rope_ = tp() > 1 ? rope_table_of(config_, kOwnRopeTable, tp()) : rope_;
  if (config_.has_window_rotation())
    window_rope_ = rope_table_of(config_.with_rotation_of_windows(), kWindowRopeTable);
}

ValueId Writer::rope_table_of_entries(int64_t entries, int64_t tokens) {
  return parameter({.name = rope_table_name(tokens),
                    .part = Parameter::Part::rope_table,
                    .start = Parameter::Start::rope_table,
                    .trained = false},
                   wide_, {entries, config_.rotary_width()});
}

// Longer chunks than the sequence hold all of it.
void Writer::load_chunk_starts() {
  if (!config_.window_chunks || config_.sliding_window >= whole_) return;
  ir::Attributes attributes{{"sequence", whole_}, {"chunk", config_.sliding_window}};
  if (parts_documents() && !caches()) attributes.set("apart", int64_t{1});
  if (spec_.document_end >= 0) attributes.set("document_end", spec_.document_end);
  chunk_starts_ = load_rows("chunk_starts", "starts", runs_ * whole_, std::move(attributes));
}

// A text that is generated is one document, of which a step of decoding knows the places alone.
void Writer::load_starts() {
  if (decodes()) return;
  load_chunk_starts();
  if (caches() || !parts_documents()) return;
  ir::Attributes attributes{{"sequence", whole_}};
  if (spec_.document_end >= 0) attributes.set("document_end", spec_.document_end);
  if ((config_.recurs() || config_.has_ngrams()) && has_pieces()) {
    ir::Attributes of_pieces = attributes;
    piece_starts_ = load_rows("piece_starts", "starts", runs_ * whole_ / cp(), of_pieces.set("cp", cp()));
  }
  starts_ = load_rows("starts", "starts", runs_ * whole_, std::move(attributes));
}

// The attributes are of rows that so many ranks of tp share.
ir::Attributes Writer::attributes_of_positions(int64_t tp) const {
  ir::Attributes attributes{{"sequence", spec_.sequence_length}};
  if (caches()) {
    attributes.set("cached", int64_t{1});
  } else {
    attributes.set("cp", cp()).set("tp", tp);
    if (parts_documents() && !caches()) attributes.set("apart", int64_t{1});
    if (spec_.document_end >= 0) attributes.set("document_end", spec_.document_end);
  }
  return attributes;
}

void Writer::load_positions() {
  positions_ = load_rows("positions", "positions", tokens_, attributes_of_positions(tp()));
}

void Writer::load_query_scales(int64_t first, int64_t layers, int64_t depths) {
  bool wanted = depths > 0 && config_.scales_queries(config_.num_hidden_layers);
  for (int64_t l = first; l < first + layers; ++l)
    wanted = wanted || (config_.has(l, Block::attention) && config_.scales_queries(l));
  if (!wanted) return;
  ir::Attributes attributes = attributes_of_positions(1);
  attributes.set("beta", config_.query_scale_beta)
      .set("length", config_.query_scale_length)
      .set("first", config_.query_scale_first);
  query_scales_ = load_rows("query_scales", "query_scales", tokens_ * tp(), std::move(attributes), wide_);
}

void Writer::load_dropout(bool attends) {
  const bool drops = trains_with(config_.embedding_dropout) || trains_with(config_.residual_dropout);
  const bool of_queries = attends && drops_probabilities();
  if (!drops && !of_queries) return;
  drawn_key_ = load("drawn_key", {.name = "drawn_key", .dtype = Dtype::i32, .shape = {3}, .owner = "dropout"});
  const auto load_tokens = [&](const std::string& name, int64_t rows, int64_t cp, int64_t tp) {
    return load_rows(name, "tokens", rows, {{"sequence", whole_}, {"cp", cp}, {"tp", tp}});
  };
  if (drops) drawn_tokens_ = load_tokens("drawn_tokens", tokens_, cp(), tp());
  if (!of_queries) return;
  // Ranks with a part of the heads each have the same queries.
  const int64_t parts = row_ranks();
  drawn_queries_ = {load_tokens("drawn_queries", runs_ * whole_ / parts, parts, 1), drawn_key_};
}

void Writer::load_ids_of_rows(int64_t first, int64_t layers) {
  bool wanted = false;
  for (int64_t l = first; l < first + layers; ++l) wanted = wanted || config_.chooses_by_id(l);
  if (!wanted) return;
  ids_of_rows_ = load_rows("ids_of_rows", "ids", tokens_,
                           {{"distance", int64_t{0}},
                            {"sequence", whole_},
                            {"width", whole_ + 1 + depths()},
                            {"cp", cp()},
                            {"tp", tp()}});
}

void Writer::load_places() { places_ = load_rows("places", "places", tokens_); }

ValueId Writer::cache(const std::string& name, int64_t width, int64_t keys) {
  const ir::Dim positions{spec_.cached_sequences * (keys > 0 ? keys : spec_.sequence_length), none};
  return text_.listing.add_value({.name = fmt::format("cache.{}.{}", layer_, name),
                                  .dtype = spec_.dtype,
                                  .shape = {positions, {width, none}},
                                  .role = ir::Role::cache});
}

ValueId Writer::cache_of_sequences(const std::string& name, int64_t width, Dtype dtype) {
  return text_.listing.add_value({.name = fmt::format("cache.{}.{}", layer_, name),
                                  .dtype = dtype,
                                  .shape = {{spec_.cached_sequences, none}, {width, none}},
                                  .role = ir::Role::cache});
}

void Writer::keep_rows(ValueId x_TW, ValueId cache, int64_t first) {
  op("cache_rows", {x_TW, places_}, {}, {{"first", first}}, "", {cache});
}

}  // namespace heddle::model
