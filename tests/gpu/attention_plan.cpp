#include "tests/gpu/attention_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "heddle/base/dtype.h"
#include "heddle/kernels/registry.h"
#include "tests/gpu/device_memory.h"

namespace heddle {

plans::Plans& plans::plans() {
  static Plans one;
  return one;
}

namespace kernels::cuda {

namespace {

constexpr int64_t kWorkspace = 1000;

/// A tensor [B, heads, rows, width] as the shape says that it lies.
struct Rows {
  void* at;
  int64_t width, pitch, sequence;  // numbers of a head, of a row, of a sequence
  bf16& of(int64_t b, int64_t head, int64_t row, int64_t i) const {
    return static_cast<bf16*>(at)[b * sequence + row * pitch + head * width + i];
  }
  double read(int64_t b, int64_t head, int64_t row, int64_t i) const {
    return static_cast<float>(of(b, head, row, i));
  }
  void write(int64_t b, int64_t head, int64_t row, int64_t i, double x) const {
    of(b, head, row, i) = bf16(static_cast<float>(x));
  }
};

class Loops : public AttentionPlan {
 public:
  explicit Loops(const AttentionShape& shape) : s_(shape) {}
  int64_t workspace_bytes() const override { return kWorkspace; }

  void run(const AttentionCall& call, void*) const override {
    for (const void* at : {call.q, call.k, call.v, call.o, call.d_o, call.dq, call.dk, call.dv}) {
      HEDDLE_CHECK(reinterpret_cast<uintptr_t>(at) % 16 == 0, "an operand that is not aligned");
    }
    HEDDLE_CHECK(reinterpret_cast<uintptr_t>(call.workspace) % 256 == 0, "a workspace that is not aligned");
    const test::OnDevice here;
    std::memset(call.workspace, 0xff, kWorkspace);
    plans::plans().ran.push_back(s_);
    s_.backward ? gradient(call) : forward(call);
  }

 private:
  Rows queries(void* at, int64_t width) const {
    return {at, width, s_.q_heads * width, s_.q_rows * s_.q_heads * width};
  }
  Rows keys(void* at, int64_t width) const {
    return {at, width, s_.k_heads * width, s_.k_rows * s_.k_heads * width};
  }
  float& stats(const AttentionCall& call, int64_t b, int64_t head, int64_t row) const {
    return static_cast<float*>(call.stats)[(b * s_.h + head) * s_.Sq + row];
  }
  int64_t seen(int64_t row) const { return s_.causal ? row + 1 : s_.Sk; }
  int64_t first(int64_t row) const { return s_.window > 0 ? std::max<int64_t>(0, row + 1 - s_.window) : 0; }
  double score(const AttentionCall& call, int64_t b, int64_t head, int64_t row, int64_t key) const {
    double sum = 0;
    for (int64_t i = 0; i < s_.d; ++i) {
      sum +=
          queries(call.q, s_.d).read(b, head, row, i) * keys(call.k, s_.d).read(b, head / (s_.h / s_.hk), key, i);
    }
    return sum * s_.scale;
  }
  template <class Body>
  void each_row(Body body) const {
    for (int64_t b = 0; b < s_.B; ++b) {
      for (int64_t head = 0; head < s_.h; ++head) {
        for (int64_t row = 0; row < s_.Sq; ++row) body(b, head, row);
      }
    }
  }

  void forward(const AttentionCall& call) const {
    each_row([&](int64_t b, int64_t head, int64_t row) {
      double most = -INFINITY, sum = 0;
      for (int64_t key = first(row); key < seen(row); ++key) most = std::max(most, score(call, b, head, row, key));
      std::vector<double> o(static_cast<size_t>(s_.v), 0);
      for (int64_t key = first(row); key < seen(row); ++key) {
        const double p = std::exp(score(call, b, head, row, key) - most);
        sum += p;
        for (int64_t i = 0; i < s_.v; ++i) {
          o[static_cast<size_t>(i)] += p * keys(call.v, s_.v).read(b, head / (s_.h / s_.hk), key, i);
        }
      }
      for (int64_t i = 0; i < s_.v; ++i) {
        queries(call.o, s_.v).write(b, head, row, i, o[static_cast<size_t>(i)] / sum);
      }
      stats(call, b, head, row) = static_cast<float>(most + std::log(sum));
    });
  }

  void gradient(const AttentionCall& call) const {
    const auto size = [](int64_t a, int64_t b, int64_t c) { return static_cast<size_t>(a * b * c); };
    std::vector<double> dk(size(s_.B * s_.hk, s_.Sk, s_.d)), dv(size(s_.B * s_.hk, s_.Sk, s_.v));
    each_row([&](int64_t b, int64_t head, int64_t row) {
      const int64_t kv = head / (s_.h / s_.hk);
      double delta = 0;
      for (int64_t i = 0; i < s_.v; ++i) {
        delta += queries(call.d_o, s_.v).read(b, head, row, i) * queries(call.o, s_.v).read(b, head, row, i);
      }
      std::vector<double> dq(static_cast<size_t>(s_.d), 0);
      for (int64_t key = first(row); key < seen(row); ++key) {
        const double p = std::exp(score(call, b, head, row, key) - stats(call, b, head, row));
        const int64_t at = (b * s_.hk + kv) * s_.Sk + key;
        double dp = 0;
        for (int64_t i = 0; i < s_.v; ++i) {
          const double d_o = queries(call.d_o, s_.v).read(b, head, row, i);
          dp += d_o * keys(call.v, s_.v).read(b, kv, key, i);
          dv[static_cast<size_t>(at * s_.v + i)] += p * d_o;
        }
        const double ds = p * (dp - delta) * s_.scale;
        for (int64_t i = 0; i < s_.d; ++i) {
          dq[static_cast<size_t>(i)] += ds * keys(call.k, s_.d).read(b, kv, key, i);
          dk[static_cast<size_t>(at * s_.d + i)] += ds * queries(call.q, s_.d).read(b, head, row, i);
        }
      }
      for (int64_t i = 0; i < s_.d; ++i) queries(call.dq, s_.d).write(b, head, row, i, dq[static_cast<size_t>(i)]);
    });
    for (int64_t b = 0; b < s_.B; ++b) {
      for (int64_t kv = 0; kv < s_.hk; ++kv) {
        for (int64_t key = 0; key < s_.Sk; ++key) {
          const int64_t at = (b * s_.hk + kv) * s_.Sk + key;
          for (int64_t i = 0; i < s_.d; ++i) {
            keys(call.dk, s_.d).write(b, kv, key, i, dk[static_cast<size_t>(at * s_.d + i)]);
          }
          for (int64_t i = 0; i < s_.v; ++i) {
            keys(call.dv, s_.v).write(b, kv, key, i, dv[static_cast<size_t>(at * s_.v + i)]);
          }
        }
      }
    }
  }

  AttentionShape s_;
};

}  // namespace

Support attention_library() {
  return plans::plans().wanted ? Support::yes() : Support::no("this test goes without a library");
}
PlannedAttention plan_attention(const AttentionShape& shape) { return {std::make_shared<Loops>(shape), ""}; }
int64_t most_score_bytes() { return plans::plans().most_score_bytes; }

}  // namespace kernels::cuda

kernels::VendorLibrary kernels::cuda_attention_library() { return {false, "the tests' own"}; }

}  // namespace heddle
