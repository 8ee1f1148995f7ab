#include "heddle/model/text/attend.h"

#include "heddle/base/error.h"

namespace heddle::model {

using ir::Attributes;
using ir::none;
using ir::ValueId;

namespace {

Attributes whole_sequence(const Writer& writer) {
  return {{"ranks", writer.cp()}, {"runs", writer.runs()}, {"zigzag", int64_t{1}}};
}

}  // namespace

Attributes attention_attributes(const Writer& writer, const HeadSizes& sizes) {
  return {{"heads", sizes.heads},
          {"kv_heads", sizes.kv_heads},
          {"head_dim", sizes.head_dim},
          {"value_dim", sizes.value_dim},
          {"sequence", writer.spec().sequence_length},
          {"causal", int64_t{1}},
          {"scale", writer.config().softmax_scale()}};
}

ValueId attend_cached(Writer& writer, ValueId q, ValueId keys, ValueId values, const HeadSizes& sizes) {
  return writer.op("cached_attention", {q, writer.places(), keys, values}, {"o"},
                   {{"heads", sizes.heads},
                    {"kv_heads", sizes.kv_heads},
                    {"head_dim", sizes.head_dim},
                    {"value_dim", sizes.value_dim},
                    {"sequence", writer.spec().sequence_length},
                    {"scale", writer.config().softmax_scale()}})[0];
}

ValueId heads_to_sequence(Writer& writer, ValueId x, const std::string& name) {
  const Writer::Part part(writer, OpPart::queries_keys);
  return writer.op("heads_to_sequence", {x}, {name}, whole_sequence(writer), "cp")[0];
}

ValueId sequence_to_heads(Writer& writer, ValueId x, const std::string& name) {
  const Writer::Part part(writer, OpPart::queries_keys);
  return writer.op("sequence_to_heads", {x}, {name}, whole_sequence(writer), "cp")[0];
}

ValueId gather_sequence(Writer& writer, ValueId x, const std::string& name) {
  return writer.op("all_gather", {x}, {name + "_sequence"}, whole_sequence(writer), "cp")[0];
}

ValueId attend_across(Writer& writer, ValueId q, std::vector<Travelling> travelling, const MakeKeys& keys_values,
                      const HeadSizes& sizes) {
  Attributes attributes = attention_attributes(writer, sizes);
  attributes.set("cp", writer.cp());
  std::vector<ValueId> rows;
  if (writer.spec().context == Context::gather) {
    for (const Travelling& each : travelling) rows.push_back(gather_sequence(writer, each.rows, each.name));
    const auto k_v = keys_values(rows);
    return writer.op("attention", {q, k_v[0], k_v[1]}, {"o", "lse"}, attributes)[0];
  }
  ValueId o = none, lse = none;
  std::vector<ValueId> mentions{none, q};
  for (int64_t turn = 0; turn < writer.cp(); ++turn) {
    rows.clear();
    for (Travelling& each : travelling) {
      rows.push_back(each.rows);
      if (turn + 1 == writer.cp()) continue;
      // On their way while this turn's keys are attended to.
      each.rows = writer.op("ring_shift", {each.rows}, {each.name + "_turned"},
                            {{"ranks", writer.cp()}, {"by", int64_t{1}}}, "cp")[0];
    }
    const auto k_v = keys_values(rows);
    mentions.insert(mentions.end(), k_v.begin(), k_v.end());
    Attributes part = attributes;
    part.set("turn", turn);
    std::vector<ValueId> in{q, k_v[0], k_v[1]};
    if (turn > 0) in.insert(in.end(), {o, lse});
    const auto joined = writer.op("attention_part", in, {"o_wide", "lse"}, part);
    o = joined[0];
    lse = joined[1];
  }
  mentions[0] = lse;
  return writer.op("attention_finish", {o}, {"o"}, attributes, "", {}, mentions)[0];
}

}  // namespace heddle::model
