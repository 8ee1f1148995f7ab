// The text form, word for word.
#include "heddle/ir/print.h"

#include <gtest/gtest.h>

#include "tests/ir/small_listing.h"

namespace heddle::test {
namespace {

TEST(Print, AListing) {
  SmallListing s = small_listing();
  const auto line = [](const std::string& text, const std::string& stream) {
    return fmt::format("    {:<100}  {}\n", text, stream);
  };
  EXPECT_EQ(ir::text_of(s.listing),
            "listing 0\n"
            "  weight      norm.weight                                  f32[4]\n"
            "  weight      map.weight                                   bf16[4, 4]\n"
            "listing 0, F\n" +
                line("x = receive {columns 4, dtype bf16, rows 6, step -1}", "comm.pp.forward.receive") +
                "  layer 0\n" + line("normed, rstd = rms_norm x, norm.weight {epsilon 1e-06}", "compute") +
                line("y = linear normed, map.weight", "compute") + "  layer 1\n" +
                line("u = linear y, map.weight", "compute") + line("z = add y, u", "compute"));
}

TEST(Print, Values) {
  SmallListing s = small_listing();
  EXPECT_EQ(ir::text_of(s.listing, s.listing.value(s.x)), "bf16[6, 4]");
  ir::Value rows = s.listing.value(s.x);
  rows.shape = {{1, s.y}, {4, ir::none}};
  EXPECT_EQ(ir::text_of(s.listing, rows), "bf16[rows y, 4]");
  rows.shape[0].count = 3;
  EXPECT_EQ(ir::text_of(s.listing, rows), "bf16[3·rows y, 4]");
  rows.layout = ir::Layout::packed;
  EXPECT_EQ(ir::text_of(s.listing, rows), "bf16[3·rows y, 4] packed");
}

TEST(Print, AProgram) {
  ir::StepProgram program;
  program.listings.push_back(small_listing().listing);
  program.microbatches = 2;
  program.blocks = {ir::make_block(program, 0, ir::BlockKind::receive_F),
                    ir::make_block(program, 0, ir::BlockKind::F)};
  program.actions[0] = {{{0, {0}}, {1, {0}}, {0, {1}}, {1, {1}}}};
  const std::string text = ir::text_of(program);
  EXPECT_TRUE(text.ends_with("\ntrain, ranks of class 0: receive_F0.0 F0.0 receive_F0.1 F0.1\n")) << text;
  const uint32_t norm = 1;
  ASSERT_EQ(program.listings[0].ops[norm].kind(), "rms_norm");
  EXPECT_EQ(ir::text_around(program, 0, 0, norm, 1), "receive_F0.0 F0.0 receive_F0.1 >F0.1<");
  EXPECT_EQ(ir::text_around(program, 0, 0, norm, 2), "");
  for (int m = 2; m < 9; ++m) program.actions[0][0].push_back({1, {m}});
  EXPECT_EQ(ir::text_around(program, 0, 0, norm, 5),
            "… F0.0 receive_F0.1 F0.1 F0.2 F0.3 F0.4 >F0.5< F0.6 F0.7 F0.8");
}

}  // namespace
}  // namespace heddle::test
