#include "heddle/model/text/ends.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "heddle/model/loss_scale.h"
#include "heddle/model/text/streams.h"

namespace heddle::model {

using ir::Axis;
using ir::none;
using ir::ValueId;

void Ends::load_tokens(const StageShare& share) {
  const auto load = [&](const std::string& what, int64_t distance, Dtype dtype = Dtype::i32) {
    return w_.load_rows(fmt::format("{}_{}", what, distance), what, w_.runs() * w_.local(),
                        {{"distance", distance},
                         {"sequence", w_.whole()},
                         {"width", w_.whole() + 1 + w_.depths()},
                         {"cp", w_.cp()}},
                        dtype);
  };
  ids_of_.assign(static_cast<size_t>(w_.depths()) + 1, none);
  ids_here_ = ids_of_;
  if (share.embedding) ids_of_[0] = load("ids", 0);
  for (int64_t d = share.first_depth; d < std::min(w_.depths() + 1, share.first_depth + share.depths); ++d)
    ids_of_[static_cast<size_t>(d)] = load("ids", d);
  labels_of_.clear();
  weights_of_.clear();
  if (!share.loss || w_.predicts()) return;
  for (int64_t d = 1; d <= w_.depths() + 1; ++d) labels_of_.push_back(load("labels", d));
  if (!w_.spec().weighs_labels) return;
  for (int64_t d = 1; d <= w_.depths() + 1; ++d) weights_of_.push_back(load("weights", d, Dtype::f64));
}

ValueId Ends::embedding() {
  return w_.matrix(Parameter::Part::embedding, "model.embed_tokens.weight", w_.config().vocab_size,
                   w_.config().hidden_size, {}, {{0, Axis::tp}});
}

ValueId Ends::looked_up(ValueId table, int64_t depth, const std::string& name) {
  ValueId& here = ids_here_[static_cast<size_t>(depth)];
  if (here == none) here = ids(depth);
  if (w_.tp() > 1 && here == ids(depth)) {
    here = w_.op("shift_ids", {here}, {fmt::format("ids_{}_here", depth)},
                 {{"size", w_.config().vocab_size / w_.tp()}, {"outside", int64_t{-1}}})[0];
  }
  return w_.scatter_sum(w_.op("embedding", {here, table}, {w_.partial(name)})[0], name);
}

ValueId Ends::embed(int64_t depth, const std::string& name) {
  const bool learned = w_.config().learns_positions();
  const std::string tokens = learned ? name + "_tokens" : name;
  const double factor = w_.config().embedding_multiplier;
  ValueId x_TH = looked_up(embedding(), depth, factor == 1.0 ? tokens : tokens + "_unscaled");
  x_TH = w_.scaled(x_TH, factor, tokens);
  if (learned) {
    const ValueId p_TH = w_.op("embedding", {w_.positions(), position_table()}, {name + "_positions"})[0];
    x_TH = w_.op("add", {x_TH, p_TH}, {name})[0];
  }
  return w_.dropout(x_TH, Writer::Site::embedding, name + "_kept");
}

// (norm(x·W ÷ √H) + e·√P) ÷ √2 for all layers side by side, P columns each, which are halved until each is alone.
std::vector<ValueId> Ends::layer_rows(ValueId x_TH) {
  constexpr auto kOf = Parameter::Part::embedding;
  const ModelConfig& c = w_.config();
  const int64_t P = c.layer_embedding_size, columns = P * c.num_hidden_layers;
  const auto root = [](int64_t n) { return std::sqrt(static_cast<double>(n)); };
  const ValueId table =
      w_.matrix(kOf, "model.embed_tokens_per_layer.weight", c.vocab_size, columns, {}, {{0, Axis::tp}});
  const ValueId e = w_.scaled(looked_up(table, 0, "layer_tokens_unscaled"), root(P), "layer_tokens");
  const ValueId made = w_.linear(x_TH, kOf, "model.", "per_layer_model_projection", columns);
  const ValueId n = w_.norm(w_.scaled(made, 1 / root(c.hidden_size), "layer_maps"),
                            "model.per_layer_projection_norm.weight", "layer_maps_normed", c.rms_norm_eps, P);
  std::vector<ValueId> rows(static_cast<size_t>(c.num_hidden_layers), none);
  const std::function<void(ValueId, int64_t, int64_t)> halve = [&](ValueId all, int64_t first, int64_t count) {
    if (count == 1) {
      rows[static_cast<size_t>(first)] = all;
      return;
    }
    const int64_t half = count / 2;
    const auto parts = w_.op(
        "split", {all},
        {fmt::format("layer_rows_{}_{}", first, half), fmt::format("layer_rows_{}_{}", first + half, count - half)},
        {{"first", half * P}});
    halve(parts[0], first, half);
    halve(parts[1], first + half, count - half);
  };
  halve(w_.scaled(w_.op("add", {n, e}, {"layer_rows_sum"})[0], 1 / root(2), "layer_rows"), 0, c.num_hidden_layers);
  return rows;
}

// Whole on every rank of tp: each has rows of its own to add.
ValueId Ends::position_table() {
  return w_.matrix(Parameter::Part::embedding, "model.embed_positions.weight", w_.config().max_position_embeddings,
                   w_.config().hidden_size);
}

void Ends::load_head() {
  const ModelConfig& c = w_.config();
  head_ = c.tie_word_embeddings ? embedding()
                                : w_.matrix(Parameter::Part::head, "lm_head.weight", c.vocab_size, c.hidden_size,
                                            {}, {{0, Axis::tp}});
}

ValueId Ends::head_rows(ValueId h, const Reader& reader, const std::string& name) {
  const double divisor = w_.config().logits_divisor;
  const ValueId r_TH = end_streams(w_, h, reader.prefix, "head");
  const ValueId n_TH = w_.config().has_gated_streams() || w_.hands_on_normed()
                           ? r_TH
                           : w_.norm(r_TH, reader.norm, divisor == 1.0 ? "n_" + name : "n_unscaled_" + name);
  return w_.scaled(n_TH, 1 / divisor, "n_" + name);
}

ValueId Ends::logits(ValueId n_TH, const std::string& name) {
  const double cap = w_.config().final_logit_cap;
  const bool bias = w_.config().head_bias;
  const std::string made = (cap > 0 ? "raw_logits_" : "logits_") + name;
  ValueId logits_TV = w_.op("linear", {n_TH, head_}, {bias ? "product_" + made : made})[0];
  if (bias) {
    logits_TV = w_.add_bias(logits_TV, Parameter::Part::head, "lm_head.bias", w_.config().vocab_size, made, {},
                            {{0, Axis::tp}});
  }
  return cap > 0 ? w_.op("soft_cap", {logits_TV}, {"logits_" + name}, {{"cap", cap}})[0] : logits_TV;
}

void Ends::predict(ValueId h, const Reader& reader, int64_t distance, const Statistic& loss,
                   const std::string& name) {
  const Writer::Part part(w_, OpPart::head);
  if (w_.caches()) return predict_last(h, reader, name);
  const Labels of{labels(distance), weights(distance)};
  const ValueId n_TH = w_.gather(head_rows(h, reader, name), "n_" + name);
  if (w_.tp() > 1) return predict_part(n_TH, of, loss, name);
  const ValueId logits_TV = logits(n_TH, name);
  if (w_.predicts()) {
    w_.op("accumulate", {logits_TV}, {}, {}, "",
          {w_.statistic({.kind = &kLogits}, {w_.tokens(), w_.config().vocab_size}, w_.wide())});
    return;
  }
  if (w_.spec().objective.of_pairs())
    return keep_sequences(w_.op("token_losses", {logits_TV, of.labels}, {"losses_" + name, "lse_" + name})[0]);
  std::vector<ValueId> in{logits_TV, of.labels, w_.scales()};
  if (of.weights != none) in.push_back(of.weights);
  const std::vector<ValueId> made =
      w_.op("cross_entropy", in, loss_names("ce_" + name, name), loss_attributes(loss));
  w_.keep(made[0], loss);
  keep_squares(made, loss);
}

std::vector<std::string> Ends::loss_names(const std::string& sum, const std::string& name) const {
  std::vector<std::string> names{sum, "lse_" + name};
  if (penalizes_logits()) names.push_back("z_" + name);
  return names;
}

ir::Attributes Ends::loss_attributes(const Statistic& loss) const {
  ir::Attributes attributes{{"scale_index", int64_t{loss.scale}}};
  if (penalizes_logits()) attributes.set("z_weight", w_.spec().objective.logit_z_loss);
  return attributes;
}

void Ends::keep_squares(const std::vector<ValueId>& made, const Statistic& loss) {
  if (penalizes_logits())
    w_.keep(made[2], {.kind = &kLogitZLoss, .of = loss.of, .scale = loss.scale, .weight = loss.weight});
}

// The sums of whole sequences, which ranks of tp and cp share; and the loss of their pairs.
void Ends::keep_sequences(ValueId losses_U) {
  const ValueId sums_B = w_.op("sequence_sums", {losses_U}, {"sums"}, {{"sequence", w_.local()}})[0];
  if (w_.spec().purpose != ir::Purpose::train) {
    w_.op("accumulate", {sums_B}, {}, {}, "", {w_.statistic({.kind = &kSequenceLoss}, {w_.runs()})});
    return;
  }
  const Objective& objective = w_.spec().objective;
  const int64_t sharing = w_.cp() * w_.tp();
  std::vector<ValueId> in{sums_B, w_.load_rows("references", "references", w_.runs(), {}, Dtype::f64), w_.scales()};
  if (sharing > 1) in.push_back(w_.op("all_reduce", {sums_B}, {"sums_all"}, {{"ranks", sharing}}, "sequence")[0]);
  const std::vector<ValueId> made =
      w_.op("preference_loss", in, {"preference", "chosen", "rejected", "margin", "accuracy"},
            {{"beta", objective.beta},
             {"smoothing", objective.label_smoothing},
             {"ranks", sharing},
             {"scale_index", int64_t{kScaleNextToken}}});
  const StatisticKind* const kinds[] = {&kPreferenceLoss, &kChosenReward, &kRejectedReward, &kRewardMargin,
                                        &kRewardAccuracy};
  for (size_t i = 0; i < made.size(); ++i) w_.keep(made[i], {.kind = kinds[i], .scale = kScaleNextToken});
}

// Predicts, for each sequence, only the token after its last.
void Ends::predict_last(ValueId h, const Reader& reader, const std::string& name) {
  const ValueId h_BH = w_.op("last_rows", {h, w_.places()}, {"last"}, {{"runs", w_.runs()}})[0];
  const ValueId logits_BV = logits(head_rows(h_BH, reader, name), name);
  w_.op("accumulate", {logits_BV}, {}, {}, "",
        {w_.statistic({.kind = &kLogits}, {w_.runs(), w_.config().vocab_size}, w_.wide())});
}

// This rank's part of the vocabulary; see the op sharded_loss.
void Ends::predict_part(ValueId n_UH, const Labels& of, const Statistic& loss, const std::string& name) {
  const int64_t part = w_.config().vocab_size / w_.tp();
  if (w_.predicts()) {
    const ValueId logits_UV = logits(n_UH, name);
    const int64_t rows = w_.value(logits_UV).shape[0].count;
    w_.op("accumulate", {logits_UV}, {}, {}, "", {w_.statistic({.kind = &kLogits}, {rows, part}, w_.wide())});
    return;
  }
  const auto shifted = [&](int64_t outside, const std::string& as) {
    return w_.op("shift_ids", {of.labels}, {as + name}, {{"size", part}, {"outside", outside}})[0];
  };
  const auto of_all_parts = [&](ValueId lse_part) {
    return w_.op("all_gather", {lse_part}, {"lse_parts_" + name}, {{"ranks", w_.tp()}, {"runs", int64_t{1}}},
                 "tp")[0];
  };
  const ValueId own = shifted(-1, "labels_here_"), all = shifted(part, "labels_");
  const ValueId logits_UV = logits(n_UH, name);
  if (w_.spec().objective.of_pairs()) {
    const auto here = w_.op("token_losses_part", {logits_UV, own}, {"losses_part_" + name, "lse_part_" + name});
    return keep_sequences(w_.op("sharded_token_losses",
                                {logits_UV, all, of_all_parts(here[1]), own, here[1], here[0]},
                                {"losses_" + name, "lse_" + name})[0]);
  }
  std::vector<ValueId> in{logits_UV, own, w_.scales()};
  if (of.weights != none) in.push_back(of.weights);
  const auto here = w_.op("cross_entropy_part", in, {"ce_part_" + name, "lse_part_" + name},
                          {{"scale_index", int64_t{loss.scale}}});
  in = {logits_UV, none, all, w_.scales(), of_all_parts(here[1]), own, here[1]};
  if (of.weights != none) in.push_back(of.weights);
  const auto rest = w_.op("sharded_loss", in, loss_names("ce_rest_" + name, name), loss_attributes(loss));
  w_.keep(w_.op("add", {here[0], rest[0]}, {"ce_sum_" + name})[0], loss);
  keep_squares(rest, loss);
}

}  // namespace heddle::model
