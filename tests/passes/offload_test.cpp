// What only the backward still reads waits for it on the host.
#include "heddle/passes/host/offload.h"

#include "tests/passes/expect_becomes.h"
#include "tests/passes/one_layer.h"

namespace heddle::passes {
namespace {

using test::expect_becomes;
using test::expect_stays;

// Ops that compute last 1 µs, copies `copy_us`.
test::Rewrite offloaded(const std::string& words, double copy_us = 1, bool apart = true) {
  return [=](ir::Listing& listing) {
    offload(listing, offload_groups(words), false, {apart}, [=](const ir::Listing&, const ir::Op& op) {
      return op.def->stream == ir::StreamKind::compute ? 1 : copy_us;
    });
  };
}

const std::string kBeforeOffload = test::one_layer("", "expert_up") + test::kOneLayersBackward;

// The text with `lines` behind the first line that contains `at`, and `from` for `to` behind them.
std::string with(std::string text, std::string_view at, const std::string& lines, std::string_view from = "",
                 std::string_view to = "") {
  const size_t end = text.find('\n', text.find(at)) + 1;
  text.insert(end, lines);
  if (!from.empty()) text.replace(text.find(from, end + lines.size()), from.size(), to);
  return text;
}

TEST(Offload, FromItsLastUseToItsFirstReader) {
  std::string after = with(kBeforeOffload, "u = linear", "    n.host = copy_out n  copy_out\n");
  after =
      with(after, "listing 0, W", "  layer 0\n    n.back = copy_in n.host  copy_in\n", "wgrad n,", "wgrad n.back,");
  expect_becomes(kBeforeOffload, offloaded("norm"), after);
}

TEST(Offload, TheLayersInput) {
  std::string after = with(kBeforeOffload, "n, rstd", "    x.host = copy_out x  copy_out\n");
  after = with(after, "da = linear_dgrad", "    x.back = copy_in x.host  copy_in\n", "dn, x,", "dn, x.back,");
  expect_becomes(kBeforeOffload, offloaded("input"), after);
}

// It would have to leave before the backward begins: a block of its own, where the schedule leaves room for one.
TEST(Offload, Ahead) {
  std::string after = with(kBeforeOffload, "a = silu", "    u.host = copy_out u  copy_out\n");
  after = with(after, "listing 0, I", "    u.back = copy_in u.host ahead  copy_in\n", "da, u", "da, u.back");
  expect_becomes(kBeforeOffload, offloaded("mlp"), after);
  expect_stays(kBeforeOffload, offloaded("mlp", 1, false));
}

TEST(Offload, NotWhatCopiesCannotCarryInTime) { expect_stays(kBeforeOffload, offloaded("norm, input", 10)); }

TEST(Offload, NotOtherLayersNorOtherGroups) {
  expect_stays(kBeforeOffload, offloaded("norm:1"));
  expect_stays(kBeforeOffload, offloaded("attention"));
}

TEST(Offload, NotWhatTheHeadReads) {
  expect_stays(with(kBeforeOffload, "u = linear", "    more = silu n  compute @head\n"), offloaded("norm"));
}

}  // namespace
}  // namespace heddle::passes
