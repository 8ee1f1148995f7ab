#include "heddle/observe/memory/memory_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

using simulate::MemoryCurve;
using simulate::MemoryKind;
using simulate::MemoryPeak;

constexpr size_t kToldValues = 3, kToldMicrobatches = 4;

std::string bytes(int64_t n) { return bytes_text(static_cast<double>(n)); }

std::string_view phase_words(ir::Phase phase) {
  switch (phase) {
    case ir::Phase::begin: return "at the beginning of the step";
    case ir::Phase::F: return "in the forward";
    case ir::Phase::I: return "in the input gradients";
    case ir::Phase::W: return "in the weight gradients";
    case ir::Phase::end: return "at the end of the step";
  }
  return "";
}

// "as linear_dgrad begins, in the input gradients of microbatch 1, layer 3"
std::string moment(const MemoryPeak& peak) {
  std::string text = fmt::format("as {} begins, {}", peak.op, phase_words(peak.phase));
  if (peak.microbatch >= 0) text += fmt::format(" of microbatch {}", peak.microbatch);
  if (peak.layer >= 0) text += fmt::format(", layer {}", peak.layer);
  return text;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

std::string in_flight(const std::vector<MemoryPeak::InFlight>& microbatches) {
  if (microbatches.empty()) return "no microbatch is in flight";
  int64_t sum = 0, most = 0;
  std::vector<std::string> each;
  for (const MemoryPeak::InFlight& m : microbatches) {
    sum += m.bytes;
    most = std::max(most, m.bytes);
    each.push_back(fmt::format("{} ({})", m.microbatch, bytes(m.bytes)));
  }
  if (each.size() == 1)
    return fmt::format("microbatch {} is in flight with {} of activations", microbatches[0].microbatch, bytes(sum));
  if (each.size() <= kToldMicrobatches)
    return fmt::format("microbatches {} are in flight with activations", joined(each));
  return fmt::format("{} microbatches, from {} to {}, are in flight with {} of activations, at most {} each",
                     each.size(), microbatches.front().microbatch, microbatches.back().microbatch, bytes(sum),
                     bytes(most));
}

}  // namespace

std::string memory_name(ir::Space space) {
  return space == ir::Space::device ? "Device memory"
         : space == ir::Space::host ? "Host memory"
                                    : "Memory beyond the process";
}

std::string peak_words(const MemoryCurve& curve) {
  const MemoryPeak& peak = curve.peak;
  if (peak.bytes == curve.persistent_bytes)
    return fmt::format("It holds {} throughout the step: persistent values.", bytes(peak.bytes));
  const double part = curve.until_us > 0 ? 100 * peak.at_us / curve.until_us : 0;
  std::string text =
      fmt::format("It holds most, {}, at {:.0f} % of the step: {}. ", bytes(peak.bytes), part, moment(peak));
  std::vector<std::string> parts{bytes(curve.persistent_bytes) + " persist"};
  const auto add = [&](MemoryKind kind, const char* what) {
    if (const int64_t n = peak.of_kinds[static_cast<size_t>(kind)]; n > 0)
      parts.push_back(fmt::format("{} {}", bytes(n), what));
  };
  add(MemoryKind::gradients, "are gradients of activations");
  add(MemoryKind::in_flight, "are on the way from and to the host");
  add(MemoryKind::scratch, "are scratch of kernels");
  text += fmt::format("{}; {}", joined(parts), in_flight(peak.microbatches));
  std::vector<std::string> values;
  for (const ir::Walk::Live& live : peak.values) {
    if (values.size() == kToldValues) break;
    values.push_back(fmt::format("{} ({}{})", live.name, bytes(live.bytes),
                                 live.microbatch < 0 ? "" : fmt::format(", microbatch {}", live.microbatch)));
  }
  if (!values.empty()) text += fmt::format(". The largest transient values: {}", joined(values));
  return text + ".";
}

}  // namespace heddle::observe
