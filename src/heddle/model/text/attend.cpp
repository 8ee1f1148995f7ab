#include "heddle/model/text/attend.h"

#include "heddle/model/text/max_logits.h"

namespace heddle::model {

using ir::Attributes;
using ir::none;
using ir::ValueId;

namespace {

// The chunks of neighbours, joined in this order, are those that one rank of a cp of so many less would have.
Attributes joined_rows(const Writer& writer, int64_t ranks) {
  return {{"ranks", ranks}, {"runs", writer.runs()}, {"zigzag", int64_t{1}}};
}
std::string neighbours(const Writer& writer, int64_t ranks) {
  return ranks == writer.cp() ? "cp" : fmt::format("cp_in{}", ranks);
}

void set_cap(const Writer& writer, Attributes& attributes) {
  if (const double cap = writer.config().attention_logit_cap; cap > 0) attributes.set("cap", cap);
}

// Heads of a cache of latents are wider than those whose scores they make.
double scale_of(const Writer& writer, const HeadSizes& sizes) {
  const ModelConfig& c = writer.config();
  return c.softmax_scale_of(c.is_latent() ? c.latent_widths(writer.layer()).head() : sizes.head_dim);
}

Attributes attention_attributes(const Writer& writer, const HeadSizes& sizes) {
  Attributes attributes{{"heads", sizes.heads},
                        {"kv_heads", sizes.kv_heads},
                        {"head_dim", sizes.head_dim},
                        {"value_dim", sizes.value_dim},
                        {"sequence", writer.spec().sequence_length},
                        {"causal", int64_t{1}},
                        {"scale", scale_of(writer, sizes)}};
  set_cap(writer, attributes);
  if (const int64_t window = writer.config().window_of(writer.layer()); window > 0)
    attributes.set("window", window);
  if (const int64_t chunk = writer.config().chunk_of(writer.layer());
      chunk > 0 && chunk < writer.spec().sequence_length)
    attributes.set("chunk", chunk);
  if (writer.drops_probabilities()) {
    attributes.set("rate", writer.config().attention_dropout).set("site", writer.site(Writer::Site::attention));
  }
  return attributes;
}

// Says which heads these are, where ranks of cp have a part each.
void set_parts(const Writer& writer, const HeadSizes& sizes, Attributes& attributes) {
  if (sizes.sinks != none) {
    const int64_t parts = writer.value(sizes.sinks).shape[0].count / sizes.heads;
    if (parts > 1) attributes.set("sink_parts", parts);
  }
  if (writer.drops_probabilities() && writer.head_ranks() > 1) attributes.set("head_parts", writer.head_ranks());
}

// Operands behind those that are always there; what is absent at the end is left out.
std::vector<ValueId> followed_by(std::vector<ValueId> in, std::initializer_list<ValueId> optional) {
  in.insert(in.end(), optional);
  while (in.back() == none) in.pop_back();
  return in;
}

}  // namespace

Attended attend(Writer& writer, ValueId q, ValueId k, ValueId v, const HeadSizes& sizes, const std::string& name) {
  Attributes attributes = attention_attributes(writer, sizes);
  set_parts(writer, sizes, attributes);
  if (writer.cp() > 1 && writer.spec().context == Context::gather) attributes.set("cp", writer.cp());
  const auto [tokens, key] = writer.drawn_queries();
  const auto made = writer.op("attention", followed_by({q, k, v}, {writer.seen_from(), sizes.sinks, tokens, key}),
                              {name, "lse"}, attributes);
  keep_max_logits(writer, q, {k}, made[1], sizes);
  return {made[0], made[1]};
}

ValueId attend_cached(Writer& writer, ValueId q, ValueId keys, ValueId values, const HeadSizes& sizes) {
  Attributes attributes{{"heads", sizes.heads},
                        {"kv_heads", sizes.kv_heads},
                        {"head_dim", sizes.head_dim},
                        {"value_dim", sizes.value_dim},
                        {"sequence", writer.spec().sequence_length},
                        {"scale", scale_of(writer, sizes)}};
  set_cap(writer, attributes);
  if (const int64_t window = writer.config().window_of(writer.layer()); window > 0)
    attributes.set("window", window);
  if (const int64_t chunk = writer.config().chunk_of(writer.layer()); chunk > 0) attributes.set("chunk", chunk);
  std::vector<ValueId> in{q, writer.places(), keys, values};
  if (sizes.sinks != none) in.push_back(sizes.sinks);
  return writer.op("cached_attention", in, {"o"}, attributes)[0];
}

ValueId heads_to_sequence(Writer& writer, ValueId x, const std::string& name, int64_t ranks, OpPart of) {
  const Writer::Part part(writer, of);
  return writer.op("heads_to_sequence", {x}, {name}, joined_rows(writer, ranks), neighbours(writer, ranks))[0];
}

ValueId sequence_to_heads(Writer& writer, ValueId x, const std::string& name, int64_t ranks) {
  const Writer::Part part(writer, OpPart::queries_keys);
  return writer.op("sequence_to_heads", {x}, {name}, joined_rows(writer, ranks), neighbours(writer, ranks))[0];
}

ValueId gather_sequence(Writer& writer, ValueId x, const std::string& name, int64_t ranks) {
  return writer.op("all_gather", {x}, {name + "_sequence"}, joined_rows(writer, ranks),
                   neighbours(writer, ranks))[0];
}

ValueId attend_across(Writer& writer, ValueId q, std::vector<Travelling> travelling, const MakeKeys& keys_values,
                      const HeadSizes& sizes) {
  const int64_t heads = writer.head_ranks(), ranks = writer.row_ranks();
  if (heads > 1) q = heads_to_sequence(writer, q, "q_heads", heads);
  if (ranks == 1) {
    const auto k_v = keys_values({travelling[0].rows, travelling[1].rows});
    return sequence_to_heads(writer, attend(writer, q, k_v[0], k_v[1], sizes, "o_heads").o, "o", heads);
  }
  Attributes attributes = attention_attributes(writer, sizes);
  attributes.set("cp", ranks);
  set_parts(writer, sizes, attributes);
  const auto [tokens, key] = writer.drawn_queries();
  std::vector<ValueId> rows;
  if (writer.spec().context == Context::gather) {
    for (const Travelling& each : travelling) rows.push_back(gather_sequence(writer, each.rows, each.name, ranks));
    const auto k_v = keys_values(rows);
    const auto made =
        writer.op("attention", followed_by({q, k_v[0], k_v[1]}, {writer.seen_from(), sizes.sinks, tokens, key}),
                  {"o", "lse"}, attributes);
    keep_max_logits(writer, q, {k_v[0]}, made[1], sizes);
    return made[0];
  }
  ValueId o = none, lse = none;
  std::vector<ValueId> mentions{none, q}, keys;
  const int64_t inner = writer.inner_ring(), stride = heads * inner;
  const std::string near = fmt::format("cp_in{}", inner),
                    far = stride == 1 ? "cp" : fmt::format("cp_across{}", stride);
  if (inner > 1) attributes.set("inner", inner);
  std::vector<ValueId> coming(travelling.size(),
                              none);  // of the run before, while the keys here go round in theirs
  for (int64_t turn = 0; turn < ranks; ++turn) {
    rows.clear();
    for (size_t i = 0; i < travelling.size(); ++i) {
      Travelling& each = travelling[i];
      const ValueId own = each.rows;
      rows.push_back(own);
      // On their way while this turn's keys are attended to.
      const auto shifted = [&](int64_t among, const std::string& group) {
        return writer.op("ring_shift", {own}, {each.name + "_turned"}, {{"ranks", among}, {"by", int64_t{1}}},
                         group)[0];
      };
      if (turn % inner == 0 && turn + inner < ranks) coming[i] = shifted(ranks / inner, far);
      each.rows = (turn + 1) % inner == 0 ? coming[i] : shifted(inner, near);
    }
    const auto k_v = keys_values(rows);
    mentions.insert(mentions.end(), k_v.begin(), k_v.end());
    keys.push_back(k_v[0]);
    Attributes part = attributes;
    part.set("turn", turn);
    // Sinks weigh once, with a query's own keys.
    const std::vector<ValueId> in =
        followed_by({q, k_v[0], k_v[1]}, {o, lse, writer.seen_from(), turn == 0 ? sizes.sinks : none, tokens, key});
    const auto joined = writer.op("attention_part", in, {"o_wide", "lse"}, part);
    o = joined[0];
    lse = joined[1];
  }
  keep_max_logits(writer, q, keys, lse, sizes);
  mentions[0] = lse;
  o = writer.op("attention_finish", followed_by({o}, {writer.seen_from(), sizes.sinks, tokens, key}),
                {heads == 1 ? "o" : "o_heads"}, attributes, "", {}, mentions)[0];
  return heads == 1 ? o : sequence_to_heads(writer, o, "o", heads);
}

}  // namespace heddle::model
