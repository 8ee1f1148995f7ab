// The behaviour of the software of a measured run: what its stack does by default, then what the row says.
#pragma once

#include <string>

#include "advisor/points/release.h"
#include "advisor/words.h"

namespace heddle::advisor {

/// `words`: the row's columns extra, notes and recompute, in lower case. `precision`: its column likewise.
struct SoftwareText {
  std::string extra, notes, recompute, precision, source;
};
/// Ends the framework's name where kernels were built for another device, and run slowly.
inline constexpr std::string_view kForeign = ", foreign kernels";

/// Fills in software, exchange, context, imbalance and recomputation of the job; `assumed` is added to.
void describe_software(const SoftwareText& text, const Release& release, Job& job, std::string& assumed);

/// The number after `mark`; 0 where there is none.
double number_after(const std::string& text, std::string_view mark);

}  // namespace heddle::advisor
