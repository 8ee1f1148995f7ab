#include "heddle/model/text/short_convolution.h"

#include <optional>

#include "heddle/model/text/recurrent_heads.h"

namespace heddle::model {

using ir::ValueId;

ValueId short_convolution(Writer& w, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t width = c.hidden_size, all = 3 * width;
  const std::vector<Cut> by_parts{{.dim = 0, .axis = ir::Axis::tp, .runs = {width, width, width}}};
  const ValueId n_UH = w.gather(n_TH, "n");
  std::optional<Writer::Part> part(std::in_place, w, OpPart::queries_keys);
  const ValueId weight = w.matrix(kAttention, prefix + "in_proj.weight", all, width, {}, by_parts);
  ValueId made = w.op("linear", {n_UH, weight}, {c.linear_bias ? "in_proj_product" : "in_proj"})[0];
  if (c.linear_bias) made = w.add_bias(made, kAttention, prefix + "in_proj.bias", all, "in_proj", {}, by_parts);
  const auto behind = [&](ValueId rows, const char* name, const char* rest) {
    return w.op("split", {rows}, {name, rest}, {{"first", width / w.tp()}});
  };
  const auto b_rest = behind(made, "b", "cx"), c_x = behind(b_rest[1], "c", "x_raw");
  const ValueId bx = w.op("multiply", {b_rest[0], c_x[1]}, {"bx"})[0];
  const ConvolutionRows rows{.name = "x", .width = width, .first = 0, .all = width};
  const ValueId convolved_bx =
      convolved(w, whole_sequences(w, bx, "bx"), rows, prefix, c.linear_bias, /*has_silu=*/false);
  part.reset();

  const ValueId gated = w.op("multiply", {c_x[0], own_rows(w, convolved_bx, "convolved")}, {"recurred_gated"})[0];
  return w.row_linear(gated, kAttention, prefix, "out_proj", width, "out_proj", c.linear_bias);
}

}  // namespace heddle::model
