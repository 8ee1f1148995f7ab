// The families of CPU kernels that stream through memory, and what they accept.
//
// They take bf16 and f32; f64 is left to reference. Sums are fp32 where reference's are, in a fixed order of their
// own that depends on the vector width of the processor and not on the number of threads.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/kernels/registry.h"

namespace heddle::kernels::host {

std::vector<KernelEntry> norm_kernels();
std::vector<KernelEntry> layer_norm_kernels();
std::vector<KernelEntry> hyper_connection_kernels();
std::vector<KernelEntry> gated_stream_kernels();
std::vector<KernelEntry> dropout_kernels();
std::vector<KernelEntry> mlp_kernels();
std::vector<KernelEntry> gate_kernels();
std::vector<KernelEntry> clamped_swiglu_kernels();
std::vector<KernelEntry> expert_bias_kernels();
std::vector<KernelEntry> capacity_kernels();
std::vector<KernelEntry> margin_kernels();
std::vector<KernelEntry> shape_kernels();
std::vector<KernelEntry> rope_kernels();
std::vector<KernelEntry> cache_kernels();
std::vector<KernelEntry> selection_kernels();
std::vector<KernelEntry> compression_kernels();
std::vector<KernelEntry> recurrence_bf16_kernels();
std::vector<KernelEntry> recurrence_kernels();
std::vector<KernelEntry> convolution_kernels();
std::vector<KernelEntry> permute_kernels();
std::vector<KernelEntry> embedding_kernels();
std::vector<KernelEntry> optimizer_kernels();
std::vector<KernelEntry> muon_kernels();
std::vector<KernelEntry> router_kernels();
std::vector<KernelEntry> router_loss_kernels();
std::vector<KernelEntry> loss_kernels();
std::vector<KernelEntry> linear_cross_entropy_kernels();

/// InternalError when a label is no id of the vocabulary; masked ones are below 0.
void check_labels(const int32_t* labels_T, int64_t T, int64_t most_label);

/// Types of operands, one letter each: x is bf16 or f32, the same for all x; a is f32, b bf16, d f64, h u16, u u8,
/// i i32;
/// * lets the letter before it go on. An absent operand fits any letter, and so does one that the letters don't
/// reach.
Support operands_are(const ir::Listing& listing, const std::vector<ir::ValueId>& operands, std::string_view letters,
                     std::string_view list, Dtype* x);

template <size_t size>
struct Letters {
  constexpr Letters(const char (&letters)[size]) { std::copy_n(letters, size, text); }  // NOLINT: a literal
  char text[size];
};

template <Letters in, Letters updates = "">
Support takes(const ir::Listing& listing, const ir::Op& op) {
  Dtype x = Dtype::u8;  // none seen yet
  if (Support inputs = operands_are(listing, op.in, in.text, "input", &x); !inputs) return inputs;
  return operands_are(listing, op.updates, updates.text, "update", &x);
}

}  // namespace heddle::kernels::host
