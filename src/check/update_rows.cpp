// AdamW's first step in another way. m = (1 − β1) g and v = (1 − β2) g², which the correction of the bias divides
// by 1 − β1 and 1 − β2 (Kingma and Ba, arXiv 1412.6980; Loshchilov and Hutter, arXiv 1711.05101).
#include <cmath>

#include "check/fault_rows.h"

namespace heddle::check {

void update_faults(const Setting& s, std::vector<Fault>& all) {
  using Rule = std::function<Numbers(const Numbers& weight, const Numbers& gradient, double norm, bool decays)>;
  const auto update = [&](std::string name, std::string sentence, std::string note, Rule rule) {
    all.push_back({.name = std::move(name),
                   .sentence = std::move(sentence),
                   .change = [rule = std::move(rule)](const Numbers&, const Seen& seen) -> std::optional<Numbers> {
                     if (seen.all.stage != Stage::weight) return std::nullopt;
                     const Whole* gradient = seen.reference.find({Stage::gradient, seen.all.name, -1});
                     const Whole* norm = seen.reference.find({Stage::norm, "grad_norm", -1});
                     if (gradient == nullptr || norm == nullptr) return std::nullopt;
                     const auto& [dims, weight] = seen.reference.dump().start.at(seen.all.name);
                     return taken(rule(weight, gradient->values, norm->values[0], dims.size() > 1),
                                  seen.record.slice);
                   },
                   .text = [note = std::move(note)](const std::string& line) { return line + "  " + note; }});
  };
  update("not_updated", "it is the weight before the step: the update is missing on this rank", "(left out)",
         [](const Numbers& weight, const Numbers&, double, bool) { return weight; });
  if (!s.layout.optimizer) return;
  const Adamw rule = *s.layout.optimizer;
  if (rule.weight_decay > 0) {
    update("decays_vectors", "vectors (norms, biases) decay too", "{decay of vectors}",
           [rule](const Numbers& weight, const Numbers& gradient, double norm, bool) {
             return updated(weight, gradient, norm, rule, true);
           });
    update("no_decay", "its weight decay is missing", "{weight_decay 0}",
           [rule](const Numbers& weight, const Numbers& gradient, double norm, bool) {
             return updated(weight, gradient, norm, rule, false);
           });
    update("decay_in_gradient", "the decay is added to the gradient (L2), not to the step",
           "{decay in the gradient}",
           [rule](const Numbers& weight, const Numbers& gradient, double norm, bool decays) {
             Numbers sum = gradient;
             const double clip = rule.clip_norm > 0 && norm > rule.clip_norm ? rule.clip_norm / norm : 1;
             for (size_t i = 0; i < sum.size(); ++i)
               sum[i] = clip * sum[i] + (decays ? rule.weight_decay * weight[i] : 0);
             return updated(weight, sum, 0, rule, false);
           });
  }
  update("no_bias_correction", "the moments' bias is not corrected", "{bias_correction 0}",
         [rule](const Numbers& weight, const Numbers& gradient, double norm, bool decays) {
           Numbers next = weight;
           const double clip = rule.clip_norm > 0 && norm > rule.clip_norm ? rule.clip_norm / norm : 1;
           for (size_t i = 0; i < next.size(); ++i) {
             const double g = clip * gradient[i], size = std::sqrt(1 - rule.beta2) * std::abs(g) + rule.eps;
             next[i] -= rule.lr * ((1 - rule.beta1) * g / size + (decays ? rule.weight_decay * weight[i] : 0));
           }
           return next;
         });
}

}  // namespace heddle::check
