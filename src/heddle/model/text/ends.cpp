#include "heddle/model/text/ends.h"

#include "heddle/model/loss_scale.h"

namespace heddle::model {

using ir::Axis;
using ir::none;
using ir::ValueId;

void Ends::load_tokens() {
  std::vector<std::string> names;
  for (int64_t d = 0; d <= w_.depths(); ++d) names.push_back(fmt::format("ids_{}", d));
  for (int64_t d = 1; d <= w_.depths() + 1; ++d) names.push_back(fmt::format("labels_{}", d));
  const ir::Attributes rows{
      {"rows", w_.runs() * w_.local()}, {"sequence", w_.whole()}, {"depths", w_.depths()}, {"cp", w_.cp()}};
  tokens_of_ = w_.op("load_tokens", {}, names, rows);
  if (!w_.spec().weighs_labels || w_.predicts()) return;
  names.clear();
  for (int64_t d = 1; d <= w_.depths() + 1; ++d) names.push_back(fmt::format("weights_{}", d));
  weights_of_ = w_.op("load_weights", {}, names, rows);
}

ValueId Ends::embedding() {
  return w_.matrix(Parameter::Part::embedding, "model.embed_tokens.weight", w_.config().vocab_size,
                   w_.config().hidden_size, {}, {{0, Axis::tp}});
}

ValueId Ends::embed(int64_t depth, const std::string& name) {
  ValueId here = ids(depth);
  if (w_.tp() > 1) {
    here = w_.op("shift_ids", {here}, {fmt::format("ids_{}_here", depth)},
                 {{"size", w_.config().vocab_size / w_.tp()}, {"outside", int64_t{-1}}})[0];
  }
  const bool learned = !w_.config().turns();
  const std::string tokens = learned ? name + "_tokens" : name;
  ValueId x_TH = w_.scatter_sum(w_.op("embedding", {here, embedding()}, {w_.partial(tokens)})[0], tokens);
  if (learned) {
    const ValueId p_TH = w_.op("embedding", {w_.positions(), position_table()}, {name + "_positions"})[0];
    x_TH = w_.op("add", {x_TH, p_TH}, {name})[0];
  }
  return w_.dropout(x_TH, Writer::Site::embedding, name + "_kept");
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

void Ends::predict(ValueId h_TH, const std::string& norm_name, int64_t distance, const Statistic& loss,
                   const std::string& name) {
  const Writer::Part part(w_, OpPart::head);
  if (w_.caches()) return predict_last(h_TH, norm_name, name);
  const Labels of{labels(distance), weights(distance)};
  const ValueId n_TH = w_.gather(w_.norm(h_TH, norm_name, "n_" + name), "n_" + name);
  if (w_.tp() > 1) return predict_part(n_TH, of, loss, name);
  const ValueId logits_TV = w_.op("linear", {n_TH, head_}, {"logits_" + name})[0];
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
  std::vector<ValueId> in{sums_B, w_.op("load_references", {}, {"references"}, {{"sequences", w_.runs()}})[0],
                          w_.scales()};
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

// Of each sequence only the token after its last.
void Ends::predict_last(ValueId h_TH, const std::string& norm_name, const std::string& name) {
  const ValueId h_BH = w_.op("last_rows", {h_TH, w_.places()}, {"last"}, {{"runs", w_.runs()}})[0];
  const ValueId n_BH = w_.norm(h_BH, norm_name, "n_" + name);
  const ValueId logits_BV = w_.op("linear", {n_BH, head_}, {"logits_" + name})[0];
  w_.op("accumulate", {logits_BV}, {}, {}, "",
        {w_.statistic({.kind = &kLogits}, {w_.runs(), w_.config().vocab_size}, w_.wide())});
}

// This rank's part of the vocabulary; see the op sharded_loss.
void Ends::predict_part(ValueId n_UH, const Labels& of, const Statistic& loss, const std::string& name) {
  const int64_t part = w_.config().vocab_size / w_.tp();
  if (w_.predicts()) {
    const ValueId logits_UV = w_.op("linear", {n_UH, head_}, {"logits_" + name})[0];
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
  const ValueId logits_UV = w_.op("linear", {n_UH, head_}, {"logits_" + name})[0];
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
