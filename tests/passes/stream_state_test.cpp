// State of the optimizer on the host: what leaves, in which slices it comes by, and what stays.
#include "heddle/passes/state/stream_state.h"

#include "heddle/passes/state/host_state.h"
#include "heddle/passes/update/ahead_of_norm.h"
#include "tests/passes/expect_becomes.h"
#include "tests/passes/one_weight.h"

namespace heddle::test {
namespace {

std::string state(const std::string& space) {
  std::string text;
  for (const char* name : {"master.w", "m.w", "v.w"})
    text += fmt::format("  optimizer    {}  f32[64, 32]{}\n", name, space);
  return text;
}

TEST(StreamState, ComesByInSlices) {
  const std::string before =
      kTable + state("") + kSums + kNorm + "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow + "\n";
  std::string after = kTable + state(" host");
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
  std::string before =
      kTable + state("") + kSums + kNorm + "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow + "\n";
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

// Where updates run ahead of the norm.
const std::string kStatistic = "  statistic    norm.sum  f64[1]\n";
ir::Listing ahead(const std::function<void(ir::Listing&)>& move) {
  std::string text = kTable + state("") + kStatistic + kSums + kNorm + "    accumulate norm -> norm.sum\n" +
                     "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow + "\n";
  ir::Listing listing = listing_of(text);
  passes::ahead_of_norm(listing);
  ir::verify(listing);
  move(listing);
  ir::verify(listing);
  return listing;
}
// Of the ops that name a value, what they do.
std::vector<std::string> uses_of(const ir::Listing& listing, std::string_view name) {
  std::vector<std::string> uses;
  for (const std::string& line : lines_of(ir::text_of(listing))) {
    const size_t at = line.find(name);
    const bool is_op = line.starts_with("    ") && at != std::string::npos && at > 4;
    if (is_op && (line[at - 1] == ' ')) uses.push_back(line.substr(4));
  }
  return uses;
}

TEST(StreamState, WritesBesideTheOldAndFlipsWhereUpdatesRunAhead) {
  const ir::Listing listing = ahead([](ir::Listing& l) { passes::stream_state(l, kFast); });
  const std::string old = "kept.m.w.elements[0:1024]", here = "m.w.elements[0:1024]", slot = "slots.m.f32.elements";
  const std::vector<std::string> kept = uses_of(listing, "kept.m.w"), state = uses_of(listing, "m.w");
  const auto expect = [](const std::vector<std::string>& found, const std::vector<std::string>& wanted) {
    ASSERT_EQ(found.size(), wanted.size()) << fmt::format("{}", fmt::join(found, "\n"));
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(found[i].starts_with(wanted[i])) << found[i];
  };
  const auto part = [](const std::string& value, int k) {
    return fmt::format("{}.elements[{}:{}]", value, 1024 * (k % 3), 1024 * (k % 3) + 1024);
  };
  // Ahead: slices 0 and 1; waiting: 2 and 3; taken back: 4 and 5, each in the next of three slots.
  expect(kept, {"copy_in " + part("kept.m.w", 0) + " -> " + part("slots.m.f32", 4) + " if failed > 0",
                "copy_in " + part("kept.m.w", 1) + " -> " + part("slots.m.f32", 5) + " if failed > 0",
                "copy_out " + part("slots.m.f32", 0) + " -> " + part("kept.m.w", 0) + " if attempt > 0",
                "copy_out " + part("slots.m.f32", 1) + " -> " + part("kept.m.w", 1) + " if attempt > 0",
                "flip -> m.w, kept.m.w if attempt > 0"});
  EXPECT_EQ(listing.value(listing.find("kept.m.w")).space, ir::Space::host);
  EXPECT_EQ(listing.find("kept.w"), ir::none);  // which its master makes anew
}

// Elsewhere the host's processor keeps a copy, and what lies on the device is kept as it is.
TEST(MapState, KeepsACopyOnTheHostWhereUpdatesRunAhead) {
  for (const bool mapped : {true, false}) {
    const ir::Listing listing = ahead([&](ir::Listing& l) {
      if (mapped) {
        passes::map_state(l);
      } else {
        passes::host_state(l, kFast);
      }
    });
    const std::vector<std::string> kept = uses_of(listing, "kept.m.w"),
                                   of_master = uses_of(listing, "kept.master.w");
    ASSERT_EQ(kept.size(), 2u);
    EXPECT_TRUE(kept[0].starts_with("copy kept.m.w -> m.w if failed > 0  on host")) << kept[0];
    EXPECT_TRUE(kept[1].starts_with("copy m.w -> kept.m.w if attempt > 0  on host")) << kept[1];
    ASSERT_EQ(of_master.size(), 2u);
    EXPECT_TRUE(of_master[0].starts_with(mapped ? "copy_in kept" : "copy kept")) << of_master[0];
    EXPECT_EQ(listing.value(listing.find("m.w")).space, ir::Space::host);
    EXPECT_EQ(listing.value(listing.find("master.w")).space, mapped ? ir::Space::device : ir::Space::host);
  }
}

// What is small stays, and so does a master that is its weight; what else reads a master at the end gets it back.
TEST(StreamState, LeavesWhatIsSmallOrReadElsewhere) {
  // Eight elements are less than a 64th part of a slot.
  ir::Listing listing = listing_of(
      "listing 0\n  weight  g  f32[8]\n  accumulator  grad.g  f32[8]\n  optimizer  m.g  f32[8]\n  optimizer  v.g  "
      "f32[8]\n"
      "listing 0, F\n  no layer\n    x = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive\n"
      "    y, rstd = rms_norm x, g {epsilon 1e-06}\n    dx, dg = rms_norm_dgrad x, x, g, rstd\n"
      "    accumulate dg -> grad.g\nlisting 0, end\n  no layer\n    square = grad_square_sum grad.g\n"
      "    norm, clip = grad_norm square {max_norm 1}\n    hyper = load_step  copy_in\n"
      "    adamw clip, hyper, grad.g -> g, m.g, v.g {beta1 0.9, beta2 0.95, copy 0, decay 0, epsilon 1e-08}\n");
  passes::stream_state(listing, kFast);
  for (const ir::Value& value : listing.values) EXPECT_EQ(value.space, ir::Space::device) << value.name;

  const std::string packed =
      kTable + state("") + kSums + kNorm + "    adamw clip, hyper, grad.w -> master.w, m.w, v.w " +
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
  std::string text =
      kTable + state("") + kSums + kNorm + "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow + "\n";
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
  const std::string before =
      kTable + state("") + kSums + kNorm + "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow + "\n";
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
