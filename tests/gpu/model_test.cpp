// Models over several ranks with the kernels, collectives and exchanges of the cuda backend, against one rank:
// every axis of the mesh. In the emulator only, where ranks are threads: on devices ranks that talk through NCCL
// are processes.
#include <gtest/gtest.h>

#include <cmath>

#include "heddle/backends/backend.h"
#include "heddle/device/device.h"
#include "tests/gpu/tiny_model.h"
#include "tests/support/set_pace.h"

namespace heddle {
namespace {

struct With {
  std::string backend = "cuda", context = "gather", topology = "plain";
  bool exact = false, quantiles = false, joined = false, biases = false, by_id = false, streams = false,
       compressed = false, hy4 = false;
  model::IndexStage stage = model::IndexStage::sparse;
  model::IndexBlocks blocks = model::IndexBlocks::none;
  std::vector<int> node_of;
  double capacity = 0;
  model::Dispatcher copies;
  ProductWay product = ProductWay::cheapest;
  plan::TpOverlap overlap = plan::TpOverlap::off;
  int pieces = 0;
  bool late = false;  // ops last at random, so that ranks meet in any order
  int heads = 2;
};

std::unique_ptr<test::TinyRun> run_of(const plan::Degrees& mesh, Dtype dtype, const With& with = {}) {
  model::ModelConfig c = test::step_model();
  c.num_attention_heads = with.heads;
  c.router_bias = c.experts_bias = with.biases;
  if (with.streams) c.hyper_connections = 4;
  if (with.hy4) {
    c.hyper_connections = 4;
    c.hyper_connections_kind = model::HyperConnection::independent;
    c.attention_sinks = c.indexer_rope_last = true;
    c.attention_gate = model::AttentionGate::element;
    c.index_topk = 60, c.index_n_heads = 3, c.index_head_dim = 6;
    c.experts_limit = 0.5;
    c.limited_gates = true;
  }
  if (with.compressed) {
    c.attention = model::ModelConfig::Attention::compressed;
    c.compression_pattern = std::string("WSHSHSHS").substr(0, static_cast<size_t>(c.num_hidden_layers));
    c.num_nextn_predict_layers = 0;
    c.sliding_window = 5;
    c.sparse_rate = 2, c.heavy_rate = 5;
    c.index_topk = 3, c.index_n_heads = 2, c.index_head_dim = 6;
    c.index_stage = with.stage;
    c.q_lora_rank = 12, c.head_dim = 8, c.qk_rope_head_dim = 4, c.o_groups = 2, c.o_lora_rank = 6;
    c.attention_sinks = true;
  }
  if (with.blocks != model::IndexBlocks::none) {
    const bool greatest = with.blocks == model::IndexBlocks::greatest;
    c.attention = model::ModelConfig::Attention::grouped;
    c.num_attention_heads = 4, c.num_key_value_heads = 2, c.head_dim = 8;
    c.index_blocks = with.blocks;
    c.index_stage = with.stage;
    c.index_topk = 6, c.index_block_size = 3;
    c.index_n_heads = greatest ? 2 : 3, c.index_head_dim = 8;
    c.index_local_blocks = greatest ? 1 : 0;
  }
  if (with.by_id) c.num_hash_layers = c.num_hidden_layers;
  if (with.quantiles) {
    c.n_group = c.topk_group = 1;
    c.topk_bias = true;
    c.bias_balance = model::BiasBalance::quantile;
  }
  plan::Plan plan = test::tiny_plan(mesh, dtype);
  plan.parallel.exchange = with.copies;
  plan.parallel.exchange.topology = from_word<ir::Topology>(with.topology);
  plan.parallel.exchange.capacity_factor = with.capacity;
  plan.parallel.context = from_word<model::Context>(with.context);
  plan.parallel.tp_overlap = with.overlap;
  plan.parallel.tp_panels = with.pieces;
  plan.exact_sums = with.exact;
  plan.device.expert_product = with.product;
  plan.launches_cost = with.joined;
  plan.rates.ways = backends::named(with.backend).rates.ways;
  auto run = std::make_unique<test::TinyRun>(c, plan, with.backend, 1 << 24, 1, true, with.node_of);
  run->fill([&](const model::Parameter& p, int64_t i) { return test::tiny_value(c, p, i); });
  std::vector<test::Batch> batches;
  for (int r = 0; r < plan.ranks(); ++r) {
    test::Batch& batch = batches.emplace_back(test::tiny_batch(plan, run->mesh().at(r).at(ir::Axis::dp)));
    batch.bias_rate = 0.5;
    for (int layer = 0; layer < 4; ++layer) {  // as the last steps had it: those of the first rank are hot
      std::vector<double>& rows = batch.expert_rows[layer];
      for (int64_t e = 0; e < c.n_routed_experts; ++e) rows.push_back(e < c.n_routed_experts / mesh.ep ? 9 : 1);
    }
    // Of equal tokens only rounding would tell which is dropped.
    for (runtime::Microbatch& micro : batch.microbatches) {
      for (size_t i = 0; with.capacity > 0 && i < micro.tokens.size(); ++i)
        micro.tokens[i] = static_cast<int32_t>((static_cast<size_t>(micro.tokens[i]) + 5 * i) % 48);
    }
  }
  for (int r = 0; with.late && r < plan.ranks(); ++r) {
    std::vector<std::vector<int64_t>> pace_ns;
    for (const ir::Listing& listing : run->lowered().program.listings) {
      pace_ns.emplace_back(listing.ops.size(), 0);
      for (size_t i = 0; i < listing.ops.size(); ++i) {
        const uint64_t drawn = RandomKey(static_cast<uint64_t>(r)).bits(i);
        if (drawn % 4 == 0) pace_ns.back()[i] = static_cast<int64_t>(drawn / 4 % 100'000);
      }
    }
    set_pace(run->executor(r), pace_ns);
  }
  run->run(batches);
  return run;
}

double relative(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

class CudaModel : public testing::Test {
 protected:
  void SetUp() override {
    if (const Support there = device::cuda_available(); !there) GTEST_SKIP() << there.reason;
    if (!device::cuda_device({})->shares_memory()) GTEST_SKIP() << "ranks on devices are processes, not threads";
  }
  static void like_one_rank(const plan::Degrees& mesh, With with = {}) {
    const auto many = run_of(mesh, Dtype::f32, with);
    with.backend = "reference";
    with.context = "gather";
    const auto one = run_of({}, Dtype::f32, with);
    for (const model::Parameter& p : one->parameters(0)) {
      if (!p.trained) continue;
      // Ten times what sums of some thousand terms differ by in another order.
      EXPECT_LT(relative(many->whole("grad.", p.name), one->whole("grad.", p.name)), 2e-5) << p.name;
      // Streams are alike up to the first block: of what mixes them all of the gradient is rounding, and AdamW's
      // steps are as large as elsewhere.
      if (!p.name.starts_with("model.layers.0.attn_hc.")) {
        EXPECT_LT(relative(many->whole("master.", p.name), one->whole("master.", p.name)), 1e-5) << p.name;
      }
    }
    for (const char* name : {"loss.next_token", "loss.sequence_aux.1", "loss.z.1"}) {
      EXPECT_NEAR(many->total(name), one->total(name), 1e-5 * std::abs(one->total(name))) << name;
    }
  }
};

TEST_F(CudaModel, one_rank) { like_one_rank({}); }
TEST_F(CudaModel, data_parallel) { like_one_rank({.dp = 2}); }
TEST_F(CudaModel, tensor_parallel) { like_one_rank({.tp = 2}); }
TEST_F(CudaModel, pipeline) { like_one_rank({.pp = 2}); }
TEST_F(CudaModel, experts) { like_one_rank({.dp = 4, .ep = 4}); }
TEST_F(CudaModel, experts_by_token_id) { like_one_rank({.tp = 2, .cp = 2, .pp = 2, .ep = 4}, {.by_id = true}); }
TEST_F(CudaModel, streams) { like_one_rank({.tp = 2, .dp = 2, .pp = 2, .ep = 2}, {.streams = true}); }
TEST_F(CudaModel, chosen_keys_beside_sinks_and_gates) {
  for (const auto& mesh : {plan::Degrees{}, plan::Degrees{.tp = 2, .cp = 2, .pp = 2, .ep = 2}})
    like_one_rank(mesh, {.hy4 = true});
}
TEST_F(CudaModel, compressed_keys) {
  for (const auto& mesh : {plan::Degrees{}, plan::Degrees{.tp = 2, .cp = 2, .pp = 2, .ep = 2}})
    like_one_rank(mesh, {.compressed = true});
  like_one_rank({}, {.compressed = true, .stage = model::IndexStage::dense});
}
TEST_F(CudaModel, blocks_of_keys) {
  for (const model::IndexBlocks blocks : {model::IndexBlocks::greatest, model::IndexBlocks::mean}) {
    SCOPED_TRACE(word_of(blocks));
    for (const auto& mesh : {plan::Degrees{}, plan::Degrees{.tp = 2, .cp = 2, .ep = 2}})
      like_one_rank(mesh, {.blocks = blocks});
    like_one_rank({}, {.stage = model::IndexStage::dense, .blocks = blocks});
  }
}
TEST_F(CudaModel, all_axes) { like_one_rank({.tp = 2, .dp = 2, .pp = 2, .ep = 2}); }
TEST_F(CudaModel, context) {
  for (const char* how : {"gather", "ulysses", "ring"}) {
    SCOPED_TRACE(how);
    like_one_rank({.cp = 2}, {.context = how});
  }
  for (const char* how : {"hybrid", "double_ring"}) {
    SCOPED_TRACE(how);
    like_one_rank({.cp = 4}, {.context = how});
  }
}

TEST_F(CudaModel, products_in_one_with_their_collectives_keep_the_bits) {
  const auto same = [](const plan::Degrees& mesh, Dtype dtype, With with) {
    const auto whole = run_of(mesh, dtype, with);
    with.overlap = plan::TpOverlap::fused;
    with.late = true;
    with.pieces = 3;
    SCOPED_TRACE(fmt::format("{}, {}", plan::text_of(mesh), name_of(dtype)));
    const auto fused = run_of(mesh, dtype, with);
    const std::vector<ir::Op>& ops = fused->listing(0).ops;
    EXPECT_GT(std::count_if(ops.begin(), ops.end(), [](const ir::Op& op) { return op.def->by_pieces; }), 3);
    EXPECT_EQ(fused->total("loss.next_token"), whole->total("loss.next_token"));
    for (const model::Parameter& p : whole->parameters(0)) {
      if (!p.trained) continue;
      EXPECT_EQ(fused->whole("grad.", p.name), whole->whole("grad.", p.name)) << p.name;
    }
  };
  same({.tp = 2}, Dtype::f32, {});
  same({.tp = 2}, Dtype::bf16, {});
  same({.tp = 4}, Dtype::bf16, {.heads = 4});
}

TEST_F(CudaModel, expert_degrees_agree_to_the_bit) {
  const auto one = run_of({.dp = 4}, Dtype::bf16);
  for (const int ep : {2, 4}) {
    const auto many = run_of({.dp = 4, .ep = ep}, Dtype::bf16);
    EXPECT_EQ(many->total("loss.next_token"), one->total("loss.next_token"));
    for (const model::Parameter& p : one->parameters(0)) {
      // Gradients of what every rank holds alike are sums in the same order; those of experts are reassociated.
      if (!p.trained || p.name.find(".experts.") != std::string::npos) continue;
      EXPECT_EQ(many->whole("grad.", p.name), one->whole("grad.", p.name)) << "ep " << ep << ", " << p.name;
    }
  }
}

TEST_F(CudaModel, exact_sums_are_the_same_on_any_layout) {
  const auto one = run_of({}, Dtype::bf16, {.exact = true});
  for (const plan::Degrees& mesh : {plan::Degrees{.dp = 2, .ep = 2}, plan::Degrees{.pp = 2}}) {
    const auto many = run_of(mesh, Dtype::bf16, {.exact = true});
    for (const model::Parameter& p : one->parameters(0)) {
      if (!p.trained) continue;
      EXPECT_EQ(many->whole("master.", p.name), one->whole("master.", p.name)) << p.name;
    }
  }
}

TEST_F(CudaModel, joined_updates_keep_the_bits) {
  const auto apart = run_of({.dp = 2}, Dtype::bf16), joined = run_of({.dp = 2}, Dtype::bf16, {.joined = true});
  const auto steps = [](const test::TinyRun& run) {
    return std::ranges::count_if(run.lowered().program.listings[0].ops,
                                 [](const ir::Op& op) { return op.kind().starts_with("adamw"); });
  };
  EXPECT_GT(steps(*apart), 20);
  EXPECT_LE(steps(*joined), 3) << "matrices, vectors, and what is sharded otherwise";
  for (const model::Parameter& p : apart->parameters(0)) {
    if (!p.trained) continue;
    for (const char* state : {"master.", "m.", "v."})
      EXPECT_EQ(joined->whole(state, p.name), apart->whole(state, p.name)) << state << p.name;
  }
}

TEST_F(CudaModel, expert_tensor_parallel) { like_one_rank({.dp = 4, .ep = 2, .etp = 2}); }

TEST_F(CudaModel, exchange_topologies_agree_to_the_bit) {
  const plan::Degrees mesh{.dp = 4, .ep = 4};
  const auto plain = run_of(mesh, Dtype::bf16);
  for (const char* topology : {"rank", "node", "merge", "auto"}) {
    const auto other = run_of(mesh, Dtype::bf16, {.topology = topology, .node_of = {0, 0, 1, 1}});
    EXPECT_EQ(other->total("loss.next_token"), plain->total("loss.next_token")) << topology;
    for (const model::Parameter& p : plain->parameters(0)) {
      if (!p.trained) continue;
      EXPECT_EQ(other->whole("grad.", p.name), plain->whole("grad.", p.name)) << topology << ", " << p.name;
    }
  }
}

// What is dropped and counted is as on one rank, on reference as here: whole numbers, of choices far from a tie.
TEST_F(CudaModel, capacity_drops_as_one_rank_does) {
  for (const double factor : {0.5, 1.25}) {
    const With with{.quantiles = true, .capacity = factor};
    const auto one = run_of({}, Dtype::f32, {.backend = "reference", .quantiles = true, .capacity = factor});
    if (factor < 1) {
      EXPECT_GT(one->total("dropped.1"), 0);
    }
    for (const plan::Degrees& mesh : {plan::Degrees{}, {.dp = 4, .ep = 4}, {.dp = 4, .ep = 2, .etp = 2}}) {
      SCOPED_TRACE(fmt::format("{} at {}", factor, plan::text_of(mesh)));
      like_one_rank(mesh, with);
      EXPECT_EQ(run_of(mesh, Dtype::f32, with)->total("dropped.1"), one->total("dropped.1"));
    }
  }
}

TEST_F(CudaModel, products_of_equal_groups_go_each_way) {
  for (const ProductWay way : {ProductWay::batched, ProductWay::serial}) {
    const With with{.capacity = 1.25, .product = way};
    like_one_rank({.dp = 4, .ep = 4}, with);
    const auto run = run_of({}, Dtype::f32, with);
    int64_t products = 0;
    for (const ir::Op& op : run->listing(0).ops)
      products += op.attributes.has("way") && op.attributes.word("way") == word_of(way) ? 1 : 0;
    EXPECT_GE(products, 6) << word_of(way);
  }
  like_one_rank({.dp = 4, .ep = 4}, {.product = ProductWay::serial});
}

TEST_F(CudaModel, capacity_keeps_its_bits_from_layout_to_layout) {
  const With with{.exact = true, .quantiles = true, .capacity = 0.75};
  const auto one = run_of({}, Dtype::bf16, with), many = run_of({.dp = 2, .ep = 2}, Dtype::bf16, with);
  for (const model::Parameter& p : one->parameters(0)) {
    if (!p.trained && !p.balances) continue;
    EXPECT_EQ(many->whole(p.balances ? "" : "master.", p.name), one->whole(p.balances ? "" : "master.", p.name))
        << p.name;
  }
}

// All sizes are known before anything runs: nobody waits for a device.
TEST_F(CudaModel, capacity_never_stalls_the_host) {
  const auto stalls = [](const With& with) {
    const auto run = run_of({.dp = 2, .ep = 2}, Dtype::f32, with);
    int64_t count = 0;
    for (const ir::Op& op : run->listing(0).ops) count += op.def->host_stall ? 1 : 0;
    return count;
  };
  EXPECT_GT(stalls({}), 0);
  EXPECT_EQ(stalls({.capacity = 1.25}), 0);
}

double second_rounds(test::TinyRun& run) { return run.total("beyond.1"); }

// The host makes room before it knows the counts, and never learns them: slots travel, of which the second message
// has what is more than even. What finds no room has a second round, of some ranks or of all.
TEST_F(CudaModel, room_for_rows_keeps_the_bits_without_a_stall) {
  for (const plan::Degrees& mesh : {plan::Degrees{.dp = 2, .ep = 2},
                                    {.dp = 4, .ep = 4},
                                    {.dp = 4, .ep = 2, .etp = 2},
                                    {.tp = 2, .dp = 2, .pp = 2, .ep = 2}}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const auto waits = run_of(mesh, dtype);
      const int ranks = plan::Mesh(mesh).ranks();
      int64_t stalls = 0;
      for (int r = 0; r < ranks; ++r) stalls += waits->executor(r).host_stalls();
      EXPECT_GT(stalls, 0);
      for (const double factor : {64.0, 1.25, 0.25}) {
        SCOPED_TRACE(fmt::format("{}, {}, room {}", plan::text_of(mesh), name_of(dtype), factor));
        const auto never = run_of(mesh, dtype, {.copies = {.room_factor = factor}});
        for (int r = 0; r < ranks; ++r) EXPECT_EQ(never->executor(r).host_stalls(), 0);
        if (factor != 1.25) {
          EXPECT_EQ(second_rounds(*never) > 0, factor < 1);
        }
        EXPECT_EQ(never->total("loss.next_token"), waits->total("loss.next_token"));
        for (const model::Parameter& p : waits->parameters(0)) {
          if (!p.trained) continue;
          EXPECT_EQ(never->whole("grad.", p.name), waits->whole("grad.", p.name)) << p.name;
          EXPECT_EQ(never->whole("master.", p.name), waits->whole("master.", p.name)) << p.name;
        }
      }
    }
  }
}

TEST_F(CudaModel, room_for_rows_keeps_the_bits_of_exact_sums_and_biases) {
  const plan::Degrees mesh{.dp = 4, .ep = 4};
  for (const bool exact : {false, true}) {
    const auto waits = run_of(mesh, Dtype::bf16, {.exact = exact, .biases = !exact});
    for (const double factor : {64.0, 0.25}) {
      const auto never =
          run_of(mesh, Dtype::bf16, {.exact = exact, .biases = !exact, .copies = {.room_factor = factor}});
      EXPECT_EQ(second_rounds(*never) > 0, factor < 1);
      for (const model::Parameter& p : waits->parameters(0)) {
        if (!p.trained) continue;
        EXPECT_EQ(never->whole("master.", p.name), waits->whole("master.", p.name)) << p.name;
      }
    }
  }
}

// The step ends, without rows being lost unseen: its statistic says so, at which the trainer ends the run.
TEST_F(CudaModel, rows_without_room_or_a_second_round_are_counted) {
  const auto tight =
      run_of({.dp = 4, .ep = 4}, Dtype::f32, {.copies = {.room_factor = 0.25, .second_round = false}});
  EXPECT_GT(second_rounds(*tight), 0);
}

// With whole sums nothing may change: copies of experts move rows and the places where they are summed.
TEST_F(CudaModel, copies_of_hot_experts_keep_the_bits) {
  const auto with = [](model::ReplicasFrom from) {
    return model::Dispatcher{.replicas = 2, .replicas_from = from};
  };
  for (const plan::Degrees& mesh : {plan::Degrees{.dp = 4, .ep = 4}, plan::Degrees{.dp = 4, .ep = 2, .etp = 2}}) {
    for (const bool exact : {false, true}) {
      const auto none = run_of(mesh, Dtype::bf16, {.exact = exact});
      for (const auto from : {model::ReplicasFrom::counts, model::ReplicasFrom::history}) {
        const auto copied =
            run_of(mesh, Dtype::bf16, {.exact = exact, .node_of = {0, 0, 1, 1}, .copies = with(from)});
        EXPECT_EQ(copied->total("loss.next_token"), none->total("loss.next_token"));
        bool moved = false;
        for (const model::Parameter& p : none->parameters(0)) {
          if (!p.trained) continue;
          const auto before = none->whole("grad.", p.name), after = copied->whole("grad.", p.name);
          if (exact || p.name.find(".experts.") == std::string::npos) {
            EXPECT_EQ(after, before) << word_of(from) << ", " << p.name;
          }
          EXPECT_LT(relative(after, before), 1e-5) << word_of(from) << ", " << p.name;
          moved = moved || after != before;
        }
        EXPECT_EQ(moved, !exact) << "copies sum in two places, unless no order can change a sum";
        const comm::Traffic sent = copied->communicators(0).traffic().at("comm.copies");
        EXPECT_GT(sent.within_node_bytes + sent.across_nodes_bytes, 0);
      }
    }
  }
}

}  // namespace
}  // namespace heddle
