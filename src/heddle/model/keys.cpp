#include "heddle/model/keys.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/model/key_rows.h"
#include "heddle/ops/hyper_connection.h"

namespace heddle::model {

namespace {

using namespace key_rows;

Key bias_update_rate() {
  return {.name = "bias_update_rate",
          .kind = Kind::number,
          .most = 1e6,
          .meaning = "Step of the balancing biases; 0 holds them still.",
          .get = [](const C& c) { return KeyValue(c.bias_update_rate.value_or(0)); },
          .set = [](C& c, const KeyValue& v) { c.bias_update_rate = std::get<double>(v); },
          .of = Of::experts,
          .given = [](const C& c) { return c.bias_update_rate.has_value(); },
          .open = "6.4 ÷ the run's steps, from 0.001 to 0.02",
          .trains = true,
          .synonyms = {"moe_router_bias_update_rate", "expert_bias_rate"}};
}

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> all{
      also_called({"padded_vocab_size", "n_vocab", "vocabulary_size"},
                  row<&C::vocab_size>("vocab_size", 1, 1 << 21, "Token ids that the model knows.")),
      also_called({"d_model", "n_embd", "dim", "hidden_dim", "embed_dim", "model_dim", "width"},
                  row<&C::hidden_size>("hidden_size", 1, 1 << 20, "Width of the residual stream.")),
      also_called(
          {"n_layers", "num_layers", "n_layer", "layers", "depth"},
          row<&C::num_hidden_layers>("num_hidden_layers", 1, 4096, "Layers, without those of further tokens.")),
      also_called({"ffn_hidden_size", "d_ff", "ffn_dim", "mlp_dim"},
                  row<&C::intermediate_size>("intermediate_size", 1, 1 << 24, "Width of the dense layers' MLP.")),
      also_called({"n_dense_layers", "dense_layers", "moe_layer_freq"},
                  row<&C::first_k_dense_replace>("first_k_dense_replace", 0, 1 << 20,
                                                 "Number of first layers that are dense; the others have experts. "
                                                 "model.hybrid_override_pattern says it otherwise.",
                                                 Of::experts)),
      also_called(
          {"mlp_layer_types", "interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_interval"},
          letters<&C::mlp_pattern>(
              "mlp_pattern",
              "A letter a layer, in place of model.first_k_dense_replace: E, it has experts; -, an MLP (Llama 4).",
              Of::experts)),
      also_called({"hybrid_layer_pattern", "layers_block_type", "mamba_pattern"},
                  letters<&C::hybrid_override_pattern>(
                      "hybrid_override_pattern",
                      "A letter a layer that has one block alone: M a recurrence, * attention, - an MLP, E experts "
                      "(Nemotron-H). Empty: a layer has attention or a recurrence, then an MLP or experts.")),
      also_called({"norm_epsilon", "layer_norm_eps", "norm_eps"},
                  row<&C::rms_norm_eps>("rms_norm_eps", 0, 1, "Added to the mean square before its root.")),
      also_called({"init_method_std", "init_std"},
                  of_training(row<&C::initializer_range>("initializer_range", 0, 10,
                                                         "Standard deviation of a weight's start."))),
      also_called({"tie_embeddings", "untie_embeddings_and_output_weights"},
                  flag<&C::tie_word_embeddings>("tie_word_embeddings", "The output head is the embedding.")),
      also_called(
          {"n_positions", "max_sequence_length", "rope_context"},
          of_training(row<&C::max_position_embeddings>("max_position_embeddings", 1, kMostCount,
                                                       "The longest sequence that the model is made for."))),
      also_called(
          {"normalization", "norm_type"},
          word<&C::norm>("norm", "Norms around layers and before the head: rms; layer, LayerNorm with a bias.")),
      also_called({"layer_norm_bias"},
                  flag<&C::norm_bias>("norm_bias", "Norms of model.norm = \"layer\" have a bias.")),
      also_called({"parallel_attn_mlp_res", "use_parallel_residual", "parallel_attn", "parallel_attention_mlp"},
                  flag<&C::parallel_blocks>("parallel_blocks",
                                            "Attention and MLP of a layer read the rows of its one norm, and both "
                                            "add to the stream (Cohere).")),
      also_called({"pre_norm", "post_norm", "sandwich_norm"},
                  word<&C::norm_places>("norm_places",
                                        "Norms of attention and MLP: before, of their input; after, of their "
                                        "output (OLMo 2); both (Gemma); stream, of the residual stream, which goes "
                                        "on from its normed rows (MiniMax-01); mixed, before in recurrent layers "
                                        "and after in the others (OLMo Hybrid).")),
      row<&C::gated_norm_rank>("gated_norm_rank", 0, 1 << 20,
                               "Width of the MLP whose sigmoid gates the norms ahead of attention and of experts "
                               "(A.X-K2); 0: no gate."),
      also_called({"apply_layernorm_1p", "layernorm_zero_centered_gamma"},
                  flag<&C::zero_centered_norms>("zero_centered_norms",
                                                "Norms multiply by 1 + their weight (Gemma, Qwen3-Next).")),
      also_called({"position_embedding_type", "position_embeddings"},
                  word<&C::positions>("positions",
                                      "The token's position: rotary, queries and keys are turned; learned, a "
                                      "table's row is added to its embedding; none (Kimi-Linear).")),
      also_called(
          {"hidden_act", "activation_function", "mlp_activation"},
          word<&C::activation>("activation",
                               "Activation of MLPs and experts: swiglu; geglu or geglu_tanh, a gate by gelu; "
                               "without a gate: gelu; gelu_tanh, its approximation (GPT-2); relu2, the square "
                               "of what is above 0 (Nemotron).")),
      also_called(
          {"multi_latent_attention", "mla", "gqa"},
          word<&C::attention>(
              "attention",
              "latent: keys and values from a latent (DeepSeek-V3); grouped: heads in groups share them (LLaMA, "
              "Qwen3); compressed: heads share one key, the value too, and see a window and compressed keys "
              "(DeepSeek-V4).")),
      also_called({"n_heads", "n_head", "num_heads", "heads"},
                  row<&C::num_attention_heads>("num_attention_heads", 1, 1 << 16, "Attention heads.")),
      row<&C::q_lora_rank>("q_lora_rank", 0, 1 << 20, "Width of the queries' latent; 0 projects queries directly.",
                           Of::latent_compressed),
      row<&C::kv_lora_rank>("kv_lora_rank", 1, 1 << 20, "Width of the latent of keys and values.", Of::latent),
      row<&C::qk_nope_head_dim>("qk_nope_head_dim", 1, 1 << 16, "Width of a head's query and key without rotation.",
                                Of::latent),
      row<&C::qk_rope_head_dim>(
          "qk_rope_head_dim", 0, 1 << 16,
          "Width of a head's rotated part of query and key; even. 0 goes with latent attention "
          "and model.positions = \"none\" (GLM-5.3).",
          Of::latent_compressed),
      row<&C::v_head_dim>("v_head_dim", 1, 1 << 16, "Width of a head's value.", Of::latent),
      row<&C::latent_norm_eps>("latent_norm_eps", kTiny, 1,
                               "Epsilon of the norms of latents, and of the rotary key.", Of::latent),
      also_called({"k_rope_only_layernorm"},
                  flag<&C::rotary_key_norm>(
                      "rotary_key_norm", "The rotary key that heads share is normed ahead of its rotation (dots3).",
                      Of::latent)),
      flag<&C::raw_latent_of_queries>(
          "raw_latent_of_queries",
          "Queries are projected from their normed latent and, behind it, the latent as "
          "it is (A.X-K2).",
          Of::latent),
      also_called({"mla_scale_q_lora", "mla_scale_kv_lora"},
                  flag<&C::scaled_latents>("scaled_latents",
                                           "A normed latent is multiplied by √(model.hidden_size ÷ its width) "
                                           "(LongCat-Flash).",
                                           Of::latent)),
      also_called(
          {"dsa_indexer_topk"},
          row<&C::index_topk>("index_topk", 0, kMostCount,
                              "Keys that a query attends to, the best by an indexer's scores (DeepSeek-V3.2); "
                              "0: all, without an indexer.")),
      also_called({"index_heads", "dsa_indexer_n_heads"},
                  row<&C::index_n_heads>("index_n_heads", 1, 1 << 16, "Heads of an indexer.")),
      also_called({"dsa_indexer_head_dim"},
                  row<&C::index_head_dim>("index_head_dim", 2, 1 << 16,
                                          "Width of an indexer's head; at least what is rotated of a head.")),
      flag<&C::indexer_rope_interleave>("indexer_rope_interleave",
                                        "Indexers rotate neighbours (2i, 2i+1); otherwise halves (i, i + half).",
                                        Of::latent),
      flag<&C::indexer_rope_last>("indexer_rope_last",
                                  "Indexers rotate the last elements of a head; otherwise the first.", Of::latent),
      row<&C::indexer_norm_eps>("indexer_norm_eps", kTiny, 1, "Epsilon of the norm of an indexer's keys.",
                                Of::latent),
      row<&C::index_topk_freq>(
          "index_topk_freq", 1, 4096,
          "Of so many layers one has an indexer, and those after it take its choice (GLM-5.2).", Of::latent),
      row<&C::index_skip_topk_offset>("index_skip_topk_offset", 1, 1 << 20,
                                      "Number of first layers that each have an indexer, whatever "
                                      "model.index_topk_freq is.",
                                      Of::latent),
      also_called(
          {"sparse_attention_freq", "indexer_types"},
          letters<&C::index_pattern>(
              "index_pattern",
              "A letter a layer of a model that selects keys: I has an indexer, S takes the choice of the layer "
              "before it that has one, * attends to all keys. Empty: model.index_topk_freq and "
              "model.index_skip_topk_offset say which layers have indexers.")),
      also_called(
          {"index_kpool"},
          word<&C::index_blocks>(
              "index_blocks",
              "Keys are chosen in blocks, by the greatest score of a block's keys, with a choice a key head "
              "(MiniMax-M3); by that of the mean of its keys (Qwen4-Exp); or gated, by that of a weighted "
              "mean whose weights are learned (GLM-5.3). None: one by one.")),
      also_called({"sparse_block_size", "indexer_compress_ratio"},
                  row<&C::index_block_size>("index_block_size", 1, kMostCount,
                                            "Keys of a block that is chosen as a whole.")),
      also_called({"sparse_local_block"},
                  row<&C::index_local_blocks>("index_local_blocks", 0, kMostCount,
                                              "Of the blocks up to a query's own, the last so many are always "
                                              "chosen; with model.index_blocks = \"greatest\".")),
      also_called(
          {"compress_ratios", "compress_rates"},
          letters<&C::compression_pattern>(
              "compression_pattern",
              "A letter a layer: W, queries see a window; S, and model.index_topk entries of model.sparse_rate "
              "tokens each, by an indexer's choice; H, and all entries, of model.heavy_rate tokens each.",
              Of::compressed)),
      row<&C::sparse_rate>("sparse_rate", 1, 1 << 20, "Tokens of an entry in layers S, whose entries overlap.",
                           Of::compressed),
      row<&C::heavy_rate>("heavy_rate", 1, 1 << 20, "Tokens of an entry in layers H.", Of::compressed),
      row<&C::o_groups>("o_groups", 1, 1 << 16,
                        "Groups of heads whose outputs each have a map of their own, ahead of the output's.",
                        Of::compressed),
      row<&C::o_lora_rank>("o_lora_rank", 1, 1 << 20, "Numbers that the map of a group makes.", Of::compressed),
      also_called({"n_kv_heads", "num_kv_heads", "num_query_groups", "kv_heads"},
                  row<&C::num_key_value_heads>("num_key_value_heads", 1, 1 << 16,
                                               "Heads of keys and values, each shared by as many heads of queries.",
                                               Of::grouped)),
      also_called({"kv_channels", "d_head", "head_size"},
                  row<&C::head_dim>("head_dim", 2, 1 << 16, "Width of a head's query, key and value; even.",
                                    Of::grouped_compressed)),
      also_called({"qk_layernorm"},
                  flag<&C::qk_norm>("qk_norm", "Queries and keys are normed head by head.", Of::grouped)),
      flag<&C::qk_norm_all_heads>(
          "qk_norm_all_heads", "All heads of a token's query, or key, are normed as one row (OLMo 2, MiniMax-M2).",
          Of::grouped),
      flag<&C::qk_norm_after_rotation>("qk_norm_after_rotation",
                                       "Queries and keys are turned first and then normed (Hunyuan).", Of::grouped),
      flag<&C::value_norm>("value_norm", "Values are normed head by head, without a gain (Gemma 4).", Of::grouped),
      also_called({"attention_k_eq_v"},
                  flag<&C::keys_are_values>("keys_are_values",
                                            "Layers without a window project no values: these are the keys, ahead "
                                            "of norm and rotation (Gemma 4).",
                                            Of::grouped)),
      also_called({"attention_output_gate", "attn_output_gate", "gating"},
                  word<&C::attention_gate>("attention_gate",
                                           "Sigmoids on attention's output: none; head, one a head; element, one "
                                           "an element; element_apart, the same by a map of its own (AFMoE).",
                                           Of::latent_grouped)),
      flag<&C::attention_gate_softplus>(
          "attention_gate_softplus", "Gates of attention's output are ln(1 + e^x) in place of sigmoids (Laguna).",
          Of::grouped),
      also_called({"v_channels"},
                  row<&C::value_head_dim>("value_head_dim", 0, 1 << 16,
                                          "Width of a head's value; 0: model.head_dim.", Of::grouped)),
      also_called({"attention_value_scale"},
                  row<&C::value_multiplier>("value_multiplier", kTiny, 1e6, "Factor on values.", Of::grouped)),
      row<&C::key_multiplier>("key_multiplier", kTiny, 1e6, "Factor on keys, ahead of their norm and rotation.",
                              Of::grouped),
      row<&C::attention_in_multiplier>("attention_in_multiplier", kTiny, 1e6,
                                       "Factor on what queries, keys and values are made of (Falcon-H1).",
                                       Of::grouped),
      also_called({"attention_multiplier", "softmax_scale", "query_pre_attn_scalar"},
                  row<&C::attention_scale>("attention_scale", 0, 1e6,
                                           "Factor on attention's scores; 0: 1 ÷ √(model.head_dim).", Of::grouped)),
      also_called(
          {"attn_logit_softcapping", "attention_softcap"},
          row<&C::attention_logit_cap>("attention_logit_cap", 0, 1e6,
                                       "Scores s of attention become c·tanh(s ÷ c), with c the cap; 0: they "
                                       "stay (Gemma 2).",
                                       Of::grouped)),
      also_called(
          {"add_qkv_bias", "add_bias_linear", "qkv_bias"},
          word<&C::attention_bias>(
              "attention_bias",
              "Linear maps of attention with a bias: none; qkv, of queries, keys and values; all.", Of::grouped)),
      also_called({"rotary_percent"},
                  row<&C::partial_rotary_factor>(
                      "partial_rotary_factor", kTiny, 1,
                      "The part of a head, from its first element on, that has positions.", Of::grouped)),
      row<&C::turning_pairs_factor>(
          "turning_pairs_factor", kTiny, 1,
          "Of the pairs of a head that have positions, the first part that turns, each as fast as if all did; the "
          "others stand still (Gemma 4).",
          Of::grouped),
      also_called({"nope_layer_interval", "no_rope_freq"},
                  row<&C::no_rope_layer_interval>("no_rope_layer_interval", 0, 4096,
                                                  "Every so many-th layer turns no queries and keys (SmolLM3); 0: "
                                                  "none.",
                                                  Of::grouped)),
      also_called(
          {"no_rope_layers", "layer_rope_theta"},
          letters<&C::rotation_pattern>(
              "rotation_pattern",
              "A letter a layer, in place of model.no_rope_layer_interval: R, queries and keys are turned; -, they "
              "are not.",
              Of::grouped)),
      flag<&C::qk_unit_norm>("qk_unit_norm",
                             "Layers that turn norm queries and keys behind it, head by head, without a gain "
                             "(Llama 4).",
                             Of::grouped),
      also_called(
          {"sink", "learnable_softmax", "softmax_type"},
          flag<&C::attention_sinks>("attention_sinks",
                                    "A learned logit a head takes part in attention's softmax, without a value.")),
      flag<&C::sinks_in_windows>("sinks_in_windows", "Only layers with a window have sinks.", Of::grouped),
      also_called({"window_size", "attention_window", "window_attention"},
                  row<&C::sliding_window>("sliding_window", 0, kMostCount,
                                          "Tokens that a query attends to, its own the last; 0: all before it.")),
      also_called(
          {"window_first_layer"},
          row<&C::max_window_layers>("max_window_layers", 0, 1 << 20,
                                     "Number of first layers with full attention; the others have a window.")),
      also_called({"window_attn_skip_freq", "sliding_window_pattern", "layer_types"},
                  row<&C::full_attention_interval>(
                      "full_attention_interval", 0, 4096,
                      "Every so many-th layer has full attention, the others a window or a recurrence; 0: none.")),
      row<&C::full_attention_offset>("full_attention_offset", 0, 4095,
                                     "Layer, the first being 0, from which every so many-th layer is counted."),
      flag<&C::full_attention_last>("full_attention_last",
                                    "The last layer has full attention, whatever its number (Kimi-Linear)."),
      also_called(
          {"attention_chunk_size", "chunked_attention"},
          flag<&C::window_chunks>("window_chunks",
                                  "Windows are chunks: sequences are cut every model.sliding_window tokens, "
                                  "and a query sees its own chunk up to itself (Llama 4).")),
      also_called(
          {"full_attn_idxs", "attn_layer_indices"},
          letters<&C::layer_pattern>(
              "layer_pattern",
              "A letter a layer: * full attention, W attention with model.sliding_window, M a recurrence. Empty: "
              "model.full_attention_interval and its like say which layers have what.")),
      also_called(
          {"linear_attention", "linear_attention_type", "experimental_attention_variant"},
          word<&C::recurrence>("recurrence",
                               "Recurrence along the sequence instead of attention, in all layers but "
                               "those with full attention: none; gated_delta (Qwen3-Next); kimi_delta, with "
                               "latent attention (Kimi-Linear); lightning (MiniMax-01); mamba2 "
                               "(Nemotron-H); short_convolution, which has no state (LFM2).")),
      row<&C::linear_num_key_heads>("linear_num_key_heads", 1, 1 << 16,
                                    "Heads of queries and keys of a recurrent layer, each shared by as many heads "
                                    "of values; of Mamba-2 the groups of B and C.",
                                    Of::stateful),
      row<&C::linear_num_value_heads>("linear_num_value_heads", 1, 1 << 16,
                                      "Heads of values of a recurrent layer, each with a state.", Of::stateful),
      row<&C::linear_key_head_dim>("linear_key_head_dim", 1, 1 << 16,
                                   "Width of a head's query and key in a recurrent layer.", Of::stateful),
      row<&C::linear_value_head_dim>("linear_value_head_dim", 1, 1 << 16,
                                     "Width of a head's value in a recurrent layer.", Of::stateful),
      row<&C::linear_conv_kernel_dim>("linear_conv_kernel_dim", 2, 64,
                                      "Positions that the convolution before a recurrence sees.", Of::recurrent),
      flag<&C::linear_projections_apart>(
          "linear_projections_apart",
          "Each projection of the gated delta rule is by itself (Qwen3.5); otherwise "
          "two hold all, a key head's rows together (Qwen3-Next).",
          Of::stateful),
      flag<&C::linear_tensors_apart>(
          "linear_tensors_apart",
          "Files have queries, keys and values of the gated delta rule as tensors by themselves, each with its "
          "convolution (OLMo Hybrid); otherwise as one.",
          Of::stateful),
      row<&C::linear_step_least>("linear_step_least", 0, 1e6, "Least time step of Mamba-2.", Of::stateful),
      row<&C::linear_step_most>("linear_step_most", 0, 1e6, "Largest time step of Mamba-2; 0: any.", Of::stateful),
      also_called({"output_gate_type"},
                  flag<&C::linear_sigmoid_gate>("linear_sigmoid_gate",
                                                "The output of the gated delta rule has a sigmoid as gate (Qwen4); "
                                                "otherwise silu.",
                                                Of::stateful)),
      row<&C::linear_norm_eps>("linear_norm_eps", 0, 1,
                               "Epsilon of the norm of a recurrence's output; 0: model.rms_norm_eps.",
                               Of::stateful),
      also_called({"mamba_rms_norm", "mamba_norm_before_gate"},
                  word<&C::linear_norm>("linear_norm",
                                        "The norm of what Mamba-2 makes: gated, behind its gate; ungated, ahead of "
                                        "it; none (Falcon-H1).",
                                        Of::stateful)),
      also_called({"ssm_in_multiplier"},
                  row<&C::linear_in_multiplier>("linear_in_multiplier", kTiny, 1e6,
                                                "Factor on what Mamba-2 reads (Falcon-H1).", Of::stateful)),
      also_called({"ssm_multipliers"},
                  numbers<&C::linear_part_multipliers>("linear_part_multipliers",
                                                       "Factors on what Mamba-2 projects: on its gate, x, B, C and "
                                                       "time steps, commas between (Falcon-H1). Empty: 1.",
                                                       Of::stateful)),
      flag<&C::recurrence_beside_attention>("recurrence_beside_attention",
                                            "Each layer has Mamba-2 beside attention: both read one norm, and the "
                                            "stream gets their sum (Falcon-H1).",
                                            Of::stateful),
      also_called({"linear_allow_neg_eigval", "allow_neg_eigval"},
                  flag<&C::linear_double_beta>("linear_double_beta",
                                               "Steps of the gated delta rule are twice a sigmoid (OLMo Hybrid).",
                                               Of::stateful)),
      also_called({"mamba_proj_bias", "conv_bias"},
                  flag<&C::linear_bias>("linear_bias",
                                        "The linear maps of Mamba-2 have biases, or all three maps of a short "
                                        "convolution.",
                                        Of::recurrent)),
      also_called(
          {"kda_lower_bound", "gate_lower_bound", "linear_lower_bound"},
          row<&C::linear_decay_least>("linear_decay_least", -1e6, 0,
                                      "Bound of a log decay of Kimi Delta Attention, which is then it times "
                                      "a sigmoid (Ling 3); 0: none.",
                                      Of::stateful)),
      flag<&C::linear_full_gates>("linear_full_gates",
                                  "One map makes the decays of Kimi Delta Attention and one its gate (Ling 3); "
                                  "otherwise two maps with a narrow middle make each.",
                                  Of::stateful),
      row<&C::window_attention_heads>("window_attention_heads", 0, 1 << 16,
                                      "Attention heads of layers with a window; 0: as many as elsewhere.",
                                      Of::latent_grouped),
      row<&C::window_q_lora_rank>("window_q_lora_rank", 0, 1 << 20,
                                  "model.q_lora_rank of layers with a window; 0: as elsewhere.", Of::latent),
      row<&C::window_kv_lora_rank>("window_kv_lora_rank", 0, 1 << 20,
                                   "model.kv_lora_rank of layers with a window; 0: as elsewhere.", Of::latent),
      row<&C::window_qk_nope_head_dim>("window_qk_nope_head_dim", 0, 1 << 20,
                                       "model.qk_nope_head_dim of layers with a window; 0: as elsewhere.",
                                       Of::latent),
      row<&C::window_qk_rope_head_dim>("window_qk_rope_head_dim", 0, 1 << 20,
                                       "model.qk_rope_head_dim of layers with a window; 0: as elsewhere.",
                                       Of::latent),
      row<&C::window_v_head_dim>("window_v_head_dim", 0, 1 << 20,
                                 "model.v_head_dim of layers with a window; 0: as elsewhere.", Of::latent),
      row<&C::window_key_value_heads>("window_key_value_heads", 0, 1 << 16,
                                      "Heads of keys and values of layers with a window; 0: as many as elsewhere.",
                                      Of::grouped),
      row<&C::window_head_dim>("window_head_dim", 0, 1 << 16,
                               "Width of a head's query, key and value in layers with a window; 0: as elsewhere.",
                               Of::grouped),
      also_called({"num_kv_shared_layers"},
                  row<&C::shared_key_value_layers>(
                      "shared_key_value_layers", 0, 4096,
                      "So many last layers make no keys and values: each takes those of the last layer before "
                      "them that has a window, or none, as it has (Gemma 4).",
                      Of::grouped)),
      row<&C::sharing_intermediate_size>("sharing_intermediate_size", 0, 1 << 24,
                                         "Width of the MLP in layers that take keys and values of another; 0: "
                                         "model.intermediate_size.",
                                         Of::grouped),
      also_called(
          {"rope_local_base_freq"},
          row<&C::window_rope_theta>("window_rope_theta", 0, 1e12,
                                     "Base of the rotary frequencies of layers with a window, which nothing "
                                     "stretches; 0: as elsewhere.")),
      row<&C::window_rotary_factor>("window_rotary_factor", 0, 1,
                                    "The part of a head that has positions in layers with a window of a base of "
                                    "their own; 0: as elsewhere.",
                                    Of::grouped),
      flag<&C::mlp_bias>("mlp_bias", "The dense layers' linear maps have biases."),
      row<&C::mlp_gate_multiplier>("mlp_gate_multiplier", kTiny, 1e6,
                                   "Factor on the gates of dense layers, ahead of their function (Falcon-H1)."),
      also_called({"glu_clamp_value", "activation_func_clamp_value"},
                  row<&C::swiglu_limit>("swiglu_limit", 0, 1e6,
                                        "Gates and ups of MLPs and experts are clamped to it, and up + 1 taken for "
                                        "up; 0: plain SwiGLU.")),
      row<&C::swiglu_alpha>("swiglu_alpha", kTiny, 1e6,
                            "Gain of the sigmoid in clamped SwiGLU; counts only with swiglu_limit."),
      row<&C::experts_limit>("experts_limit", 0, 1e6,
                             "silu(gate) of routed experts is cut above it, up within ± it; 0: neither.",
                             Of::experts),
      row<&C::experts_limit_layer>("experts_limit_layer", 0, 1 << 20, "First layer with experts_limit.",
                                   Of::experts),
      row<&C::mlp_limit>(
          "mlp_limit", 0, 1e6,
          "silu(gate) of shared experts and dense layers is cut above it, up within ± it; 0: neither."),
      row<&C::mlp_limit_layer>("mlp_limit_layer", 0, 1 << 20, "First layer with mlp_limit."),
      row<&C::mlp_limit_last>(
          "mlp_limit_last", 0, 1e6,
          "It takes the place of model.mlp_limit in the last layers (Ling-3.0-flash); 0: none."),
      row<&C::mlp_limit_last_layer>("mlp_limit_last_layer", 0, 1 << 20, "First layer with mlp_limit_last."),
      flag<&C::limited_gates>(
          "limited_gates",
          "model.experts_limit and model.mlp_limit cut the gate, and not silu of it (DeepSeek-V4)."),
      also_called({"rotary_base", "rope_base"},
                  row<&C::rope_theta>("rope_theta", 1, 1e12, "Base of the rotary frequencies.")),
      flag<&C::rope_interleave>("rope_interleave",
                                "Rotate neighbours (2i, 2i+1); otherwise the halves (i, i + half)."),
      also_called({"llama_4_scaling_beta", "attn_scale"},
                  row<&C::query_scale_beta>("query_scale_beta", 0, 1e6,
                                            "Queries are multiplied by 1 + beta·ln(1 + ⌊position ÷ "
                                            "model.query_scale_length⌋) (Ministral 3, Llama 4); 0: they are not.",
                                            Of::latent_grouped)),
      also_called({"floor_scale"}, row<&C::query_scale_length>("query_scale_length", 1, kMostCount,
                                                               "Positions over which the factor on queries stays.",
                                                               Of::latent_grouped)),
      row<&C::query_scale_first>("query_scale_first", 0, kMostCount,
                                 "The position of a document's first token to the factor on queries.",
                                 Of::latent_grouped),
      flag<&C::query_scale_unturned>("query_scale_unturned",
                                     "Layers without rotary positions alone have the factor on queries (Llama 4).",
                                     Of::latent_grouped),
      also_called(
          {"embedding_scale", "scale_embedding"},
          row<&C::embedding_multiplier>("embedding_multiplier", kTiny, 1e6, "Factor on the embedded tokens.")),
      also_called({"hidden_size_per_layer_input"},
                  row<&C::layer_embedding_size>("layer_embedding_size", 0, 1 << 16,
                                                "Width of a further embedding of each token for each layer, which "
                                                "gates what a last block of the layer adds; 0: none (Gemma 4).",
                                                Of::grouped)),
      row<&C::residual_multiplier>("residual_multiplier", kTiny, 1e6,
                                   "Factor on what attention and MLP add to the residual stream."),
      row<&C::full_attn_alpha_factor>("full_attn_alpha_factor", 0, 1e6,
                                      "Factor on the residual stream that attention adds to (MiniMax-01)."),
      row<&C::full_attn_beta_factor>("full_attn_beta_factor", kTiny, 1e6, "Factor on what attention adds to it."),
      row<&C::linear_attn_alpha_factor>("linear_attn_alpha_factor", 0, 1e6,
                                        "Factor on the residual stream that a recurrence adds to.", Of::recurrent),
      row<&C::linear_attn_beta_factor>("linear_attn_beta_factor", kTiny, 1e6,
                                       "Factor on what a recurrence adds to it.", Of::recurrent),
      row<&C::mlp_alpha_factor>("mlp_alpha_factor", 0, 1e6, "Factor on the residual stream that an MLP adds to."),
      row<&C::mlp_beta_factor>("mlp_beta_factor", kTiny, 1e6, "Factor on what an MLP adds to it."),
      also_called({"hc_mult", "mhc", "num_residual_streams"},
                  row<&C::hyper_connections>("hyper_connections", 0, ops::kMostStreams,
                                             "Streams of the residual, which each block reads and writes to by "
                                             "weights of the token (mHC, DeepSeek-V4); 0: one, plainly added to.")),
      word<&C::hyper_connections_kind>(
          "hyper_connections_kind",
          "The weights of streams: constrained, a doubly stochastic matrix mixes them (DeepSeek-V4); independent, "
          "no "
          "stream goes into another (Hy4); gated, a weight an element of what is read (Qwen4).",
          Of::streams),
      also_called(
          {"hc_magnitude"},
          row<&C::hyper_connections_magnitude>(
              "hyper_connections_magnitude", kTiny, 1e6,
              "The most that a weight of writing is, with the kind \"independent\" of streams.", Of::streams)),
      also_called({"hc_sinkhorn_iters", "sinkhorn_iterations"},
                  row<&C::hyper_connections_iterations>(
                      "hyper_connections_iterations", 1, ops::kMostStreamIterations,
                      "Iterations that bring rows and columns of the streams' mix to sums of one.", Of::streams)),
      also_called({"hc_eps"}, row<&C::hyper_connections_eps>("hyper_connections_eps", 0, 1,
                                                             "Added to these sums, and to the weights of reading.",
                                                             Of::streams)),
      also_called({"hc_lowrank"}, row<&C::hyper_connections_rank>(
                                      "hyper_connections_rank", 1, 1 << 20,
                                      "Width of the middle of the maps that make weights of reading, with "
                                      "the kind \"gated\" of streams.",
                                      Of::streams)),
      flag<&C::hyper_connections_mean>("hyper_connections_mean",
                                       "The head reads the mean of the streams, without weights (GLM-5.3).",
                                       Of::streams),
      also_called({"ple_layer_ids"},
                  letters<&C::ngram_layers>(
                      "ngram_layers",
                      "Layers that add embeddings of hashed n-grams to their streams (Qwen4), with "
                      "the kind \"gated\" of streams: their numbers, 1 being the first layer, commas between. "
                      "Empty: none.")),
      row<&C::ngram_size>("ngram_size", 2, 16, "Tokens of the longest n-gram; the shortest has two.", Of::ngrams),
      also_called(
          {"heads_per_ngram"},
          row<&C::ngram_heads>("ngram_heads", 1, 1024,
                               "Tables of n-grams of one length, each with a hash of its own.", Of::ngrams)),
      also_called({"ple_embed_dim"},
                  row<&C::ngram_embedding_size>("ngram_embedding_size", 0, 1 << 20,
                                                "Width of a token's rows of all tables of n-grams together; 0: "
                                                "model.hidden_size.",
                                                Of::ngrams)),
      also_called({"ngram_vocab_size_base"},
                  row<&C::ngram_vocab_size>(
                      "ngram_vocab_size", 1, 1 << 30,
                      "Tables of n-grams have as many rows as primes from here on, each another.", Of::ngrams)),
      also_called({"make_ngram_vocab_size_divisible_by"},
                  row<&C::ngram_vocab_multiple>(
                      "ngram_vocab_multiple", 1, 1 << 20,
                      "The rows of a layer's tables together are filled up to a multiple.", Of::ngrams)),
      row<&C::ngram_seed>("ngram_seed", 0, kMostCount, "Seed of the hashes of n-grams.", Of::ngrams),
      also_called({"ple_conv_kernel_size"},
                  row<&C::ngram_conv_kernel_dim>("ngram_conv_kernel_dim", 1, 64,
                                                 "Rows that the convolution behind n-grams sees, "
                                                 "model.ngram_size apart.",
                                                 Of::ngrams)),
      row<&C::ngram_end_token>("ngram_end_token", 0, kMostCount, "No n-gram goes on behind this token.",
                               Of::ngrams),
      also_called(
          {"split_ngram_parts"},
          row<&C::ngram_parts>("ngram_parts", 1, 1 << 20,
                               "Tensors in which released files hold a layer's tables of n-grams.", Of::ngrams)),
      also_called({"layer_scalar"},
                  flag<&C::layer_scalars>("layer_scalars",
                                          "A layer's output is multiplied by a number beside its weights, which is "
                                          "not trained (Gemma 4).")),
      also_called({"logits_scaling"},
                  row<&C::logits_divisor>("logits_divisor", kTiny, 1e6, "The head's logits are divided by it.")),
      also_called({"final_logit_softcapping", "logit_softcap"},
                  row<&C::final_logit_cap>("final_logit_cap", 0, 1e6,
                                           "Logits l become c·tanh(l ÷ c), with c the cap; 0: they stay.")),
      also_called({"lm_head_bias"}, flag<&C::head_bias>("head_bias", "The head's logits have a bias.")),
      also_called(
          {"num_experts", "n_experts", "num_local_experts", "experts", "moe_num_experts"},
          row<&C::n_routed_experts>("n_routed_experts", 1, 1 << 16, "Routed experts of a layer.", Of::experts)),
      also_called({"top_k", "moe_router_topk", "moe_top_k", "experts_per_token", "active_experts"},
                  row<&C::num_experts_per_tok>("num_experts_per_tok", 1, 1 << 16,
                                               "Experts that a token passes through.", Of::experts)),
      also_called({"zero_experts", "zero_computation_experts"},
                  row<&C::zero_expert_num>("zero_expert_num", 0, 1 << 16,
                                           "Experts without computation, besides: each gives a token's row back as "
                                           "it is (LongCat-Flash).",
                                           Of::experts)),
      flag<&C::shortcut_experts>(
          "shortcut_experts",
          "Layers are pairs, each with attention and MLP; the experts beside the first's MLP "
          "add to the stream behind the second (LongCat-Flash).",
          Of::experts),
      also_called({"num_shared_experts", "shared_experts"},
                  row<&C::n_shared_experts>("n_shared_experts", 0, 1 << 16,
                                            "Experts that every token passes through.", Of::experts)),
      also_called({"moe_ffn_hidden_size", "expert_dim", "d_expert"},
                  row<&C::moe_intermediate_size>("moe_intermediate_size", 1, 1 << 24, "Width of one expert's MLP.",
                                                 Of::experts)),
      also_called(
          {"moe_shared_expert_intermediate_size", "shared_expert_intermediate_size"},
          row<&C::shared_intermediate_size>("shared_intermediate_size", 0, 1 << 24,
                                            "Width of all shared experts together; 0: model.n_shared_experts × "
                                            "model.moe_intermediate_size.",
                                            Of::experts)),
      row<&C::moe_latent_size>("moe_latent_size", 0, 1 << 20,
                               "Width at which routed experts work, between two linear maps; 0: model.hidden_size.",
                               Of::experts),
      also_called(
          {"moe_shared_expert_gate"},
          flag<&C::shared_expert_gate>(
              "shared_expert_gate", "A sigmoid a token on what the shared experts make (Qwen2-MoE).", Of::experts)),
      flag<&C::experts_sum_norm>("experts_sum_norm",
                                 "What routed and shared experts make together is normed (A.X-K1).", Of::experts),
      flag<&C::expert_norms>("expert_norms",
                             "Router, routed and shared experts have norms of their own: of the stream ahead of "
                             "them, and of what each kind of experts makes (Gemma 4).",
                             Of::experts),
      also_called({"per_expert_scale"},
                  flag<&C::expert_scales>("expert_scales", "A learned factor an expert on its gates (Gemma 4).",
                                          Of::experts)),
      also_called({"moe_router_num_groups", "expert_groups"},
                  row<&C::n_group>("n_group", 1, 1 << 16, "Groups that the experts are cut into.", Of::experts)),
      also_called(
          {"moe_router_group_topk"},
          row<&C::topk_group>("topk_group", 1, 1 << 16, "Groups whose experts a token may choose.", Of::experts)),
      row<&C::group_score_top>("group_score_top", 1, 1 << 16,
                               "A group ranks by the sum of so many of its best scores (DeepSeek-V2: 1).",
                               Of::experts),
      flag<&C::norm_topk_prob>("norm_topk_prob", "Gates of the chosen experts sum to one before scaling.",
                               Of::experts),
      also_called({"moe_apply_probs_on_input"},
                  flag<&C::gates_on_inputs>("gates_on_inputs",
                                            "A gate multiplies the row that its expert reads, not what it makes; "
                                            "goes with one expert a token (Llama 4).",
                                            Of::experts)),
      also_called({"shared_expert_combination_strategy"},
                  flag<&C::shared_expert_average>("shared_expert_average",
                                                  "The mean of routed and shared experts, not their sum (Command "
                                                  "A+).",
                                                  Of::experts)),
      also_called({"moe_router_score_function", "scoring_func"},
                  flag<&C::sigmoid_scores>("sigmoid_scores", "Router scores are sigmoids; otherwise a softmax.",
                                           Of::experts)),
      also_called({"sqrtsoftplus", "sqrt_softplus"},
                  flag<&C::softplus_scores>("softplus_scores",
                                            "Router scores are roots of softplus (DeepSeek-V4); goes with "
                                            "model.sigmoid_scores = false.",
                                            Of::experts)),
      also_called(
          {"sparsemixer"},
          flag<&C::sparse_mixer>("sparse_mixer",
                                 "Two experts a token, one after the other; the gate of each is its part of a "
                                 "softmax over the experts whose logits are close to it (Phi-MoE).",
                                 Of::experts)),
      row<&C::router_jitter_noise>("router_jitter_noise", 0, 1,
                                   "How close logits are in model.sparse_mixer: they differ by at most twice this "
                                   "part of the larger.",
                                   Of::experts),
      also_called({"moe_router_enable_expert_bias", "expert_bias", "aux_loss_free"},
                  flag<&C::topk_bias>(
                      "topk_bias", "Balance the load by a bias on the choice (auxiliary-loss-free).", Of::experts)),
      also_called({"n_hash_layers", "hash_layers"},
                  row<&C::num_hash_layers>("num_hash_layers", 0, 1 << 20,
                                           "Of so many first layers, those with experts choose them by a fixed "
                                           "table of token ids (DeepSeek-V4); scores only make the gates.",
                                           Of::experts)),
      also_called(
          {"moe_router_topk_scaling_factor"},
          row<&C::routed_scaling_factor>("routed_scaling_factor", 0, 1e6, "Factor on the gates.", Of::experts)),
      also_called({"embd_pdrop", "embedding_pdrop"},
                  of_training(row<&C::embedding_dropout>(
                      "embedding_dropout", 0, 0.999, "Dropout of the embedded tokens while training; 0 is off."))),
      also_called({"resid_pdrop", "hidden_dropout"},
                  of_training(row<&C::residual_dropout>(
                      "residual_dropout", 0, 0.999,
                      "Dropout of what attention and MLP add to the residual stream while training; 0 is off."))),
      also_called(
          {"attn_pdrop", "attention_probs_dropout_prob"},
          of_training(row<&C::attention_dropout>(
              "attention_dropout", 0, 0.999, "Dropout of attention's probabilities while training; 0 is off."))),
      flag<&C::router_bias>("router_bias", "The router's logits have a bias, which is learned.", Of::experts),
      also_called({"moe_router_logit_softcapping"},
                  row<&C::router_logit_cap>("router_logit_cap", 0, 1e6,
                                            "Logits l of the router become c·tanh(l ÷ c), with c the cap; 0: they "
                                            "stay (Laguna).",
                                            Of::experts)),
      flag<&C::bias_on_logits>("bias_on_logits",
                               "The bias of the choice is added to the router's logits, not to its scores "
                               "(Kolibri).",
                               Of::experts),
      flag<&C::experts_bias>("experts_bias", "The routed experts' linear maps have biases.", Of::experts),
      also_called(
          {"mtp", "mtp_num_layers", "mtp_depth"},
          row<&C::num_nextn_predict_layers>("num_nextn_predict_layers", 0, 16,
                                            "Layers that predict further tokens than the next while training.")),
      letters<&C::nextn_blocks>(
          "nextn_blocks",
          "Two letters, of what each layer that predicts a further token has: * full attention, W attention with "
          "model.sliding_window or M a recurrence; then - an MLP or E experts. Empty: other keys say it."),
      also_called({"mtp_loss_scaling_factor"},
                  of_training(row<&C::mtp_loss_weight>("mtp_loss_weight", 0, 1e6,
                                                       "Weight of the further tokens' losses, of their mean."))),
      also_called(
          {"aux_loss", "moe_aux_loss_coeff", "router_aux_loss_coef", "aux_loss_alpha"},
          of_training(row<&C::sequence_aux_loss_alpha>("sequence_aux_loss_alpha", 0, 1e6,
                                                       "Weight of the balance loss within a sequence; 0 is off."))),
      also_called(
          {"z_loss", "moe_z_loss_coeff", "router_z_loss_coef"},
          of_training(row<&C::z_loss_weight>("z_loss_weight", 0, 1e6, "Weight of the router's z-loss; 0 is off."))),
      of_training(
          word<&C::index_stage>("index_stage",
                                "Training of indexers: sparse, with all other weights, on the keys that they "
                                "chose; dense, alone, on all keys; off, not at all.")),
      also_called({"dsa_indexer_loss_coeff"},
                  of_training(row<&C::index_loss_weight>("index_loss_weight", kTiny, 1e6,
                                                         "Weight of indexers' divergence from attention."))),
      of_training(word<&C::bias_balance>("bias_balance",
                                         "Movement of the balancing biases: sign, by the rate against the load; "
                                         "falling, by a rate that falls; quantile, "
                                         "to where the step's scores would have been balanced; share, by the rate "
                                         "times what an expert's share of the choices lacks.",
                                         Of::experts)),
      bias_update_rate(),
      rope_type(),
      scaling<&RopeScaling::factor>(Of::scaling, "factor", 1, "Factor by which the context is stretched."),
      scaling<&RopeScaling::original_max_position_embeddings>(Of::of_length, "original_max_position_embeddings", 1,
                                                              "All but linear: the context before stretching."),
      scaling<&RopeScaling::beta_fast>(Of::yarn, "beta_fast", kTiny,
                                       "YaRN: rotations over the old context above which a frequency stays."),
      scaling<&RopeScaling::beta_slow>(Of::yarn, "beta_slow", kTiny,
                                       "YaRN: rotations over the old context below which it is stretched whole."),
      scaling<&RopeScaling::mscale>(Of::yarn, "mscale", 0,
                                    "YaRN: factor of the correction of attention's temperature; counts only beside "
                                    "mscale_all_dim. 0: not given."),
      scaling<&RopeScaling::mscale_all_dim>(Of::yarn, "mscale_all_dim", 0,
                                            "YaRN: the same for all dimensions of a head. 0: not given."),
      scaling<&RopeScaling::attention_factor>(
          Of::yarn_longrope, "attention_factor", 0,
          "YaRN, LongRoPE: factor on rotated queries and keys; 0 takes it from factor and the mscales."),
      scaling<&RopeScaling::truncate>(Of::yarn, "truncate", 0,
                                      "YaRN: the ramp between the two betas begins and ends at whole pairs."),
      scaling<&RopeScaling::low_freq_factor>(
          Of::llama3, "low_freq_factor", kTiny,
          "LLaMA 3.1: rotations over the old context below which a frequency is stretched whole."),
      scaling<&RopeScaling::high_freq_factor>(
          Of::llama3, "high_freq_factor", kTiny,
          "LLaMA 3.1: rotations over the old context above which a frequency stays."),
      factors<&RopeScaling::short_factor>(
          "short_factor",
          "LongRoPE: what the frequency of each pair is divided by, numbers with commas between, where "
          "train.sequence_length is at most the old context."),
      factors<&RopeScaling::long_factor>("long_factor", "LongRoPE: the same where train.sequence_length is more."),
      scaling<&RopeScaling::short_mscale>(
          Of::longrope, "short_mscale", 0,
          "LongRoPE: attention_factor of sequences up to the old context (Phi-3.5-MoE). 0: not given."),
      scaling<&RopeScaling::long_mscale>(Of::longrope, "long_mscale", 0,
                                         "LongRoPE: attention_factor of longer sequences. 0: not given."),
  };
  return all;
}

const Key* find_key(std::string_view name) {
  const auto at = std::find_if(keys().begin(), keys().end(), [&](const Key& key) { return key.name == name; });
  return at == keys().end() ? nullptr : &*at;
}

bool is_of_scaling(const Key& key) { return key.of >= Of::scaling; }

bool has_key(const ModelConfig& config, const Key& key) {
  const auto is_scaled_by = [&](RopeType type) { return config.rope_scaling && config.rope_scaling->type == type; };
  switch (key.of) {
    case Of::latent: return config.is_latent();
    case Of::grouped: return config.is_grouped();
    case Of::compressed: return config.is_compressed();
    case Of::latent_compressed: return !config.is_grouped();
    case Of::latent_grouped: return !config.is_compressed();
    case Of::grouped_compressed: return !config.is_latent();
    case Of::recurrent: return config.recurs();
    case Of::stateful: return config.has_states();
    case Of::streams: return config.has_streams();
    case Of::ngrams: return config.has_ngrams();
    case Of::scaling: return config.rope_scaling.has_value();
    case Of::yarn: return is_scaled_by(RopeType::yarn);
    case Of::llama3: return is_scaled_by(RopeType::llama3);
    case Of::longrope: return is_scaled_by(RopeType::longrope);
    case Of::yarn_longrope: return is_scaled_by(RopeType::yarn) || is_scaled_by(RopeType::longrope);
    case Of::of_length: return config.rope_scaling.has_value() && !is_scaled_by(RopeType::linear);
    case Of::any:
    case Of::experts: break;
  }
  return true;
}

void reset_foreign_keys(ModelConfig& config) {
  for (const Key& key : keys()) {
    if (is_of_scaling(key) && !config.rope_scaling) continue;
    if (!has_key(config, key)) key.set(config, key.get(ModelConfig()));
  }
}

std::string shown(const KeyValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&value)) return fmt::format("{}", *d);
  return fmt::format("\"{}\"", std::get<std::string>(value));
}

}  // namespace heddle::model
