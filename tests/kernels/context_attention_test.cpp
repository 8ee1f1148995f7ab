// Attention whose sequences are cut among ranks of cp, rank after rank, against the same sequences on one rank:
// outputs, and gradients of q, k and v. With all keys at once (`attention`), and by parts as keys come round the
// ring, or inner rings one after another. A rank's bits are the same on one thread and on two.
#include "tests/kernels/context_attention.h"

#include <omp.h>

#include <map>

namespace heddle::op_runner {
namespace {

using namespace context;

const std::vector<Shape> kSmall{{1, 2, 12, 2, 1, 5, 4},
                                {2, 2, 12, 2, 2, 5, 4},
                                {3, 1, 12, 2, 1, 5, 4},
                                {4, 2, 24, 3, 3, 4, 6},
                                {2, 2, 12, 2, 1, 5, 4, false},
                                {1, 2, 12, 2, 1, 5, 4, true, 3},
                                {2, 2, 12, 2, 1, 5, 4, true, 4, false, true},
                                {3, 2, 12, 2, 1, 5, 4, true, 1, true},
                                {4, 2, 24, 3, 3, 4, 6, true, 9, true, true},
                                {2, 2, 16, 2, 1, 5, 4, true, 0, false, false, 0.3},
                                {3, 1, 24, 2, 1, 5, 4, true, 9, true, true, 0.5},
                                {4, 2, 24, 3, 3, 4, 6, true, 0, false, false, 0, 2},
                                {6, 1, 24, 2, 1, 5, 4, true, 9, true, true, 0.5, 3},
                                {6, 1, 24, 2, 1, 5, 4, true, 5, false, true, 0, 2}};

TEST(ContextAttention, GatheredKeysOnReference) {
  for (const Shape& s : kSmall) check_gathered(s, Dtype::f64, kernels::reference_kernels(), 1e-12, "reference");
}

// Chunks of one and of several blocks of the kernels; of the heads of DeepSeek-V3; that are no multiple of 128.
const std::vector<Shape> kBlocks{{1, 1, 256, 2, 1, 40, 32},
                                 {2, 2, 512, 2, 1, 40, 32},
                                 {2, 1, 1024, 2, 2, 24, 48},
                                 {3, 1, 768, 4, 2, 16, 16},
                                 {2, 1, 512, 2, 1, 40, 32, false},
                                 {2, 1, 512, 2, 1, 40, 32, true, 100},
                                 {2, 1, 1024, 2, 2, 24, 48, true, 300, false, true},
                                 {2, 2, 512, 2, 1, 40, 32, true, 0, true},
                                 {3, 2, 768, 4, 2, 16, 16, true, 33, true, true},
                                 {4, 1, 1024, 1, 1, 192, 128},
                                 {4, 1, 512, 2, 2, 24, 16, true, 70, true, true},
                                 {2, 1, 768, 2, 1, 40, 32, true, 0, false, false, 0.3},
                                 {3, 2, 384, 4, 2, 16, 16, true, 33, true, true, 0.5},
                                 {4, 1, 1024, 2, 1, 40, 32, true, 0, false, false, 0, 2},
                                 {6, 1, 768, 2, 1, 24, 16, true, 200, true, true, 0, 3}};

/// The host's kernels by name, those of them that take the type here; each with what ends a ring.
std::map<std::string_view, std::vector<kernels::KernelEntry>> ways_context_attention(Dtype X) {
  ListingRunner probe(kernels::reference_kernels());
  const auto tensor = [&](const char* as) {
    return probe.add(random_tensor(X, {64, 32}, 1), Role::activation, as);
  };
  probe.append("attention", {tensor("q"), tensor("k"), tensor("v")}, attributes_of({1, 1, 64, 1, 1, 32, 32}));
  std::map<std::string_view, std::vector<kernels::KernelEntry>> found;
  for (const kernels::KernelEntry& entry : kernels::host_kernels()) {
    if (entry.op_kind == "attention" && entry.supports(probe.listing, probe.listing.ops.back())) found[entry.name];
  }
  for (auto& [name, kernels] : found) {
    for (const kernels::KernelEntry& entry : kernels::host_kernels()) {
      const bool own = entry.name == name && entry.op_kind.starts_with("attention");
      if (own || entry.op_kind == "attention_finish") kernels.push_back(entry);
    }
    for (const kernels::KernelEntry& entry : kernels::reference_kernels()) {
      if (entry.op_kind == "attention_sinks_wgrad") kernels.push_back(entry);
    }
  }
  return found;
}

using Check = decltype(&check_gathered);
void check_on_host(Dtype X, double tolerance, Check check) {
  const int team = omp_get_max_threads();
  for (const auto& [name, kernels] : ways_context_attention(X)) {
    SCOPED_TRACE(name);
    int ran = 0;
    for (const Shape& s : kBlocks) {
      if (s.rate > 0 && !name.starts_with("highway")) continue;         // the others drop nothing
      if (name == "amx" && s.length % (2 * s.cp * 128) != 0) continue;  // its blocks
      ++ran;
      SCOPED_TRACE(fmt::format("cp {}, {} × {}, rate {}", s.cp, s.sequences, s.length, s.rate));
      std::vector<Tensor> of_one;
      for (const int threads : {1, 2}) {
        omp_set_num_threads(threads);
        const std::vector<Tensor> found = check(s, X, kernels, tolerance, fmt::format("host.{}", name));
        if (threads == 1) of_one = found;
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_EQ(of_one[i].values, found[i].values) << threads << " threads";
      }
    }
    EXPECT_GE(ran, 10);
  }
  omp_set_num_threads(team);
}

TEST(ContextAttention, GatheredKeysInFp32) { check_on_host(Dtype::f32, 1e-5, check_gathered); }
TEST(ContextAttention, GatheredKeysInBf16) { check_on_host(Dtype::bf16, 1e-2, check_gathered); }
TEST(ContextAttention, RingInFp32) { check_on_host(Dtype::f32, 1e-5, check_ring); }
// In a narrow window few terms share an error: of dq up to six roundings of an element that is a third of the
// largest.
TEST(ContextAttention, RingInBf16) { check_on_host(Dtype::bf16, 1.5e-2, check_ring); }

TEST(ContextAttention, RingOnReference) {
  for (const Shape& s : kSmall) check_ring(s, Dtype::f64, kernels::reference_kernels(), 1e-12, "reference");
}

}  // namespace
}  // namespace heddle::op_runner
