// What a test gives a step of a model: the tokens of its microbatches, and numbers for all that the program's
// inputs may ask for.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "heddle/runtime/executor.h"
#include "heddle/runtime/microbatch.h"

namespace heddle::test {

struct Batch {
  std::vector<runtime::Microbatch> microbatches;
  std::vector<double> scales;     // of the loss terms
  std::array<double, 3> hyper{};  // learning rate, 1 − β₁ᵗ, 1 − β₂ᵗ
  double bias_rate = 1e-3;
  uint64_t seed = 0;  // with the step, what dropout draws from
  int64_t step = 0;
  std::map<int, std::vector<double>> expert_rows;         // by layer
  std::map<int, std::vector<int32_t>> homes, next_homes;  // by layer
};

/// Those that a listing takes.
inline device::Inputs inputs_of(const Batch& batch, const ir::Listing& listing, const ir::Coordinates& place) {
  device::Inputs inputs(static_cast<int>(batch.microbatches.size()));
  for (size_t m = 0; m < batch.microbatches.size(); ++m)
    runtime::set_microbatch(inputs, static_cast<int>(m), batch.microbatches[m], listing, place);
  runtime::set_scales(inputs, batch.scales, listing);
  const auto set = [&](const std::string& name, const auto& numbers) {
    if (listing.find_input(name) != nullptr) inputs.set(name, numbers);
  };
  set("hyper", std::array{batch.hyper[0], batch.hyper[1], batch.hyper[2], batch.bias_rate});
  set("drawn_key", runtime::drawn_key(batch.seed, batch.step));
  for (const auto& [layer, rows] : batch.expert_rows) set(fmt::format("expert_rows.{}", layer), rows);
  for (const auto& [layer, homes] : batch.homes) set(fmt::format("homes.{}", layer), homes);
  for (const auto& [layer, next] : batch.next_homes) {
    std::vector<int32_t> moves = batch.homes.at(layer);
    moves.insert(moves.end(), next.begin(), next.end());
    set(fmt::format("moves.{}", layer), moves);
  }
  return inputs;
}
inline device::Inputs inputs_of(const Batch& batch, const runtime::Executor& executor,
                                ir::Purpose purpose = ir::Purpose::train) {
  return inputs_of(batch, executor.listing(purpose), executor.place());
}

}  // namespace heddle::test
