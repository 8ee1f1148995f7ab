// The table of a run's keys. Those of the plan stand in plan/switches.
#include "heddle/base/error.h"
#include "heddle/config/bias_rate.h"
#include "heddle/config/run_config.h"
#include "heddle/plan/setting_table.h"
#include "heddle/plan/switches.h"

namespace heddle::config {

namespace {

using enum plan::MathsClass;
using plan::page;

constexpr double kMostCount = 1 << 30;  // keeps products of two counts within 64 bits
constexpr double kTiny = plan::Row::kTiny;

using Data = RunConfig::Data;
using Train = RunConfig::Train;
using Device = RunConfig::Device;
using model::ModelConfig;
using model::Yarn;

class Table : public plan::SettingTable<RunConfig> {
 public:
  /// The plan's rows of a section.
  void of_plan(std::string_view section) {
    for (const plan::Setting<plan::Choices>& s : plan::settings()) {
      if (s.key.substr(0, s.key.find('.')) != section) continue;
      Setting& here = all_.emplace_back();
      static_cast<plan::Row&>(here) = s;
      here.get = [get = s.get](const RunConfig& c) { return get(c.plan); };
      here.set = [set = s.set](RunConfig& c, const Value& v) { set(c.plan, v); };
    }
  }
  template <auto member>
  void yarn(const char* name, double least, std::string meaning) {
    using Member = std::decay_t<decltype(std::declval<Yarn&>().*member)>;
    constexpr auto kind = std::is_same_v<Member, bool> ? plan::Row::Kind::boolean : plan::Row::Kind::number;
    Setting& s = add(std::string("model.rope_scaling.") + name, kind, std::move(meaning));
    s.least = least;
    s.most = 1e9;
    s.get = [](const RunConfig& c) { return Value(c.model.rope_scaling.value_or(Yarn{}).*member); };
    s.set = [](RunConfig& c, const Value& v) {
      if (!c.model.rope_scaling) c.model.rope_scaling.emplace();
      (*c.model.rope_scaling).*member = std::get<Member>(v);
    };
    s.present = [](const RunConfig& c) { return c.model.rope_scaling.has_value(); };
  }
  // Keys of a run whose length is counted in steps, and of one that ends by the clock.
  static Setting& of_steps(Setting& s) {
    s.present = [](const RunConfig& c) { return !c.length().by_clock(); };
    return s;
  }
  static Setting& of_clock(Setting& s) {
    s.present = [](const RunConfig& c) { return c.length().by_clock(); };
    return s;
  }
  Setting& bias_update_rate() {
    Setting& s =
        add("model.bias_update_rate", plan::Row::Kind::number, "Step of the balancing biases; 0 holds them still.");
    s.most = 1e6;
    s.unset =
        fmt::format("{} ÷ the run's steps, from {} to {}", BiasRate::kTravel, BiasRate::kLeast, BiasRate::kMost);
    s.get = [](const RunConfig& c) { return Value(c.model.bias_update_rate.value_or(BiasRate::kLeast)); };
    s.set = [](RunConfig& c, const Value& v) { c.model.bias_update_rate = std::get<double>(v); };
    s.present = [](const RunConfig& c) { return c.model.bias_update_rate.has_value(); };
    return s;
  }
};

void run_settings(Table& t) {
  t.word<&RunConfig::name>("name", "What the run is called: in its report and in the name of its folder.");
  t.integer<&RunConfig::seed>("seed", 0, 9.2e18, "Of the weights' start and the order of the data.");
  t.word<&RunConfig::output>("output", "The run's folder; empty stands for runs/NAME.");
}

void model_settings(Table& t) {
  constexpr auto m = &RunConfig::model;
  using C = ModelConfig;
  t.integer<m, &C::vocab_size>("model.vocab_size", 1, 1 << 21, "Token ids that the model knows.");
  t.integer<m, &C::hidden_size>("model.hidden_size", 1, 1 << 20, "Width of the residual stream.");
  t.integer<m, &C::num_hidden_layers>("model.num_hidden_layers", 1, 4096, "Layers, those of further tokens aside.");
  t.integer<m, &C::intermediate_size>("model.intermediate_size", 1, 1 << 24, "Width of the dense layers' MLP.");
  t.integer<m, &C::first_k_dense_replace>("model.first_k_dense_replace", 0, 1 << 20,
                                          "So many layers from the first on are dense, the others have experts.");
  t.number<m, &C::rms_norm_eps>("model.rms_norm_eps", 0, 1, "Added to the mean square before its root.");
  t.number<m, &C::initializer_range>("model.initializer_range", 0, 10, "Standard deviation of a weight's start.");
  t.boolean<m, &C::tie_word_embeddings>("model.tie_word_embeddings", "The output head is the embedding.");
  t.integer<m, &C::max_position_embeddings>("model.max_position_embeddings", 1, kMostCount,
                                            "The longest sequence that the model is made for.");
  t.integer<m, &C::num_attention_heads>("model.num_attention_heads", 1, 1 << 16, "Attention heads.");
  t.integer<m, &C::q_lora_rank>("model.q_lora_rank", 0, 1 << 20,
                                "Width of the queries' latent; 0 projects queries directly.");
  t.integer<m, &C::kv_lora_rank>("model.kv_lora_rank", 1, 1 << 20, "Width of the latent of keys and values.");
  t.integer<m, &C::qk_nope_head_dim>("model.qk_nope_head_dim", 1, 1 << 16,
                                     "Width of a head's query and key without rotation.");
  t.integer<m, &C::qk_rope_head_dim>("model.qk_rope_head_dim", 2, 1 << 16,
                                     "Width of a head's rotated part of query and key; even.");
  t.integer<m, &C::v_head_dim>("model.v_head_dim", 1, 1 << 16, "Width of a head's value.");
  t.number<m, &C::rope_theta>("model.rope_theta", 1, 1e12, "Base of the rotary frequencies.");
  t.boolean<m, &C::rope_interleave>("model.rope_interleave",
                                    "Rotate neighbours (2i, 2i+1); otherwise the halves (i, i + half).");
  t.integer<m, &C::n_routed_experts>("model.n_routed_experts", 1, 1 << 16, "Routed experts of a layer.");
  t.integer<m, &C::num_experts_per_tok>("model.num_experts_per_tok", 1, 1 << 16,
                                        "Experts that a token passes through.");
  t.integer<m, &C::n_shared_experts>("model.n_shared_experts", 0, 1 << 16,
                                     "Experts that every token passes through.");
  t.integer<m, &C::moe_intermediate_size>("model.moe_intermediate_size", 1, 1 << 24, "Width of one expert's MLP.");
  t.integer<m, &C::n_group>("model.n_group", 1, 1 << 16, "Groups that the experts are cut into.");
  t.integer<m, &C::topk_group>("model.topk_group", 1, 1 << 16, "Groups whose experts a token may choose.");
  t.boolean<m, &C::norm_topk_prob>("model.norm_topk_prob",
                                   "Gates of the chosen experts sum to one before scaling.");
  t.boolean<m, &C::sigmoid_scores>("model.sigmoid_scores", "Router scores are sigmoids; otherwise a softmax.");
  t.boolean<m, &C::topk_bias>("model.topk_bias", "Balance the load by a bias on the choice (auxiliary-loss-free).");
  t.number<m, &C::routed_scaling_factor>("model.routed_scaling_factor", 0, 1e6, "Factor on the gates.");
  t.integer<m, &C::num_nextn_predict_layers>("model.num_nextn_predict_layers", 0, 16,
                                             "Layers that predict further tokens than the next while training.")
      .acts(changes_maths, "Layers that predict further tokens than the next while training; 0 switches it off.",
            "each depth costs a layer and another output head", page("multi_token_prediction"));
  t.number<m, &C::mtp_loss_weight>("model.mtp_loss_weight", 0, 1e6,
                                   "Weight of the further tokens' losses, of their mean.");
  t.number<m, &C::sequence_aux_loss_alpha>("model.sequence_aux_loss_alpha", 0, 1e6,
                                           "Weight of the balance loss within a sequence; 0 is off.")
      .acts(changes_maths, "Weight of the balance loss within each sequence; 0 switches it off.",
            "one small op a MoE layer each way", page("sequence_aux_loss"));
  t.number<m, &C::z_loss_weight>("model.z_loss_weight", 0, 1e6, "Weight of the router's z-loss; 0 is off.")
      .acts(changes_maths, "Weight of the penalty on large router logits; 0 switches it off.",
            "one small op a MoE layer each way", page("z_loss"));
  t.bias_update_rate().acts(
      changes_maths,
      "How far a step moves each expert's selection bias against its load; 0 holds the biases still. Left out, "
      "biases may travel as far in a run of any length.",
      "one small op a MoE layer at the end of the step", page("bias_balance"));
  t.yarn<&Yarn::factor>("factor", 1, "YaRN: how many times the context is stretched.");
  t.yarn<&Yarn::original_max_position_embeddings>("original_max_position_embeddings", 1,
                                                  "YaRN: the context before stretching.");
  t.yarn<&Yarn::beta_fast>("beta_fast", kTiny,
                           "YaRN: rotations over the old context above which a frequency stays.");
  t.yarn<&Yarn::beta_slow>("beta_slow", kTiny,
                           "YaRN: rotations over the old context below which it is stretched whole.");
  t.yarn<&Yarn::mscale>("mscale", 0,
                        "YaRN: factor of the correction of attention's temperature; counts only beside "
                        "mscale_all_dim. 0: not given.");
  t.yarn<&Yarn::mscale_all_dim>("mscale_all_dim", 0, "YaRN: the same for all dimensions of a head. 0: not given.");
  t.yarn<&Yarn::attention_factor>("attention_factor", 0,
                                  "YaRN: what rotated queries and keys are multiplied by; 0 takes it from factor "
                                  "and the mscales.");
  t.yarn<&Yarn::truncate>("truncate", 0, "YaRN: the ramp between the two betas begins and ends at whole pairs.");
}

void data_settings(Table& t) {
  constexpr auto d = &RunConfig::data;
  t.word<d, &Data::source>("data.source",
                           "\"demo\" (novels and dictionaries of Debian packages), a .txt or .jsonl file or a "
                           "folder of them, or the prefix "
                           "of a token file (PREFIX.bin and PREFIX.idx).");
  t.word<d, &Data::folder>("data.folder", "Where tokenizer and token file are prepared.");
  t.word<d, &Data::tokenizer>("data.tokenizer", "A tokenizer.json to use; empty: one is trained on the text.");
  t.integer<d, &Data::vocabulary>("data.vocabulary", 0, 1 << 21,
                                  "Tokens of a tokenizer that is trained; 0 stands for model.vocab_size.");
  t.number<d, &Data::heldout_fraction>("data.heldout_fraction", 0, 0.5, "Share of documents kept out of training.");
}

void train_settings(Table& t) {
  constexpr auto n = &RunConfig::train;
  t.of_steps(t.integer<n, &Train::steps>("train.steps", 1, 1e12,
                                         "Optimizer steps of the whole run; train.minutes in its place ends it by "
                                         "the clock."));
  t.of_clock(t.number<n, &Train::minutes>(
      "train.minutes", kTiny, 1e8,
      "Minutes spent in training steps, in place of train.steps: the learning rate follows the clock, and steps "
      "come "
      "out as they do. Looks at the held-out text, checkpoints and reports are not counted."));
  t.integer<n, &Train::global_batch>("train.global_batch", 1, 1 << 24, "Sequences of one step.");
  t.integer<n, &Train::microbatch>("train.microbatch", 1, 1 << 20, "Sequences computed at a time.");
  t.integer<n, &Train::sequence_length>("train.sequence_length", 1, 1 << 24, "Tokens of a sequence.");
  t.number<n, &Train::learning_rate>("train.learning_rate", 0, 100, "Highest learning rate, after the warm-up.");
  t.number<n, &Train::min_learning_rate>("train.min_learning_rate", 0, 100,
                                         "Learning rate at the end of the decay.");
  t.word<n, &Train::schedule>(
      "train.schedule",
      "How the learning rate goes after the warm-up: cosine falls all the time, wsd is constant "
      "and falls in the last train.decay_steps (train.decay_fraction by the clock).");
  t.of_steps(t.integer<n, &Train::warmup_steps>("train.warmup_steps", 0, 1e12,
                                                "Steps in which the learning rate rises from 0."));
  t.of_steps(t.integer<n, &Train::decay_steps>("train.decay_steps", 0, 1e12,
                                               "Last steps of wsd, in which the learning rate falls."));
  t.of_clock(t.number<n, &Train::warmup_fraction>(
                 "train.warmup_fraction", 0, 1,
                 "With train.minutes: the first part of the time, in which the learning rate rises from 0."))
      .unset = "0.05";
  t.of_clock(t.number<n, &Train::decay_fraction>(
                 "train.decay_fraction", 0, 1,
                 "With train.minutes: the last part of the time, in which the learning rate of wsd falls."))
      .unset = "0.25";
  t.of_plan("train");
  t.integer<n, &Train::checkpoint_every>("train.checkpoint_every", 0, 1e12,
                                         "Steps between checkpoints; 0: only at the end.");
  t.integer<n, &Train::keep_checkpoints>("train.keep_checkpoints", 1, 1e6,
                                         "So many of the newest checkpoints stay.");
  t.integer<n, &Train::eval_every>("train.eval_every", 0, 1e12,
                                   "Steps between looks at the held-out text; 0: never.");
  t.integer<n, &Train::eval_sequences>("train.eval_sequences", 0, 1e9, "Held-out sequences of one look.");
  t.word<n, &Train::sample_prompt>("train.sample_prompt", "Text that the model continues at each look.").text =
      true;
  t.integer<n, &Train::sample_tokens>("train.sample_tokens", 0, 1 << 20, "Tokens of that continuation; 0: none.");
  t.number<n, &Train::sample_temperature>("train.sample_temperature", 0, 100,
                                          "Its temperature; 0: always the likeliest token.");
  t.integer<n, &Train::trace_step>(
      "train.trace_step", 0, 1e12,
      "The step, counted from where this run begins or goes on, whose ops the report shows one "
      "by one; 0: none.");
}

void device_settings(Table& t) {
  constexpr auto d = &RunConfig::device;
  t.word<d, &Device::backend>(
      "device.backend",
      "host: the CPU's fast kernels; cuda: an NVIDIA GPU a rank; reference: plain loops, which "
      "define the results.",
      {"host", "cuda", "reference"});
  t.integer<d, &Device::threads>("device.threads", 0, 4096, "Threads of the compute stream; 0: every core.");
  t.word<d, &Device::dtype>(
       "device.dtype",
       "Element type of weights and activations; auto is bf16 where the processor multiplies it, "
       "else f32.")
      .acts(changes_maths,
            "Element type of weights and activations; sums, norms, router and optimizer are fp32 (fp64 with f64). "
            "auto is the faster one here: bf16 where matrix products multiply bf16 numbers (a GPU, AMX, AVX-512 "
            "bf16), else f32.",
            "bf16 halves activations and kernel weights but keeps fp32 masters beside them; f64 runs on the "
            "reference backend only",
            page("dtype"));
  t.bytes<d, &Device::memory_bytes>("device.memory_bytes", 0, 9e18,
                                    "The most that a rank's arena may take, such as \"4GiB\"; 0: what the "
                                    "machine has.");
  t.of_plan("device");
  t.boolean<d, &Device::deterministic>("device.deterministic", "Every sum has one fixed order; always on.")
      .acts(bitwise,
            "Every sum has one fixed order, so that a run repeats bit for bit. Always on: there is no unordered "
            "mode.",
            "none", page("deterministic"))
      .words = {"true"};
}

void mesh_settings(Table& t) {
  t.integer<&RunConfig::mesh_ranks>("mesh.ranks", 0, kMostRanks,
                                    "Ranks of the run; 0: as many as the degrees multiply to. The same as --ranks.")
      .acts(reassociates, "How many ranks work on the run, as threads of one process or under MPI.",
            "none by itself: what the ranks do is said by the degrees, and by mesh.dp where they leave it open",
            page("mesh"))
      .tried({2});
  t.of_plan("mesh");
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = [] {
    Table t;
    run_settings(t);
    model_settings(t);
    data_settings(t);
    train_settings(t);
    device_settings(t);
    mesh_settings(t);
    for (const char* section : {"parallel", "memory", "fusions"}) t.of_plan(section);
    return t.take();
  }();
  return all;
}

const Setting* find_setting(std::string_view key) {
  for (const Setting& s : settings()) {
    if (s.key == key) return &s;
  }
  return nullptr;
}

std::vector<std::string> setting_keys() {
  std::vector<std::string> keys{"model.preset", "model.hf"};
  for (const Setting& s : settings()) keys.push_back(s.key);
  return keys;
}

}  // namespace heddle::config
