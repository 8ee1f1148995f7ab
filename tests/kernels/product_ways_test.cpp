// The ways of a product over groups (ir/product_way.h) on the host: the same bits, from rows and from packed
// weights, with few rows and many, with experts that have none and with copies of other ranks' experts.
#include <omp.h>

#include "heddle/kernels/host/gemm/gemm.h"
#include "tests/kernels/way_cases.h"

namespace heddle::op_runner {
namespace {

Tensor packed_product_ways(const Tensor& w) {
  Tensor master = w, form = w;
  master.dtype = Dtype::f32;
  form.values.clear();
  form.layout = ir::Layout::packed;
  form.packed.resize(static_cast<size_t>(kernels::host::packed_bytes(w.dtype, w.shape[0], w.shape[1], w.shape[2])));
  return run_op({"", "pack_weight", {{master, Role::optimizer}}, {}, {form}}, kernels::host_kernels(), true,
                ir::Phase::end)
      .updates[0];
}

std::vector<Tensor> by(const std::string& way, const WaySizes& sizes, Dtype X, bool packs) {
  return product_by(way, sizes, X, kernels::host_kernels(), "host." + way, packs ? packed_product_ways : as_it_is);
}

void expect_same(const WaySizes& sizes, const std::string& way) {
  for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
    for (const bool packs : {false, true}) {
      if (packs && kernels::host::packed_bytes(X, 1, 8, 8) == 0) continue;  // the engine reads rows
      const std::vector<Tensor> wanted = by("grouped", sizes, X, packs);
      for (const int threads : {1, 3}) {
        omp_set_num_threads(threads);
        const std::vector<Tensor> found = by(way, sizes, X, packs);
        ASSERT_EQ(wanted.size(), found.size());
        for (size_t i = 0; i < wanted.size(); ++i) {
          EXPECT_TRUE(same(wanted[i], found[i]))
              << fmt::format("{} in {}, {} groups of {}, {} × {}, {} threads, {}", way, name_of(X),
                             sizes.rows.size(), sizes.rows[0], sizes.N, sizes.K, threads, i);
        }
      }
      omp_set_num_threads(omp_get_num_procs());
    }
  }
}

TEST(ProductWays, EqualGroupsHaveTheSameBits) {
  for (const int32_t rows : {1, 7, 129, 520}) {
    for (const auto& [N, K] : {std::pair(40, 72), std::pair(600, 33)}) {
      const WaySizes sizes{std::vector<int32_t>(5, rows), N, K, 0};
      for (const std::string way : {"batched", "serial"}) expect_same(sizes, way);
    }
  }
  expect_same({std::vector<int32_t>(3, 0), 9, 8, 0}, "batched");
  expect_same({{400}, 130, 64, 0}, "batched");
}

TEST(ProductWays, GroupsOfAnySizeHaveTheSameBitsOneAfterTheOther) {
  expect_same({{0, 3, 300, 0, 17, 1}, 70, 45, 0}, "serial");
  expect_same({{5, 0, 140, 64, 0, 33}, 70, 45, 2}, "serial");
  expect_same({{5, 0, 140, 64, 0, 33}, 70, 45, 3}, "serial");
}

TEST(ProductWays, AProductWhoseGroupsAreNotEqualIsNotBatched) {
  for (const char* kind : {"grouped_linear", "grouped_linear_dgrad"}) {
    const OpCase ragged{
        "",
        kind,
        {activation(random_tensor(Dtype::f32, {6, 8}, 1)), weight(random_tensor(Dtype::f32, {2, 8, 8}, 2)),
         metadata(offsets_of(WaySizes{{4, 2}, 8, 8, 0}))},
        {{"way", std::string("batched")}},
        {}};
    EXPECT_THROW(run_op(ragged, kernels::host_kernels()), InternalError) << kind;
  }
}

TEST(ProductWays, TheRegistrySaysWhatItPassesOver) {
  ir::Op op;
  op.def = &ops::find("grouped_linear");
  op.attributes.set("way", std::string("serial"));
  std::map<std::string_view, Support> said;
  for (const kernels::KernelEntry& entry : kernels::host_kernels()) {
    if (entry.op_kind == "grouped_linear" && entry.name != "serial") said[entry.name] = entry.supports({}, op);
  }
  ASSERT_EQ(said.size(), 2u);
  for (const auto& [name, support] : said) {
    EXPECT_FALSE(support.ok) << name;
    EXPECT_EQ(support.reason, "the program wants this product serial") << name;
  }
}

}  // namespace
}  // namespace heddle::op_runner
