// One op of a backend, timed in turn with a copy of as many bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/device/device.h"
#include "heddle/ir/listing.h"
#include "heddle/kernels/registry.h"

namespace heddle::bench {

struct OpTime {
  std::string name, kind, kernel;
  double seconds = 0, flops = 0;
  /// That must move: every operand once, updates twice.
  double bytes = 0;
  /// Of a plain copy's time for as many bytes, the median of pairs.
  double share_of_copy = 0;
  /// Empty, or why the backend does not take it.
  std::string refused;

  /// Whether products outweigh what is moved, so that TFLOP/s says more than bytes a second.
  bool multiplies() const { return flops > 100 * bytes; }
};

struct OpOperand {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape = {};  // empty: absent
  std::vector<int32_t> integers = {};
};

struct OpToTime {
  std::string name, kind;
  std::vector<OpOperand> in;
  ir::Attributes attributes = {};
  std::vector<OpOperand> updates = {};
  ir::Phase phase = ir::Phase::F;
};

/// Operands lie in one arena, in random numbers (zeros are faster than what a run sees).
class OpBench {
 public:
  /// `backend`: "cuda" or "host".
  OpBench(std::string backend, int repeats);
  OpTime time(const OpToTime& op);

 private:
  struct Laid;
  void fill(Laid& laid, ir::ValueId id, const OpOperand& operand);

  std::string backend_;
  int repeats_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Arena> arena_;
};

/// Sizes of DeepSeek-V2-Lite.
struct V2LiteSizes {
  int64_t tokens = 8192;
  int64_t hidden = 2048, expert = 1408, heads = 16, experts = 64, chosen = 6, vocabulary = 102400;
  int64_t updated = int64_t{1} << 26;  // weights of one update
};
/// The ops of its layer, head and update, sequences of 4096 at most.
std::vector<OpToTime> v2_lite_ops(const V2LiteSizes& sizes);

}  // namespace heddle::bench
