// Attention by cuDNN: what a call looks like, and plans of such calls, each made once and remembered.
//
// B sequences, h query heads, hk key heads, Sq query rows and Sk key rows of each that meet, d head dim, v value
// dim. All tensors but the statistics lie as this project has them, [rows, heads·width] in bf16. A call may take
// some of the heads and rows of such a tensor, whose own sizes are its pitches.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "heddle/base/error.h"

namespace heddle::kernels::cuda {

struct AttentionShape {
  int64_t B = 0, h = 0, hk = 0, Sq = 0, Sk = 0, d = 0, v = 0;
  int64_t q_heads = 0, k_heads = 0, q_rows = 0, k_rows = 0;  // of the tensors: heads of a row, rows of a sequence
  float scale = 0;
  bool causal = false;  // query i sees the keys up to i; Sq = Sk
  int64_t window = 0;   // and of these the last so many, its own among them; 0: all
  bool backward = false;
  auto operator<=>(const AttentionShape&) const = default;
};

/// Addresses on the device. Statistics are the log of the sum of exponentials of scaled scores, f32 [B, h, Sq];
/// they are written forward, read backward, as is o.
struct AttentionCall {
  void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *stats = nullptr;
  void *d_o = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;  // backward
  void* workspace = nullptr;                                         // 256-byte aligned, workspace_bytes() long
};

class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  virtual int64_t workspace_bytes() const = 0;
  /// Puts it on the stream. Gradients are summed in one order. SystemError where the library fails.
  virtual void run(const AttentionCall& call, void* stream) const = 0;
};

/// A plan, or why there is none.
struct PlannedAttention {
  std::shared_ptr<const AttentionPlan> plan;
  std::string refusal;
};

/// Says if there is a library to plan with, or why not: it is not wanted, not found, too old; there is no device.
Support attention_library();
/// The plan for the device in use, made at the first call.
PlannedAttention plan_attention(const AttentionShape& shape);
/// Takes a stream, which is about to end, from the handle that had it last: plans are made with the handle, and
/// would ask for the state of its stream.
void forget_attention_stream(void* stream);
/// Gradients in one order want room for the scores of the heads of a call: so many bytes at most.
int64_t most_score_bytes();

/// The plan for a device that need not be here, described as cuDNN does it
/// (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), of compute capability major·10 + minor. It can't be run.
PlannedAttention plan_attention_for(const AttentionShape& shape, std::string_view device_json, int capability);

}  // namespace heddle::kernels::cuda
