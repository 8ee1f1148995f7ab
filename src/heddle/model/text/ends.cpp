#include "heddle/model/text/ends.h"

namespace heddle::model {

using ir::Axis;
using ir::none;
using ir::ValueId;

void Ends::load_tokens() {
  std::vector<std::string> names;
  for (int64_t d = 0; d <= w_.depths(); ++d) names.push_back(fmt::format("ids_{}", d));
  for (int64_t d = 1; d <= w_.depths() + 1; ++d) names.push_back(fmt::format("labels_{}", d));
  tokens_of_ =
      w_.op("load_tokens", {}, names,
            {{"rows", w_.runs() * w_.local()}, {"sequence", w_.whole()}, {"depths", w_.depths()}, {"cp", w_.cp()}});
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
  const ValueId labels_T = labels(distance);
  const ValueId n_TH = w_.gather(w_.norm(h_TH, norm_name, "n_" + name), "n_" + name);
  if (w_.tp() > 1) return predict_part(n_TH, labels_T, loss, name);
  const ValueId logits_TV = w_.op("linear", {n_TH, head_}, {"logits_" + name})[0];
  if (w_.predicts()) {
    w_.op("accumulate", {logits_TV}, {}, {}, "",
          {w_.statistic({.kind = &kLogits}, {w_.tokens(), w_.config().vocab_size}, w_.wide())});
    return;
  }
  const ValueId sum = w_.op("cross_entropy", {logits_TV, labels_T, w_.scales()}, {"ce_" + name, "lse_" + name},
                            {{"scale_index", int64_t{loss.scale}}})[0];
  w_.keep(sum, loss);
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
void Ends::predict_part(ValueId n_UH, ValueId labels, const Statistic& loss, const std::string& name) {
  const int64_t part = w_.config().vocab_size / w_.tp();
  if (w_.predicts()) {
    const ValueId logits_UV = w_.op("linear", {n_UH, head_}, {"logits_" + name})[0];
    const int64_t rows = w_.value(logits_UV).shape[0].count;
    w_.op("accumulate", {logits_UV}, {}, {}, "", {w_.statistic({.kind = &kLogits}, {rows, part}, w_.wide())});
    return;
  }
  const auto shifted = [&](int64_t outside, const std::string& as) {
    return w_.op("shift_ids", {labels}, {as + name}, {{"size", part}, {"outside", outside}})[0];
  };
  const ValueId own = shifted(-1, "labels_here_"), all = shifted(part, "labels_");
  const ValueId logits_UV = w_.op("linear", {n_UH, head_}, {"logits_" + name})[0];
  const auto here = w_.op("cross_entropy_part", {logits_UV, own, w_.scales()},
                          {"ce_part_" + name, "lse_part_" + name}, {{"scale_index", int64_t{loss.scale}}});
  const ValueId parts =
      w_.op("all_gather", {here[1]}, {"lse_parts_" + name}, {{"ranks", w_.tp()}, {"runs", int64_t{1}}}, "tp")[0];
  const auto rest = w_.op("sharded_loss", {logits_UV, none, all, w_.scales(), parts, own, here[1]},
                          {"ce_rest_" + name, "lse_" + name}, {{"scale_index", int64_t{loss.scale}}});
  w_.keep(w_.op("add", {here[0], rest[0]}, {"ce_sum_" + name})[0], loss);
}

}  // namespace heddle::model
