// The settings that a launch becomes, and the refusals of a launch that Heddle can't run.
#include "heddle/planner/launch_settings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/model/shapes/shape_presets.h"
#include "heddle/plan/check.h"
#include "heddle/search/search.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {
namespace {

using passes::GroupName;
using search::Job;
using search::Launch;
using search::launch_of;

using Lines = std::vector<std::string>;

Job job_of(const char* model, const plan::Degrees& mesh, int global_batch, const char* device = "H100",
           int chunks = 1) {
  Job j;
  j.shape = *model::find_shape(model);
  j.device = *cost::accelerator_named(device);
  j.mesh = mesh;
  j.chunks = chunks;
  j.global_batch = global_batch;
  return j;
}

Job on_eight(const char* model) { return job_of(model, {.dp = 8}, 8); }
Job deepseek() { return job_of("DeepSeek-V3", {.dp = 128, .pp = 16, .ep = 64}, 15360, "H800", 2); }

// The value that is set for a key; "" if none is.
std::string set(const Launch& launch, const std::string& key) {
  for (const std::string& setting : settings_of(launch))
    if (setting.starts_with(key + "=")) return setting.substr(key.size() + 1);
  return "";
}

bool told(const Lines& refusals, std::string_view part) {
  return std::any_of(refusals.begin(), refusals.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

TEST(LaunchSettings, OfDeepSeek) {
  Job job = deepseek();
  EXPECT_EQ(set(launch_of(job), "model.preset"), "deepseek-v3");
  EXPECT_EQ(set(launch_of(job), "parallel.schedule"), "interleaved");
  EXPECT_EQ(set(launch_of(job), "device.graphs"), "");
  job.software.captured = 0.5;
  EXPECT_EQ(refusals_of(launch_of(job)), Lines{});
  EXPECT_EQ(set(launch_of(job), "device.graphs"), "true");
  job.chunks = 1;
  job.pipeline = schedule::find_pipeline("dual_pipe");
  EXPECT_EQ(refusals_of(launch_of(job)), Lines{});
  EXPECT_EQ(set(launch_of(job), "parallel.schedule"), "dual_pipe");
}

// Another trainer's second moments of eight bits are bf16 here.
TEST(LaunchSettings, MomentsByTheirBytes) {
  for (const auto& [bytes, word] : {std::pair{12.0, ""}, {10.0, ""}, {8.0, "bf16"}, {7.0, "fp8"}, {6.0, "fp8"}}) {
    Job job = deepseek();
    job.software.state_bytes = bytes;
    EXPECT_EQ(set(launch_of(job), "train.moments"), word) << bytes;
  }
}

// Parts once said to be missing are there: sinks, windows, biases, GELU, LayerNorm, learned positions.
TEST(LaunchSettings, HeddleTakesWhatItHas) {
  Job job = on_eight("GPT-OSS-20B");
  for (const bool by_name : {true, false}) {
    if (!by_name) job.shape.name = "of no name";
    EXPECT_EQ(refusals_of(launch_of(job)), Lines{});
    const model::ModelConfig c = config_of(launch_of(job)).model;
    EXPECT_TRUE(c.attention_sinks);
    EXPECT_EQ(c.sliding_window, 128);
    EXPECT_EQ(c.full_attention_interval, 2);
    EXPECT_EQ(c.attention_bias, model::AttentionBias::all);
    EXPECT_TRUE(c.experts_bias);
    EXPECT_EQ(c.swiglu_limit, by_name ? 7 : 0);  // no size tells of it
  }
  job = on_eight("GPT-2");
  job.sequence = 1024;
  for (const bool by_name : {true, false}) {
    if (!by_name) job.shape.name = "of no name";
    EXPECT_EQ(refusals_of(launch_of(job)), Lines{});
    const model::ModelConfig c = config_of(launch_of(job)).model;
    EXPECT_EQ(c.norm, model::Norm::layer);
    EXPECT_EQ(c.positions, model::Positions::learned);
    EXPECT_NE(c.activation, model::Activation::swiglu);
    EXPECT_TRUE(c.mlp_bias);
    EXPECT_EQ(c.max_position_embeddings, 1024);
  }
}

// A router's score function, the bias of the choice and the bias of its logits are three things.
TEST(LaunchSettings, RoutersAreSaidAsTheyAre) {
  struct Case {
    const char* model;
    bool sigmoid, selection, logits;
  };
  for (const Case& each : {Case{"DeepSeek-V3", true, true, false},
                           {"Kimi-K2", true, true, false},
                           {"DeepSeek-V2", false, false, false},
                           {"Qwen3-30B-A3B", false, false, false},
                           {"Mixtral-8x7B", false, false, false},
                           {"GPT-OSS-20B", false, false, true}}) {
    for (const bool by_name : {true, false}) {
      Job job = on_eight(each.model);
      if (!by_name) job.shape.name = "of no name";
      const model::ModelConfig c = config_of(launch_of(job)).model;
      EXPECT_EQ(c.sigmoid_scores, each.sigmoid) << each.model;
      EXPECT_EQ(c.topk_bias, each.selection) << each.model;
      EXPECT_EQ(c.router_bias, each.logits) << each.model;
    }
  }
  // Any of the eight.
  for (int bits = 0; bits < 8; ++bits) {
    Job job = on_eight("Qwen3-30B-A3B");
    model::Shape& m = job.shape;
    m.sigmoid_scores = (bits & 1) != 0, m.topk_bias = (bits & 2) != 0, m.router_bias = (bits & 4) != 0;
    const model::ModelConfig c = config_of(launch_of(job)).model;
    EXPECT_EQ(std::tuple(c.sigmoid_scores, c.topk_bias, c.router_bias),
              std::tuple(m.sigmoid_scores, m.topk_bias, m.router_bias))
        << bits;
    EXPECT_EQ(refusals_of(launch_of(job)), Lines{}) << bits;
  }
}

// Sizes that a published model has keep its constants, which no shape knows.
TEST(LaunchSettings, PublishedModelsKeepTheirConstants) {
  for (const char* name :
       {"Llama-3-8B", "Qwen3-30B-A3B", "Mixtral-8x7B", "DeepSeek-V3", "GPT-OSS-20B", "Nemotron-3-Nano"}) {
    const std::string preset = set(launch_of(on_eight(name)), "model.preset");
    ASSERT_NE(preset, "") << name;
    model::ModelConfig c = config_of(launch_of(on_eight(name))).model, published = config::preset(preset);
    EXPECT_EQ(c, published) << name;
  }
  Job job = on_eight("Llama-3-8B");
  job.shape.num_hidden_layers = 16;  // another model
  EXPECT_EQ(set(launch_of(job), "model.preset"), "");
  job = on_eight("Llama-3-8B");
  job.sequence = 1 << 20;  // longer than it was published for
  EXPECT_EQ(config_of(launch_of(job)).model.max_position_embeddings, 1 << 20);
  job.constants = std::make_shared<const Lines>(Lines{"model.rope_theta=500000"});  // a script's own
  EXPECT_EQ(set(launch_of(job), "model.preset"), "");
  EXPECT_EQ(config_of(launch_of(job)).model.rope_theta, 500000);
}

// Any model that Heddle has, key by key, whatever its shape leaves out.
TEST(LaunchSettings, ModelsAreSaidWhole) {
  for (const std::string& name : config::preset_names()) {
    const model::ModelConfig model = config::preset(name);
    Job job;
    job.shape = model::shape_of(model, "of no name");
    job.device = *cost::accelerator_named("H100");
    job.mesh.dp = job.global_batch = 8;
    job.sequence = 512;
    job.constants = std::make_shared<const Lines>(settings_of_model(model));
    EXPECT_EQ(config_of(launch_of(job)).model, model) << name;
    EXPECT_EQ(refusals_of(launch_of(job)), Lines{}) << name;
  }
}

TEST(LaunchSettings, WhatNoKeySaysIsRefused) {
  for (const auto& [model, part] : {std::pair("MPT-7B", "ALiBi"), {"BLOOM-176B", "norm after the embedding"}})
    EXPECT_TRUE(told(refusals_of(launch_of(on_eight(model))), part)) << model;
  Job job = on_eight("DeepSeek-V2-Lite");
  job.shape.attention_bias = model::AttentionBias::qkv;
  EXPECT_EQ(refusals_of(launch_of(job)), Lines{});  // latent attention drops them before
  job = on_eight("DeepSeek-V2-Lite");
  job.shape.moe_latent_size = 512;
  EXPECT_EQ(config_of(launch_of(job)).model.moe_latent_size, 512);
  job.shape.set_shared_width(1000);
  EXPECT_EQ(config_of(launch_of(job)).model.shared_width(), 1000);
  job = on_eight("DeepSeek-V2-Lite");
  job.precision = cost::Precision::block8;
  EXPECT_TRUE(told(refusals_of(launch_of(job)), "device.fp8 saves memory alone"));
  job = on_eight("DeepSeek-V2-Lite");
  job.frozen_base = true;
  EXPECT_TRUE(told(refusals_of(launch_of(job)), "lora.rank"));
  job = on_eight("Llama-3-8B");
  job.device = *cost::accelerator_named("Ascend-910B");
  EXPECT_EQ(refusals_of(launch_of(job)), Lines{"Heddle has no backend for Ascend-910B"});
  EXPECT_EQ(refusals_of_training(launch_of(job)), Lines{});
}

// The rest is what the program itself says of the settings, word for word.
TEST(LaunchSettings, RefusalsAreThoseOfTheProgram) {
  const auto refused = [](const Job& job) {
    const Launch launch = launch_of(job);
    const Lines said = refusals_of_training(launch);
    const config::RunConfig config = config_of(launch);
    Lines own;
    for (const plan::Refusal& r : plan::refusals_of(config.model, train::plan_of(config))) own.push_back(r.message);
    EXPECT_EQ(said, own);
    return said;
  };
  Job job = job_of("Qwen3-30B-A3B", {.tp = 3, .dp = 8}, 8);
  EXPECT_TRUE(told(refused(job), "model.num_attention_heads (32) is not a multiple of mesh.tp (3)"));
  EXPECT_TRUE(told(refused(job), "train.sequence_length (4096) is not a multiple of mesh.tp (3)"));
  job = job_of("Qwen3-30B-A3B", {.dp = 24, .ep = 3}, 24);
  EXPECT_TRUE(told(refused(job), "model.n_routed_experts (128) is not a multiple of mesh.ep (3)"));
  job = job_of("Qwen3-30B-A3B", {.dp = 8, .ep = 16}, 8);
  EXPECT_TRUE(told(refused(job), "ep × etp (16 × 1) does not divide"));
  // Returns the refusal of a configuration as it is read, without the place of a key that nobody set.
  job = on_eight("GPT-2");
  job.sequence = 4096;
  EXPECT_EQ(refusals_of_training(launch_of(job)),
            Lines{"train.sequence_length is 4096, more than model.max_position_embeddings (1024)"});
  job = on_eight("Qwen3-30B-A3B");
  job.global_batch = 9;
  const Lines batch = refusals_of_training(launch_of(job));
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_TRUE(batch.front().starts_with("train.global_batch is 9, not a multiple of")) << batch.front();
  // A dense model has no experts whose sizes could be in the way.
  job = job_of("Llama-3-8B", {.tp = 3, .dp = 8}, 8);
  job.sequence = 4098;
  job.shape.num_attention_heads = 36, job.shape.num_key_value_heads = 9, job.shape.vocab_size = 128256,
  job.shape.intermediate_size = 14337;
  EXPECT_EQ(refused(job), Lines{});
}

TEST(LaunchSettings, StagesThatKeepApart) {
  Job job;
  job.shape = *model::find_shape("DeepSeek-V3");
  job.device = *cost::accelerator_named("H800");
  job.mesh = {.dp = 64, .pp = 4, .ep = 64};
  job.global_batch = 64 * 6 * 4;
  job.pipeline = search::one_f_one_b();
  Launch launch = launch_of(job, {12, 15, 17, 17});
  launch.by_stage = {{12, {{GroupName::layer}, 0.5}},
                     {15, {GroupName::norm, GroupName::activation}},
                     {17, {GroupName::norm, GroupName::activation}},
                     {17, {}}};
  EXPECT_EQ(set(launch, "memory.recompute"), "layer:0-5, norm:12-43, activation:12-43");
  EXPECT_EQ(refusals_of(launch), Lines{});
  launch.by_stage[1].offload = launch.by_stage[2].offload = true;
  EXPECT_EQ(set(launch, "memory.offload"), "expert_up:12-43");
  EXPECT_EQ(refusals_of(launch), Lines{});
  // The last stage's words reach multi-token prediction too.
  ASSERT_EQ(launch.job.shape.num_nextn_predict_layers, 1);
  launch.by_stage.back() = {17, {GroupName::norm}};
  EXPECT_TRUE(set(launch, "memory.recompute").ends_with(", norm:44-61")) << set(launch, "memory.recompute");
  // Alike on all stages, no layers are named.
  launch.by_stage = {
      {12, {GroupName::norm}}, {15, {GroupName::norm}}, {17, {GroupName::norm}}, {17, {GroupName::norm}}};
  EXPECT_EQ(set(launch, "memory.recompute"), "norm");
  EXPECT_EQ(set(launch, "memory.offload"), "");
  launch.by_stage.clear();
  launch.job.recompute = {GroupName::layer};
  launch.job.software.offload_activations = true;
  EXPECT_EQ(set(launch, "memory.offload"), "input");
}

TEST(LaunchSettings, StateOffTheDevice) {
  Job job = job_of("DeepSeek-V2-Lite", {.dp = 8, .pp = 2, .ep = 8}, 256, "H800");
  EXPECT_EQ(set(launch_of(job), "memory.host_rate"), "");
  job.residency.optimizer = plan::StateResidency::host;
  job.residency.master = plan::MasterForm::split;
  job.residency.weights = job.residency.gradients = search::on_host(true);
  for (const auto& [key, value] : {std::pair("memory.optimizer", "host"),
                                   {"memory.master", "split"},
                                   {"memory.weights", "all"},
                                   {"memory.gradients", "all"},
                                   {"memory.host_rate", "64.0"},
                                   {"memory.update_rate", "76.8"}})
    EXPECT_EQ(set(launch_of(job), key), value) << key;
  EXPECT_EQ(search::text_of(job.residency), "host, split masters, weights and gradients on the host");
}

TEST(LaunchSettings, Sharding) {
  Job job = job_of("Llama-3-8B", {.dp = 32, .pp = 2}, 256);
  EXPECT_EQ(set(launch_of(job), "parallel.shard"), "");
  EXPECT_EQ(set(launch_of(job), "parallel.message_rate"), "");
  job.sharding = {passes::Shard::weights, 8};
  EXPECT_EQ(set(launch_of(job), "parallel.shard"), "weights");
  EXPECT_EQ(set(launch_of(job), "parallel.shard_ranks"), "8");
  EXPECT_EQ(set(launch_of(job), "parallel.message_rate"), "450.0");  // NVLink
  job.sharding = {passes::Shard::gradients};
  EXPECT_EQ(set(launch_of(job), "parallel.shard"), "gradients");
  EXPECT_EQ(set(launch_of(job), "parallel.shard_ranks"), "");
  EXPECT_EQ(set(launch_of(job), "parallel.message_rate"), "400.0");  // eight cards of 400 Gbit/s
  EXPECT_EQ(search::text_of(job.sharding), "gradients sharded");
}

TEST(LaunchSettings, TextSaysWhatWasLost) {
  Launch launch = launch_of(on_eight("Llama-3-8B"));
  launch.lost = {"--decoupled-lr 1e-3"};
  const std::string text = config_text(launch);
  EXPECT_NE(text.find("# Not carried over: --decoupled-lr 1e-3\n"), std::string::npos);
  EXPECT_EQ(config::parse_run_config(text, "x.toml"), config_of(launch));
}

}  // namespace
}  // namespace heddle::planner
