#include "heddle/runtime/predict.h"

#include "heddle/comm/collectives.h"
#include "heddle/kernels/registry.h"

namespace heddle::runtime {

namespace {

// Answers what the walk asks and issues nothing.
class DryIssuer : public ir::Issuer {
 public:
  DryIssuer(const ir::StepProgram& program, int rank, std::string_view backend)
      : program_(program), kernels_(program.stages.size()) {
    for (const int s : program.stages_of(rank)) {
      const ir::Stage& stage = program.stages[static_cast<size_t>(s)];
      for (const ir::Op& op : stage.ops) {
        const bool collective = comm::find_collective(op.kind()) != nullptr;
        kernels_[static_cast<size_t>(s)].push_back(collective ? nullptr : &kernels::select_kernel(backend, stage, op));
      }
    }
  }

  int64_t scratch_bytes(int stage, uint32_t op, const ir::RowCounts& rows) override {
    const kernels::KernelEntry* kernel = kernels_[static_cast<size_t>(stage)][op];
    if (kernel == nullptr || kernel->scratch_bytes == nullptr) return 0;
    const ir::Stage& text = program_.stages[static_cast<size_t>(stage)];
    return kernel->scratch_bytes(text, text.ops[op], rows);
  }
  void issue(const ir::Issue&) override {}

  // Balanced: as many rows come in as this rank sends out.
  int64_t read_rows(const ir::Issue& issue) override {
    const ir::Stage& stage = program_.stages[static_cast<size_t>(issue.stage)];
    for (const ir::Op& op : stage.ops) {
      if (op.kind() != "exchange" || op.attributes.integer("back") != 0 || op.in.at(1) != issue.out[0].id) continue;
      const ir::Dim& rows = stage.value(op.in[0]).shape.at(0);
      if (rows.is_static()) return rows.count;
    }
    internal_error("no exchange reads the rows that '{}' counts", stage.value(issue.out[0].id).name);
  }

 private:
  const ir::StepProgram& program_;
  std::vector<std::vector<const kernels::KernelEntry*>> kernels_;  // [stage][op]; null for a collective
};

}  // namespace

MemoryPrediction predict_memory(const ir::StepProgram& program, int rank, std::string_view backend) {
  DryIssuer issuer(program, rank, backend);
  ir::Walk walk(program, rank, 0);
  walk.keep_peak = true;
  MemoryPrediction prediction;
  for (int p = 0; p < ir::kPurposes; ++p) {
    const auto purpose = static_cast<ir::Purpose>(p);
    if (program.actions_of(rank, purpose).empty()) continue;
    walk.run_step(issuer, purpose);
    if (walk.storage().peak_live_bytes() <= prediction.peak_live_bytes) continue;
    prediction.peak_live_bytes = walk.storage().peak_live_bytes();
    prediction.at_peak = walk.live_at_peak();
  }
  prediction.persistent_bytes = walk.persistent_bytes();
  prediction.reserved_bytes = walk.storage().reserved_bytes();
  return prediction;
}

}  // namespace heddle::runtime
