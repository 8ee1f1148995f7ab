// What a forecast expects of the experts' exchange, against the exchange itself; draws; hosts.
#include "heddle/runtime/step_prediction.h"

#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "heddle/runtime/expected_rows.h"
#include "heddle/runtime/message_times.h"
#include "tests/runtime/exchange_group.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::test {
namespace {

struct Prepared {
  model::ModelConfig config = tiny_model();
  plan::Plan plan;
  plan::Lowered lowered;
};

// Ranks that differ in their data, their experts spread over all of them.
Prepared prepared(int ranks, int slices, int64_t experts, int64_t chosen, int64_t tokens, Dtype dtype,
                  const std::string& topology) {
  Prepared p;
  p.config.n_routed_experts = experts;
  p.config.num_experts_per_tok = chosen;
  p.plan = tiny_plan(1, ranks, true, 1);
  p.plan.mesh.ep = ranks / slices;
  p.plan.mesh.etp = slices;
  p.plan.sequence_length = tokens;
  p.plan.sequences = 1;
  p.config.max_position_embeddings = std::max<int64_t>(p.config.max_position_embeddings, tokens);
  p.plan.dtype = dtype;
  p.plan.parallel.exchange.topology = from_word<ir::Topology>(topology);
  p.lowered = plan::lower(p.config, p.plan);
  return p;
}

const ir::Op& first_op(const ir::StepProgram& program, std::string_view kind) {
  for (const ir::Op& op : program.listings[0].ops) {
    if (op.kind() == kind) return op;
  }
  internal_error("no '{}'", kind);
}

comm::Hop::Of sum_of(const std::vector<comm::Hop>& hops) {
  comm::Hop::Of sum;
  for (const comm::Hop& hop : hops) {
    for (const comm::Hop::Of& of : hop.of) {
      sum.within_out += of.within_out;
      sum.within_in += of.within_in;
      sum.across_out += of.across_out;
      sum.across_in += of.across_in;
    }
  }
  return sum;
}

// The table of docs/features/moe_exchange.md: copies of a row that cross nodes, a token.
TEST(ExpectedRows, CopiesAcrossNodesAreThoseOfTheTable) {
  const std::map<std::string, std::vector<double>> table{
      {"plain", {4, 6, 7}}, {"rank", {3.26, 5.45, 6.72}}, {"node", {1.00, 2.71, 4.63}}, {"merge", {1, 3, 7}}};
  for (const auto& [topology, copies] : table) {
    for (size_t i = 0; i < copies.size(); ++i) {
      const int nodes = 2 << i;
      const Prepared p = prepared(8 * nodes, 1, 256, 8, 32, Dtype::f32, topology);
      std::vector<int> node_of;
      for (int r = 0; r < 8 * nodes; ++r) node_of.push_back(r / 8);
      runtime::ExpectedRows rows(p.config, p.plan, p.lowered.program, node_of, false, {});
      const runtime::ExpectedExchange& e =
          rows.of(0, p.lowered.program.listings[0], first_op(p.lowered.program, "dispatch"));
      const double row_bytes = static_cast<double>(p.config.hidden_size) * 4;
      EXPECT_NEAR(sum_of(e.hops.dispatch).across_out / (32 * 8 * nodes * row_bytes), copies[i], 0.0051)
          << topology << " over " << nodes;
      EXPECT_NEAR(sum_of(e.hops.combine).across_out, sum_of(e.hops.dispatch).across_in,
                  1e-3);  // f32: sums are as wide
    }
  }
}

// Bytes of each tier that an exchange really sends, where experts are chosen uniformly.
TEST(ExpectedRows, BytesAreThoseThatAreSent) {
  struct Group {
    std::vector<int> node_of;
    int slices;
    int64_t each, chosen;
  };
  constexpr int64_t kTokens = 160;
  for (const Group& g :
       {Group{{0, 0, 1, 1}, 1, 4, 5}, Group{{0, 0, 0, 0, 1, 1, 1, 1}, 1, 4, 3}, Group{{0, 0, 0, 1, 1, 2}, 1, 2, 4},
        Group{{0, 0, 0, 0, 1, 1, 1, 1}, 2, 4, 3}, Group{{0, 1, 0, 1}, 2, 4, 3}, Group{{0, 0, 0, 0}, 1, 4, 4}}) {
    const int ranks = static_cast<int>(g.node_of.size());
    for (const char* topology : {"plain", "rank", "node", "merge"}) {
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        const Prepared p = prepared(ranks, g.slices, ranks / g.slices * g.each, g.chosen, kTokens, dtype, topology);
        runtime::ExpectedRows rows(p.config, p.plan, p.lowered.program, g.node_of, false, {});
        const runtime::ExpectedExchange& e =
            rows.of(0, p.lowered.program.listings[0], first_op(p.lowered.program, "dispatch"));
        const Routed routed =
            Routed::random(g.node_of, g.slices, g.each, g.chosen, p.config.hidden_size, {kTokens}, 77);
        std::mutex mutex;
        comm::Traffic there, back;
        std::vector<std::array<int64_t, 3>> counted(static_cast<size_t>(ranks));
        run_group(routed, dtype, exchange_attributes(routed, topology), [&](ExchangeRank& rank, int64_t me) {
          rank.lists();
          rank.dispatch([](int64_t, int64_t) { return 1.0; }, [](int64_t, int64_t) { return 1.0; });
          const comm::Traffic before = rank.traffic();
          rank.combine_dgrad([](int64_t, int64_t) { return 1.0; });
          const comm::Traffic between = rank.traffic();
          rank.combine([](int64_t, int64_t) { return 1.0; });
          const comm::Traffic after = rank.traffic();
          const std::lock_guard lock(mutex);
          counted[static_cast<size_t>(me)][0] = rank.received;
          there.within_node_bytes += between.within_node_bytes - before.within_node_bytes;
          there.across_nodes_bytes += between.across_nodes_bytes - before.across_nodes_bytes;
          back.within_node_bytes += after.within_node_bytes - between.within_node_bytes;
          back.across_nodes_bytes += after.across_nodes_bytes - between.across_nodes_bytes;
        });
        const auto near = [&](double expected, int64_t sent, const char* what) {
          EXPECT_NEAR(expected, static_cast<double>(sent), 0.04 * static_cast<double>(sent) + 1)
              << topology << " " << name_of(dtype) << " " << what << " of " << ranks << " ranks, " << g.slices
              << " slices";
        };
        near(sum_of(e.hops.dispatch).within_out, there.within_node_bytes, "there within");
        near(sum_of(e.hops.dispatch).across_out, there.across_nodes_bytes, "there across");
        near(sum_of(e.hops.combine).within_out, back.within_node_bytes, "back within");
        near(sum_of(e.hops.combine).across_out, back.across_nodes_bytes, "back across");
        for (int r = 0; r < ranks; ++r) {
          EXPECT_EQ(e.rows[static_cast<size_t>(r)][0], kTokens * g.chosen * g.slices);
          EXPECT_NEAR(static_cast<double>(counted[static_cast<size_t>(r)][0]),
                      static_cast<double>(e.rows[static_cast<size_t>(r)][0]), 0.25 * kTokens * g.chosen);
        }
      }
    }
  }
}

// Of many draws of a router's shares, the choice that the counts of a run would make.
TEST(ExpectedRows, AutoChoosesAsTheRunDoes) {
  struct Case {
    std::vector<int> node_of;
    int64_t each, chosen;
    double across_rate;
  };
  for (const Case& c : {Case{{0, 0, 0, 0, 1, 1, 1, 1}, 4, 8, 10}, Case{{0, 0, 1, 1}, 2, 1, 10},
                        Case{{0, 0, 0, 0}, 4, 8, 1000}, Case{{0, 0, 1, 1, 2, 2, 3, 3}, 2, 2, 50}}) {
    const int ranks = static_cast<int>(c.node_of.size());
    Prepared p = prepared(ranks, 1, ranks * c.each, c.chosen, 64, Dtype::f64, "auto");
    const Routed routed = Routed::random(c.node_of, 1, c.each, c.chosen, p.config.hidden_size, {64}, 5);
    const ir::Attributes attributes = exchange_attributes(routed, "auto", c.across_rate, 5);
    for (ir::Op& op : p.lowered.program.listings[0].ops) {
      if (!op.attributes.has("topology")) continue;
      for (const char* key :
           {"within_bytes_per_us", "across_bytes_per_us", "within_latency_us", "across_latency_us"})
        op.attributes.set(key, attributes.number(key));
      op.attributes.set("row_bytes", attributes.integer("row_bytes"))
          .set("sum_bytes", attributes.integer("sum_bytes"));
    }
    runtime::ExpectedRows rows(p.config, p.plan, p.lowered.program, c.node_of, false, {});
    std::mutex mutex;
    std::vector<ir::Topology> taken;
    run_group(routed, Dtype::f64, attributes, [&](ExchangeRank& rank, int64_t) {
      rank.lists();
      const std::lock_guard lock(mutex);
      taken.push_back(rank.topology);
    });
    const auto& e = rows.of(0, p.lowered.program.listings[0], first_op(p.lowered.program, "dispatch"));
    EXPECT_EQ(e.topology, taken[0]) << ranks << " ranks, " << c.chosen << " chosen";
  }
}

// Rates and messages as a profile would have them; `across_us` a KiB between hosts.
cost::MachineProfile made_profile(double across_us = 8) {
  cost::MachineProfile m;
  m.bf16_flops_per_s = m.f32_flops_per_s = m.f64_flops_per_s = 1e9;
  m.copy_bytes_per_s = 1e10;
  m.cores = 64;
  m.together.assign(64, 1.0);
  for (const cost::Link over : {cost::Link::threads, cost::Link::node, cost::Link::nodes}) {
    const double kib_us = over == cost::Link::nodes ? across_us : 0.1;
    for (const int ranks : {2, 4}) {
      for (const double bytes : {64.0, 65536.0})
        m.links.push_back({over, ranks, bytes, 20 + bytes / 1024 * kib_us});
    }
  }
  return m;
}

runtime::StepPrediction prediction_of(const Prepared& p, const cost::MachineProfile& profile,
                                      const runtime::PredictionInput& input) {
  return runtime::predict_step(p.config, p.plan, p.lowered, profile, input);
}

// Two hosts of two ranks, links slow: a row that crosses once instead of for every expert saves time.
TEST(StepPrediction, TopologiesTakeTheTimeOfTheirBytes) {
  runtime::PredictionInput input;
  input.backend = "reference";
  input.over = cost::Link::nodes;
  input.node_of = input.machine_of = {0, 0, 1, 1};
  const cost::MachineProfile profile = made_profile(200);
  std::map<std::string, double> step_us, busy_us;
  std::map<std::string, std::string> taken;
  for (const char* topology : {"plain", "rank", "node", "merge", "auto"}) {
    Prepared p = prepared(4, 1, 16, 6, 64, Dtype::f32, topology);
    p.plan.parallel.exchange.across_rate = 1.024 / 200;
    p.plan.parallel.exchange.within_rate = 10.24;
    p.plan.parallel.exchange.across_latency_us = p.plan.parallel.exchange.within_latency_us = 20;
    p.lowered = plan::lower(p.config, p.plan);
    const runtime::StepPrediction f = prediction_of(p, profile, input);
    step_us[topology] = f.step_us;
    for (const simulate::StreamUse& stream : f.simulation.ranks[0].streams) {
      if (stream.name == "comm.experts") busy_us[topology] = stream.busy_us;
    }
    taken[topology] = f.exchange;
    EXPECT_EQ(f.simulation.ranks.size(), 1u);  // all four do the same
  }
  EXPECT_EQ(taken["node"], "node");
  EXPECT_LT(step_us["rank"], step_us["plain"]);
  EXPECT_LT(step_us["node"], step_us["rank"]);
  EXPECT_NEAR(step_us["merge"], step_us["node"], 0.05 * step_us["node"]);  // nearly every token goes to both hosts
  EXPECT_EQ(taken["auto"] == "node" || taken["auto"] == "merge", true) << taken["auto"];
  EXPECT_NEAR(step_us["auto"], step_us[taken["auto"]], 0.01 * step_us["auto"]);
  // The exchange's stream is busy for the bytes that cross from a host: four ways a layer, two ranks at once.
  const double rank_bytes = 64 * 16 * 4;  // tokens, width, f32
  const double fewer = 4 * 2 * 2 * rank_bytes * (6 * 0.5 - 1);
  const double headers =
      2 * 2 * 64 * 6 * 8;  // ahead of the first way: an expert and a gate of all tokens; hops have a latency, too
  EXPECT_NEAR(busy_us["plain"] - busy_us["node"], (fewer - headers) / 1024 * 200,
              0.03 * (busy_us["plain"] - busy_us["node"]));
}

TEST(StepPrediction, DrawsOfRoutingMakeRanksDiffer) {
  const Prepared p = prepared(4, 1, 16, 2, 64, Dtype::f32, "plain");
  runtime::PredictionInput input;
  input.backend = "reference";
  const cost::MachineProfile profile = made_profile();
  const runtime::StepPrediction balanced = prediction_of(p, profile, input);
  EXPECT_EQ(balanced.simulation.ranks.size(), 1u);
  EXPECT_EQ(balanced.draws.step_us.size(), 1u);
  input.uncertainty.spread = 0.4;
  input.uncertainty.draws = 25;
  const runtime::StepPrediction drawn = prediction_of(p, profile, input);
  EXPECT_GT(drawn.simulation.ranks.size(), 1u);
  ASSERT_EQ(drawn.draws.step_us.size(), 25u);
  const auto& steps = drawn.draws.step_us;
  EXPECT_GT(runtime::Draws::quantile(steps, 0.5), balanced.step_us);  // the fullest rank holds all others up
  EXPECT_GT(runtime::Draws::quantile(steps, 0.99), runtime::Draws::quantile(steps, 0.5));
  EXPECT_DOUBLE_EQ(drawn.step_us, runtime::Draws::quantile(steps, 0.5));  // what is shown is the median draw
  EXPECT_GT(drawn.draws.peak_live_bytes.back(), balanced.peak_live_bytes);
  EXPECT_EQ(prediction_of(p, profile, input).draws.step_us, steps);  // the same seed, the same draws
  // An arena that balanced rows fill has no room for some of them.
  input.capacity_bytes = balanced.reserved_bytes + (1 << 12);
  const runtime::StepPrediction tight = prediction_of(p, profile, input);
  EXPECT_GT(tight.draws.out_of_memory, 0);
  EXPECT_EQ(tight.draws.out_of_memory + std::ssize(tight.draws.step_us), 25);
}

TEST(StepPrediction, CountedRowsBecomeRowsOfRanks) {
  const Prepared p = prepared(4, 1, 8, 2, 64, Dtype::f32, "plain");
  std::vector<std::vector<double>> counted(2, {80, 80, 10, 10, 10, 10, 20, 36});
  const runtime::ExpertShares shares = runtime::counted_shares(p.lowered.program, counted, "a run");
  runtime::ExpectedRows rows(p.config, p.plan, p.lowered.program, {}, false, shares);
  const auto& e = rows.of(0, p.lowered.program.listings[0], first_op(p.lowered.program, "dispatch"));
  const int64_t all = 4 * 64 * 2;  // rows of the group
  EXPECT_EQ(e.rows[0][0], all * 160 / 256);
  EXPECT_EQ(e.rows[1][0], all * 20 / 256);
  EXPECT_EQ(e.rows[3][0], all * 56 / 256);
  EXPECT_EQ(rows.alike()[1], rows.alike()[2]);  // as many rows
  EXPECT_NE(rows.alike()[0], rows.alike()[1]);
  const auto refuses = [&](const std::vector<std::vector<double>>& rows_LE, const std::string& why) {
    try {
      runtime::counted_shares(p.lowered.program, rows_LE, "a run");
      ADD_FAILURE() << why;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  refuses({counted[0]}, "a run has the rows of 1 MoE layers, the configuration has 2");
  refuses({counted[0], {1, 2, 3}}, "a run has the rows of 3 experts in layer 1, the configuration has 8");
  refuses({counted[0], {1, 2, 3, 4, 5, 6, 7, -1}}, "an expert of layer 1 has -1 rows");
  refuses({counted[0], {1, 2, 3, 4, 5, 6, 7, std::nan("")}}, "an expert of layer 1 has nan rows");
  // No rows at all: as if balanced.
  const auto none = runtime::counted_shares(p.lowered.program, {counted[0], std::vector<double>(8, 0)}, "a run");
  EXPECT_EQ(none.at(1), std::vector<double>(8, 1));
}

TEST(StepPrediction, RoutingIsThatOfAnyRouter) {
  const Prepared p = prepared(4, 1, 8, 2, 64, Dtype::f32, "plain");
  plan::Plan in_parts = p.plan;
  in_parts.fusions.erase("router");
  const plan::Lowered apart = plan::lower(p.config, in_parts);
  const std::vector<std::vector<double>> counted(2, {80, 80, 10, 10, 10, 10, 20, 36});
  EXPECT_EQ(runtime::counted_shares(apart.program, counted, "a run"),
            runtime::counted_shares(p.lowered.program, counted, "a run"));
  const cost::Routing routing{0.13};
  EXPECT_EQ(runtime::drawn_shares(apart.program, routing, 3), runtime::drawn_shares(p.lowered.program, routing, 3));
  EXPECT_EQ(runtime::drawn_shares(apart.program, routing, 3).size(), 2u);
}

TEST(StepPrediction, JitterSpreadsSteps) {
  const Prepared p = prepared(4, 1, 8, 2, 64, Dtype::f32, "plain");
  runtime::PredictionInput input;
  input.backend = "reference";
  input.uncertainty.jitter = 0.1;
  input.uncertainty.draws = 40;
  const cost::MachineProfile profile = made_profile();
  const runtime::StepPrediction f = prediction_of(p, profile, input);
  EXPECT_EQ(f.simulation.ranks.size(), 4u);
  EXPECT_GT(runtime::Draws::quantile(f.draws.step_us, 0.99), runtime::Draws::quantile(f.draws.step_us, 0.5));
  input.uncertainty.jitter = 0;
  EXPECT_GT(runtime::Draws::quantile(f.draws.step_us, 0.5),
            prediction_of(p, profile, input).step_us);  // the slowest
}

TEST(StepPrediction, QuantilesAreOfTheSortedDraws) {
  std::vector<double> hundred(100);
  std::iota(hundred.begin(), hundred.end(), 1);
  EXPECT_EQ(runtime::Draws::quantile(hundred, 0.5), 50);
  EXPECT_EQ(runtime::Draws::quantile(hundred, 0.99), 99);
  EXPECT_EQ(runtime::Draws::quantile(hundred, 1), 100);
  EXPECT_EQ(runtime::Draws::quantile({3}, 0.01), 3);
  EXPECT_EQ(runtime::Draws::quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace heddle::test
