// What the tests of streaming CPU kernels share: one op on the kernels of the host and on reference, for every
// instruction set of this processor, with one thread and with two.
#pragma once

#include <omp.h>

#include "hwy/targets.h"
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {

/// How many threads a team has, until the end of the scope.
class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;

 private:
  int before_;
};

/// The instruction set that kernels are run with, until the end of the scope.
class InstructionSet {
 public:
  explicit InstructionSet(int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~InstructionSet() { hwy::SetSupportedTargetsForTest(0); }
  InstructionSet(const InstructionSet&) = delete;
};

/// Every one that the kernels are compiled for and this processor runs; the last resort is always there.
inline std::vector<int64_t> instruction_sets() {
  std::vector<int64_t> sets{HWY_STATIC_TARGET};
  for (const int64_t set : {HWY_SSE4, HWY_AVX2, HWY_AVX3}) {
    if (hwy::SupportedTargets() & set) sets.push_back(set);
  }
  return sets;
}

inline bool all_from_host(const std::vector<std::string>& ran) {
  return std::all_of(ran.begin(), ran.end(),
                     [](const std::string& name) { return name.find(": host.") != std::string::npos; });
}

/// The bits of `a` and `b` agree in every output and accumulator.
inline void expect_same(const OpResult& a, const OpResult& b, const std::string& where) {
  for (size_t i = 0; i < a.out.size(); ++i) EXPECT_TRUE(same(a.out[i], b.out[i])) << where << ", output " << i;
  for (size_t i = 0; i < a.updates.size(); ++i) {
    EXPECT_TRUE(same(a.updates[i], b.updates[i])) << where << ", update " << i;
  }
}

/// Runs the op on reference and, with every instruction set, on the host; expects results within `tolerance` × the
/// largest magnitude, and the same bits with one thread, two and three. Integers must be equal.
inline void expect_like_reference(const OpCase& op, double tolerance, bool overwrite = true,
                                  ir::Phase phase = ir::Phase::F) {
  const OpResult expected = run_op(op, kernels::reference_kernels(), overwrite, phase);
  for (const int64_t target : instruction_sets()) {
    const InstructionSet set(target);
    const std::string where = fmt::format("{} with {}", op.name, hwy::TargetName(target));
    OpResult found;
    {
      const Threads one(1);
      found = run_op(op, kernels::host_kernels(), overwrite, phase);
    }
    ASSERT_TRUE(all_from_host(found.ran)) << where << ": " << found.ran[0];
    const auto compare = [&](const Tensor& wanted, const Tensor& got, const char* what, size_t i) {
      const bool whole_numbers = !is_floating(wanted.dtype);
      EXPECT_TRUE(close(wanted, got, whole_numbers ? 0 : tolerance)) << where << ", " << what << " " << i;
    };
    for (size_t i = 0; i < expected.out.size(); ++i) compare(expected.out[i], found.out[i], "output", i);
    for (size_t i = 0; i < expected.updates.size(); ++i)
      compare(expected.updates[i], found.updates[i], "update", i);
    for (const int threads : {2, 3}) {
      const Threads team(threads);
      expect_same(found, run_op(op, kernels::host_kernels(), overwrite, phase),
                  fmt::format("{}, {} threads against one", where, threads));
    }
  }
}

/// The same for an op and the gradients that its rule writes, poisoned and then added to.
inline void expect_gradient_like_reference(const OpCase& op, double tolerance,
                                           const std::function<bool(size_t)>& seeded = nullptr) {
  for (const int rounds : {1, 2}) {
    const GradientResult expected = run_with_gradient(op, kernels::reference_kernels(), rounds, 99, seeded);
    for (const int64_t target : instruction_sets()) {
      const InstructionSet set(target);
      const std::string where = fmt::format("{} with {}, {} rounds", op.name, hwy::TargetName(target), rounds);
      const auto run = [&](int threads) {
        const Threads team(threads);
        return run_with_gradient(op, kernels::host_kernels(), rounds, 99, seeded);
      };
      const GradientResult found = run(1), again = run(2);
      EXPECT_TRUE(all_from_host(found.ran)) << where;
      for (size_t i = 0; i < expected.out.size(); ++i) {
        EXPECT_TRUE(close(expected.out[i], found.out[i], tolerance)) << where << ", output " << i;
        EXPECT_TRUE(same(found.out[i], again.out[i])) << where << ", output " << i << ", two threads against one";
      }
      for (size_t i = 0; i < expected.d_in.size(); ++i) {
        EXPECT_TRUE(close(expected.d_in[i], found.d_in[i], tolerance)) << where << ", gradient " << i;
        EXPECT_TRUE(same(found.d_in[i], again.d_in[i])) << where << ", gradient " << i << ", two threads";
      }
    }
  }
}

/// bf16: one unit in the last place, where fp32 sums in another order fall on the other side of a tie.
/// f32: sums of some thousand terms in another order.
inline double stream_tolerance(Dtype X) { return X == Dtype::bf16 ? 0x1p-8 : 4e-6; }

}  // namespace heddle::op_runner
