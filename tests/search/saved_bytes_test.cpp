// Bytes that a token leaves for the backward, against the tables of arXiv 2205.05198.
#include "heddle/search/saved_bytes.h"

#include <gtest/gtest.h>

#include "heddle/model/shapes/shape_presets.h"

namespace heddle::search {
namespace {

TEST(SavedBytes, OfAGptLayerAreThePapersSum) {
  const model::Shape& s = *model::find_shape("GPT-3-175B");
  const double h = 12288, a = 96, q = 2048;
  for (const double t : {1.0, 8.0}) {
    Saving v;
    v.fused_attention = v.sequence_parallel = false;
    v.dropout = true;
    v.tp = t;
    SavedBytes b = saved_bytes(s, v, q);
    EXPECT_DOUBLE_EQ(b.attention + b.dense, h * (10 + 24 / t + 5 * a * q / (h * t)));
    v.sequence_parallel = true;
    v.recompute.set(GroupName::attention);
    b = saved_bytes(s, v, q);
    EXPECT_DOUBLE_EQ(b.attention + b.dense, 34 * h / t);
    v.recompute = {GroupName::layer};
    b = saved_bytes(s, v, q);
    EXPECT_DOUBLE_EQ(b.attention + b.dense, 2 * h / t);
  }
}

TEST(SavedBytes, OfMixtureAndLatentAttentionAreTheTables) {
  const model::Shape& s = *model::find_shape("DeepSeek-V3");
  Saving v;
  v.imbalance = 1.5;
  const SavedBytes b = saved_bytes(s, v, 4096);
  const double h = 7168, a = 128, rq = 1536, rkv = 512, dn = 128, dr = 64, dv = 128, k = 8, fe = 2048, fs = 2048;
  EXPECT_DOUBLE_EQ(b.attention,
                   4 * h + 4 * rq + 2 * (rkv + dr) + 2 * rkv + 2 * a * (2 * (dn + dr) + dv) + 2 * a * dv + 4 * a);
  EXPECT_DOUBLE_EQ(b.moe, 4 * h + 9 * 256 + 1.5 * (2 * k * h + 6 * k * fe) + 6 * fs);
  EXPECT_DOUBLE_EQ(b.dense, 4 * h + 6 * 18432);
  v.recompute.set(GroupName::moe);
  EXPECT_DOUBLE_EQ(saved_bytes(s, v, 4096).moe, 4 * h + 9 * 256);
  v.gates_before_down = false;
  v.recompute = {};
  EXPECT_DOUBLE_EQ(saved_bytes(s, v, 4096).moe, b.moe + 1.5 * 2 * k * h);
}

// Beside its queries and weights, an indexer's loss keeps what attention gives each entry.
TEST(SavedBytes, OfTheLossOfAnIndexerOfEntries) {
  model::ModelConfig c;
  c.attention = model::ModelConfig::Attention::compressed;
  c.num_hidden_layers = 4;
  c.compression_pattern = "WSHS";
  c.sliding_window = 128, c.index_topk = 512;
  model::Shape s = model::shape_of(c, "entries");
  const Saving v;
  const double sequence = 65536, heads = static_cast<double>(s.index_n_heads);
  const auto kept = [&](model::IndexStage stage) {
    s.index_stage = stage;
    return saved_bytes(s, v, sequence).attention;
  };
  const double off = kept(model::IndexStage::off);
  const double index = 2 * heads * static_cast<double>(s.index_head_dim) + 4 * heads;
  EXPECT_NEAR(kept(model::IndexStage::sparse) - off, s.indexed() * (index + 4 * static_cast<double>(s.index_topk)),
              1e-6);
  EXPECT_NEAR(kept(model::IndexStage::dense) - off,
              s.indexed() * (index + 4 * sequence / static_cast<double>(s.sparse_rate)), 1e-6);
}

}  // namespace
}  // namespace heddle::search
