#include "heddle/model/parameter_count.h"

namespace heddle::model {

ParameterCount count_parameters(const ModelConfig& config, const std::vector<Parameter>& parameters,
                                const ir::Listing& listing) {
  ParameterCount count;
  for (const Parameter& p : parameters) {
    if (p.balances || p.start == Parameter::Start::rope_table || p.start == Parameter::Start::hashed_experts)
      continue;
    int64_t elements = listing.elements(p.value, ir::FixedRows());
    if (p.experts == 0) {
      count.total += elements;
      count.active += elements;
    } else {
      elements = elements / listing.value(p.value).shape[0].count;  // of one expert
      count.total += elements * p.experts;
      count.active += elements * config.num_experts_per_tok;
    }
  }
  return count;
}

}  // namespace heddle::model
