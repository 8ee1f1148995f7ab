#include "check/faults.h"

#include <algorithm>

#include "check/fault_rows.h"

namespace heddle::check {

double Case::worst() const { return ratios.empty() ? 0 : *std::max_element(ratios.begin(), ratios.end()); }

std::vector<Fault> faults_of(const Reference& reference, const Parts& parts) {
  std::vector<Fault> all;
  const Setting setting{reference, parts, reference.dump().layout};
  for (const FaultRows& rows : {sum_faults, count_faults, scale_faults, slice_faults, order_faults, mask_faults,
                                rope_faults, gate_faults, bias_faults, update_faults, norm_faults})
    rows(setting, all);
  return all;
}

std::optional<Numbers> predicted(const std::vector<const Fault*>& faults, const Seen& seen) {
  const std::vector<const Part*> parts = seen.parts.of(seen.record);
  const bool alone = parts.size() == 1 && parts[0]->rank < 0;
  Numbers whole(parts[0]->whole.size(), 0.0);
  bool changes = false;
  for (const Part* part : parts) {
    double factor = 1;
    for (const Fault* fault : faults) {
      if (!fault->factor) continue;
      if (alone && !fault->constant) return std::nullopt;
      factor *= fault->factor(seen, *part);
    }
    changes = changes || factor != 1;
    if (factor == 0) continue;
    for (size_t i = 0; i < whole.size(); ++i) whole[i] += factor * part->whole[i];
  }
  const Numbers& rest = seen.parts.rest_of(seen.record);
  for (size_t i = 0; i < rest.size(); ++i) whole[i] += rest[i];
  Numbers values = taken(whole, seen.record.slice);
  for (const Fault* fault : faults) {
    if (!fault->change) continue;
    std::optional<Numbers> changed = fault->change(whole, seen);
    if (!changed || changed->size() != values.size()) return std::nullopt;
    values = std::move(*changed);
    changes = true;
  }
  if (!changes) return std::nullopt;
  return values;
}

}  // namespace heddle::check
