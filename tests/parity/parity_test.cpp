// Random layouts on thread ranks. HEDDLE_PARITY_DRAWS asks for more than the usual number.
#include "tests/parity/parity.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "heddle/config/run_config.h"
#include "heddle/passes/host/offload.h"
#include "heddle/plan/check.h"
#include "heddle/schedule/generators/generators.h"

namespace heddle::parity {
namespace {

uint64_t draws() {
  const char* asked = std::getenv("HEDDLE_PARITY_DRAWS");
  return asked == nullptr ? 24 : std::strtoull(asked, nullptr, 10);
}

using Met = std::map<std::string, int>;  // how often draws had something

void expect_one_rank(const Draw& d, const Fault& fault = {}) {
  for (const std::string& difference : differences_on_threads(d, fault)) {
    if (difference != kFlipped) ADD_FAILURE() << difference;
  }
}

void expect_no_difference(const Draw& d) {
  for (const std::string& difference : differences_on_threads(d)) ADD_FAILURE() << difference;
}

Draw drawn(uint64_t number) { return draw(number, 8); }

/// One draw in `part` of as many as asked for, from a number on: those that are taken.
template <class Make, class Takes, class Use>
void for_draws(uint64_t part, uint64_t first, const Make& make, const Takes& takes, const Use& use) {
  const uint64_t wanted = std::max<uint64_t>(1, draws() / part);
  for (uint64_t number = first, found = 0; found < wanted; ++number) {
    const Draw d = make(number);
    if (!takes(d)) continue;
    ++found;
    use(d);
  }
}

/// Draws in bf16 that are taken, from a number on, with either rounding.
void expect_one_rank_in_bf16(uint64_t first, bool (*takes)(const Draw& d)) {
  for (const Rounding rounding : {Rounding::same, Rounding::others}) {
    const auto make = [&](uint64_t number) { return draw_bf16(number, 8, rounding); };
    for_draws(4, first, make, takes, expect_no_difference);
  }
}

void count_axes(Met& met, const plan::Degrees& mesh) {
  met["tp"] += mesh.tp > 1;
  met["cp"] += mesh.cp > 1;
  met["dp"] += mesh.dp > 1;
  met["pp"] += mesh.pp > 1;
  met["ep"] += mesh.ep > 1;
}

/// Each was met, if there were `enough` draws.
void expect_met(const Met& met, bool enough) {
  for (const auto& [what, times] : met) EXPECT_TRUE(times > 0 || !enough) << "no draw with " << what;
}

/// Draws that are taken, from a number on, give what one rank gives. Of `enough` draws some have all that is noted.
template <class Takes, class Note>
void expect_one_rank_of(uint64_t first, uint64_t enough, const Takes& takes, const Note& note) {
  Met met;
  for_draws(2, first, drawn, takes, [&](const Draw& d) {
    note(met, d);
    expect_one_rank(d);
  });
  expect_met(met, draws() / 2 >= enough);
}

// A switch that promises to keep the maths can't be left out: whatever tests try of it is drawn.
TEST(Draws, HaveEveryValueOfEverySwitch) {
  std::map<std::string, std::set<std::string>> drawn;
  for (uint64_t number = 0; number < 600; ++number) {
    const Draw d = draw(number, 16);
    config::RunConfig config;
    config.plan = d.plan;
    config.mesh_ranks = d.plan.ranks();
    for (const config::Setting& s : config::settings()) {
      const std::string text = plan::text_of(s.get(config));
      drawn[s.key].insert(text);
      if (s.kind != plan::Row::Kind::list) continue;
      std::istringstream words(text);
      for (std::string word; std::getline(words, word, ',');)
        drawn[s.key].insert(word.substr(0, word.find_first_of(":>")));
    }
  }
  for (const config::Setting& s : config::settings()) {
    if (!s.is_switch(plan::MathsClass::bitwise) && !s.is_switch(plan::MathsClass::reassociates)) continue;
    for (const plan::Value& value : s.tried_values())
      EXPECT_TRUE(drawn[s.key].contains(plan::text_of(value))) << s.key << " = " << plan::text_of(value);
  }
}

TEST(Parity, RandomLayoutsEqualOneRank) {
  uint64_t flipped = 0;
  for (uint64_t number = 0; number < draws(); ++number) {
    const Draw d = draw(number, 16);
    for (const std::string& difference : differences_on_threads(d)) {
      if (difference == kFlipped) {
        ++flipped;
      } else {
        ADD_FAILURE() << difference;
      }
    }
  }
  EXPECT_LE(flipped * 20, draws()) << "draws in fp32 that could not be compared";
}

// Adapters among cuts of every kind: each must have been met.
TEST(Parity, AdaptersInRandomLayouts) {
  expect_one_rank_of(
      10'000, 12, [](const Draw& d) { return d.plan.lora.rank > 0; },
      [](Met& met, const Draw& d) {
        const plan::Degrees& mesh = d.plan.mesh;
        count_axes(met, mesh);
        met["etp"] += mesh.etp > 1 && d.plan.lora.targets == "all";
      });
}

// Recurrent layers among cuts of every kind.
TEST(Parity, RecurrencesInRandomLayouts) {
  expect_one_rank_of(
      60'000, 20, [](const Draw& d) { return d.model.recurs(); },
      [](Met& met, const Draw& d) {
        const plan::Degrees& mesh = d.plan.mesh;
        met["tp"] += mesh.tp > 1;
        const bool pieces = mesh.cp > 1 && d.plan.parallel.context != model::Context::ulysses;
        met["cp by heads"] += mesh.cp > 1 && !pieces;
        met["cp by pieces"] += pieces;
        met["dp"] += mesh.dp > 1;
        met["pp"] += mesh.pp > 1;
        met["ep"] += mesh.ep > 1;
        met["documents"] += d.plan.document_end >= 0;
        met["recompute"] += !d.plan.memory.recompute.empty();
        met["f32"] += d.plan.dtype == Dtype::f32;
        met["one block a layer"] += d.model.is_hybrid();
        met["positions"] += d.model.turns();
        met["no positions"] += d.model.positions == model::Positions::none;
        for (const model::Recurrence kind : {model::Recurrence::gated_delta, model::Recurrence::kimi_delta,
                                             model::Recurrence::lightning, model::Recurrence::mamba2})
          met[std::string(word_of(kind))] += d.model.recurrence == kind;
      });
}

/// The draw with Mamba-2 beside attention in place of its recurrence; false where it has none, or the rest of it
/// does not go with that.
bool put_beside_attention(Draw& d) {
  model::ModelConfig& c = d.model;
  if (!c.recurs() || !c.is_grouped() || c.is_hybrid()) return false;
  c.recurrence = model::Recurrence::mamba2;
  c.recurrence_beside_attention = true;
  c.linear_projections_apart = c.linear_tensors_apart = c.linear_double_beta = c.full_attention_last = false;
  c.layer_pattern.clear();
  c.sliding_window = c.full_attention_interval = 0;
  c.window_chunks = false;
  if (c.norm_places == model::NormPlaces::mixed) c.norm_places = model::NormPlaces::both;
  c.linear_attn_alpha_factor = 1;
  c.linear_norm = static_cast<model::RecurrentNorm>(d.seed % 3);
  if (d.seed % 2 == 0) c.linear_part_multipliers = "0.7, 1.3, 0.5, 1.5, 0.9";
  c.rms_norm_eps = 1e-2;  // a norm of heads ahead of their gate magnifies roundings, and so does one of the sum
  try {
    model::validate(c);
    plan::check(c, d.plan);
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

TEST(Parity, MixersSideBySideInRandomLayouts) {
  Met met;
  const uint64_t wanted = std::max<uint64_t>(1, draws() / 2);
  for (uint64_t number = 170'000, found = 0; found < wanted; ++number) {
    Draw d = draw(number, 8);
    if (!put_beside_attention(d)) continue;
    ++found;
    const model::ModelConfig& c = d.model;
    const bool across = d.plan.mesh.cp > 1, by_heads = d.plan.parallel.context == model::Context::ulysses;
    count_axes(met, d.plan.mesh);
    met["cp by heads"] += across && by_heads;
    met["cp by pieces"] += across && !by_heads;
    met["recompute"] += !d.plan.memory.recompute.empty();
    met["adapters"] += d.plan.lora.rank > 0;
    met["further tokens"] += c.num_nextn_predict_layers > 0;
    met["MLPs beside them"] += c.parallel_blocks;
    met["factors on keys"] += c.key_multiplier != 1;
    met["factors on gates"] += c.mlp_gate_multiplier != 1;
    met["documents"] += d.plan.document_end >= 0;
    expect_one_rank(d);
  }
  expect_met(met, wanted >= 40);
}

// Windows in models with recurrences.
TEST(Parity, WindowsBesideRecurrencesInRandomLayouts) {
  expect_one_rank_of(
      180'000, 40, [](const Draw& d) { return d.model.recurs() && d.model.sliding_window > 0; },
      [](Met& met, const Draw& d) {
        count_axes(met, d.plan.mesh);
        met["latent"] += d.model.is_latent();
        met["convolutions"] += !d.model.has_states();
        met["all letters"] += d.model.has_kind(model::LayerKind::attention);
        met["documents"] += d.plan.document_end >= 0;
      });
}

// Runs of neighbours of cp, by heads or by inner rings, keys and values round the others, in every kind of model
// and cut.
void expect_one_rank_in_runs(model::Context way, Draw d, Met& met, uint64_t& found) {
  if (d.plan.mesh.cp < 4 || !d.model.attends()) return;
  d.plan.parallel.context = way;
  d.plan.parallel.context_inner = way == model::Context::double_ring && d.seed % 2 == 0 ? 2 : 0;
  try {
    plan::check(d.model, d.plan);
  } catch (const ConfigError&) {
    return;  // heads that neighbours can't share
  }
  ++found;
  met["tp"] += d.plan.mesh.tp > 1;
  met["latent"] += d.model.is_latent();
  met["grouped"] += !d.model.is_latent();
  met["documents"] += d.plan.document_end >= 0;
  met["windows"] += d.model.sliding_window > 0;
  met["dropout"] += d.model.attention_dropout > 0;
  met["qk_clip"] += d.plan.update.qk_clip > 0;
  met["recompute"] += !d.plan.memory.recompute.empty();
  expect_one_rank(d);
}
void expect_runs_in_random_layouts(model::Context way) {
  Met met;
  const uint64_t wanted = std::max<uint64_t>(1, draws() / 2);
  for (uint64_t number = 110'000, found = 0; found < wanted; ++number)
    expect_one_rank_in_runs(way, draw(number, 8), met, found);
  expect_met(met, wanted >= 24);
}
void expect_runs_in_bf16(model::Context way) {
  Met met;
  const uint64_t wanted = std::max<uint64_t>(1, draws() / 4);
  for (uint64_t number = 1'200, found = 0; found < wanted; ++number)
    expect_one_rank_in_runs(way, draw_bf16(number, 8, Rounding::others), met, found);
}
TEST(Parity, ContextInRunsInRandomLayouts) { expect_runs_in_random_layouts(model::Context::hybrid); }
TEST(Parity, ContextInRunsInBf16) { expect_runs_in_bf16(model::Context::hybrid); }
TEST(Parity, ContextInDoubleRingsInRandomLayouts) { expect_runs_in_random_layouts(model::Context::double_ring); }
TEST(Parity, ContextInDoubleRingsInBf16) { expect_runs_in_bf16(model::Context::double_ring); }

// Parts of a ring read sinks more than once, and their gradient is made once: on ranks with two copies of the
// stages.
TEST(Parity, SinksOfRingsInTwoCopies) {
  for (uint64_t number = 110'000, found = 0; found < 3; ++number) {
    Draw d = draw(number, 8);
    if (!d.model.attention_sinks || d.plan.mesh.cp == 1 || d.plan.mesh.pp != 2) continue;
    d.plan.parallel.schedule = "dual_pipe";
    d.plan.parallel.context = model::Context::ring;
    try {
      plan::check(d.model, d.plan);
    } catch (const ConfigError&) {
      continue;
    }
    ++found;
    expect_one_rank(d);
  }
}

// States that go from piece to piece of a sequence, where documents begin anew.
TEST(Parity, RecurrencesInPiecesOfDocuments) {
  const auto takes = [](const Draw& d) {
    const bool pieces = d.plan.mesh.cp > 1 && d.plan.parallel.context != model::Context::ulysses;
    return d.model.recurs() && pieces && d.plan.document_end >= 0;
  };
  for_draws(4, 65'000, drawn, takes, [](const Draw& d) { expect_one_rank(d); });
}

TEST(Parity, RecurrencesInBf16) {
  expect_one_rank_in_bf16(700, [](const Draw& d) { return d.model.recurs(); });
}

// Each number is a model, a mesh and switches that go together, whoever takes it.
TEST(Parity, EachNumberIsDrawn) {
  for (uint64_t number = 0; number < 12 * draws(); ++number) {
    for (const Rounding rounding : {Rounding::same, Rounding::others}) {
      const Draw d = draw_bf16(number, 8, rounding);
      EXPECT_NO_THROW(plan::check(d.model, d.plan)) << number;
    }
  }
}

void count_stages(Met& met, const model::ModelConfig& c) {
  met["the sparse stage"] += c.selects() && c.index_stage == model::IndexStage::sparse;
  met["the dense stage"] += c.selects() && c.index_stage == model::IndexStage::dense;
}

// Indexers that select keys.
TEST(Parity, SelectionsInRandomLayouts) {
  Met met;
  const uint64_t wanted = std::max<uint64_t>(1, draws() / 2);
  for (uint64_t number = 80'000, found = 0; found < wanted; ++number) {
    const Draw d = draw(number, 8);
    if (!d.model.selects() || d.model.selects_blocks()) continue;
    ++found;
    const plan::Degrees& mesh = d.plan.mesh;
    count_axes(met, mesh);
    met["documents"] += d.plan.document_end >= 0;
    met["recompute"] += !d.plan.memory.recompute.empty();
    met["f32"] += d.plan.dtype == Dtype::f32;
    met["fewer keys than there are"] += d.model.index_topk < d.plan.sequence_length;
    met["choices that layers share"] += d.model.index_topk_freq > 1;
    met["sinks"] += d.model.attention_sinks;
    met["gates"] += d.model.attention_gate != model::AttentionGate::none;
    expect_one_rank(d);
  }
  expect_met(met, wanted >= 12);
}

// Blocks of keys, chosen by their greatest score or by their mean.
TEST(Parity, BlocksOfKeysInRandomLayouts) {
  Met met;
  const uint64_t wanted = std::max<uint64_t>(1, draws() / 2);
  for (uint64_t number = 90'000, found = 0; found < wanted; ++number) {
    const Draw d = draw(number, 8);
    if (!d.model.selects_blocks()) continue;
    ++found;
    count_axes(met, d.plan.mesh);
    count_stages(met, d.model);
    const bool greatest = d.model.index_blocks == model::IndexBlocks::greatest;
    met["documents"] += d.plan.document_end >= 0;
    met["recompute"] += !d.plan.memory.recompute.empty();
    met["f32"] += d.plan.dtype == Dtype::f32;
    met["greatest scores"] += greatest;
    met["means"] += !greatest;
    met["a choice a key head"] += greatest && d.model.num_key_value_heads > d.plan.mesh.tp;
    met["fewer keys than there are"] += d.model.index_topk < d.plan.sequence_length;
    met["layers of two kinds"] += !d.model.index_pattern.empty();
    met["recurrent layers"] += d.model.recurs();
    expect_one_rank(d);
  }
  expect_met(met, wanted >= 24);
}

// Compressed keys, chosen and not.
TEST(Parity, CompressedKeysInRandomLayouts) {
  Met met;
  const uint64_t wanted = std::max<uint64_t>(1, draws() / 2);
  for (uint64_t number = 85'000, found = 0; found < wanted; ++number) {
    const Draw d = draw(number, 8);
    if (!d.model.is_compressed()) continue;
    ++found;
    count_axes(met, d.plan.mesh);
    count_stages(met, d.model);
    met["documents"] += d.plan.document_end >= 0;
    met["recompute"] += !d.plan.memory.recompute.empty();
    met["f32"] += d.plan.dtype == Dtype::f32;
    met["chosen entries"] += d.model.selects() && d.model.index_topk * d.model.sparse_rate < d.plan.sequence_length;
    met["all entries"] += d.model.has_compression(model::Compression::heavy);
    met["streams"] += d.model.has_streams();
    expect_one_rank(d);
  }
  expect_met(met, wanted >= 24);
}

TEST(Parity, CompressedKeysInBf16) {
  expect_one_rank_in_bf16(1300, [](const Draw& d) { return d.model.is_compressed(); });
}

TEST(Parity, SelectionsInBf16) {
  expect_one_rank_in_bf16(900, [](const Draw& d) { return d.model.selects(); });
}

// Capacities of experts among cuts of every kind, that drop and that can't, and margins counted.
TEST(Parity, CapacityInRandomLayouts) {
  expect_one_rank_of(
      30'000, 12,
      [](const Draw& d) {
        const double factor = d.plan.parallel.exchange.capacity_factor;
        return factor != 0 && d.model.first_k_dense_replace < d.model.num_hidden_layers;
      },
      [](Met& met, const Draw& d) {
        const double factor = d.plan.parallel.exchange.capacity_factor;
        const plan::Degrees& mesh = d.plan.mesh;
        const bool drops = factor * d.model.num_experts_per_tok < static_cast<double>(d.model.n_routed_experts);
        met["drops on several ranks"] += drops && mesh.ep > 1;
        met["cut rows"] += mesh.tp * mesh.cp > 1;
        met["cut experts"] += mesh.etp > 1;
        met["pp"] += mesh.pp > 1;
        met["quantiles"] += d.model.bias_balance == model::BiasBalance::quantile;
      });
}

// Rows of experts in rooms for all of them, for some ranks' and for none: what finds no room has a second round.
TEST(Parity, RoomsInRandomLayouts) {
  Met met;
  const auto takes = [](const Draw& d) {
    const plan::Degrees& mesh = d.plan.mesh;
    return d.plan.parallel.exchange.room_factor != 0 && d.model.has_experts() && mesh.ep * mesh.etp > 1;
  };
  for_draws(2, 130'000, drawn, takes, [&](const Draw& d) {
    const plan::Degrees& mesh = d.plan.mesh;
    std::atomic<int> rounds = 0, second = 0;
    const auto count = [&](const ir::Listing&, const device::KernelCall& call) {
      if (call.op->kind() != "room_for_counts" || call.op->attributes.has("round")) return;
      ++rounds;
      second += *call.out[5].as<const int32_t>() < 0 ? 1 : 0;
    };
    expect_one_rank(d, {.after = count});
    met["a second round"] += second > 0;
    met["no second round"] += second == 0;
    met["a second round of some"] += second > 0 && second < rounds;
    met["cut rows with a second round"] += second > 0 && mesh.tp * mesh.cp > 1;
    met["cut experts with a second round"] += second > 0 && mesh.etp > 1;
    met["pp with a second round"] += second > 0 && mesh.pp > 1;
  });
  expect_met(met, draws() >= 24);
}

// Experts without computation, pairs of layers whose experts add behind the second, gates of two experts.
TEST(Parity, RoutersInRandomLayouts) {
  expect_one_rank_of(
      50'000, 40,
      [](const Draw& d) {
        const model::ModelConfig& c = d.model;
        return c.has_experts() && (c.zero_expert_num != 0 || c.shortcut_experts || c.sparse_mixer);
      },
      [](Met& met, const Draw& d) {
        const model::ModelConfig& c = d.model;
        const plan::Degrees& mesh = d.plan.mesh;
        met["some without computation on one rank"] += c.zero_expert_num > 0 && mesh.ep * mesh.etp == 1;
        met["some without computation on several"] += c.zero_expert_num > 0 && mesh.ep > 1;
        met["some without computation, cut"] += c.zero_expert_num > 0 && mesh.etp > 1;
        met["more than compute on several"] += c.num_experts_per_tok > c.n_routed_experts && mesh.ep > 1;
        met["pairs in a pipeline"] += c.shortcut_experts && mesh.pp > 1;
        met["gates of two"] += c.sparse_mixer;
        met["by shares"] += c.bias_balance == model::BiasBalance::share && c.topk_bias;
      });
}

// Parts of Gemma 4 among cuts of every kind.
TEST(Parity, GemmasInRandomLayouts) {
  expect_one_rank_of(
      90'000, 60,
      [](const Draw& d) {
        const model::ModelConfig& c = d.model;
        return !c.is_latent() &&
               (c.value_norm || c.keys_are_values || c.shared_key_value_layers > 0 || c.layer_embedding_size > 0);
      },
      [](Met& met, const Draw& d) {
        const model::ModelConfig& c = d.model;
        const plan::Degrees& mesh = d.plan.mesh;
        count_axes(met, mesh);
        met["recompute"] += !d.plan.memory.recompute.empty();
        met["normed values, tp"] += c.value_norm && mesh.tp > 1;
        met["keys as values, cp"] += c.keys_are_values && mesh.cp > 1;
        met["windows of other widths"] += c.window_head_dim > 0;
        met["pairs that stand still"] += c.turning_pairs_factor < 1;
        met["norms of experts on several ranks"] += c.expert_norms && c.has_experts() && mesh.ep > 1;
        met["scaled experts on several ranks"] += c.expert_scales && c.has_experts() && mesh.ep > 1;
        met["scaled layers in a pipeline"] += c.layer_scalars && mesh.pp > 1;
        met["shared keys, cp"] += c.shared_key_value_layers > 0 && mesh.cp > 1;
        met["shared keys, recompute"] += c.shared_key_value_layers > 0 && !d.plan.memory.recompute.empty();
        met["wider MLPs there"] += c.sharing_intermediate_size > 0;
        met["embeddings of layers, tp"] += c.layer_embedding_size > 0 && mesh.tp > 1;
        met["embeddings of layers, recompute"] += c.layer_embedding_size > 0 && !d.plan.memory.recompute.empty();
      });
}

// Layers whose experts a table of token ids chooses.
TEST(Parity, LayersInRandomLayouts) {
  expect_one_rank_of(
      150'000, 60,
      [](const Draw& d) {
        const model::ModelConfig& c = d.model;
        return c.parallel_blocks || c.window_chunks || !c.mlp_pattern.empty() || c.qk_unit_norm ||
               (c.gates_on_inputs && c.has_experts());
      },
      [](Met& met, const Draw& d) {
        const model::ModelConfig& c = d.model;
        const plan::Degrees& mesh = d.plan.mesh;
        count_axes(met, mesh);
        met["recompute"] += !d.plan.memory.recompute.empty();
        met["side by side, tp"] += c.parallel_blocks && mesh.tp > 1;
        met["side by side, recompute"] += c.parallel_blocks && !d.plan.memory.recompute.empty();
        met["side by side, further tokens"] += c.parallel_blocks && c.num_nextn_predict_layers > 0;
        met["norms without a bias"] += !c.norm_bias;
        met["chunks, cp"] += c.window_chunks && mesh.cp > 1;
        met["chunks of documents"] += c.window_chunks && d.plan.document_end >= 0;
        met["experts in any layers, pp"] += !c.mlp_pattern.empty() && mesh.pp > 1;
        met["heads without a gain, tp"] += c.qk_unit_norm && mesh.tp > 1;
        met["gates on inputs, ep"] += c.gates_on_inputs && c.has_experts() && mesh.ep > 1;
        met["the mean with shared experts"] += c.shared_expert_average && c.has_experts();
      });
}

TEST(Parity, HashLayersInRandomLayouts) {
  expect_one_rank_of(
      70'000, 40, [](const Draw& d) { return d.model.num_hash_layers > 0; },
      [](Met& met, const Draw& d) {
        const plan::Degrees& mesh = d.plan.mesh;
        const model::Dispatcher& exchange = d.plan.parallel.exchange;
        count_axes(met, mesh);
        met["etp"] += mesh.etp > 1;
        met["f32"] += d.plan.dtype == Dtype::f32;
        met["biases of other layers"] += d.model.topk_bias;
        met["balance loss of other layers"] += d.model.sequence_aux_loss_alpha > 0;
        met["replicas"] += exchange.replicas != 0 && mesh.ep > 1;
        met["experts that move"] += exchange.migrates() && mesh.ep > 1;
        met["capacity"] += exchange.capacity_factor > 0;
        met["recompute"] += !d.plan.memory.recompute.empty();
        met["offload"] += !d.plan.memory.offload.empty();
        met["further tokens"] += d.model.num_nextn_predict_layers > 0;
      });
}

TEST(Parity, HashLayersInBf16) {
  expect_one_rank_in_bf16(1100, [](const Draw& d) { return d.model.num_hash_layers > 0; });
}

// Several streams of the residual.
TEST(Parity, StreamsInRandomLayouts) {
  expect_one_rank_of(
      80'000, 40, [](const Draw& d) { return d.model.has_streams(); },
      [](Met& met, const Draw& d) {
        count_axes(met, d.plan.mesh);
        met["f32"] += d.plan.dtype == Dtype::f32;
        met["recompute"] += !d.plan.memory.recompute.empty();
        met["offload"] += !d.plan.memory.offload.empty();
        met["adapters"] += d.plan.lora.rank > 0;
        met["muon"] += d.plan.update.rule == passes::OptimizerRule::muon;
        met["four"] += d.model.hyper_connections == 4;
        met["independent"] += d.model.hyper_connections_kind == model::HyperConnection::independent;
        met["gated"] += d.model.has_gated_streams();
        met["latent"] += d.model.is_latent();
        met["recurrent"] += d.model.recurs();
        met["tied"] += d.model.tie_word_embeddings;
      });
}

// Embeddings of n-grams, whose tables and columns ranks share.
TEST(Parity, NgramsInRandomLayouts) {
  expect_one_rank_of(
      120'000, 24, [](const Draw& d) { return d.model.has_ngrams(); },
      [](Met& met, const Draw& d) {
        count_axes(met, d.plan.mesh);
        met["ulysses"] += d.plan.mesh.cp > 1 && d.plan.parallel.context == model::Context::ulysses;
        met["documents apart"] += d.plan.document_end >= 0;
        met["recompute"] += !d.plan.memory.recompute.empty();
        met["recurrent"] += d.model.recurs();
      });
}

// Queries by position, gated norms, latents with further norms or of other widths in windows.
TEST(Parity, LatentsInRandomLayouts) {
  expect_one_rank_of(
      130'000, 60,
      [](const Draw& d) {
        const model::ModelConfig& c = d.model;
        const bool widths = c.is_latent() && (c.window_attention_heads > 0 || c.window_kv_lora_rank > 0 ||
                                              c.window_q_lora_rank > 0 || c.window_rope_theta > 0);
        return c.query_scale_beta != 0 || c.gated_norm_rank > 0 || c.rotary_key_norm || c.raw_latent_of_queries ||
               widths;
      },
      [](Met& met, const Draw& d) {
        const model::ModelConfig& c = d.model;
        const plan::Degrees& mesh = d.plan.mesh;
        count_axes(met, mesh);
        met["recompute"] += !d.plan.memory.recompute.empty();
        met["queries by position, documents apart"] += c.query_scale_beta != 0 && d.plan.document_end >= 0;
        met["queries by position, cp"] += c.query_scale_beta != 0 && mesh.cp > 1;
        met["queries by position, tp"] += c.query_scale_beta != 0 && mesh.tp > 1;
        met["grouped queries by position"] += c.query_scale_beta != 0 && c.is_grouped();
        met["gated norms, tp"] += c.gated_norm_rank > 0 && mesh.tp > 1;
        met["experts' sum normed"] += c.experts_sum_norm && c.has_experts();
        met["rotary key normed"] += c.rotary_key_norm;
        met["two latents, tp"] += c.raw_latent_of_queries && mesh.tp > 1;
        met["latents of windows"] += c.is_latent() && c.window_kv_lora_rank > 0;
        met["heads of windows"] += c.is_latent() && c.window_attention_heads > 0;
      });
}

TEST(Parity, StreamsInBf16) {
  expect_one_rank_in_bf16(1200, [](const Draw& d) { return d.model.has_streams(); });
}

// Operands in eight bits: where their blocks lie as on one rank, its numbers.
TEST(Parity, EightBitsInRandomLayouts) {
  expect_one_rank_of(
      40'000, 12, [](const Draw& d) { return d.plan.device.fp8 != passes::Fp8::off; },
      [](Met& met, const Draw& d) {
        met["dp"] += d.plan.mesh.dp > 1;
        met["pp"] += d.plan.mesh.pp > 1;
        met["recompute"] += !d.plan.memory.recompute.empty();
        met["offload"] += !d.plan.memory.offload.empty();
        met["f32"] += d.plan.dtype == Dtype::f32;
      });
}

TEST(Parity, EightBitsInBf16) {
  expect_one_rank_in_bf16(500, [](const Draw& d) { return d.plan.device.fp8 != passes::Fp8::off; });
}

// GPT-2's parts with dropout among cuts of every kind: a token draws the same wherever it lies, and when it is made
// again.
TEST(Parity, DropoutInRandomLayouts) {
  expect_one_rank_of(
      20'000, 12,
      [](const Draw& d) {
        return d.model.residual_dropout != 0 && (d.model.norm != model::Norm::rms || !d.model.turns());
      },
      [](Met& met, const Draw& d) {
        const plan::Degrees& mesh = d.plan.mesh;
        met["tp"] += mesh.tp > 1;
        met["cp"] += mesh.cp > 1;
        met["dp"] += mesh.dp > 1;
        met["pp"] += mesh.pp > 1;
        met["recompute"] += !d.plan.memory.recompute.empty();
        met["woven"] += d.plan.parallel.weave != plan::Weave::off;
        met["learned positions"] += d.model.learns_positions();
        met["fused"] += d.plan.fusions.contains("dropout_add");
        met["probabilities"] += d.model.attention_dropout > 0;
      });
}

// Pairs of answers, an average of the weights and steps of fewer microbatches among cuts of every kind.
TEST(Parity, ObjectivesAndRampsInRandomLayouts) {
  expect_one_rank_of(
      30'000, 12,
      [](const Draw& d) {
        const bool pairs = d.plan.objective.of_pairs(), ramp = !d.plan.fewer_microbatches.empty();
        const bool average = d.plan.update.average_decay > 0;
        return pairs + ramp + average >= 2;
      },
      [](Met& met, const Draw& d) {
        const bool pairs = d.plan.objective.of_pairs(), ramp = !d.plan.fewer_microbatches.empty();
        const bool average = d.plan.update.average_decay > 0;
        for (const auto& [what, has] : {std::pair{"pairs", pairs}, {"ramp", ramp}, {"average", average}}) {
          met[fmt::format("{} with tp or cp", what)] += has && (d.plan.mesh.tp > 1 || d.plan.mesh.cp > 1);
          met[fmt::format("{} with pp", what)] += has && d.plan.mesh.pp > 1;
          met[fmt::format("{} with dp", what)] += has && d.plan.mesh.dp > 1;
        }
      });
}

// bf16 shows what rounds at another place: one number more that goes between ranks, one sum less before it does.
TEST(Parity, LayoutsInBf16HaveTheBitsOfOneRank) {
  int apart = 0;
  for (uint64_t number = 0; number < draws(); ++number) {
    const Draw d = draw_bf16(number, 8, Rounding::same);
    apart += d.model.num_nextn_predict_layers > 0 && d.plan.parallel.layout.find("m|") != std::string::npos;
    expect_no_difference(d);
  }
  EXPECT_GT(apart, 0) << "depths that do not stand with all that reads them";
}

TEST(Parity, LayoutsThatRoundElsewhereInBf16) {
  for (uint64_t number = 0; number < draws() / 3; ++number)
    expect_no_difference(draw_bf16(number, 8, Rounding::others));
}

// Where no sum is spread over ranks, a pipeline gives the bits of one rank: in any order, however woven, wherever
// cut.
TEST(Parity, SchedulesGiveTheBitsOfOneRank) {
  for (uint64_t number = 0; number < draws() / 2; ++number) {
    Draw d = draw(number + 1000, 4, 2 + static_cast<int>(number % 3));
    while (d.plan.mesh.stage_ranks() > 1 || plan::schedule_of(d.plan).placement.routes > 1) {
      d = draw(d.seed + 1000, 4, 2 + static_cast<int>(number % 3));
    }
    d.same_bits = true;
    d.same_state = d.plan.update.clip_norm == 0;  // else the norm, an fp64 sum over ranks, shows
    expect_no_difference(d);
  }
}

// Every schedule by its name, more microbatches than ranks but no multiple of them. DualPipe sums the gradients of
// two copies of the weights, and takes an even number of microbatches.
TEST(Parity, NamedSchedulesGiveTheBitsOfOneRank) {
  uint64_t number = 7;
  const auto plain = [](const Draw& d) {
    return d.plan.mesh.stage_ranks() == 1 && !d.model.tie_word_embeddings && d.plan.dtype == Dtype::f64;
  };
  while (!plain(draw(number, 2, 2))) ++number;
  for (const auto& [ranks, microbatches] : {std::pair{2, 5}, {3, 7}, {4, 6}, {8, 11}}) {
    for (const std::string& name : schedule::generator_names()) {
      for (const plan::Weave weave : {plan::Weave::off, plan::Weave::pairs}) {
        const bool copies = name == "dual_pipe", usual = draws() <= 24;
        if ((copies && ranks % 2 != 0) || (usual && (ranks % 3 == 1) == (weave == plan::Weave::off))) continue;
        Draw d = draw(number, 2, 2);
        d.model.num_hidden_layers = ranks + 1;
        d.model.num_nextn_predict_layers = 0;
        d.plan.mesh = {.pp = ranks};
        d.node_of.assign(static_cast<size_t>(ranks), 0);
        d.plan.fewer_microbatches.clear();
        d.microbatches = d.plan.microbatches = copies ? 2 * ranks : microbatches;
        d.plan.order.reset();
        d.plan.parallel.schedule = name;
        d.plan.parallel.layout = "even";
        d.plan.parallel.chunks = d.plan.parallel.group = 0;
        d.plan.parallel.weave = weave;
        d.same_bits = !copies;
        d.same_state = !copies && d.plan.update.clip_norm == 0;
        expect_no_difference(d);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::parity
