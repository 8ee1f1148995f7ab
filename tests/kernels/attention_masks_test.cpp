// Attention in windows, within documents and with sinks: the reference against the definition, written out with a
// dense mask; the host's kernels against the reference in fp64, blocks wholly out of sight among theirs.
#include <omp.h>

#include <limits>

#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

struct Mask {
  int64_t sequences, length, heads, kv_heads, head_dim, value_dim, window;
  bool documents, sinks;
  double cap = 0;
};
void PrintTo(const Mask& m, std::ostream* to) {
  *to << fmt::format("{}x{} heads {}/{} dims {}/{} window {}{}{} cap {}", m.sequences, m.length, m.heads,
                     m.kv_heads, m.head_dim, m.value_dim, m.window, m.documents ? " documents" : "",
                     m.sinks ? " sinks" : "", m.cap);
}

OpCase case_of_attention_masks(const Mask& m, Dtype X) {
  const int64_t T = m.sequences * m.length;
  OpCase op{"attention",
            "attention",
            {activation(random_tensor(X, {T, m.heads * m.head_dim}, 1)),
             activation(random_tensor(X, {T, m.kv_heads * m.head_dim}, 2)),
             activation(random_tensor(X, {T, m.kv_heads * m.value_dim}, 3)),
             m.documents ? Operand{document_starts(m.sequences, m.length), Role::input} : absent(),
             m.sinks ? weight(random_tensor(wide(X), {m.heads}, 4, 2)) : absent()},
            {{"heads", m.heads},
             {"kv_heads", m.kv_heads},
             {"head_dim", m.head_dim},
             {"value_dim", m.value_dim},
             {"sequence", m.length},
             {"causal", 1},
             {"scale", static_cast<float>(0.9 / std::sqrt(static_cast<double>(m.head_dim)))},
             {"window", m.window}},
            {}};
  if (m.cap > 0) op.attributes.set("cap", m.cap);
  return op;
}

// softmax over all positions of a sequence and the sink, of scores that are −∞ where the mask says so.
std::vector<double> define_attention_masks(const Mask& m, const OpCase& op) {
  const int64_t S = m.length, group = m.heads / m.kv_heads;
  const auto& q = op.in[0].tensor.values;
  const auto& k = op.in[1].tensor.values;
  const auto& v = op.in[2].tensor.values;
  std::vector<double> o(static_cast<size_t>(m.sequences * S * m.heads * m.value_dim));
  for (int64_t b = 0; b < m.sequences; ++b) {
    for (int64_t h = 0; h < m.heads; ++h) {
      for (int64_t i = 0; i < S; ++i) {
        const int64_t query = (b * S + i) * m.heads + h;
        const auto key = [&](int64_t j) { return (b * S + j) * m.kv_heads + h / group; };
        std::vector<double> p(static_cast<size_t>(S) + 1, -std::numeric_limits<double>::infinity());
        for (int64_t j = 0; j < S; ++j) {
          const bool later = j > i, outside = m.window > 0 && i - j >= m.window;
          const bool other =
              m.documents && op.in[3].tensor.values[static_cast<size_t>(b * S + i)] > static_cast<double>(j);
          if (later || outside || other) continue;
          double dot = 0;
          for (int64_t c = 0; c < m.head_dim; ++c) {
            dot += q[static_cast<size_t>(query * m.head_dim + c)] * k[static_cast<size_t>(key(j) * m.head_dim + c)];
          }
          const double score = dot * op.attributes.number("scale");
          p[static_cast<size_t>(j)] = m.cap > 0 ? m.cap * std::tanh(score / m.cap) : score;
        }
        if (m.sinks) p.back() = op.in[4].tensor.values[static_cast<size_t>(h)];
        const double most = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& x : p) sum += x = std::exp(x - most);
        for (int64_t j = 0; j < S; ++j) {
          for (int64_t c = 0; c < m.value_dim; ++c) {
            o[static_cast<size_t>(query * m.value_dim + c)] +=
                p[static_cast<size_t>(j)] / sum * v[static_cast<size_t>(key(j) * m.value_dim + c)];
          }
        }
      }
    }
  }
  return o;
}

const std::vector<Mask> kMasks{
    {2, 7, 4, 2, 5, 6, 1, false, false},         {2, 70, 4, 2, 40, 24, 9, false, false},
    {1, 300, 2, 1, 48, 32, 64, false, false},    {1, 450, 2, 2, 33, 17, 129, false, false},
    {3, 130, 4, 2, 48, 32, 0, true, false},      {1, 500, 2, 1, 16, 16, 0, true, false},
    {2, 65, 4, 1, 24, 50, 0, false, true},       {1, 161, 2, 1, 192, 128, 40, true, true},
    {3, 300, 4, 2, 64, 64, 100, true, true},     {1, 600, 2, 1, 32, 32, 32, true, true},
    {2, 70, 4, 2, 40, 24, 0, false, false, 0.5}, {3, 300, 4, 2, 64, 64, 100, true, true, 1}};

double distance(const std::vector<double>& found, const std::vector<double>& wanted) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    error += (found[i] - wanted[i]) * (found[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(norm == 0 ? error : error / norm);
}

TEST(AttentionMasks, ReferenceIsTheDefinition) {
  for (const Mask& m : kMasks) {
    const OpCase op = case_of_attention_masks(m, Dtype::f64);
    EXPECT_LT(distance(run_op(op, kernels::reference_kernels()).out[0].values, define_attention_masks(m, op)),
              1e-13)
        << testing::PrintToString(m);
  }
}

/// The host's kernels of one name, with the reference's where they have none.
std::vector<kernels::KernelEntry> kernels_named(std::string_view name) {
  std::vector<kernels::KernelEntry> list;
  for (const kernels::KernelEntry& entry : kernels::host_kernels()) {
    if (entry.name == name && entry.op_kind.starts_with("attention")) list.push_back(entry);
  }
  for (const kernels::KernelEntry& entry : kernels::reference_kernels()) {
    if (entry.op_kind == "attention_sinks_wgrad") list.push_back(entry);
  }
  return list;
}

std::vector<std::string_view> ways(Dtype X, const Mask& mask = kMasks[0]) {
  const OpCase op = case_of_attention_masks(mask, X);
  ListingRunner probe(kernels::reference_kernels());
  std::vector<ValueId> in;
  for (const Operand& each : op.in) in.push_back(probe.add(each.tensor, each.role, fmt::format("in{}", in.size())));
  probe.append("attention", in, op.attributes);
  std::vector<std::string_view> names;
  for (const kernels::KernelEntry& entry : kernels::host_kernels()) {
    if (entry.op_kind == "attention" && entry.supports(probe.listing, probe.listing.ops.back())) {
      names.push_back(entry.name);
    }
  }
  return names;
}

class AttentionMasksOnHost : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, AttentionMasksOnHost, testing::Values(Dtype::f32, Dtype::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(AttentionMasksOnHost, AgreesWithReference) {
  const Dtype X = GetParam();
  const double most = X == Dtype::f32 ? 1e-5 : 1.2e-2;
  const int team = omp_get_max_threads();
  for (const Mask& m : kMasks) {
    for (const std::string_view way : ways(X, m)) {
      SCOPED_TRACE(fmt::format("{} {}", way, testing::PrintToString(m)));
      const GradientResult wanted =
          run_with_gradient(case_of_attention_masks(m, Dtype::f64), kernels::reference_kernels());
      GradientResult first;
      for (const int threads : {1, 2}) {
        omp_set_num_threads(threads);
        const GradientResult found = run_with_gradient(case_of_attention_masks(m, X), kernels_named(way));
        for (size_t i = 0; i < wanted.out.size(); ++i) {
          EXPECT_LT(distance(found.out[i].values, wanted.out[i].values), most) << "output " << i;
        }
        // One key to see: dq and dk vanish but for the rounding of o.
        for (size_t i = m.window == 1 ? 2 : 0; i < wanted.d_in.size(); ++i) {
          if (!wanted.d_in[i].present) continue;
          EXPECT_LT(distance(found.d_in[i].values, wanted.d_in[i].values), most) << "gradient " << i;
        }
        if (threads == 1) first = found;
        for (size_t i = 0; i < first.d_in.size(); ++i) {
          EXPECT_EQ(first.d_in[i].values, found.d_in[i].values) << "gradient " << i << " on two threads";
        }
        EXPECT_EQ(first.out[0].values, found.out[0].values) << "on two threads";
      }
    }
  }
  omp_set_num_threads(team);
}

// What a query does not see must not touch it, not even by a rounding.
TEST_P(AttentionMasksOnHost, EarlierKeysAreUnseen) {
  const Dtype X = GetParam();
  const Mask m{1, 300, 2, 1, 48, 32, 50, false, false};
  for (const std::string_view way : ways(X)) {
    OpCase op = case_of_attention_masks(m, X);
    const Tensor plain = run_op(op, kernels_named(way)).out[0];
    constexpr int64_t kTo = 77, kFree = kTo + 50 - 1;
    for (int64_t i = 0; i < kTo * m.head_dim; ++i) op.in[1].tensor.values[static_cast<size_t>(i)] = 30;
    for (int64_t i = 0; i < kTo * m.value_dim; ++i) op.in[2].tensor.values[static_cast<size_t>(i)] = 1e30;
    const Tensor other = run_op(op, kernels_named(way)).out[0];
    const auto width = static_cast<size_t>(m.heads * m.value_dim);
    for (size_t i = kFree * width; i < plain.values.size(); ++i) {
      ASSERT_EQ(plain.values[i], other.values[i]) << way << " row " << i / width;
    }
    EXPECT_NE(plain.values[(kFree - 1) * width], other.values[(kFree - 1) * width]) << way;
  }
}

double flops(const ir::Attributes& attributes, const char* kind) {
  ir::Listing listing;
  const auto add = [&](const char* name, int64_t rows, int64_t columns, Dtype X = Dtype::f32) {
    return listing.add_value({.name = name, .dtype = X, .shape = {{rows, ir::none}, {columns, ir::none}}});
  };
  const int64_t rows = attributes.integer("sequence") / attributes.integer_or("cp", 1);
  const bool part = std::string_view(kind) == "attention_part";
  ir::Op op;
  op.def = &ops::find(kind);
  op.in = {add("q", rows, 1), add("k", part ? rows : attributes.integer("sequence"), 1),
           add("v", part ? rows : attributes.integer("sequence"), 1)};
  op.attributes = attributes;
  listing.append(op, {"o", "lse"});
  return op.def->cost(listing, listing.ops.back(), ir::FixedRows(0)).flops;
}

// Multiply-adds of what is seen, counted one by one; of a ring, over all ranks.
TEST(AttentionMasks, FlopsAreOfWhatIsSeen) {
  for (const int64_t S : {24, 48}) {
    for (const int64_t window : {1, 5, 8, 24, 47, 100}) {
      double pairs = 0;
      for (int64_t i = 0; i < S; ++i) pairs += static_cast<double>(std::min(i + 1, window));
      ir::Attributes a{{"heads", 1},    {"kv_heads", 1}, {"head_dim", 1}, {"value_dim", 1},
                       {"sequence", S}, {"causal", 1},   {"scale", 1.0},  {"window", window}};
      EXPECT_NEAR(flops(a, "attention"), 4 * pairs, 1e-9) << S << " window " << window;
      for (const int64_t cp : {1, 2, 3, 4}) {
        a.set("cp", cp);
        for (const int64_t inner : {1, 2}) {
          if (cp % inner != 0) continue;
          double sum = 0;
          for (int64_t turn = 0; turn < cp; ++turn) {
            ir::Attributes part = a;
            part.set("turn", turn).set("inner", inner);
            sum += static_cast<double>(cp) * flops(part, "attention_part");
          }
          EXPECT_NEAR(sum, 4 * pairs, 1e-9) << S << " window " << window << " cp " << cp << " inner " << inner;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
