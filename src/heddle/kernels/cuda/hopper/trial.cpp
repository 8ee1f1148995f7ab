// Tries the kernels on Hopper's own instructions on the device in use: each against the kernel that every device
// has, on the same operands, before the first step. A kernel that differs is left out, with the reason.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <set>

#include "heddle/base/random.h"
#include "heddle/device/cuda/cuda_check.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/fp8.h"
#include "heddle/kernels/cuda/hopper/processors.h"
#include "heddle/kernels/cuda/products/grouped.h"
#include "heddle/ops/ops.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int64_t kExperts = 4, kIn = 192, kOut = 320;
/// Rows of experts: more than a tile, none, a tile and some, a few.
constexpr int32_t kFirst[kExperts + 1] = {0, 131, 131, 401, 413};
constexpr int64_t kRows = kFirst[kExperts];
constexpr int64_t kScratchBytes = int64_t{64} << 20;

/// Memory of the device; its bytes are 0xff until something is written, which is no number in bf16 or f32.
class Memory {
 public:
  explicit Memory(int64_t bytes) {
    device::check_cuda(cudaMalloc(&at_, static_cast<size_t>(bytes)), "memory for a trial");
    device::check_cuda(cudaMemset(at_, 0xff, static_cast<size_t>(bytes)), "clearing memory");
  }
  ~Memory() { cudaFree(at_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* at() const { return static_cast<std::byte*>(at_); }

 private:
  void* at_ = nullptr;
};

struct Tensor {
  Tensor(Dtype dtype, std::initializer_list<int64_t> dims) {
    view.dtype = dtype;
    for (const int64_t dim : dims) view.dims[view.rank++] = dim;
    memory = std::make_unique<Memory>(view.elements() * size_of(dtype));
    view.data = memory->at();
  }
  /// Normal numbers in bf16.
  static Tensor normal(std::initializer_list<int64_t> dims, const char* name) {
    Tensor t(Dtype::bf16, dims);
    std::vector<bf16> values(static_cast<size_t>(t.view.elements()));
    const RandomKey key = RandomKey(73).with(name);
    for (size_t i = 0; i < values.size(); ++i) values[i] = bf16(static_cast<float>(key.normal(i)));
    device::check_cuda(cudaMemcpy(t.view.data, values.data(), values.size() * sizeof(bf16), cudaMemcpyHostToDevice),
                       "operands of a trial");
    return t;
  }
  std::vector<float> read() const {
    const auto count = static_cast<size_t>(view.elements());
    std::vector<std::byte> bytes(count * static_cast<size_t>(size_of(view.dtype)));
    device::check_cuda(cudaMemcpy(bytes.data(), view.data, bytes.size(), cudaMemcpyDeviceToHost),
                       "a trial's result");
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = view.dtype == Dtype::f32 ? reinterpret_cast<const float*>(bytes.data())[i]
                                           : static_cast<float>(reinterpret_cast<const bf16*>(bytes.data())[i]);
    }
    return values;
  }
  TensorView view;
  std::unique_ptr<Memory> memory;
};

/// Empty, or how far the results are apart. `most`: of the largest value.
std::string apart(const Tensor& expected, const Tensor& found, double most) {
  const std::vector<float> a = expected.read(), b = found.read();
  double largest = 0, off = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max<double>(largest, std::abs(a[i]));
    if (!(std::abs(a[i] - b[i]) <= off)) off = std::abs(a[i] - b[i]);
  }
  if (off <= most * largest) return "";
  return fmt::format("off by {:.1e} of the largest value, at most {:.1e}", off / largest, most);
}

/// Makes the call twice: without the kernel and with it.
template <class Call>
void both(HopperKernel kernel, const Call& call) {
  leave_out(kernel, "not used");
  call(false);
  leave_out(kernel, "");
  call(true);
}

template <bool backward>
std::string try_rows(const int32_t* first) {
  const int64_t in = backward ? kOut : kIn, out = backward ? kIn : kOut;
  const Tensor x = Tensor::normal({kRows, in}, "x"), w = Tensor::normal({kExperts, kOut, kIn}, "w");
  const Tensor own(Dtype::bf16, {kRows, out}), tried(Dtype::bf16, {kRows, out});
  both(HopperKernel::rows,
       [&](bool with) { rows_by<backward>(x.view, w.view, first, with ? tried.view : own.view, nullptr); });
  return apart(own, tried, 0x1p-7);
}

std::string try_sums(const int32_t* first) {
  const Tensor x = Tensor::normal({kRows, kIn}, "x"), dy = Tensor::normal({kRows, kOut}, "dy");
  const Tensor own(Dtype::f32, {kExperts, kOut, kIn}), tried(Dtype::f32, {kExperts, kOut, kIn});
  const Memory scratch(std::max<int64_t>(scratch_of_sums(kExperts), 1));
  for (const bool add : {false, true}) {
    both(HopperKernel::sums, [&](bool with) {
      sums_by_library(x.view, dy.view, first, with ? tried.view : own.view, add, scratch.at(), nullptr);
    });
  }
  return apart(own, tried, 0x1p-12);
}

/// The tensor cores keep sums of eight-bit products to some 14 bits (DeepSeek-V3, arXiv 2412.19437, section 3.3.2).
std::string try_eight_bits() {
  const int64_t blocks = (kIn + 127) / 128;
  const Tensor x = Tensor::normal({kRows, kIn}, "x"), w = Tensor::normal({kOut, kIn}, "w");
  const Tensor q(Dtype::u8, {kRows, kIn}), scales(Dtype::u8, {kRows, blocks});
  const Tensor own(Dtype::f32, {kRows, kOut}), tried(Dtype::f32, {kRows, kOut});
  const Memory scratch(kScratchBytes);
  fp8_round_rows(x.view, const_cast<uint8_t*>(q.view.as<const uint8_t>()),
                 const_cast<uint8_t*>(scales.view.as<const uint8_t>()), nullptr);
  ir::Op op;
  op.def = &ops::find("linear_fp8");
  KernelCall call;
  const TensorView in[] = {q.view, scales.view, w.view};
  call.op = &op;
  call.in = in;
  call.scratch = scratch.at();
  call.out = {&own.view, 1};
  fp8_widened(call, false, false);
  call.out = {&tried.view, 1};
  hopper_fp8_entries().front().run(call);
  return apart(own, tried, 0x1p-10);
}

}  // namespace

}  // namespace heddle::kernels::cuda

namespace heddle::kernels {

using cuda::HopperKernel;

void try_cuda_kernels() {
  static std::mutex mutex;
  static std::set<int> tried;
  int device = 0;
  device::check_cuda(cudaGetDevice(&device), "asking for the device");
  if (cuda::processors_of_hopper() == 0) return;
  {
    const std::lock_guard lock(mutex);
    if (!tried.insert(device).second) return;
  }
  const cuda::Memory offsets(sizeof(cuda::kFirst));
  device::check_cuda(cudaMemcpy(offsets.at(), cuda::kFirst, sizeof(cuda::kFirst), cudaMemcpyHostToDevice),
                     "operands of a trial");
  const auto* first = reinterpret_cast<const int32_t*>(offsets.at());
  const auto attempt = [](HopperKernel kernel, const auto& trial) {
    if (!cuda::wanted(kernel)) return;
    std::string found;
    try {
      found = trial();
    } catch (const std::exception& error) {
      found = error.what();
    }
    cuda::leave_out(kernel, std::move(found));
  };
  attempt(HopperKernel::rows, [&] {
    const std::string forward = cuda::try_rows<false>(first);
    return forward.empty() ? cuda::try_rows<true>(first) : forward;
  });
  attempt(HopperKernel::sums, [&] { return cuda::try_sums(first); });
  attempt(HopperKernel::eight_bits, [] { return cuda::try_eight_bits(); });
}

bool cuda_turns_weights() { return cuda::wanted(HopperKernel::eight_bits) && cuda::processors_of_hopper() > 0; }

std::string cuda_expert_kernels() {
  if (cuda::processors_of_hopper() == 0) return "own kernels";
  std::string text;
  const auto tell = [&](const char* name, HopperKernel kernel) {
    text += text.empty() ? "" : ", ";
    const std::string failure = cuda::failure_of(kernel);
    text += name;
    if (!cuda::wanted(kernel)) text += " left out by the environment";
    if (!failure.empty()) text += " left out: its trial is " + failure;
  };
  tell("wgmma", HopperKernel::rows);
  if (!cuda::cutlass_entries().empty()) tell("CUTLASS", HopperKernel::sums);
  tell("wgmma in eight bits", HopperKernel::eight_bits);
  return text;
}

}  // namespace heddle::kernels
