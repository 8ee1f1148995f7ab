// Reads the files that a search or a plan is given: clusters, restrictions, scalars. They are foreign: sizes are
// bounded, unknown keys are refused with the nearest name, and every error says where.
#pragma once

#include <string>

#include "advisor/points/calibration.h"
#include "heddle/cost/accelerator.h"
#include "heddle/search/space.h"

namespace heddle::advisor {

/// A known accelerator by name, or a TOML file:
///
///   device = "H800"          # start from a known one; the other keys overwrite it
///   memory_gib = 80          # also name, family, bf16_tflops, fp8_tflops, fp4_tflops, memory_gb_per_s, units,
///                            # host_us, host_gb_per_s (the link), host_memory_gib, host_memory_gb_per_s (a
///                            device's share)
///   [[tier]]                 # from the inside out; given, they replace the known ones: two at least
///   name = "node"            # free text: device, node, nvlink, rail, spine, ...
///   ranks = 8                # reached within it; the last tier has none: all
///   gb_per_s = 200           # of one device, one direction
///   latency_us = 6
///   wiring = "switched"      # or full, or mesh with rows = N; of the first tier
///   oversubscription = 1     # divides the rate
cost::Accelerator read_cluster(const std::string& name_or_file);

/// NAME=VALUE[,VALUE...], or a TOML file whose keys are such names with lists, and [software] with fields of
/// search::Software.
void read_restriction(const std::string& words_or_file, search::Restriction& into, search::Job& job);

/// Returns the scalars of a file as `heddle predict --calibrate` writes it; without a file the built-in ones.
Calibration read_calibration(const std::string& file);

}  // namespace heddle::advisor
