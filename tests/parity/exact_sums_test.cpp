// exact_sums: the same weights, bit for bit, after twenty steps on every layout of data, expert and pipeline ranks
// and with every exchange topology; and without it, other bits.
#include <gtest/gtest.h>

#include <cmath>

#include "heddle/base/random.h"
#include "heddle/config/exact_layout.h"
#include "heddle/kernels/exact_grid.h"
#include "tests/parity/exact_run.h"

namespace heddle::parity {
namespace {

struct Layout {
  plan::Degrees mesh;
  std::string topology = "plain";
  std::vector<int> node_of;
  std::string schedule = "1f1b";
  std::string layout = "even";
};

const std::vector<Layout> kLayouts{{{.dp = 2}},
                                   {{.dp = 4}},
                                   {{.dp = 8}},
                                   {{.dp = 2, .ep = 2}},
                                   {{.dp = 4, .ep = 2}, "rank"},
                                   {{.dp = 4, .ep = 4, .expert_order = "edp-ep-etp"}, "node", {0, 0, 1, 1}},
                                   {{.dp = 8, .ep = 8}, "auto", {0, 0, 0, 0, 1, 1, 1, 1}},
                                   {{.dp = 8, .ep = 8}, "merge", {0, 0, 1, 1, 2, 2, 3, 3}},
                                   {{.pp = 3}},
                                   {{.dp = 2, .pp = 2, .ep = 2}, "node", {0, 1, 0, 1}},
                                   {{.dp = 4, .pp = 3, .ep = 2, .order = "pp-dp-tp-cp"}, "rank"},
                                   {{.pp = 2}, "plain", {}, "zb_h1"},
                                   {{.pp = 4}, "plain", {}, "interleaved_fused"},
                                   {{.dp = 2, .pp = 2, .ep = 2}, "plain", {}, "dual_pipe_v"},
                                   {{.dp = 2, .pp = 3, .ep = 2}, "rank", {}, "v_half"},
                                   {{.dp = 2, .pp = 2}, "plain", {}, "zb_v"},
                                   {{.pp = 2}, "plain", {}, "dual_pipe"}};

void expect_same_weights(const ExactSetting& setting, const std::vector<Layout>& layouts) {
  const auto expected = train_on_threads({}, setting);
  double moved = 0;
  for (const auto& [name, values] : expected) {
    for (const double v : values) {
      ASSERT_TRUE(std::isfinite(v)) << name;
      moved += std::abs(v);
    }
  }
  EXPECT_GT(moved, 0);
  for (const Layout& layout : layouts) {
    const plan::Degrees& mesh = layout.mesh;
    ExactSetting with = setting;
    with.topology = layout.topology;
    with.schedule = layout.schedule;
    with.layout = layout.layout;
    const auto found = train_on_threads(mesh, with, layout.node_of);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, values] : expected) {
      EXPECT_EQ(found.at(name), values) << name << ", dp " << mesh.dp << " ep " << mesh.ep << " pp " << mesh.pp
                                        << " " << layout.topology << " " << layout.schedule << " " << layout.layout;
    }
  }
}

TEST(ExactSums, EveryLayoutGivesTheSameWeights) { expect_same_weights({}, kLayouts); }
TEST(ExactSums, InTheHostsBf16Too) {
  expect_same_weights({Dtype::bf16, "host"}, {kLayouts[1], kLayouts[4], kLayouts[6], kLayouts[8], kLayouts[9]});
}

// The head apart from what predicts further tokens, in layouts of every kind.
TEST(ExactSums, WithTheHeadApartFromTheDepths) {
  expect_same_weights({.dtype = Dtype::bf16, .backend = "host", .depths = 1},
                      {{{.pp = 2}, "plain", {}, "1f1b", "Etttm|L"},
                       {{.dp = 2, .pp = 2}, "plain", {}, "zb_h1", "Etttm|L"},
                       {{.dp = 4, .pp = 3, .ep = 2}, "rank", {}, "1f1b", "Et|ttm|L"},
                       {{.dp = 2, .pp = 2, .ep = 2}, "plain", {}, "dual_pipe_v", "E|tt|tm|L"},
                       {{.dp = 2, .pp = 2}, "plain", {}, "dual_pipe", "Etttm|L"}});
  expect_same_weights({.dtype = Dtype::bf16, .depths = 2, .tied = true},
                      {{{.pp = 4}, "plain", {}, "1f1b", "Ett|tm|m|L"},
                       {{.dp = 2, .pp = 2, .ep = 2}, "node", {0, 1, 0, 1}, "interleaved", "E|ttt|mm|L"}});
}

// What is refused gives other bits, and what is taken the same.
TEST(ExactSums, AreRefusedJustWhereTheyDoNotHold) {
  struct Case {
    plan::Degrees mesh;
    int experts = 12, top_k = 3;
    std::vector<int> node_of;
    const char* named = "";  // in the refusal; empty: it holds
  };
  const std::vector<Case> cases{
      {{.tp = 2}, 12, 3, {}, "mesh.tp = 2"},
      {{.cp = 2}, 12, 3, {}, "mesh.cp = 2"},
      {{.dp = 2, .etp = 2}, 12, 3, {}, "mesh.etp = 2"},
      {{.dp = 2, .ep = 2}, 12, 3, {}, "mesh.ep 1"},
      {{.dp = 4, .ep = 4}, 12, 3, {}, "mesh.ep 1"},
      {{.dp = 2, .ep = 2}, 6, 4, {}, "mesh.ep 1"},
      {{.dp = 2, .ep = 2}, 12, 2},
      {{.dp = 2, .ep = 2}, 12, 1},
      {{.dp = 3, .ep = 3}, 12, 3},
      {{.dp = 6, .ep = 6}, 12, 5},
      {{.dp = 4, .ep = 2}, 8, 3},
      {{.dp = 4, .ep = 4}, 8, 3, {0, 0, 1, 1}},
      {{.dp = 4, .ep = 4}, 8, 3, {0, 0, 0, 1}, "hosts 0, 0, 0, 1"},
      {{.dp = 4, .ep = 4}, 8, 3, {0, 1, 0, 1}, "hosts 0, 1, 0, 1"},
      {{.dp = 4, .ep = 2}, 8, 3, {0, 1, 0, 1}},
      {{.dp = 3, .ep = 3}, 12, 3, {0, 0, 1}},
      {{.dp = 3, .ep = 3}, 12, 3, {0, 1, 1}, "hosts 0, 1, 1"},
  };
  for (const Case& c : cases) {
    // Twelve of them are shared out by any dp here.
    ExactSetting setting{.experts = c.experts, .top_k = c.top_k, .steps = 4, .microbatches = 12};
    const std::string text = fmt::format("{}, {} experts, top {}, nodes {}", plan::text_of(c.mesh), c.experts,
                                         c.top_k, fmt::join(c.node_of, " "));
    const std::string why = config::why_not_exact(exact_model(setting), c.mesh, c.node_of);
    EXPECT_EQ(why.empty(), std::string(c.named).empty()) << text << ": " << why;
    EXPECT_NE(why.find(c.named), std::string::npos) << text << ": " << why;
    EXPECT_EQ(train_on_threads(c.mesh, setting, c.node_of) == train_on_threads({}, setting), why.empty()) << text;
  }
}

TEST(ExactSums, WithoutItTheBitsDiffer) {
  const ExactSetting plain{.exact = false};
  EXPECT_NE(train_on_threads({}, plain), train_on_threads({.dp = 4, .ep = 2}, plain));
}

TEST(ExactSums, TheGridIsExactInAnyOrder) {
  const RandomKey key(11);
  std::vector<float> partials(4096);
  for (size_t i = 0; i < partials.size(); ++i) {
    partials[i] =
        static_cast<float>(key.normal(i) * std::ldexp(1.0, -static_cast<int>(key.bits(i + 5000) % 30)) * 1e-2);
  }
  double forward = 0, backward = 0;
  for (size_t i = 0; i < partials.size(); ++i) {
    kernels::add_on_grid(&partials[i], 1, i == 0, &forward);
    kernels::add_on_grid(&partials[partials.size() - 1 - i], 1, i == 0, &backward);
  }
  EXPECT_EQ(forward, backward);
  double sum = 0;
  const float huge = 40, fine = 31;
  kernels::add_on_grid(&huge, 1, true, &sum);
  EXPECT_TRUE(std::isnan(sum));
  kernels::add_on_grid(&fine, 1, true, &sum);
  kernels::add_on_grid(&fine, 1, false, &sum);
  EXPECT_EQ(sum, 62);
  kernels::add_on_grid(&fine, 1, false, &sum);
  EXPECT_TRUE(std::isnan(sum)) << "the sum has left the range in which it is exact";

  kernels::ExactSquares up, down, broken;
  double plain = 0;
  for (size_t i = 0; i < partials.size(); ++i) {
    up.add(partials[i]);
    down.add(partials[partials.size() - 1 - i]);
    plain += static_cast<double>(partials[i]) * partials[i];
  }
  EXPECT_EQ(up.limbs(), down.limbs());
  EXPECT_NEAR(kernels::ExactSquares::value(up.limbs().data()), plain, 1e-12 * plain);
  broken.add(INFINITY);
  EXPECT_TRUE(std::isnan(kernels::ExactSquares::value(broken.limbs().data())));
}

}  // namespace
}  // namespace heddle::parity
