#include "heddle/model/text/lightning.h"

#include <optional>

#include "heddle/model/text/head_norm.h"
#include "heddle/model/text/recurrent_heads.h"

namespace heddle::model {

using ir::ValueId;

namespace {

constexpr double kOutputEpsilon = 1e-6;  // of the norm of the output, whatever rms_norm_eps is

// 1 in the first layer and next to 0 in the last.
double slope_factor(const ModelConfig& c, int64_t layer) {
  constexpr double kNotZero = 1e-5;
  return 1 - static_cast<double>(layer) / (static_cast<double>(c.num_hidden_layers - 1) + kNotZero) + kNotZero;
}

}  // namespace

ValueId lightning(Writer& w, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const RecurrentHeads sizes = RecurrentHeads::of(w);
  const int64_t width = c.linear_values_width();
  const ValueId n_UH = w.gather(n_TH, "n");
  std::optional<Writer::Part> part(std::in_place, w, OpPart::queries_keys);
  const ValueId mixed =
      w.op("silu", {w.column_linear(n_UH, kAttention, prefix, "qkv_proj", 3 * width)}, {"qkv"})[0];
  const auto halves = [&](ValueId x, const char* left, const char* right) {
    return w.op("split", {x}, {left, right}, {{"first", sizes.key_dim}, {"runs", sizes.heads}});
  };
  const auto q_rest = halves(mixed, "q", "kv"), k_v = halves(q_rest[1], "k", "v");
  const ValueId gate = w.column_linear(n_UH, kAttention, prefix, "output_gate", width);
  std::vector<ValueId> in{whole_sequences(w, q_rest[0], "q"), whole_sequences(w, k_v[0], "k"),
                          whole_sequences(w, k_v[1], "v")};
  part.reset();

  const ValueId o = recurred(w, std::move(in), sizes,
                             {{"delta", int64_t{0}},
                              {"scale", 1.0},
                              {"slopes", slope_factor(c, w.layer())},
                              {"slope_heads", c.linear_num_value_heads}});
  const ValueId normed = norm_of_all_heads(w, o, prefix + "norm.weight", "recurred_normed", kOutputEpsilon);
  const ValueId gated = w.op("sigmoid_gate", {normed, gate}, {"recurred_gated"})[0];
  return w.row_linear(gated, kAttention, prefix, "out_proj", width, "out_proj");
}

}  // namespace heddle::model
