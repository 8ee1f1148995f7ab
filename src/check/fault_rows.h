// The table of faults, in groups: each function appends the rows of one kind, for the axes of a layout that are
// longer than one.
#pragma once

#include <vector>

#include "check/faults.h"

namespace heddle::check {

struct Setting {
  const Reference& reference;
  const Parts& parts;
  const Layout& layout;
};

using FaultRows = void (*)(const Setting&, std::vector<Fault>&);

/// A sum over too few ranks, over others, or over ranks whose parts are no addends.
void sum_faults(const Setting& setting, std::vector<Fault>& all);
/// Parts that count by a rank's own labels, and microbatches that are left out or come twice.
void count_faults(const Setting& setting, std::vector<Fault>& all);
/// Multiples by the degree of an axis, and of the auxiliary losses alone.
void scale_faults(const Setting& setting, std::vector<Fault>& all);
/// The slice of another rank, another microbatch's rows.
void slice_faults(const Setting& setting, std::vector<Fault>& all);
/// Heads and halves of a joint product in another order.
void order_faults(const Setting& setting, std::vector<Fault>& all);
/// Attention that sees other keys, at the boundaries of cp among them, has another scale, or other heads' keys.
void mask_faults(const Setting& setting, std::vector<Fault>& all);
/// Other rotary positions, those of a rank of cp among them.
void rope_faults(const Setting& setting, std::vector<Fault>& all);
/// Gates of experts that are not divided by their sum, or are.
void gate_faults(const Setting& setting, std::vector<Fault>& all);
/// A bias that no rank adds, or each.
void bias_faults(const Setting& setting, std::vector<Fault>& all);
/// Updates of weights that are missing, or of another rule.
void update_faults(const Setting& setting, std::vector<Fault>& all);
/// Norms of all gradients that count some tensors by another number of times.
void norm_faults(const Setting& setting, std::vector<Fault>& all);

/// The axes of a layout that are longer than one, with their degrees.
std::vector<std::pair<ir::Axis, int>> long_axes(const Layout& layout);

}  // namespace heddle::check
