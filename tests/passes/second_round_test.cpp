// The second round of experts' rows: its ops behind those of the first, and rows of both brought home by one op.
#include "heddle/passes/second_round.h"

#include "tests/passes/expect_becomes.h"

namespace heddle::passes {
namespace {

// Its round's part of an exchange's attributes.
std::string over_rounds(bool rest, bool second = false) {
  return fmt::format("{{experts 4, ranks 2, {}room 3{}, slices 1, topology plain}}  comm.experts",
                     rest ? "rest 8, " : "", second ? ", round 1" : "");
}

/// The table and the counts that all exchanges share.
std::string counts_of_rounds(bool rest) {
  return fmt::format(R"(
listing 0
  weight       x       f32[4, 8]
  weight       s       f32[4, 4]
  weight       w       f32[2, 8, 8]
  weight       dc      f32[4, 8]
  accumulator  grad.w  f32[2, 8, 8]
listing 0, F
  layer 0
    experts, row_of, token_of, offsets = choose s, none {{group_score_top 2, groups 1, top_groups 1, top_k 2}}
    gates = gate s, experts {{normalize 1, scale 1}}
    counts, route = share_counts experts {}
)",
                     over_rounds(rest));
}

std::string text_of_rounds(const std::string& in_F, const std::string& in_I, const std::string& in_W, bool rest) {
  return counts_of_rounds(rest) + in_F + "listing 0, I\n  layer 0\n" + in_I + "listing 0, W\n  layer 0\n" + in_W;
}

/// The texts with one round; with both, `rest` has what the second one adds.
std::string one_round(bool rest) {
  const std::string over = over_rounds(rest), rooms = rest ? "{rest 8, room 3}" : "{room 3}";
  return text_of_rounds(
      "    n, route_n, forwards, local, most, beyond = room_for_counts counts, route " + rooms +
          "\n    q, g, codes, passing = dispatch x, gates, experts, n, route_n, forwards " + over +
          "\n    e = grouped_linear q, w, local\n"
          "    y = combine e, g, gates, experts, n, route_n, forwards, codes, passing " +
          over + "\n",
      "    dr = combine_dgrad dc, experts, n, route_n, forwards, codes, passing " + over +
          "\n    de, dg = weigh_dgrad dr, e, g\n"
          "    dq = grouped_linear_dgrad de, w, local\n"
          "    dx, dgates = dispatch_dgrad dq, dg, experts, n, route_n, forwards, codes, passing " +
          over + "\n",
      "    grouped_linear_wgrad q, de, local -> grad.w\n", rest);
}

TEST(SecondRound, ComesBehindTheFirst) {
  const std::string first = over_rounds(true), second = over_rounds(true, true);
  const std::string rest = "n.rest, route_n.rest, forwards.rest, codes.rest, passing.rest ";
  test::expect_becomes(
      one_round(true), second_round,
      text_of_rounds(
          "    n, route_n, forwards, local, most, beyond = room_for_counts counts, route {rest 8, room 3}\n"
          "    n.rest, route_n.rest, forwards.rest, local.rest, most.rest, beyond.rest = "
          "room_for_counts counts, route {rest 8, room 3, round 1}\n"
          "    q, g, codes, passing = dispatch x, gates, experts, n, route_n, forwards " +
              first +
              "\n    q.rest, g.rest, codes.rest, passing.rest = "
              "dispatch x, gates, experts, n.rest, route_n.rest, forwards.rest " +
              second +
              "\n    e = grouped_linear q, w, local\n"
              "    e.rest = grouped_linear q.rest, w, local.rest\n"
              "    y = combine e, g, gates, experts, n, route_n, forwards, codes, passing, none, e.rest, g.rest, " +
              rest + first + "\n",
          "    dr = combine_dgrad dc, experts, n, route_n, forwards, codes, passing " + first +
              "\n    dr.rest = combine_dgrad dc, experts, n.rest, route_n.rest, forwards.rest, codes.rest, "
              "passing.rest " +
              second +
              "\n    de, dg = weigh_dgrad dr, e, g\n"
              "    de.rest, dg.rest = weigh_dgrad dr.rest, e.rest, g.rest\n"
              "    dq = grouped_linear_dgrad de, w, local\n"
              "    dq.rest = grouped_linear_dgrad de.rest, w, local.rest\n"
              "    dx, dgates = dispatch_dgrad dq, dg, experts, n, route_n, forwards, codes, passing, dq.rest, "
              "dg.rest, " +
              rest + first + "\n",
          "    grouped_linear_wgrad q, de, local -> grad.w\n"
          "    grouped_linear_wgrad q.rest, de.rest, local.rest -> grad.w beside\n",
          true));
}

TEST(SecondRound, IsThereWhereItHasRoom) { test::expect_stays(one_round(false), second_round); }

}  // namespace
}  // namespace heddle::passes
