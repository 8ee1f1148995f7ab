// State of the optimizer on the host: what leaves, in which slices it comes by, and what stays.
#include "heddle/passes/state/stream_state.h"

#include "heddle/passes/state/host_state.h"
#include "tests/passes/expect_becomes.h"
#include "tests/passes/one_weight.h"

namespace heddle::test {
namespace {

std::string state_stream_state(const std::string& space) {
  std::string text;
  for (const char* name : {"master.w", "m.w", "v.w"})
    text += fmt::format("  optimizer    {}  f32[64, 32]{}\n", name, space);
  return text;
}

TEST(StreamState, ComesByInSlices) {
  const std::string before = kTable + state_stream_state("") + kSums + kNorm +
                             "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow + "\n";
  std::string after = kTable + state_stream_state(" host");
  for (const char* name : {"master", "m", "v"})
    after += fmt::format("  optimizer    slots.{}.f32  f32[3072]\n", name);
  after += kSums + kNorm;
  for (int k = 0; k < 2; ++k) {  // of 1,024 elements
    const int from = 1024 * k, to = from + 1024;
    std::string in, out, slots;
    for (const char* name : {"master", "m", "v"}) {
      const std::string host = fmt::format("{}.w.elements[{}:{}]", name, from, to),
                        slot = fmt::format("slots.{}.f32.elements[{}:{}]", name, from, to);
      in += fmt::format("    copy_in {} -> {}\n", host, slot);
      out += fmt::format("    copy_out {} -> {}\n", slot, host);
      slots += slot + ", ";
    }
    after += in +
             fmt::format("    adamw clip, hyper, grad.w.elements[{0}:{1}] -> {2}w.elements[{0}:{1}] {3}\n", from,
                         to, slots, kHow) +
             out;
  }
  expect_becomes(
      before, [](ir::Listing& listing) { passes::stream_state(listing, kFast); }, after);
}

TEST(StreamState, ReusesItsSlots) {
  std::string before = kTable + state_stream_state("") + kSums + kNorm +
                       "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow + "\n";
  for (size_t at = 0; (at = before.find("[64, 32]", at)) != std::string::npos;) before.replace(at, 8, "[64, 80]");
  for (size_t at = 0; (at = before.find("columns 32", at)) != std::string::npos;)
    before.replace(at, 10, "columns 80");
  ir::Listing listing = listing_of(before);
  passes::stream_state(listing, kFast);
  ir::verify(listing);
  std::vector<std::string> slots;
  for (const ir::Op& op : listing.ops) {
    if (op.kind() == "adamw") slots.push_back(listing.value(op.updated("m")).name);
  }
  EXPECT_EQ(slots, (std::vector<std::string>{"slots.m.f32.elements[0:1024]", "slots.m.f32.elements[1024:2048]",
                                             "slots.m.f32.elements[2048:3072]", "slots.m.f32.elements[0:1024]",
                                             "slots.m.f32.elements[1024:2048]"}));
}

// What is small stays, and so does a master that is its weight; what else reads a master at the end gets it back.
TEST(StreamState, LeavesWhatIsSmallOrReadElsewhere) {
  // Eight elements are less than a 64th part of a slot.
  ir::Listing listing = listing_of(
      "listing 0\n  takes  hyper  f64[4] step of rates\n  weight  g  f32[8]\n  accumulator  grad.g  f32[8]\n  "
      "optimizer  m.g  f32[8]\n  optimizer  v.g  "
      "f32[8]\n"
      "listing 0, F\n  no layer\n    x = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive\n"
      "    y, rstd = rms_norm x, g {epsilon 1e-06}\n    dx, dg = rms_norm_dgrad x, x, g, rstd\n"
      "    accumulate dg -> grad.g\nlisting 0, end\n  no layer\n    square = grad_square_sum grad.g\n"
      "    norm, clip = grad_norm square {max_norm 1}\n    hyper = load {input hyper}  copy_in\n"
      "    adamw clip, hyper, grad.g -> g, m.g, v.g {beta1 0.9, beta2 0.95, copy 0, decay 0, epsilon 1e-08}\n");
  passes::stream_state(listing, kFast);
  for (const ir::Value& value : listing.values) EXPECT_EQ(value.space, ir::Space::device) << value.name;

  const std::string packed =
      kTable + state_stream_state("") + kSums + kNorm + "    adamw clip, hyper, grad.w -> master.w, m.w, v.w " +
      "{beta1 0.9, beta2 0.95, copy 0, decay 0.1, epsilon 1e-08}\n    pack_weight master.w -> w\n";
  listing = listing_of(packed);
  passes::stream_state(listing, kFast);
  ir::verify(listing);
  ASSERT_GE(listing.ops.size(), 2u);
  const ir::Op &back = listing.ops[listing.ops.size() - 2], &pack = listing.ops.back();
  EXPECT_EQ(back.kind(), "copy_in");
  EXPECT_EQ(listing.value(back.in[0]).name, "master.w");
  EXPECT_EQ(pack.kind(), "pack_weight");
  EXPECT_EQ(pack.in[0], back.out[0]);

  listing = listing_of(packed.substr(0, packed.rfind("    pack_weight")) +
                       "listing 0, begin\n  no layer\n    all = all_reduce master.w {ranks 2}  comm.dp\n");
  passes::stream_state(listing, kFast);
  EXPECT_EQ(listing.value(listing.find("master.w")).space, ir::Space::device);
  EXPECT_EQ(listing.value(listing.find("m.w")).space, ir::Space::host);
}

TEST(StreamState, ASlotIsNoLargerThanTheLinkNeeds) {
  std::string text = kTable + state_stream_state("") + kSums + kNorm +
                     "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow + "\n";
  for (size_t at = 0; (at = text.find("[64, 32]", at)) != std::string::npos;) text.replace(at, 8, "[64, 65536]");
  for (size_t at = 0; (at = text.find("columns 32", at)) != std::string::npos;)
    text.replace(at, 10, "columns 65536");
  const auto slots = [&](double bytes_per_us) {
    ir::Listing listing = listing_of(text);
    passes::stream_state(listing, bytes_per_us);
    return listing.value(listing.find("slots.m.f32")).shape[0].count;
  };
  EXPECT_EQ(slots(1e6), 3 * 64 * 65536 / 32);
  EXPECT_EQ(slots(1024), 3 * 63 * 1024);  // 250 µs at 4 bytes an element, in whole 1,024s
}

TEST(MapState, MovesTheMomentsAlone) {
  const std::string before = kTable + state_stream_state("") + kSums + kNorm +
                             "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow + "\n";
  ir::Listing listing = listing_of(before);
  passes::map_state(listing);
  ir::verify(listing);
  EXPECT_EQ(listing.value(listing.find("master.w")).space, ir::Space::device);
  EXPECT_EQ(listing.value(listing.find("m.w")).space, ir::Space::host);
  EXPECT_EQ(listing.value(listing.find("v.w")).space, ir::Space::host);
  // Nothing but the moments may lie there.
  listing.value(listing.find("master.w")).space = ir::Space::host;
  EXPECT_THROW(ir::verify(listing), InternalError);
}

}  // namespace
}  // namespace heddle::test
