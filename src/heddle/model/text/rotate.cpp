#include "heddle/model/text/rotate.h"

namespace heddle::model {

ir::ValueId rotate(Writer& writer, ir::ValueId x, int64_t heads, int64_t head_dim, const std::string& name,
                   bool back) {
  if (!writer.config().turns_in(writer.layer())) return x;
  const Writer::Part part(writer, OpPart::queries_keys);
  ir::Attributes attributes{{"heads", heads},
                            {"head_dim", head_dim},
                            {"rope_dim", writer.rotary_width()},
                            {"sequence", writer.spec().sequence_length / writer.cp()},
                            {"interleaved", int64_t{writer.config().rope_interleave}}};
  if (writer.config().is_grouped() && writer.rotary_width() < head_dim) attributes.set("first", int64_t{0});
  if (writer.decodes()) {
    if (back) attributes.set("inverse", int64_t{1});
    return writer.op("rope_at", {x, writer.rope_table(), writer.places()}, {name}, attributes)[0];
  }
  attributes.set("inverse", int64_t{back});
  return writer.op("rope", {x, writer.rope_table()}, {name}, attributes)[0];
}

ir::ValueId scaled_queries(Writer& writer, ir::ValueId q) {
  if (!writer.config().scales_queries(writer.layer())) return q;
  const Writer::Part part(writer, OpPart::queries_keys);
  return writer.op("scale_by", {q, writer.query_scales()}, {"q_scaled"})[0];
}

}  // namespace heddle::model
