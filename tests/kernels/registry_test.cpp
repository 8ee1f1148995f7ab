// Every op that computes has a reference kernel, and a kernel is chosen with reasons for those passed over.
#include "heddle/backends/backend.h"
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

TEST(Registry, reference_runs_every_op_that_computes) {
  for (const ir::OpDef* def : ops::all()) {
    const auto listed = std::count_if(kernels::reference_kernels().begin(), kernels::reference_kernels().end(),
                                      [&](const kernels::KernelEntry& k) { return k.op_kind == def->kind; });
    const bool elsewhere = ir::communicates(*def) || !ir::runs(*def) ||
                           backends::named("reference").find_collective(def->kind) != nullptr;
    EXPECT_EQ(listed, elsewhere ? 0 : 1) << def->kind;
  }
  for (const kernels::KernelEntry& kernel : kernels::reference_kernels()) {
    EXPECT_NO_THROW(ops::find(kernel.op_kind)) << kernel.op_kind;
    EXPECT_EQ(kernel.backend, "reference");
  }
}

TEST(Registry, refuses_packed_weights_with_a_reason) {
  ir::Listing listing;
  const auto add = [&](std::string name, ir::Layout layout) {
    return listing.add_value({.name = std::move(name), .dtype = Dtype::f32, .shape = {{4}, {4}}, .layout = layout});
  };
  const ir::ValueId x = add("x", ir::Layout::rows), rows = add("rows", ir::Layout::rows);
  const ir::ValueId packed = add("packed", ir::Layout::packed);
  ir::Op op{.def = &ops::find("linear"), .in = {x, rows, ir::none}};
  EXPECT_EQ(backends::named("reference").select_kernel(listing, op).name, "loops");
  op.in[1] = packed;
  std::vector<std::string> refusals;
  EXPECT_THROW(backends::named("reference").select_kernel(listing, op, &refusals), ConfigError);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_NE(refusals[0].find("row-major"), std::string::npos) << refusals[0];
  op.in[1] = rows;
  EXPECT_THROW(backends::named("abacus").select_kernel(listing, op), InternalError);
  op.def = &ops::find("send");
  EXPECT_THROW(backends::named("reference").select_kernel(listing, op), InternalError);
}

TEST(Registry, prefers_the_backend_and_falls_back_to_reference) {
  ir::Listing listing;
  const ir::ValueId x = listing.add_value({.name = "x", .dtype = Dtype::f64, .shape = {{4}, {4}}});
  const ir::Op op{.def = &ops::find("add"), .in = {x, x}};
  std::vector<std::string_view> able;
  for (const auto* list : {&kernels::host_kernels(), &kernels::reference_kernels()}) {
    for (const kernels::KernelEntry& kernel : *list) {
      if (kernel.op_kind == "add" && (!kernel.supports || kernel.supports(listing, op)))
        able.push_back(kernel.backend);
    }
  }
  ASSERT_FALSE(able.empty());
  EXPECT_EQ(able.back(), "reference");
  EXPECT_EQ(backends::named("host").select_kernel(listing, op).backend, able.front());
  EXPECT_EQ(backends::named("reference").select_kernel(listing, op).backend, "reference");
}

}  // namespace
}  // namespace heddle::op_runner
