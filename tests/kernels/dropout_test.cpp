// What dropout draws: the generator against its published vectors, the part that is kept, and that sites, steps,
// seeds and tokens draw apart.
#include <set>

#include "heddle/kernels/dropout_words.h"
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

// kat_vectors of Random123, philox 4x32 10.
TEST(Philox, GivesThePublishedWords) {
  EXPECT_EQ(Philox::at({0, 0, 0, 0}, {0, 0}), (Philox::Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kAll = 0xffffffff;
  EXPECT_EQ(Philox::at({kAll, kAll, kAll, kAll}, {kAll, kAll}),
            (Philox::Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox::at({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Philox::Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

struct Drawn {
  double rate = 0.1;
  int64_t site = 4;
  std::vector<double> key{1, 2, 3};
  int64_t first_token = 0;
};

// Of ones.
std::vector<double> dropped(const Drawn& drawn, int64_t T, int64_t H) {
  Tensor tokens(Dtype::i32, {T});
  for (int64_t t = 0; t < T; ++t)
    tokens.values[static_cast<size_t>(t)] = static_cast<double>(drawn.first_token + t);
  const OpCase op{"dropout",
                  "dropout",
                  {activation(Tensor(Dtype::f64, {T, H}, 1.0)),
                   {tokens, Role::input},
                   {Tensor(Dtype::i32, {3}, drawn.key), Role::input}},
                  {{"rate", drawn.rate}, {"site", drawn.site}},
                  {}};
  return run_op(op, kernels::reference_kernels()).out[0].values;
}

TEST(Dropout, KeepsItsPartAndTheMean) {
  constexpr int64_t kT = 400, kH = 250;
  for (const double rate : {0.1, 0.5, 0.9}) {
    const std::vector<double> y = dropped({.rate = rate}, kT, kH);
    const auto kept = static_cast<double>(std::count_if(y.begin(), y.end(), [](double v) { return v != 0; }));
    const double count = kT * kH, deviation = std::sqrt(count * rate * (1 - rate));
    EXPECT_NEAR(kept, count * (1 - rate), 4 * deviation) << rate;
    EXPECT_NEAR(std::accumulate(y.begin(), y.end(), 0.0) / count, 1, 4 * deviation / count / (1 - rate)) << rate;
    for (const double v : y) ASSERT_TRUE(v == 0 || v == 1 / (1 - rate)) << v;
  }
  for (const double v : dropped({.rate = 0}, 3, 9)) EXPECT_EQ(v, 1);
}

TEST(Dropout, DrawsApart) {
  const Drawn drawn[] = {
      {}, {.site = 5}, {.key = {2, 2, 3}}, {.key = {1, 3, 3}}, {.key = {1, 2, 4}}, {.first_token = 1000}};
  std::set<std::vector<double>> seen;
  for (const Drawn& each : drawn) EXPECT_TRUE(seen.insert(dropped(each, 5, 40)).second);
  // A token's own is the same wherever its row stands.
  const std::vector<double> rows = dropped({}, 5, 40), last = dropped({.first_token = 4}, 1, 40);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), rows.begin() + 4 * 40));
}

}  // namespace
}  // namespace heddle::op_runner
