#include "heddle/runtime/predict.h"

#include <algorithm>
#include <cmath>

#include "heddle/comm/collectives.h"
#include "heddle/kernels/registry.h"

namespace heddle::runtime {

namespace {

// Answers what the walk asks and issues nothing.
class DryIssuer : public ir::Issuer {
 public:
  DryIssuer(const ir::StepProgram& program, int rank, std::string_view backend, double crowding)
      : program_(program), crowding_(crowding), scratch_(program.stages.size()) {
    for (const int s : program.stages_of(rank)) {
      const ir::Stage& stage = program.stages[static_cast<size_t>(s)];
      for (const ir::Op& op : stage.ops) {
        const comm::Collective* collective = comm::find_collective(op.kind());
        scratch_[static_cast<size_t>(s)].push_back(collective != nullptr
                                                       ? collective->scratch_bytes
                                                       : kernels::select_kernel(backend, stage, op).scratch_bytes);
      }
    }
  }

  int64_t scratch_bytes(int stage, uint32_t op, const ir::RowCounts& rows) override {
    const Scratch scratch = scratch_[static_cast<size_t>(stage)][op];
    const ir::Stage& text = program_.stages[static_cast<size_t>(stage)];
    return scratch == nullptr ? 0 : scratch(text, text.ops[op], rows);
  }
  void issue(const ir::Issue&) override {}

  // Balanced: as many rows come in as this rank sends out. How ranks stand on nodes is not known here: the tokens
  // that pass through are taken to be as many as its own, with each of their sums coming from another rank.
  int64_t read_rows(const ir::Issue& issue, size_t output) override {
    const ir::Stage& stage = program_.stages[static_cast<size_t>(issue.stage)];
    const ir::Op* counted = nullptr;  // the op that counts for the host what this one has shared
    for (const ir::Op& op : stage.ops) {
      if (!op.out.empty() && op.out[0] == issue.op->in[0]) counted = &op;
    }
    HEDDLE_CHECK(counted != nullptr && counted->kind() == "share_counts", "'{}' copies no shared counts",
                 stage.value(issue.out[0].id).name);
    const std::string& topology = counted->attributes.word("topology");
    const ir::Shape& chosen = stage.value(counted->in[0]).shape;
    const int64_t tokens = chosen[0].count, rows = tokens * chosen[1].count * counted->attributes.integer("slices");
    const bool passes = topology != "plain" && topology != "rank";
    const int64_t balanced = output == 0 ? rows : !passes ? 0 : output == 1 ? tokens : output == 2 ? rows : 0;
    return static_cast<int64_t>(std::ceil(crowding_ * static_cast<double>(balanced)));
  }

 private:
  const ir::StepProgram& program_;
  const double crowding_;
  using Scratch = int64_t (*)(const ir::Stage&, const ir::Op&, const ir::RowCounts&);
  std::vector<std::vector<Scratch>> scratch_;  // [stage][op]
};

constexpr int kRounds = 3;  // later steps find the places that earlier ones left
constexpr double kMostCrowding = 4;

// How many times the balanced rows a rank's experts are given room for.
double crowding_of(const ir::StepProgram& program, int rank) {
  double most = 1;
  for (const int s : program.stages_of(rank)) {
    for (const ir::Op& op : program.stages[static_cast<size_t>(s)].ops) {
      if (op.kind() == "share_counts") most = std::max(most, static_cast<double>(op.attributes.integer("ranks")));
    }
  }
  return std::min(most, kMostCrowding);
}

}  // namespace

MemoryPrediction predict_memory(const ir::StepProgram& program, int rank, std::string_view backend,
                                int64_t capacity_bytes, double crowding) {
  DryIssuer issuer(program, rank, backend, crowding);
  ir::Walk walk(program, rank, capacity_bytes);
  MemoryPrediction prediction;
  for (int round = 0; round < kRounds; ++round) {
    walk.keep_peak = round == 0;
    for (int p = 0; p < ir::kPurposes; ++p) {
      const auto purpose = static_cast<ir::Purpose>(p);
      if (program.actions_of(rank, purpose).empty()) continue;
      walk.run_step(issuer, purpose);
      if (walk.storage().peak_live_bytes() <= prediction.peak_live_bytes) continue;
      prediction.peak_live_bytes = walk.storage().peak_live_bytes();
      prediction.at_peak = walk.live_at_peak();
    }
  }
  prediction.persistent_bytes = walk.persistent_bytes();
  prediction.reserved_bytes = walk.storage().reserved_bytes();
  return prediction;
}

int64_t arena_bytes(const ir::StepProgram& program, int rank, std::string_view backend, int64_t limit_bytes) {
  const double crowding = crowding_of(program, rank);
  const int64_t least = predict_memory(program, rank, backend, 0, crowding).reserved_bytes;
  for (const double more : {1.0, 1.03, 1.06, 1.1, 1.2, 1.5}) {
    const auto capacity = ir::storage_bytes(static_cast<int64_t>(more * static_cast<double>(least)));
    if (capacity >= limit_bytes) break;
    try {
      predict_memory(program, rank, backend, capacity, crowding);
      return capacity;
    } catch (const ir::OutOfMemory&) {  // fragments; a little more room helps
    }
  }
  predict_memory(program, rank, backend, limit_bytes);
  return limit_bytes;
}

}  // namespace heddle::runtime
