// Plans made with the headers of cuDNN's frontend (NVIDIA/cudnn-frontend, "Attention"), which build a graph of
// operations that the library then finds a kernel for.
//
// The frontend finds functions by name, those of cuDNN in the library that is opened here, and those of CUDA's
// runtime in one that it opens itself. This program has its runtime linked in: look-ups of that go to a table.
#include "heddle/kernels/cuda/cudnn/plan.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string_view>

#include "heddle/device/cuda/cuda_stream.h"
#include "heddle/device/device.h"
#include "heddle/kernels/cuda/cudnn/library.h"
#include "heddle/kernels/cuda/cudnn/runtime_table.h"

namespace {

char linked_in;  // its address stands for the runtime that is linked in

void* open_library(const char* name, int flags) {
  if (std::string_view(name) == "libcudart.so.12") return nullptr;  // the frontend would warn of two
  return std::string_view(name).starts_with("libcudart.so") ? &linked_in : dlopen(name, flags);
}

void* find_function(void* library, const char* name) {
  return library == &linked_in ? heddle::kernels::cuda::runtime_function(name) : dlsym(library, name);
}

}  // namespace

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define dlopen(name, flags) open_library(name, flags)
#define dlsym(library, name) find_function(library, name)
#include <cudnn_frontend.h>
#undef dlopen
#undef dlsym

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace heddle::kernels::cuda {

namespace {

namespace fe = cudnn_frontend;

enum Uid : int64_t { kQ = 1, kK, kV, kO, kStats, kDo, kDq, kDk, kDv };

void check(fe::error_t status, const char* doing) {
  if (status.is_bad()) throw SystemError(0, fmt::format("cuDNN: {}: {}", doing, status.get_message()));
}

/// The handle of a device, and who is using it: a handle has one stream at a time.
struct Handle {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  void* stream = nullptr;
};
struct Handles {
  std::mutex mutex;
  std::map<int, Handle> by_device;
};
Handles& all_handles() {
  static auto* handles = new Handles;  // the driver may be gone before what is static is
  return *handles;
}
int device_in_use() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) throw SystemError(0, "CUDA: no device is chosen");
  return device;
}
Handle& handle_of(int device) {
  static const bool told = (device::before_streams_end(forget_attention_stream), true);
  static_cast<void>(told);
  const std::lock_guard lock(all_handles().mutex);
  Handle& one = all_handles().by_device[device];
  if (one.handle == nullptr && fe::detail::create_handle(&one.handle) != CUDNN_STATUS_SUCCESS) {
    one.handle = nullptr;
    throw SystemError(0, "cuDNN: making a handle failed");
  }
  return one;
}

/// Rows of `heads` of `pitch` heads, each `width` wide; `rows` of every `sequence` rows.
fe::graph::Tensor_attributes rows_of(Uid uid, int64_t B, int64_t heads, int64_t rows, int64_t width, int64_t pitch,
                                     int64_t sequence) {
  return fe::graph::Tensor_attributes()
      .set_name("t" + std::to_string(uid))
      .set_uid(uid)
      .set_dim({B, heads, rows, width})
      .set_stride({sequence * pitch * width, width, pitch * width, 1});
}

class Graph : public AttentionPlan {
 public:
  /// For `device`. Capability: of the device that is described, or 0: that of `device`. An operation keeps what is
  /// set as it is added.
  Graph(const AttentionShape& s, int device, int capability) : device_(device) {
    if (capability > 0) graph_.set_sm_version(capability);
    // A captured graph need not keep the plan alive: plans live as long as the process. So no call asks whether its
    // stream is being captured.
    graph_.set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE);
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const auto queries = [&](Uid uid, int64_t width) {
      return rows_of(uid, s.B, s.h, s.Sq, width, s.q_heads, s.q_rows);
    };
    const auto keys = [&](Uid uid, int64_t width) {
      return rows_of(uid, s.B, s.hk, s.Sk, width, s.k_heads, s.k_rows);
    };
    const auto place = [](auto& output, const fe::graph::Tensor_attributes& as) {
      output->set_output(true).set_uid(as.get_uid()).set_dim(as.get_dim()).set_stride(as.get_stride());
    };
    const auto stats = fe::graph::Tensor_attributes()
                           .set_name("stats")
                           .set_uid(kStats)
                           .set_dim({s.B, s.h, s.Sq, 1})
                           .set_stride({s.h * s.Sq, s.Sq, 1, 1})
                           .set_data_type(fe::DataType_t::FLOAT);
    const auto with_mask = [&](auto options) {
      options.set_attn_scale(s.scale);
      if (s.causal) {
        options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
        if (s.window > 0) options.set_diagonal_band_left_bound(s.window);  // column + window > row
      }
      return options;
    };
    const auto q = graph_.tensor(queries(kQ, s.d)), k = graph_.tensor(keys(kK, s.d)),
               v = graph_.tensor(keys(kV, s.v));
    if (s.backward) {
      auto options = with_mask(fe::graph::SDPA_backward_attributes().set_name("attention_dgrad"));
      options.set_deterministic_algorithm(true);
      const auto o = graph_.tensor(queries(kO, s.v)), d_o = graph_.tensor(queries(kDo, s.v));
      auto [dq, dk, dv] = graph_.sdpa_backward(q, k, v, o, d_o, graph_.tensor(stats), options);
      place(dq, queries(kDq, s.d));
      place(dk, keys(kDk, s.d));
      place(dv, keys(kDv, s.v));
    } else {
      auto options = with_mask(fe::graph::SDPA_attributes().set_name("attention"));
      options.set_generate_stats(true);
      auto [o, lse] = graph_.sdpa(q, k, v, options);
      place(o, queries(kO, s.v));
      place(lse, stats);
      lse->set_data_type(fe::DataType_t::FLOAT);
    }
  }

  /// Null handle: for the device that is described. What it says is why it can't be.
  std::string make(cudnnHandle_t handle, const std::shared_ptr<const fe::DeviceProperties>& described) {
    if (described) graph_.set_device_properties(described);
    fe::error_t status = graph_.validate();
    if (status.is_good()) status = handle ? graph_.build_operation_graph(handle) : graph_.build_operation_graph();
    if (status.is_good()) status = graph_.create_execution_plans({fe::HeurMode_t::A});
    if (status.is_good()) status = graph_.check_support();
    if (status.is_good()) status = graph_.build_plans();
    if (status.is_good()) status = graph_.get_workspace_size(bytes_);
    // Its messages go on over many lines.
    return status.is_good() ? "" : status.get_message().substr(0, status.get_message().find('\n'));
  }

  int64_t workspace_bytes() const override { return bytes_; }

  void run(const AttentionCall& call, void* stream) const override {
    std::unordered_map<int64_t, void*> at{
        {kQ, call.q}, {kK, call.k}, {kV, call.v}, {kO, call.o}, {kStats, call.stats}};
    if (call.d_o != nullptr) at.insert({{kDo, call.d_o}, {kDq, call.dq}, {kDk, call.dk}, {kDv, call.dv}});
    Handle& handle = handle_of(device_);
    const std::lock_guard lock(handle.mutex);
    if (fe::detail::set_stream(handle.handle, static_cast<cudaStream_t>(stream)) != CUDNN_STATUS_SUCCESS) {
      throw SystemError(0, "cuDNN: choosing a stream failed");
    }
    handle.stream = stream;
    fe::error_t status;
    try {
      status = graph_.execute(handle.handle, at, call.workspace);
    } catch (const std::exception& error) {  // the frontend throws where it finds no function or no library
      throw SystemError(0, fmt::format("cuDNN: attention: {}", error.what()));
    }
    check(status, "attention");
  }

 private:
  int device_;
  fe::graph::Graph graph_;
  int64_t bytes_ = 0;
};

/// Turns an exception, of the frontend too, into a refusal.
template <class Make>
PlannedAttention plan(const AttentionShape& shape, int device, int capability, Make make) {
  try {
    const auto graph = std::make_shared<Graph>(shape, device, capability);
    std::string refusal = make(*graph);
    return refusal.empty() ? PlannedAttention{graph, ""} : PlannedAttention{nullptr, "cuDNN: " + refusal};
  } catch (const std::exception& error) {
    return {nullptr, fmt::format("cuDNN: {}", error.what())};
  }
}

bool open() {
  if (!cudnn_library().there) return false;
  fe::cudnn_dlhandle = cudnn_library().handle;
  return true;
}

}  // namespace

Support attention_library() {
  if (!open()) return Support::no(cudnn_library().text);
  return device::cuda_available();
}

void forget_attention_stream(void* stream) {
  const std::lock_guard lock(all_handles().mutex);
  for (auto& [device, one] : all_handles().by_device) {
    const std::lock_guard alone(one.mutex);
    if (one.stream != stream || stream == nullptr) continue;
    static_cast<void>(fe::detail::set_stream(one.handle, nullptr));
    one.stream = nullptr;
  }
}

int64_t most_score_bytes() { return int64_t{1} << 30; }

PlannedAttention plan_attention(const AttentionShape& shape) {
  static std::mutex mutex;
  static auto* plans = new std::map<std::pair<int, AttentionShape>, PlannedAttention>;  // as the handles
  if (!open()) return {nullptr, cudnn_library().text};
  const int device = device_in_use();
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = plans->try_emplace({device, shape});
  if (fresh) {
    at->second = plan(shape, device, 0, [&](Graph& graph) {
      Handle& handle = handle_of(device);
      const std::lock_guard alone(handle.mutex);
      return graph.make(handle.handle, nullptr);
    });
  }
  return at->second;
}

PlannedAttention plan_attention_for(const AttentionShape& shape, std::string_view device_json, int capability) {
  if (!open()) return {nullptr, cudnn_library().text};
  return plan(shape, 0, capability, [&](Graph& graph) -> std::string {
    auto described = std::make_shared<fe::DeviceProperties>();
    auto status = described->deserialize({device_json.begin(), device_json.end()});
    return status.is_bad() ? status.get_message() : graph.make(nullptr, described);
  });
}

}  // namespace heddle::kernels::cuda
