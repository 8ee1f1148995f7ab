#include "heddle/model/text/rotate.h"

namespace heddle::model {

ir::ValueId rotate(Writer& writer, ir::ValueId x, int64_t heads, int64_t head_dim, const std::string& name) {
  const Writer::Part part(writer, OpPart::queries_keys);
  return writer.op("rope", {x, writer.rope_table()}, {name},
                   {{"heads", heads},
                    {"head_dim", head_dim},
                    {"rope_dim", writer.config().rotary_width()},
                    {"sequence", writer.local()},
                    {"interleaved", int64_t{writer.config().rope_interleave}},
                    {"inverse", int64_t{0}}})[0];
}

}  // namespace heddle::model
