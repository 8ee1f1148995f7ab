#include "check/part.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "check/difference.h"
#include "heddle/base/error.h"

namespace heddle::check {

namespace {

constexpr size_t kMostOps = 400;

// Whole tensors of a dump's forward pass, put together from its ranks, by module and microbatch of the whole step.
using Taps = std::map<std::pair<std::string, int>, Numbers>;

Taps taps_of(const Dump& dump, const Reference& reference) {
  Taps taps;
  std::map<std::pair<std::string, int>, std::vector<uint8_t>> there;
  for (const RankDump& rank : dump.ranks) {
    for (const Record& record : rank.records) {
      if (record.stage != Stage::forward) continue;
      const Whole& whole = reference.of(record);
      const std::pair key{record.name, std::get<2>(reference.key_of(record))};
      Numbers& into = taps[key];
      into.resize(whole.values.size(), 0.0);
      std::vector<uint8_t>& held = there[key];
      held.resize(whole.values.size(), 0);
      const std::vector<int64_t> places = record.slice.places();
      for (size_t i = 0; i < places.size(); ++i) {
        into[static_cast<size_t>(places[i])] = record.values[i];
        held[static_cast<size_t>(places[i])] = 1;
      }
    }
  }
  for (const auto& [key, held] : there) {
    if (std::find(held.begin(), held.end(), 0) != held.end()) taps.erase(key);  // not all of it was written
  }
  return taps;
}

// The log-probability of each label that counts, in the order of the step.
Numbers log_probabilities(const std::vector<RankValues>& run, const Reference& reference) {
  const Dump& dump = reference.dump();
  const auto each = static_cast<size_t>(dump.layout.sequences);
  const auto length = static_cast<size_t>(dump.layout.sequence_length);
  Numbers all;
  for (size_t m = 0; m * each < dump.sequences.size(); ++m) {
    const Captured& logits = run[0].values.at({"logits_next_token", static_cast<int>(m)});
    const auto vocabulary = static_cast<size_t>(logits.dims.back());
    for (size_t b = 0; b < each; ++b) {
      for (size_t i = 0; i < length; ++i) {
        const size_t s = m * each + b;
        if (!dump.sequences.is_target(s, i + 1)) continue;
        const double* row = &logits.values[(b * length + i) * vocabulary];
        const double top = *std::max_element(row, row + vocabulary);
        double sum = 0;
        for (size_t v = 0; v < vocabulary; ++v) sum += std::exp(row[v] - top);
        all.push_back(row[static_cast<size_t>(dump.sequences.tokens[s][i + 1])] - top - std::log(sum));
      }
    }
  }
  return all;
}

// The log-probabilities of a forward pass in which the first `count` of these modules have the dump's own values.
Numbers with_first(size_t count, const std::vector<std::string>& modules, const Taps& taps,
                   const Reference& reference) {
  std::map<std::string, std::vector<const Module*>, std::less<>> replaced;
  for (size_t i = 0; i < count; ++i) {
    const Module* module = reference.module(modules[i]);
    replaced[module->value].push_back(module);
  }
  RunRequest request;
  request.keeps_gradients = false;
  request.wanted = [](std::string_view value) { return value == "logits_next_token"; };
  request.changed = [&](std::string_view value) { return replaced.contains(value); };
  request.after = [&](std::string_view value, int microbatch, const ir::Coordinates&, Captured& out) {
    for (const Module* module : replaced.find(value)->second) {
      const auto tap = taps.find({module->name, microbatch});
      if (tap == taps.end()) continue;
      const int64_t width = out.dims.back(), columns = module->columns > 0 ? module->columns : width;
      for (int64_t row = 0; row < std::ssize(tap->second) / columns; ++row)
        std::copy_n(tap->second.begin() + row * columns, columns, out.values.begin() + row * width + module->first);
    }
  };
  const Dump& dump = reference.dump();
  return log_probabilities(run_program(dump.layout.model, plan_of(dump.layout, true), reference.weights(),
                                       reference.sequences(), request),
                           reference);
}

double mean_distance(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return a.empty() ? 0 : sum / static_cast<double>(a.size());
}

void check_alike(const Dump& a, const Dump& b) {
  if (a.sequences.tokens != b.sequences.tokens || a.sequences.masked != b.sequences.masked)
    config_error("{} and {} are not of the same tokens", a.path, b.path);
  if (a.start != b.start) {
    for (const auto& [name, tensor] : a.start) {
      const auto other = b.start.find(name);
      if (other == b.start.end() || other->second != tensor)
        config_error("{} and {} are not of the same weights: {} differs", a.path, b.path, formats::printable(name));
    }
    config_error("{} and {} are not of the same weights: {} has more of them", a.path, b.path, b.path);
  }
}

}  // namespace

Parting part(Dump& a, Dump& b) {
  check_alike(a, b);
  order_ranks(a);
  order_ranks(b);
  const Reference references[2] = {Reference(a), Reference(b)};
  const Dump* dumps[2] = {&a, &b};
  const Taps taps[2] = {taps_of(a, references[0]), taps_of(b, references[1])};
  Parting parting;
  std::map<std::string, OpError> errors;
  for (int side = 0; side < 2; ++side) {
    for (const RankDump& rank : dumps[side]->ranks) {
      for (const Record& record : rank.records) {
        if (record.stage != Stage::forward) continue;
        OpError& op = errors[record.name];
        op.name = record.name;
        op.tapped[side] = true;
        const Difference difference = compared(record, references[side]);
        op.units[side] = std::max(op.units[side], kMargin * difference.error / difference.bound);
      }
    }
  }
  std::vector<std::string> modules;
  for (const Module& module : references[0].modules()) {
    if (errors.contains(module.name)) modules.push_back(module.name);
  }
  if (modules.empty()) config_error("{} and {}: neither has a tensor of the forward pass", a.path, b.path);
  if (modules.size() > kMostOps)
    config_error("{} and {}: {} modules are tapped; at most {} are accepted", a.path, b.path, modules.size(),
                 kMostOps);
  const Numbers exact = with_first(0, modules, taps[0], references[0]);
  std::vector<Numbers> gaps{Numbers(exact.size(), 0.0)};  // A − B, with the first i values replaced
  Numbers last[2] = {exact, exact};
  for (size_t i = 1; i <= modules.size(); ++i) {
    for (int side = 0; side < 2; ++side) {
      if (errors.at(modules[i - 1]).tapped[side]) last[side] = with_first(i, modules, taps[side], references[side]);
    }
    Numbers gap = last[0];
    for (size_t t = 0; t < gap.size(); ++t) gap[t] -= last[1][t];
    gaps.push_back(std::move(gap));
  }
  const Numbers& whole = gaps.back();
  double sum = 0;
  for (const double x : whole) sum += std::abs(x), parting.most = std::max(parting.most, std::abs(x));
  for (size_t i = 0; i < modules.size(); ++i) {
    OpError op = errors.at(modules[i]);
    for (size_t t = 0; t < whole.size(); ++t) {
      const double step = gaps[i + 1][t] - gaps[i][t];
      op.own += std::abs(step) / static_cast<double>(whole.size());
      if (sum > 0) op.share += std::copysign(1.0, whole[t]) * step / sum;
    }
    parting.ops.push_back(op);
  }
  parting.labels = std::ssize(whole);
  parting.gap = whole.empty() ? 0 : sum / static_cast<double>(whole.size());
  for (int side = 0; side < 2; ++side) parting.to_exact[side] = mean_distance(last[side], exact);
  return parting;
}

}  // namespace heddle::check
