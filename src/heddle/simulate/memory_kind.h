// Kinds of bytes in a rank's memory, as curves of memory tell them apart: by the value's role, activations by their
// origin.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/base/words.h"
#include "heddle/ir/listing.h"

namespace heddle::simulate {

/// Kinds that persist come first: they lie at the bottom of a picture.
enum class MemoryKind : uint8_t {
  weights,
  weight_gradients,
  optimizer,
  statistics,    // and caches
  between,       // activations: sums that pass from layer to layer, normed rows
  attention,     // activations: from the layer's normed rows to what is added to its sum
  feed_forward,  // activations: of MLPs and experts, with router and rows in their order
  outside,       // activations: of embedding, head and losses, the batch, what the end of the step makes
  gradients,     // those of activations
  in_flight,     // back from the host: activations, slots through which state passes
  scratch,       // work space of kernels
};
constexpr int kMemoryKinds = 11;
constexpr auto words_of(MemoryKind) {
  using K = MemoryKind;
  return std::to_array<Word<K>>({{K::weights, "weights"},
                                 {K::weight_gradients, "weight gradients"},
                                 {K::optimizer, "optimizer state"},
                                 {K::statistics, "statistics, caches"},
                                 {K::between, "activations between layers"},
                                 {K::attention, "activations of attention"},
                                 {K::feed_forward, "activations of MLPs and experts"},
                                 {K::outside, "activations outside layers"},
                                 {K::gradients, "gradients of activations"},
                                 {K::in_flight, "on the way from and to the host"},
                                 {K::scratch, "scratch of kernels"}});
}
constexpr bool is_activation(MemoryKind kind) { return kind >= MemoryKind::between && kind <= MemoryKind::outside; }

/// Returns the kind of each value of a listing.
std::vector<MemoryKind> memory_kinds(const ir::Listing& listing);

}  // namespace heddle::simulate
