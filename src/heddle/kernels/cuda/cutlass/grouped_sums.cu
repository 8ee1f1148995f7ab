#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/dispatch_policy.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "heddle/kernels/cuda/cutlass/grouped_sums.h"

namespace heddle::kernels::cuda {

namespace {

// The first operand is dy_eᵀ, whose columns lie one behind the other; the second x_e and the sum lie by rows.
using Number = cutlass::bfloat16_t;
using DyLayout = cutlass::layout::ColumnMajor;
using XLayout = cutlass::layout::RowMajor;
using SumLayout = cutlass::layout::RowMajor;
// Tiles of two groups of warps in turn: one adds its sums to memory while the other multiplies.
using Block = cute::Shape<cute::_64, cute::_256, cute::_64>;
using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
using Problem = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
constexpr int kSumAlignment = kGroupedSumsAlignment / sizeof(float);

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Block, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, float, SumLayout*, kSumAlignment, float,
    SumLayout*, kSumAlignment, cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong,
    cutlass::epilogue::fusion::LinearCombination<float, float>>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Number, DyLayout*, kGroupedSumsColumns, Number, XLayout*,
    kGroupedSumsColumns, float, Block, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(Epilogue::SharedStorage))>,
    cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

// The kernel reads exactly the form that sum_operands writes: of a stride one number is not known to the compiler.
static_assert(sizeof(Problem::UnderlyingProblemShape) == 3 * sizeof(int32_t));
static_assert(sizeof(Kernel::InternalStrideA) == sizeof(int64_t) &&
              sizeof(Kernel::InternalStrideB) == sizeof(int64_t));
static_assert(sizeof(Kernel::InternalStrideC) == sizeof(int64_t) &&
              sizeof(Kernel::InternalStrideD) == sizeof(int64_t));
static_assert(cute::is_same_v<Kernel::InternalStrideA, cute::Stride<cute::_1, int64_t, cute::_0>>);
static_assert(cute::is_same_v<Kernel::InternalStrideB, cute::Stride<cute::_1, int64_t, cute::_0>>);
static_assert(cute::is_same_v<Kernel::InternalStrideC, cute::Stride<int64_t, cute::_1, cute::_0>>);

template <class To, class From>
To* as(From* from) {
  return reinterpret_cast<To*>(from);
}

}  // namespace

const char* grouped_sums_by_cutlass(const SumArrays& arrays, int64_t groups, bool add, int device, int processors,
                                    void* workspace, int64_t workspace_bytes, void* stream) {
  cutlass::KernelHardwareInfo hardware;
  hardware.device_id = device;
  hardware.sm_count = processors;
  Gemm::Arguments args{cutlass::gemm::GemmUniversalMode::kGrouped,
                       {static_cast<int>(groups), as<Problem::UnderlyingProblemShape>(arrays.sizes), nullptr},
                       {as<const Number*>(arrays.dy), as<Kernel::InternalStrideA>(arrays.dy_pitch),
                        as<const Number*>(arrays.x), as<Kernel::InternalStrideB>(arrays.x_pitch)},
                       {{},
                        const_cast<const float**>(arrays.acc),
                        as<Kernel::InternalStrideC>(arrays.acc_pitch),
                        arrays.acc,
                        as<Kernel::InternalStrideD>(arrays.acc_pitch)},
                       hardware};
  auto& sums = args.epilogue.thread;
  sums.alpha = 1;
  sums.beta = add ? 1.0f : 0.0f;
  sums.alpha_ptr = sums.beta_ptr = nullptr;
  sums.alpha_ptr_array = sums.beta_ptr_array = nullptr;
  sums.dAlpha = {cute::_0{}, cute::_0{}, 0};
  sums.dBeta = {cute::_0{}, cute::_0{}, 0};
  if (static_cast<int64_t>(Gemm::get_workspace_size(args)) > workspace_bytes)
    return "more workspace than predicted";
  Gemm gemm;
  auto* const on = static_cast<cudaStream_t>(stream);
  if (gemm.can_implement(args) != cutlass::Status::kSuccess) return "a product that it does not take";
  if (gemm.initialize(args, workspace, on) != cutlass::Status::kSuccess) return "no room in shared memory";
  return gemm.run(on) == cutlass::Status::kSuccess ? nullptr : "a launch that was refused";
}

}  // namespace heddle::kernels::cuda
