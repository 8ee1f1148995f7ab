// Exchanges of one choice of experts share their lists.
#include "heddle/passes/reuse_lists.h"

#include "tests/passes/expect_becomes.h"

namespace heddle::passes {
namespace {

// The exchange of a layer there and back; the way back counts what `experts` chose and reads `lists`.
std::string exchange(const std::string& experts, const std::string& counting, const std::string& lists) {
  return fmt::format(R"(
listing 0
  weight      x       f32[4, 8]
  weight      s       f32[4, 4]
listing 0, F
  layer 0
    experts, row_of, token_of, offsets = choose s, none {{group_score_top 2, groups 1, top_groups 1, top_k 2}}
    others, row_of.2, token_of.2, offsets.2 = choose s, none {{group_score_top 2, groups 1, top_groups 1, top_k 2}}
    gates = gate s, experts {{normalize 1, scale 1}}
    counts, route = share_counts experts {{experts 4, ranks 2, slices 1, topology plain}}  comm.experts
    n, route_n, forwards, local, most = counts_to_host counts, route  copy_out  stall
    q, g, token_of_rows, passing = dispatch x, gates, experts, n, route_n, forwards {{experts 4, ranks 2, slices 1, topology plain}}  comm.experts
{}
    y = combine q, g, gates, {}, {}, token_of_rows, passing {{experts 4, ranks 2, slices 1, topology plain}}  comm.experts
)",
                     counting, experts, lists);
}

std::string counting(const std::string& experts) {
  return fmt::format(
      "    counts.2, route.2 = share_counts {} {{experts 4, ranks 2, slices 1, topology plain}}  "
      "comm.experts\n"
      "    n.2, route_n.2, forwards.2, local.2, most.2 = counts_to_host counts.2, route.2  copy_out  stall",
      experts);
}

TEST(ReuseLists, OfOneChoice) {
  test::expect_becomes(exchange("experts", counting("experts"), "n.2, route_n.2, forwards.2"), reuse_lists,
                       exchange("experts", "", "n, route_n, forwards"));
}

TEST(ReuseLists, NotOfAnotherChoice) {
  test::expect_stays(exchange("others", counting("others"), "n.2, route_n.2, forwards.2"), reuse_lists);
}

}  // namespace
}  // namespace heddle::passes
