#include "heddle/kernels/registry.h"

namespace heddle::kernels {

const KernelEntry& select_kernel(std::string_view backend, const ir::Stage& stage, const ir::Op& op,
                                 std::vector<std::string>* refusals) {
  HEDDLE_CHECK(backend == "host" || backend == "reference", "no backend '{}'", backend);
  std::vector<const std::vector<KernelEntry>*> lists;
  if (backend == "host") lists.push_back(&host_kernels());
  lists.push_back(&reference_kernels());
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
  internal_error("no kernel of '{}' or reference runs op '{}'{}", backend, op.kind(),
                 passed_over.empty() ? ": none is listed" : passed_over);
}

}  // namespace heddle::kernels
