// Accelerators and the clusters they stand in, from public figures: what the peak rates are, how devices are wired,
// and what a host needs to launch an op. Rates are dense (no sparsity), links are bytes a second of one device in
// one direction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::cost {

/// Operand type of matrix products. fp8 scales a tensor at a time, mxfp8 a block of 32, block8 1x128 and 128x128
/// tiles.
enum class Precision { bf16, fp16, fp8, mxfp8, block8, nvfp4 };
std::string_view name_of(Precision precision);
std::optional<Precision> precision_named(std::string_view name);

/// Generation of matrix units: devices of one generation share how far their products stay below the peak.
enum class Family { ampere, hopper, blackwell, ascend, cdna3, gaudi, tpu, other };

/// Wiring of the devices of a tier. A rate is always that of all of one device's links of the tier together.
///   `switched`  Any device reaches any other at the full rate.
///   `full`      A link to every other device: a message to one of them has the rate of one link.
///   `mesh`      A grid of `rows` × ranks ÷ rows, each device linked to its four neighbours.
enum class Wiring : uint8_t { switched, full, mesh };

/// One level of the network: groups of up to `ranks` neighbours reach each other at this rate.
struct Tier {
  int ranks = 1;  // 0: no limit
  double bytes_per_s = 0;
  double latency_us = 0;
  Wiring wiring = Wiring::switched;
  int rows = 1;  // a mesh's
  bool operator==(const Tier&) const = default;
};

struct Accelerator {
  std::string name;
  Family family = Family::other;
  double bf16_flops = 0, fp8_flops = 0, fp4_flops = 0;  // 0: has none, products run at the next wider type
  double memory_bytes = 0;
  double memory_bytes_per_s = 0;
  int units = 0;                            // takers of tiles of a product: SMs, compute units, cores
  double host_us = 0;                       // time of one op, enqueued by an eager Python framework
  Tier inner;                               // the fast domain: NVLink, xGMI, HCCS, MetaXLink
  Tier outer;                               // the scale-out network: one device's share of the NICs
  std::vector<Tier> farther;                // beyond `outer`, where that has a limit: spines, other halls
  double host_bytes_per_s = 32e9;           // to the host's memory and back, each way: PCIe 4.0 x16
  double host_memory_bytes = 0;             // a device's share of its host's memory; 0: not known, no limit
  double host_memory_bytes_per_s = 51.2e9;  // likewise of its rate, read and written: DDR4-3200 x 16, for eight

  double flops(Precision precision) const;
  bool operator==(const Accelerator&) const = default;
};

/// All known accelerators. Sources stand beside the numbers.
const std::vector<Accelerator>& accelerators();

/// The accelerator of this name, however its case and hyphens are written, or nullptr.
const Accelerator* accelerator_named(std::string_view name);

/// Returns the accelerator that a free text such as "A100 40GB 8-GPU RoCE 1600G" or "GB200 NVL72" names. The
/// network that the text states replaces the usual one. Its name is "" when the text names none.
Accelerator find_accelerator(std::string_view text);

}  // namespace heddle::cost
