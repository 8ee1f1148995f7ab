// State of the optimizer on the host, updated there: what leaves when, what runs there, what comes back.
#include "heddle/passes/state/host_state.h"

#include "tests/passes/expect_becomes.h"
#include "tests/passes/one_weight.h"

namespace heddle::test {
namespace {

const std::string kSplitHow = "{beta1 0.9, beta2 0.95, decay 0.1, epsilon 1e-08}";

std::string state(const std::vector<std::string>& rows, const std::string& space) {
  std::string text;
  for (const std::string& row : rows) text += fmt::format("  optimizer    {}{}\n", row, space);
  return text;
}
const std::vector<std::string> kWhole{"master.w  f32[64, 32]", "m.w  f32[64, 32]", "v.w  f32[64, 32]"};
const std::vector<std::string> kSplit{"rest.w  u16[64, 32]", "m.w  f32[64, 32]", "v.w  f32[64, 32]"};

ir::Listing moved(const std::string& text, double bytes_per_us = kFast) {
  ir::Listing listing = listing_of(text);
  ir::verify(listing);
  passes::host_state(listing, bytes_per_us);
  ir::verify(listing);
  return listing;
}

// The gradient leaves before its norm is known, the rounded weight comes back by slots on the host.
TEST(HostState, UpdatesOnTheHostSliceBySlice) {
  std::string after = kTable + state(kWhole, " host") + "  optimizer    slots.copy.bf16  bf16[3072] host\n" +
                      kSums + "    grad.w.host = copy_out grad.w  copy_out\n" + kNorm;
  // The last op's operands are taken first, in their order.
  after += "    clip.host = copy_out clip  copy_out\n    hyper.host = copy_out hyper  copy_out\n";
  for (int k = 0; k < 2; ++k) {  // of 1,024 elements
    const int from = 1024 * k, to = from + 1024;
    after += fmt::format(
        "    adamw clip.host, hyper.host, grad.w.host.elements[{0}:{1}] -> master.w.elements[{0}:{1}], "
        "m.w.elements[{0}:{1}], v.w.elements[{0}:{1}], slots.copy.bf16.elements[{0}:{1}] {2}  on host\n"
        "    copy_in slots.copy.bf16.elements[{0}:{1}] -> w.elements[{0}:{1}]  copy_in\n",
        from, to, kHow);
  }
  expect_becomes(
      kTable + state(kWhole, "") + kSums + kNorm + "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " +
          kHow + "\n",
      [](ir::Listing& listing) { passes::host_state(listing, kFast); }, after);
}

const std::string kMuonTable = kTable + state({"master.w  f32[64, 32]", "m.w  f32[64, 32]"}, "");
const std::string kMuonEnd = kSums + kNorm +
                             "    u = muon_momentum clip, grad.w -> m.w {dtype bf16, momentum 0.95}\n"
                             "    o = unit_matrices u {blocks 1, columns 32, count 1, rows 64}\n"
                             "    muon_step clip, hyper, o -> master.w, w {copy 1, decay 0.1, scale 1.6}\n";

// By Muon the momentum looked ahead comes to the device, slice by slice, and the direction goes back whole.
TEST(HostState, HandsMomentumOnAndTakesDirectionsBack) {
  std::string after = kTable + state({"master.w  f32[64, 32]", "m.w  f32[64, 32]"}, " host") +
                      "  metadata     u  bf16[64, 32]\n  optimizer    slots.copy.bf16  bf16[3072] host\n" + kSums +
                      "    grad.w.host = copy_out grad.w  copy_out\n" + kNorm +
                      "    clip.host = copy_out clip  copy_out\n";
  for (int k = 0; k < 2; ++k) {
    after += fmt::format(
        "    u.host{2} = muon_momentum clip.host, grad.w.host.elements[{0}:{1}] -> m.w.elements[{0}:{1}] {{dtype "
        "bf16, momentum 0.95}}  on host\n"
        "    u.elements[{0}:{1}] = copy_in u.host{2}  copy_in\n",
        1024 * k, 1024 * k + 1024, k == 0 ? "" : ".2");
  }
  after +=
      "    o = unit_matrices u {blocks 1, columns 32, count 1, rows 64}\n    o.host = copy_out o  copy_out\n"
      "    hyper.host = copy_out hyper  copy_out\n";
  for (int k = 0; k < 2; ++k) {
    after += fmt::format(
        "    muon_step clip.host, hyper.host, o.host.elements[{0}:{1}] -> master.w.elements[{0}:{1}], "
        "slots.copy.bf16.elements[{2}:{3}] {{copy 1, decay 0.1, scale 1.6}}  on host\n"
        "    copy_in slots.copy.bf16.elements[{2}:{3}] -> w.elements[{0}:{1}]  copy_in\n",
        1024 * k, 1024 * k + 1024, 1024 * ((k + 2) % 3), 1024 * ((k + 2) % 3) + 1024);
  }
  expect_becomes(
      kMuonTable + kMuonEnd, [](ir::Listing& listing) { passes::host_state(listing, kFast); }, after);
}

// What the update reads of the device goes to the host first: the weight that is half of a split master.
TEST(HostState, TakesAlongWhatIsRead) {
  const ir::Listing listing =
      moved(kTable + state(kSplit, "") + kSums + kNorm +
            "    adamw_split clip, hyper, grad.w -> rest.w, m.w, v.w, w " + kSplitHow + "\n");
  EXPECT_EQ(listing.value(listing.find("rest.w")).space, ir::Space::host);
  EXPECT_EQ(listing.value(listing.find("w")).space, ir::Space::device);
  std::vector<std::string> kinds;
  for (const ir::Op& op : listing.ops) {
    if (op.phase == ir::Phase::end && !op.updates.empty()) kinds.emplace_back(op.kind());
  }
  EXPECT_EQ(kinds,
            (std::vector<std::string>{"copy_out", "adamw_split", "copy_in", "copy_out", "adamw_split", "copy_in"}));
}

// A gradient that the end of the step makes leaves behind the op that makes it.
TEST(HostState, AReducedGradientLeavesAtOnce) {
  const ir::Listing listing =
      moved(kTable + "  optimizer  copy.w  bf16[1024]\n" +
            state({"master.w  f32[1024]", "m.w  f32[1024]", "v.w  f32[1024]"}, "") + kSums +
            "    shard = reduce_gradients grad.w {one 1, ranks 2}  comm.dp\n"
            "    square = grad_square_sum shard\n    norm, clip = grad_norm square {max_norm 1}\n"
            "    hyper = load {input hyper}  copy_in\n"
            "    adamw clip, hyper, shard -> master.w, m.w, v.w, copy.w " +
            kHow + "\nlisting 0, begin\n  no layer\n    gather_weights copy.w -> w {ranks 2}  comm.dp\n");
  std::vector<std::string> kinds;
  for (const ir::Op& op : listing.ops) {
    if (op.phase == ir::Phase::end) kinds.emplace_back(op.kind());
  }
  ASSERT_GE(kinds.size(), 3u);
  EXPECT_EQ(kinds[0], "reduce_gradients");
  EXPECT_EQ(kinds[1], "copy_out");
  EXPECT_EQ(kinds[2], "grad_square_sum");
  EXPECT_EQ(listing.value(listing.find("copy.w")).space, ir::Space::device);
}

// A weight made of the whole master gets it back; what is small stays.
TEST(HostState, BringsBackAWholeMaster) {
  const ir::Listing listing = moved(
      kTable + state(kWhole, "") + kSums + kNorm +
      "    adamw clip, hyper, grad.w -> master.w, m.w, v.w {beta1 0.9, beta2 0.95, copy 0, decay 0.1, epsilon "
      "1e-08}\n    cast_weight master.w -> w\n");
  const ir::Op &back = listing.ops[listing.ops.size() - 2], &cast = listing.ops.back();
  EXPECT_EQ(back.kind(), "copy_in");
  EXPECT_EQ(cast.in[0], back.out[0]);

  std::string small = kTable + state(kWhole, "") + kSums + kNorm +
                      "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow + "\n";
  for (size_t at = 0; (at = small.find("[64, 32]", at)) != std::string::npos;) small.replace(at, 8, "[4, 2]");
  for (size_t at = 0; (at = small.find("columns 32", at)) != std::string::npos;) small.replace(at, 10, "columns 2");
  for (size_t at = 0; (at = small.find("columns 64", at)) != std::string::npos;) small.replace(at, 10, "columns 4");
  for (const ir::Value& value : moved(small).values) EXPECT_EQ(value.space, ir::Space::device) << value.name;
}

// What the host's processor runs finds nothing on the device, and what the device runs nothing on the host.
TEST(HostState, TheTextIsHeldToIt) {
  const std::string text =
      kTable + state(kWhole, "") + kSums + kNorm + "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow;
  ir::Listing listing = listing_of(text + "\n");
  listing.ops.back().stream = ir::kHostStream;
  EXPECT_THROW(ir::verify(listing), InternalError);
  listing = moved(text + "\n");
  for (ir::Op& op : listing.ops) op.stream.clear();
  EXPECT_THROW(ir::verify(listing), InternalError);
}

}  // namespace
}  // namespace heddle::test
