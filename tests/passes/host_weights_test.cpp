// Weights and sums of gradients on the host: where their copies stand, what the end of the step makes of them, what
// stays.
#include "heddle/passes/host/host_weights.h"

#include "heddle/passes/host/host_gradients.h"
#include "tests/passes/expect_becomes.h"
#include "tests/passes/one_layer.h"

namespace heddle::passes {
namespace {

using test::expect_becomes;
using test::expect_stays;

// Ops that compute last 1 µs.
Durations copies_last(double us) {
  return [=](const ir::Listing&, const ir::Op& op) {
    return op.def->stream == ir::StreamKind::compute && ir::runs(*op.def) ? 1.0 : us;
  };
}

std::map<ir::ValueId, Residency> residencies(const ir::Listing& listing, const std::string& weight,
                                             Residency residency) {
  return {{listing.find(weight), residency}};
}

test::Rewrite weights(const std::string& weight, double copy_us = 1, const BlockOrder& order = {},
                      Residency residency = Residency::host) {
  return [=](ir::Listing& listing) {
    host_weights(listing, residencies(listing, weight, residency), order, copies_last(copy_us));
  };
}

test::Rewrite gradients(const std::string& weight, double copy_us = 1, bool deferred = false,
                        Residency residency = Residency::host) {
  return [=](ir::Listing& listing) {
    host_gradients(listing, residencies(listing, weight, residency), deferred, copies_last(copy_us));
  };
}

const std::string kBefore = test::one_layer() + test::kOneLayersBackward;

std::string replaced(std::string text, std::string_view from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) ADD_FAILURE() << "no '" << from << "' in\n" << text;
  return text.replace(at, from.size(), to);
}
std::string before_line(std::string text, std::string_view at, const std::string& lines) {
  const size_t found = text.find(at);
  return text.insert(text.rfind('\n', found) + 1, lines);
}
std::string behind_line(std::string text, std::string_view at, const std::string& lines) {
  return text.insert(text.find('\n', text.find(at)) + 1, lines);
}

TEST(HostWeights, ACopyForEachBlockAsLateAsItMay) {
  std::string after = replaced(kBefore, "up       f32[16, 8]", "up       f32[16, 8] host");
  after = behind_line(after, "listing 0, F", "    up.in = copy_in up ahead  copy_in\n");
  after = replaced(after, "u = linear n, up  ", "u = linear n, up.in  ");
  after = before_line(after, "da = linear_dgrad", "    up.in.2 = copy_in up  copy_in\n");
  after = replaced(after, "linear_dgrad du, up ", "linear_dgrad du, up.in.2 ");
  expect_becomes(kBefore, weights("up"), after);
}

// Its next use is so near that it would hardly be gone: the forward's copy stays.
TEST(HostWeights, OneCopyForWhatFollowsAtOnce) {
  std::string after = replaced(kBefore, "down     f32[8, 16]", "down     f32[8, 16] host");
  after = before_line(after, "u = linear n, up", "    down.in = copy_in down  copy_in\n");
  after = replaced(after, "y = linear a, down", "y = linear a, down.in");
  const std::string once = replaced(after, "linear_dgrad dy, down ", "linear_dgrad dy, down.in ");
  expect_becomes(kBefore, weights("down", 1, {false, {true}}), once);
  std::string twice = behind_line(after, "listing 0, I", "    down.in.2 = copy_in down ahead  copy_in\n");
  twice = replaced(twice, "linear_dgrad dy, down ", "linear_dgrad dy, down.in.2 ");
  expect_becomes(kBefore, weights("down", 1, {false, {false}}), twice);
}

TEST(HostWeights, WhatComesTooLateStaysWhereItMay) {
  expect_stays(kBefore, weights("down", 10, {}, Residency::where_in_time));
  ir::Listing listing = test::listing_of(kBefore);
  weights("down", 10)(listing);
  EXPECT_EQ(listing.value(listing.find("down")).space, ir::Space::host);
  ir::verify(listing);
}

// Many that are late don't come all at once: no more than the matrices of a layer are there before their turn.
TEST(HostWeights, NotAllAhead) {
  std::string text = "listing 0\n",
              forward =
                  "listing 0, F\n  no layer\n"
                  "    y0 = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive\n";
  for (int i = 0; i < 40; ++i) {
    text += fmt::format("  weight  w{}  f32[8, 8]\n", i);
    forward += fmt::format("    y{} = linear y{}, w{}\n", i + 1, i, i);
  }
  ir::Listing listing = test::listing_of(text + forward);
  std::map<ir::ValueId, Residency> all;
  for (int i = 0; i < 40; ++i) all[listing.find(fmt::format("w{}", i))] = Residency::host;
  host_weights(listing, all, {}, copies_last(5));
  ir::verify(listing);
  int there = 0, most = 0;
  for (const ir::Op& op : listing.ops) {
    there += op.kind() == "copy_in" ? 1 : op.kind() == "linear" ? -1 : 0;
    most = std::max(most, there);
  }
  EXPECT_EQ(there, 0);
  EXPECT_GT(most, 4);
  EXPECT_LE(most, 10);
}

TEST(HostGradients, TheSumIsThereWhileItIsAddedTo) {
  std::string after = replaced(kBefore, "grad.up  f32[16, 8]", "grad.up  f32[16, 8] host");
  after = before_line(after, "linear_wgrad a, dy", "    grad.up.sum = copy_in grad.up later  copy_in\n");
  after = replaced(after, "linear_wgrad n, du -> grad.up",
                   "linear_wgrad n, du -> grad.up.sum\n    copy_out grad.up.sum -> grad.up");
  expect_becomes(kBefore, gradients("up"), after);
}

TEST(HostGradients, AheadOnlyWhereNoOtherBlockAdds) {
  const auto ahead = [](bool deferred) {
    ir::Listing listing = test::listing_of(kBefore);
    gradients("down", 5, deferred)(listing);
    ir::verify(listing);
    return std::any_of(listing.ops.begin(), listing.ops.end(), [](const ir::Op& op) { return op.ahead; });
  };
  EXPECT_TRUE(ahead(false));
  EXPECT_FALSE(ahead(true));
}

TEST(HostGradients, WhatComesOrGoesTooLateStaysWhereItMay) {
  expect_stays(kBefore, gradients("up", 10, false, Residency::where_in_time));
}

const std::string kTableHostWeights =
    "listing 0\n  takes  hyper  f64[4] step of rates\n  weight  w  bf16[64, 32]{}\n  accumulator  grad.w  f32[64, "
    "32]{}\n"
    "  optimizer  master.w  f32[64, 32]\n  optimizer  m.w  f32[64, 32]\n  optimizer  v.w  f32[64, 32]\n";
const std::string kSums =
    "listing 0, F\n  no layer\n"
    "    x = receive {columns 32, dtype bf16, rows 4, step -1}  comm.pp.forward.receive\n"
    "    y = receive {columns 64, dtype bf16, rows 4, step -1}  comm.pp.forward.receive\n"
    "listing 0, W\n  no layer\n";
const std::string kHow = "{beta1 0.9, beta2 0.95, copy 1, decay 0.1, epsilon 1e-08}";

std::string table(const char* weight, const char* sum) {
  return fmt::format(fmt::runtime(kTableHostWeights), weight, sum);
}

// What the optimizer writes goes to the host from a place of its own; what it reads comes back for it.
TEST(HostWeights, TheEndWritesBySteps) {
  const std::string square = "listing 0, end\n  no layer\n    square = grad_square_sum grad.w\n",
                    norm =
                        "    norm, clip = grad_norm square {max_norm 1}\n    hyper = load {input hyper}  copy_in\n";
  const std::string before = table("", "") + kSums + "    linear_wgrad x, y -> grad.w\n" + square + norm +
                             "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " + kHow + "\n";
  expect_becomes(before, weights("w"),
                 table(" host", "") + kSums + "    linear_wgrad x, y -> grad.w\n" + square + norm +
                     "    w.new = reserve w\n    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w.new " + kHow +
                     "\n    copy_out w.new -> w\n");
  expect_becomes(before, gradients("w"),
                 table("", " host") + kSums +
                     "    grad.w.sum = copy_in grad.w later\n    linear_wgrad x, y -> grad.w.sum\n"
                     "    copy_out grad.w.sum -> grad.w\nlisting 0, end\n  no layer\n"
                     "    grad.w.back = copy_in grad.w\n    square = grad_square_sum grad.w.back\n" +
                     norm +
                     "    grad.w.back.2 = copy_in grad.w\n"
                     "    adamw clip, hyper, grad.w.back.2 -> master.w, m.w, v.w, w " +
                     kHow + "\n");
}

// An update that a decision passes over leaves the weight as it lies: its copies are passed over with it.
TEST(HostWeights, CopiesGoByTheConditionOfTheirOp) {
  ir::Listing listing = test::listing_of(table("", "") + kSums + "    linear_wgrad x, y -> grad.w\n" +
                                         "listing 0, end\n  no layer\n    square = grad_square_sum grad.w\n"
                                         "    norm, clip = grad_norm square {max_norm 1}\n"
                                         "    hyper = load {input hyper}  copy_in\n"
                                         "    adamw clip, hyper, grad.w -> master.w, m.w, v.w, w " +
                                         kHow + "\n");
  listing.ops.back().condition = {.rows_of = listing.find("norm"), .limit = 1};
  weights("w")(listing);
  const size_t n = listing.ops.size();
  ASSERT_EQ(listing.ops[n - 1].kind(), "copy_out");
  for (size_t i = n - 3; i < n; ++i) EXPECT_EQ(listing.ops[i].condition, listing.ops[n - 2].condition);
  EXPECT_TRUE(listing.ops[n - 2].condition);
}

// A packed weight moves as it is packed, and a copy says its bytes.
TEST(HostWeights, PackedOnesMoveAsTheyAre) {
  ir::Listing listing = test::listing_of(
      "listing 0\n  weight  w  bf16[64, 32] packed in 8192 bytes\n  optimizer  master.w  f32[64, 32]\n"
      "listing 0, F\n  no layer\n"
      "    x = receive {columns 32, dtype bf16, rows 4, step -1}  comm.pp.forward.receive\n    y = linear x, w\n"
      "listing 0, end\n  no layer\n    pack_weight master.w -> w\n");
  weights("w")(listing);
  ir::verify(listing);
  int copies = 0;
  for (const ir::Op& op : listing.ops) {
    if (!ir::is_copy(op.def->moves)) continue;
    ++copies;
    EXPECT_EQ(op.attributes.integer("bytes"), 8192);
  }
  EXPECT_EQ(copies, 2);
  const ir::Value& here = listing.value(listing.find("w.in"));
  EXPECT_EQ(here.layout, ir::Layout::packed);
  EXPECT_EQ(listing.bytes(listing.find("w.in"), ir::FixedRows()), 8192);
  EXPECT_FALSE(ir::is_persistent(here.role));
}

TEST(HomeWords, AreReadAndRefused) {
  EXPECT_TRUE(residency_groups("").empty());
  EXPECT_TRUE(residency_groups("device").empty());
  EXPECT_EQ(text_of(residency_groups("0-11, mlp,experts:3-26")), "all:0-11, mlp, experts:3-26");
  EXPECT_EQ(residency_groups(text_of(residency_groups("3"))), residency_groups("all:3"));
  for (const char* wrong : {"norm", "experts>2", "device, mlp", "device:3", "0-", "auto:b"})
    EXPECT_THROW(residency_groups(wrong), ConfigError) << wrong;
}

TEST(HomeWords, ChooseByPartAndLayer) {
  ir::Listing listing = test::listing_of(kBefore);
  using Part = model::Parameter::Part;
  std::vector<model::Parameter> parameters;
  const auto add = [&](const char* name, int layer, Part part) {
    model::Parameter& p = parameters.emplace_back();
    p.name = name;
    p.value = listing.find(name);
    p.layer = layer;
    p.part = part;
  };
  add("g", 0, Part::norm);
  add("up", 0, Part::mlp);
  add("down", 1, Part::experts);
  const auto of = [&](const char* words, const char* name) {
    const auto residencies = residencies_of(parameters, listing, residency_groups(words));
    const auto at = residencies.find(listing.find(name));
    return at == residencies.end() ? Residency::device : at->second;
  };
  EXPECT_EQ(of("all", "up"), Residency::host);
  EXPECT_EQ(of("all", "g"), Residency::device);  // a vector
  EXPECT_EQ(of("1", "up"), Residency::device);
  EXPECT_EQ(of("1", "down"), Residency::host);
  EXPECT_EQ(of("mlp", "down"), Residency::device);
  EXPECT_EQ(of("auto, mlp", "up"), Residency::host);
  EXPECT_EQ(of("auto, mlp", "down"), Residency::where_in_time);
  parameters[1].trained = false;
  EXPECT_EQ(of("all", "up"), Residency::device);
}

}  // namespace
}  // namespace heddle::passes
