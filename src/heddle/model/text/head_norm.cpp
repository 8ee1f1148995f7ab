#include "heddle/model/text/head_norm.h"

namespace heddle::model {

using ir::ValueId;

ValueId norm_of_all_heads(Writer& w, ValueId x_UD, const std::string& name, const std::string& out,
                          double epsilon) {
  if (w.tp() == 1) return w.norm(x_UD, name, out, epsilon, w.columns(x_UD));
  const ir::Attributes ranks{{"ranks", w.tp()}, {"runs", w.runs()}};
  const ValueId x_TD = w.op("sequence_to_heads", {x_UD}, {out + "_rows"}, ranks, "tp")[0];
  const ValueId n_TD = w.norm(x_TD, name, out + "_all_heads", epsilon, w.columns(x_TD));
  return w.op("heads_to_sequence", {n_TD}, {out}, ranks, "tp")[0];
}

}  // namespace heddle::model
