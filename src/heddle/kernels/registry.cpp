#include "heddle/kernels/registry.h"

namespace heddle::kernels {

const KernelEntry& select_kernel(std::string_view backend, const ir::Stage& stage, const ir::Op& op,
                                 std::vector<std::string>* refusals) {
  HEDDLE_CHECK(backend == "host" || backend == "cuda" || backend == "reference", "no backend '{}'", backend);
  if (backend == "cuda" && cuda_kernels().empty()) {
    config_error("device.backend is \"cuda\": this build has no CUDA: configure it where nvcc is found");
  }
  std::vector<const std::vector<KernelEntry>*> lists;
  if (backend == "host") lists.push_back(&host_kernels());
  lists.push_back(backend == "cuda" ? &cuda_kernels() : &reference_kernels());
  std::string passed_over;
  for (const auto* list : lists) {
    for (const KernelEntry& kernel : *list) {
      if (kernel.op_kind != op.kind()) continue;
      const Support support = kernel.supports ? kernel.supports(stage, op) : Support::yes();
      if (support) return kernel;
      std::string refusal = fmt::format("{}.{}: {}", kernel.backend, kernel.name, support.reason);
      passed_over += "\n  " + refusal;
      if (refusals) refusals->push_back(std::move(refusal));
    }
  }
  internal_error("no kernel of '{}'{} runs op '{}'{}", backend, backend == "host" ? " or reference" : "", op.kind(),
                 passed_over.empty() ? ": none is listed" : passed_over);
}

}  // namespace heddle::kernels
