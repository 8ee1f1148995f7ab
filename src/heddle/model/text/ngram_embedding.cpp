#include "heddle/model/text/ngram_embedding.h"

#include "heddle/model/ngrams.h"
#include "heddle/model/text/recurrent_heads.h"

namespace heddle::model {

using ir::Axis;
using ir::ValueId;

namespace {

// Rows of the layer's tables that the tokens of this rank's tp group choose, which follow from its tokens.
ValueId load_ngrams(Writer& w, int64_t index, const NgramSizes& sizes) {
  const ModelConfig& c = w.config();
  ir::Attributes attributes{{"each", sizes.each()},
                            {"sequence", w.whole()},
                            {"width", w.whole() + 1 + w.depths()},
                            {"cp", w.cp()},
                            {"vocabulary", sizes.vocabulary},
                            {"size", sizes.size},
                            {"heads", sizes.heads},
                            {"base", sizes.base},
                            {"seed", sizes.seed},
                            {"end", c.ngram_end_token},
                            {"index", sizes.index}};
  if (w.decodes()) attributes.set("before", sizes.size - 1);
  if (w.parts_documents() && !w.caches()) attributes.set("apart", int64_t{1});
  if (w.spec().document_end >= 0) attributes.set("document_end", w.spec().document_end);
  return w.load_rows(fmt::format("ngrams.{}", index), "ngrams", w.runs() * w.local() * sizes.each(),
                     std::move(attributes));
}

// The tensors in which files hold `rows` rows: equal ones, of which the last may have fewer.
std::vector<ReleasedPart> parts_of_rows(const std::string& name, int64_t rows, int64_t parts) {
  const int64_t each = (rows + parts - 1) / parts;
  std::vector<ReleasedPart> released;
  for (int64_t row = 0; row < rows; row += each)
    released.push_back({fmt::format("{}.shard_{}.weight", name, released.size()), row, std::min(each, rows - row)});
  return released;
}

// The rows of a token side by side, of this rank's tokens.
ValueId ngram_rows_of_tokens(Writer& w, int64_t index, int64_t place, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const NgramSizes sizes = ngram_sizes(c, place);
  const int64_t rows = ngram_rows(c, place);
  const std::string name = prefix + "ple_embedding.ngram_embedding";
  const ValueId table = w.matrix(Parameter::Part::embedding, name + ".weight", rows, c.ngram_width() / sizes.each(),
                                 parts_of_rows(name, rows, c.ngram_parts), {{0, Axis::tp}});
  ValueId ids = load_ngrams(w, index, sizes);
  if (w.tp() > 1)
    ids = w.op("shift_ids", {ids}, {"ngrams_here"}, {{"size", rows / w.tp()}, {"outside", int64_t{-1}}})[0];
  return w.scatter_sum(w.op("embedding", {ids, table}, {w.partial("ngram_rows")}, {{"each", sizes.each()}})[0],
                       "ngram_rows");
}

ValueId streams_normed(Writer& w, ValueId x, const std::string& name, const std::string& out) {
  const bool centered = w.config().zero_centered_norms;
  const ValueId gain = w.parameter({.name = name,
                                    .part = Parameter::Part::norm,
                                    .start = centered ? Parameter::Start::zeros : Parameter::Start::ones},
                                   w.wide(), {w.columns(x)});
  ir::Attributes attributes{{"streams", w.config().hyper_connections}, {"epsilon", w.config().rms_norm_eps}};
  if (centered) attributes.set("offset", 1.0);
  return w.op("norm_streams", {x, gain}, {out, out + "_rstd"}, std::move(attributes))[0];
}

// silu of the convolution of each column along whole sequences. Ranks of tp, and of cp by `ulysses`, take a part of
// the columns each.
ValueId convolved_streams(Writer& w, ValueId x, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t width = c.residual_width(), kernel = c.ngram_conv_kernel_dim;
  const std::string name = prefix + "conv1d.weight";
  const ValueId weight = w.parameter({.name = name,
                                      .part = Parameter::Part::convolution,
                                      .start = Parameter::Start::zeros,
                                      .cuts = {{0, Axis::tp}},
                                      .released = {{name, 0, width, 0, {width, 1, kernel}}}},
                                     w.wide(), {width, kernel});
  const ir::Attributes group{{"ranks", w.tp()}, {"runs", w.runs()}};
  if (w.tp() > 1) x = w.op("heads_to_sequence", {x}, {"ngram_columns"}, group, "tp")[0];
  x = convolved(w, whole_sequences(w, x, "ngram"), weight, ir::none, "ngram", true, c.ngram_size);
  x = own_rows(w, x, "ngram_convolved_rows");
  return w.tp() > 1 ? w.op("sequence_to_heads", {x}, {"ngram_convolved_here"}, group, "tp")[0] : x;
}

}  // namespace

ValueId add_ngrams(Writer& w, int64_t index, ValueId x, const std::string& prefix) {
  constexpr auto kOf = Parameter::Part::hyper_connection;
  const ModelConfig& c = w.config();
  const std::string ple = prefix + "ple.";
  const ValueId e = ngram_rows_of_tokens(w, index, ngram_index(c, index), ple);
  const ValueId k = streams_normed(w, w.linear(e, kOf, ple, "key_proj", c.residual_width()),
                                   ple + "norm_key.weight", "ngram_keys");
  const ValueId v_TH = w.linear(e, kOf, ple, "value_proj", c.hidden_size);
  const ValueId y = streams_normed(w, x, ple + "norm_query.weight", "ngram_queries");
  const ValueId gated = w.op("gate_streams", {k, y, v_TH}, {"ngram_gated"}, {{"streams", c.hyper_connections}})[0];
  const ValueId normed = streams_normed(w, gated, ple + "norm_conv.weight", "ngram_normed");
  const ValueId sum = w.op("add", {gated, convolved_streams(w, normed, ple)}, {"ngram_sum"})[0];
  return w.op("add", {x, sum}, {"x_ngrams"})[0];
}

}  // namespace heddle::model
