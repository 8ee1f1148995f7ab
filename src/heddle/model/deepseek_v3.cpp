#include "heddle/model/deepseek_v3.h"

#include <algorithm>
#include <map>
#include <optional>

#include "heddle/ops/ops.h"

namespace heddle::model {

namespace {

using ir::Attributes;
using ir::Axis;
using ir::Dim;
using ir::none;
using ir::Role;
using ir::ValueId;

// Shape legend: T tokens of a microbatch on this rank, U those of its tp group (U = T without tensor parallelism),
// H hidden, E experts, k chosen, R = T·k rows, S rows received, F width.
//
// Tensor parallel (Korthikanti et al., arXiv 2205.05198): between the blocks each rank of tp has its own T tokens;
// a block gathers them, works on its heads or its part of the width, and scatters the sum back.
class Writer {
 public:
  Writer(const ModelConfig& config, const StageSpec& spec) : c_(config), spec_(spec) {
    text_.stage.name = fmt::format("stage {}", spec.stage);
    runs_ = spec.sequences;
    local_ = spec.sequence_length / spec.mesh.of(Axis::cp);
    tokens_ = runs_ * local_ / tp();
    wide_ = spec.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  }

  StageText write() {
    text_.stage.chunks.clear();
    for (const StageSpec::Chunk& chunk : spec_.chunks) {
      chunk_ = static_cast<int>(text_.stage.chunks.size());
      text_.stage.chunks.push_back(chunk.microbatches);
      if (!chunk.piece.is_empty()) write(chunk);
    }
    return std::move(text_);
  }

 private:
  // Hidden states go from piece to piece: those after the last layer and, behind them, those of each depth so far.
  void write(const StageSpec::Chunk& chunk) {
    const Piece& piece = chunk.piece;
    const int64_t last_depth = std::min(depths(), piece.first_depth + piece.depths - 1);
    if (piece.embedding || piece.depths > 0 || piece.loss) {
      std::vector<std::string> names;
      for (int64_t d = 0; d <= depths(); ++d) names.push_back(fmt::format("ids_{}", d));
      for (int64_t d = 1; d <= depths() + 1; ++d) names.push_back(fmt::format("labels_{}", d));
      tokens_of_ = op("load_tokens", {}, names,
                      {{"rows", runs_ * local_},
                       {"sequence", spec_.sequence_length},
                       {"depths", depths()},
                       {"cp", int64_t{spec_.mesh.of(Axis::cp)}}});
    }
    scales_ = op("load_scales", {}, {"scales"},
                 {{"count", kScaleDepth + depths()}, {"dtype", std::string(heddle::name_of(wide_))}})[0];
    rope_ = parameter({.name = "rope_table", .start = Parameter::Start::rope_table, .trained = false}, wide_,
                      {local_, c_.qk_rope_head_dim});

    std::vector<ValueId> states = piece.embedding ? std::vector{embed(0, "x")} : arrive(chunk);
    for (int64_t l = piece.first_layer; l < piece.first_layer + piece.layers; ++l) states[0] = layer(l, states[0]);
    layer_ = -1;
    if (piece.loss) {
      head_ = c_.tie_word_embeddings ? embedding()
                                     : matrix("lm_head.weight", c_.vocab_size, c_.hidden_size, {}, {{0, Axis::tp}});
    }
    // Two read a state: the depth that follows, and the head. The depth's norm is written first, so that the
    // backward has the head's part of the gradient, rounded, before this norm adds its own to it: just as where
    // that part comes from another rank. One order of the roundings, wherever the model is cut.
    for (size_t s = 0; s < states.size(); ++s) {
      const auto next = static_cast<int64_t>(s) + 1;
      const bool deeper = next >= piece.first_depth && next <= last_depth;
      const ValueId normed_TH = deeper ? depth_input(next, states[s]) : none;
      if (piece.loss) predict_depth(next - 1, states[s]);
      if (deeper) states.push_back(depth(next, normed_TH));
    }
    layer_ = -1;
    if (chunk.to.edge < 0) return;
    if (chunk.to.step == 0) {
      local_states_[chunk.to.edge] = states;
      return;
    }
    for (size_t d = 0; d < states.size(); ++d) {
      op("send", {states[d]}, {}, hop(chunk.to).set("state", static_cast<int64_t>(d)), "pp");
    }
  }

  // What is written while it lives belongs to a part of the layer (ir::Op::part).
  class Part {
   public:
    Part(Writer& writer, const std::string& part) : writer_(writer), before_(writer.part_) { writer.part_ = part; }
    ~Part() { writer_.part_ = before_; }
    Part(const Part&) = delete;

   private:
    Writer& writer_;
    std::string before_;
  };

  static Attributes hop(const Hop& hop) { return {{"step", int64_t{hop.step}}, {"edge", hop.edge}}; }

  std::vector<ValueId> arrive(const StageSpec::Chunk& chunk) {
    HEDDLE_CHECK(chunk.from.edge >= 0, "chunk {} of stage {} comes from nowhere", chunk_, spec_.stage);
    if (chunk.from.step == 0) return local_states_.at(chunk.from.edge);
    Attributes attributes = hop(chunk.from);
    attributes.set("dtype", std::string(heddle::name_of(spec_.dtype)))
        .set("rows", tokens_)
        .set("columns", c_.hidden_size);
    std::vector<ValueId> states;
    for (int64_t d = 0; d < std::min(depths() + 1, chunk.piece.first_depth); ++d) {
      states.push_back(op("receive", {}, {"x"}, attributes.set("state", d), "pp")[0]);
    }
    return states;
  }

  bool predicts() const { return spec_.purpose == ir::Purpose::predict; }
  int64_t depths() const { return predicts() ? 0 : c_.num_nextn_predict_layers; }
  ValueId ids(int64_t d) const { return tokens_of_[static_cast<size_t>(d)]; }
  ValueId labels(int64_t d) const { return tokens_of_[static_cast<size_t>(depths() + d)]; }

  std::vector<ValueId> op(std::string_view kind, std::vector<ValueId> in, std::vector<std::string> names,
                          Attributes attributes = {}, std::string group = "", std::vector<ValueId> updates = {},
                          std::vector<ValueId> mentions = {}) {
    ir::Op op;
    op.def = &ops::find(kind);
    op.in = std::move(in);
    op.updates = std::move(updates);
    op.mentions = std::move(mentions);
    op.group = std::move(group);
    op.layer = layer_;
    op.chunk = chunk_;
    op.part = part_;
    op.attributes = std::move(attributes);
    if (layer_ >= 0) {
      for (std::string& name : names) name = fmt::format("{}.{}", layer_, name);
    }
    return text_.stage.append(std::move(op), names);
  }

  int64_t expert_ranks() const { return int64_t{spec_.mesh.of(Axis::ep)} * spec_.mesh.of(Axis::etp); }
  int64_t tp() const { return spec_.mesh.of(Axis::tp); }
  int64_t cp() const { return spec_.mesh.of(Axis::cp); }

  // Rows of this rank to those of its tp group, and sums over the group back to this rank's rows.
  ValueId gather(ValueId x, const std::string& name) {
    if (tp() == 1) return x;
    return op("all_gather", {x}, {name + "_all"}, {{"ranks", tp()}, {"runs", runs_}}, "tp")[0];
  }
  ValueId scatter_sum(ValueId x, const std::string& name) {
    if (tp() == 1) return x;
    return op("reduce_scatter", {x}, {name}, {{"ranks", tp()}, {"runs", runs_}}, "tp")[0];
  }
  std::string partial(const std::string& name) const { return tp() == 1 ? name : name + "_part"; }

  ValueId embed(int64_t depth, const std::string& name) {
    ValueId here = ids(depth);
    if (tp() > 1) {
      here = op("shift_ids", {here}, {fmt::format("ids_{}_here", depth)},
                {{"size", c_.vocab_size / tp()}, {"outside", int64_t{-1}}})[0];
    }
    return scatter_sum(op("embedding", {here, embedding()}, {partial(name)})[0], name);
  }
  ValueId embedding() {
    return matrix("model.embed_tokens.weight", c_.vocab_size, c_.hidden_size, {}, {{0, Axis::tp}});
  }

  // `shape` is the whole tensor's; what is added is this rank's. One that the rank has already serves all its uses.
  ValueId parameter(Parameter p, Dtype dtype, std::vector<int64_t> shape) {
    if (const ValueId known = text_.stage.find(p.name); known != none) return known;
    const int64_t rows = shape[0];
    std::erase_if(p.cuts, [&](const Cut& cut) { return spec_.mesh.of(cut.axis) == 1; });
    for (const Cut& cut : p.cuts) {
      shape[static_cast<size_t>(cut.dim)] /= spec_.mesh.of(cut.axis);
      if (cut.axis == Axis::tp) p.copies = "dense";
    }
    ir::Value value;
    value.name = p.name;
    value.dtype = dtype;
    for (const int64_t size : shape) value.shape.push_back({size, none});
    value.role = Role::weight;
    p.value = text_.stage.add_value(std::move(value));
    if (p.released.empty() && p.start != Parameter::Start::rope_table) p.released = {{p.name, 0, rows}};
    text_.parameters.push_back(p);
    return p.value;
  }

  ValueId matrix(const std::string& name, int64_t n, int64_t k, std::vector<ReleasedPart> released = {},
                 std::vector<Cut> cuts = {}) {
    return parameter({.name = name,
                      .deviation = c_.initializer_range,
                      .decays = true,
                      .cuts = std::move(cuts),
                      .released = std::move(released)},
                     spec_.dtype, {n, k});
  }

  ValueId gain(const std::string& name, int64_t width) {
    return parameter({.name = name, .start = Parameter::Start::ones}, wide_, {width});
  }

  ValueId linear(ValueId x, const std::string& prefix, const std::string& name, int64_t n) {
    const int64_t k = text_.stage.value(x).shape.back().count;
    return op("linear", {x, matrix(prefix + name + ".weight", n, k)}, {name})[0];
  }
  // Output features cut among tp; x is of the whole group.
  ValueId column_linear(ValueId x_U, const std::string& prefix, const std::string& name, int64_t n) {
    const int64_t k = text_.stage.value(x_U).shape.back().count;
    return op("linear", {x_U, matrix(prefix + name + ".weight", n, k, {}, {{0, Axis::tp}})}, {name})[0];
  }
  // Input features cut among tp, the sum scattered to each rank's rows.
  ValueId row_linear(ValueId x_U, const std::string& prefix, const std::string& name, int64_t k,
                     const std::string& out) {
    const ValueId w = matrix(prefix + name + ".weight", c_.hidden_size, k, {}, {{1, Axis::tp}});
    return scatter_sum(op("linear", {x_U, w}, {partial(out)})[0], out);
  }

  ValueId norm(ValueId x, const std::string& name, const std::string& out) {
    return norm(x, name, out, c_.rms_norm_eps);
  }
  ValueId norm(ValueId x, const std::string& name, const std::string& out, double epsilon) {
    const int64_t width = text_.stage.value(x).shape.back().count;
    return op("rms_norm", {x, gain(name, width)}, {out, out + "_rstd"}, {{"epsilon", epsilon}})[0];
  }

  // DeepSeek-V2, arXiv 2405.04434, section 2.1.
  ValueId attention(ValueId n_TH, const std::string& prefix) {
    const int64_t all_heads = c_.num_attention_heads, heads = all_heads / tp();
    const int64_t nope = c_.qk_nope_head_dim, rope = c_.qk_rope_head_dim;
    const auto queries = [&](ValueId from, const char* name) {
      const Part part(*this, "mla_up");
      return column_linear(from, prefix, name, all_heads * (nope + rope));
    };
    ValueId q;
    if (c_.q_lora_rank > 0) {
      const ValueId latent = linear(n_TH, prefix, "q_a_proj", c_.q_lora_rank);
      const ValueId normed = norm(latent, prefix + "q_a_layernorm.weight", "q_latent", kLatentNormEpsilon);
      q = queries(gather(normed, "q_latent"), "q_b_proj");
    } else {
      q = queries(gather(n_TH, "n"), "q_proj");
    }
    const ValueId joint = linear(n_TH, prefix, "kv_a_proj_with_mqa", c_.kv_lora_rank + rope);
    const auto parts = op("split", {joint}, {"kv_latent_raw", "k_rope_raw"}, {{"first", c_.kv_lora_rank}});
    const ValueId normed = norm(parts[0], prefix + "kv_a_layernorm.weight", "kv_latent", kLatentNormEpsilon);
    const ValueId latent = gather(normed, "kv_latent");
    const ValueId k_rope_raw = gather(parts[1], "k_rope_raw");
    const ValueId w_kv_b = matrix(prefix + "kv_b_proj.weight", all_heads * (nope + c_.v_head_dim), c_.kv_lora_rank,
                                  {}, {{0, Axis::tp}});

    const auto rotate = [&](ValueId x, int64_t count, int64_t width, const std::string& name) {
      const Part part(*this, "mla_up");
      return op("rope", {x, rope_}, {name},
                {{"heads", count},
                 {"head_dim", width},
                 {"rope_dim", rope},
                 {"sequence", local_},
                 {"interleaved", int64_t{c_.rope_interleave}},
                 {"inverse", int64_t{0}}})[0];
    };
    const auto linear_kv = [&](ValueId rows) {
      const Part part(*this, keys_part());
      return op("linear", {rows, w_kv_b}, {"kv_b_proj"})[0];
    };
    ValueId o;
    if (cp() == 1) {
      const ValueId kv = linear_kv(latent), q_rotated = rotate(q, heads, nope + rope, "q");
      const auto k_v = assemble(kv, rotate(k_rope_raw, 1, rope, "k_rope"), heads);
      o = op("attention", {q_rotated, k_v[0], k_v[1]}, {"o", "lse"}, sizes(heads))[0];
    } else {
      const ValueId q_rotated = rotate(q, heads, nope + rope, "q");
      o = attend_across(q_rotated, latent, rotate(k_rope_raw, 1, rope, "k_rope"), linear_kv);
    }
    return row_linear(o, prefix, "o_proj", all_heads * c_.v_head_dim, "o_proj");
  }

  // Keys and values of other ranks' tokens are a part of their own.
  std::string keys_part() const { return cp() > 1 && spec_.context != Context::ulysses ? "sequence_keys" : "mla_up"; }

  std::vector<ValueId> assemble(ValueId kv, ValueId k_rope, int64_t heads) {
    const Part part(*this, keys_part());
    return op("mla_assemble", {kv, k_rope}, {"k", "v"},
              {{"heads", heads},
               {"nope", c_.qk_nope_head_dim},
               {"rope", c_.qk_rope_head_dim},
               {"value_dim", c_.v_head_dim}});
  }
  Attributes sizes(int64_t heads) const {
    return {{"heads", heads},
            {"kv_heads", heads},
            {"head_dim", c_.qk_nope_head_dim + c_.qk_rope_head_dim},
            {"value_dim", c_.v_head_dim},
            {"sequence", spec_.sequence_length},
            {"causal", int64_t{1}},
            {"scale", c_.softmax_scale()}};
  }

  // Attention of this rank's queries to the keys of all cp ranks, of which latent and k_rope are this rank's share.
  // What goes between ranks is latent and rotary key (576 numbers a token in DeepSeek-V3, keys and values 40960 ÷
  // tp), for which each rank makes the keys and values of the whole sequence itself; but in `ulysses` they go by
  // heads, and no rank makes any twice.
  template <class LinearKv>
  ValueId attend_across(ValueId q, ValueId latent, ValueId k_rope, const LinearKv& linear_kv) {
    const int64_t heads = c_.num_attention_heads / tp();
    const Attributes whole{{"ranks", cp()}, {"runs", runs_}, {"zigzag", int64_t{1}}};
    const auto gather_cp = [&](ValueId x, const std::string& name) {
      return op("all_gather", {x}, {name + "_sequence"}, whole, "cp")[0];
    };
    if (spec_.context == Context::ulysses) {
      const auto turn = [&](const char* kind, ValueId x, const std::string& name) {
        const Part part(*this, "mla_up");
        return op(kind, {x}, {name}, whole, "cp")[0];
      };
      const ValueId k_rope_all = gather_cp(k_rope, "k_rope"), q_heads = turn("heads_to_sequence", q, "q_heads");
      const ValueId kv_heads = turn("heads_to_sequence", linear_kv(latent), "kv_heads");
      const auto k_v = assemble(kv_heads, k_rope_all, heads / cp());
      const ValueId o = op("attention", {q_heads, k_v[0], k_v[1]}, {"o_heads", "lse"}, sizes(heads / cp()))[0];
      return turn("sequence_to_heads", o, "o");
    }
    Attributes attributes = sizes(heads);
    attributes.set("cp", cp());
    if (spec_.context == Context::gather) {
      const ValueId latent_all = gather_cp(latent, "kv_latent"), k_rope_all = gather_cp(k_rope, "k_rope");
      const auto k_v = assemble(linear_kv(latent_all), k_rope_all, heads);
      return op("attention", {q, k_v[0], k_v[1]}, {"o", "lse"}, attributes)[0];
    }
    ValueId o = none, lse = none;
    std::vector<ValueId> mentions{none, q};
    for (int64_t turn = 0; turn < cp(); ++turn) {
      const ValueId latent_here = latent, k_rope_here = k_rope;
      if (turn + 1 < cp()) {  // on their way while this turn's keys are attended to
        const Attributes next{{"ranks", cp()}, {"by", int64_t{1}}};
        latent = op("ring_shift", {latent}, {"kv_latent_turned"}, next, "cp")[0];
        k_rope = op("ring_shift", {k_rope}, {"k_rope_turned"}, next, "cp")[0];
      }
      const auto k_v = assemble(linear_kv(latent_here), k_rope_here, heads);
      mentions.insert(mentions.end(), k_v.begin(), k_v.end());
      Attributes part = attributes;
      part.set("turn", turn);
      std::vector<ValueId> in{q, k_v[0], k_v[1]};
      if (turn > 0) in.insert(in.end(), {o, lse});
      const auto joined = op("attention_part", in, {"o_wide", "lse"}, part);
      o = joined[0];
      lse = joined[1];
    }
    mentions[0] = lse;
    return op("attention_finish", {o}, {"o"}, attributes, "", {}, mentions)[0];
  }

  // silu(gate)·up in its parts; the pass `fuse` makes it one op.
  ValueId swiglu(ValueId u, const std::string& name) {
    const int64_t width = text_.stage.value(u).shape[1].count / 2;
    const auto parts = op("split", {u}, {name + "_gate", name + "_up"}, {{"first", width}});
    const ValueId s = op("silu", {parts[0]}, {name + "_silu"})[0];
    return op("multiply", {s, parts[1]}, {name})[0];
  }

  ValueId mlp(ValueId x_TH, const std::string& prefix, int64_t width, const std::string& name) {
    const Part part(*this, name == "shared" ? "shared" : "mlp");
    const ValueId w = matrix(prefix + "gate_up_proj.weight", 2 * width, c_.hidden_size,
                             {{prefix + "gate_proj.weight", 0, width}, {prefix + "up_proj.weight", width, width}},
                             {{0, Axis::tp, 2}});
    const ValueId u = op("linear", {gather(x_TH, name + "_in"), w}, {name + "_u"})[0];
    return row_linear(swiglu(u, name + "_a"), prefix, "down_proj", width, name);
  }

  // [E, n, k], the width cut as `width_cut` says.
  ValueId experts_weight(const std::string& prefix, const std::string& name, int64_t n, int64_t k,
                         std::vector<ReleasedPart> parts, Cut width_cut) {
    for (ReleasedPart& part : parts) part.name = prefix + "experts.{}." + part.name + ".weight";
    return parameter({.name = prefix + "experts." + name + ".weight",
                      .deviation = c_.initializer_range,
                      .decays = true,
                      .experts = c_.n_routed_experts,
                      .cuts = {{0, Axis::ep}, width_cut},
                      .copies = "edp",
                      .released = std::move(parts)},
                     spec_.dtype, {c_.n_routed_experts, n, k});
  }

  ValueId moe(ValueId x_TH, const std::string& prefix) {
    const int64_t experts = c_.n_routed_experts, width = c_.moe_intermediate_size;
    const std::string function = c_.sigmoid_scores ? "sigmoid" : "softmax";
    const ValueId w_router =
        parameter({.name = prefix + "gate.weight", .deviation = c_.initializer_range, .decays = true}, wide_,
                  {experts, c_.hidden_size});
    const ValueId bias = c_.topk_bias ? parameter({.name = prefix + "gate.e_score_correction_bias",
                                                   .start = Parameter::Start::zeros,
                                                   .trained = false},
                                                  wide_, {experts})
                                      : none;
    std::optional<Part> part(std::in_place, *this, "router");
    const ValueId logits_TE = op("linear", {x_TH, w_router}, {"logits"}, {{"wide", int64_t{1}}})[0];
    const ValueId s_TE = op("router_scores", {logits_TE}, {"scores"}, {{"function", function}})[0];
    const auto choice = op("choose", {s_TE, bias}, {"experts", "row_of", "token_of", "offsets"},
                           {{"top_k", c_.num_experts_per_tok},
                            {"groups", c_.n_group},
                            {"top_groups", c_.topk_group},
                            {"group_score_top", std::min<int64_t>(2, experts / c_.n_group)}});
    const ValueId row_of = choice[1], token_of = choice[2], offsets = choice[3];
    const ValueId g_Tk = op("gate", {s_TE, choice[0]}, {"gates"},
                            {{"normalize", int64_t{c_.norm_topk_prob}}, {"scale", c_.routed_scaling_factor}})[0];
    part.reset();
    if (!predicts())
      op("count_load", {offsets}, {}, {}, "", {statistic(fmt::format("load.{}", layer_), {experts})});
    if (c_.sequence_aux_loss_alpha > 0 && !predicts()) {
      const int64_t sharing = spec_.mesh.of(Axis::cp) * tp();
      std::vector<ValueId> in{s_TE, scales_};
      if (sharing > 1) {
        const ValueId load = op("sequence_load", {s_TE}, {"sequence_load"},
                                {{"top_k", c_.num_experts_per_tok}, {"sequence", tokens_ / runs_}})[0];
        in.push_back(op("all_reduce", {load}, {"sequence_load_all"}, {{"ranks", sharing}}, "sequence")[0]);
      }
      const ValueId loss = op("sequence_aux_loss", in, {"sequence_aux"},
                              {{"top_k", c_.num_experts_per_tok},
                               {"sequence", tokens_ / runs_},
                               {"whole", spec_.sequence_length},
                               {"alpha", c_.sequence_aux_loss_alpha},
                               {"scale_index", int64_t{kScaleSequenceAux}}})[0];
      keep(loss, fmt::format("loss.sequence_aux.{}", layer_));
    }
    if (c_.z_loss_weight > 0 && !predicts()) {
      const ValueId loss = op("z_loss", {logits_TE, scales_}, {"z"},
                              {{"weight", c_.z_loss_weight}, {"scale_index", int64_t{kScaleZ}}})[0];
      keep(loss, fmt::format("loss.z.{}", layer_));
    }

    // The shared expert stands between dispatch and the experts, so that it runs while rows are under way.
    const auto experts_of = [&](ValueId q_SH, ValueId offsets_of_rows) {
      const ValueId h_TH = c_.n_shared_experts == 0
                               ? none
                               : mlp(x_TH, prefix + "shared_experts.", width * c_.n_shared_experts, "shared");
      std::optional<Part> linears(std::in_place, *this, "expert_up");
      const ValueId w_gate_up =
          experts_weight(prefix, "gate_up_proj", 2 * width, c_.hidden_size,
                         {{"gate_proj", 0, width}, {"up_proj", width, width}}, {1, Axis::etp, 2});
      const ValueId u_S2F = op("grouped_linear", {q_SH, w_gate_up, offsets_of_rows}, {"u"})[0];
      const ValueId a_SF = swiglu(u_S2F, "a");
      linears.reset();
      const Part down(*this, "expert_down");
      const ValueId w_down = experts_weight(prefix, "down_proj", c_.hidden_size, width,
                                            {{"down_proj", 0, c_.hidden_size}}, {2, Axis::etp});
      return std::pair(op("grouped_linear", {a_SF, w_down, offsets_of_rows}, {"e"})[0], h_TH);
    };
    const auto with_shared = [&](ValueId c_TH, ValueId h_TH) {
      return h_TH == none ? c_TH : op("add", {c_TH, h_TH}, {"y"})[0];
    };
    if (expert_ranks() == 1) {
      const ValueId p_RH = op("permute", {x_TH, row_of, token_of, choice[0]}, {"p"})[0];
      const auto [e_RH, h_TH] = experts_of(p_RH, offsets);
      return with_shared(op("unpermute", {e_RH, g_Tk, row_of, choice[0]}, {"c"})[0], h_TH);
    }
    const Attributes exchange = exchange_attributes();
    const auto lists = [&] {  // n, route, forwards, local offsets
      const auto counts = op("share_counts", {choice[0]}, {"counts", "route"}, exchange, "experts");
      return op("counts_to_host", counts, {"n", "route_n", "forwards", "local_offsets"});
    };
    const auto there = lists();
    const auto rows = op("dispatch", {x_TH, g_Tk, choice[0], there[0], there[1], there[2]},
                         {"q", "g_rows", "token_of_rows", "passing"}, exchange, "experts");
    const auto [e_SH, h_TH] = experts_of(rows[0], there[3]);
    const auto back = lists();
    const ValueId c_TH =
        op("collect", {e_SH, rows[1], g_Tk, choice[0], back[0], back[1], back[2], rows[2], rows[3]}, {"c"},
           exchange, "experts")[0];
    return with_shared(c_TH, h_TH);
  }

  Attributes exchange_attributes() const {
    const Exchange& exchange = spec_.exchange;
    Attributes attributes{{"ranks", expert_ranks()},
                          {"slices", int64_t{spec_.mesh.of(Axis::etp)}},
                          {"experts", c_.n_routed_experts},
                          {"topology", std::string(word_of(exchange.topology))}};
    if (exchange.topology == ir::Topology::automatic) {
      attributes.set("row_bytes", c_.hidden_size * size_of(spec_.dtype))
          .set("sum_bytes", c_.hidden_size * size_of(wide_))
          .set("within_bytes_per_us", exchange.within_bytes_per_us())
          .set("across_bytes_per_us", exchange.across_bytes_per_us())
          .set("within_latency_us", exchange.within_latency_us)
          .set("across_latency_us", exchange.across_latency_us);
    }
    return attributes;
  }

  ValueId layer(int64_t index, ValueId x_TH) {
    layer_ = static_cast<int>(index);
    const std::string prefix = fmt::format("model.layers.{}.", index);
    const ValueId n_TH = norm(x_TH, prefix + "input_layernorm.weight", "n");
    const ValueId a_TH = attention(n_TH, prefix + "self_attn.");
    const ValueId x2_TH = op("add", {x_TH, a_TH}, {"x_mid"})[0];
    const ValueId n2_TH = norm(x2_TH, prefix + "post_attention_layernorm.weight", "n_mid");
    const ValueId y_TH =
        c_.is_moe(index) ? moe(n2_TH, prefix + "mlp.") : mlp(n2_TH, prefix + "mlp.", c_.intermediate_size, "y");
    return op("add", {x2_TH, y_TH}, {"x"})[0];
  }

  ValueId statistic(const std::string& name, const std::vector<int64_t>& shape, Dtype dtype = Dtype::f64) {
    ir::Value value;
    value.name = name;
    value.dtype = dtype;
    for (const int64_t size : shape) value.shape.push_back({size, none});
    value.role = Role::statistic;
    return text_.stage.add_value(std::move(value));
  }

  void keep(ValueId loss, const std::string& name) { op("accumulate", {loss}, {}, {}, "", {statistic(name, {1})}); }

  void predict(ValueId h_TH, const std::string& norm_name, ValueId labels, int scale, const std::string& name) {
    const Part part(*this, "head");
    const ValueId n_TH = gather(norm(h_TH, norm_name, "n_" + name), "n_" + name);
    if (tp() > 1) return predict_part(n_TH, labels, scale, name);
    const ValueId logits_TV = op("linear", {n_TH, head_}, {"logits_" + name})[0];
    if (predicts()) {
      op("accumulate", {logits_TV}, {}, {}, "", {statistic("logits", {tokens_, c_.vocab_size}, wide_)});
      return;
    }
    const ValueId loss = op("cross_entropy", {logits_TV, labels, scales_}, {"ce_" + name, "lse_" + name},
                            {{"scale_index", int64_t{scale}}})[0];
    keep(loss, "loss." + name);
  }

  // This rank's part of the vocabulary; see the op sharded_loss.
  void predict_part(ValueId n_UH, ValueId labels, int scale, const std::string& name) {
    const int64_t part = c_.vocab_size / tp();
    if (predicts()) {
      const ValueId logits_UV = op("linear", {n_UH, head_}, {"logits_" + name})[0];
      const int64_t rows = text_.stage.value(logits_UV).shape[0].count;
      op("accumulate", {logits_UV}, {}, {}, "", {statistic("logits", {rows, part}, wide_)});
      return;
    }
    const auto shifted = [&](int64_t outside, const std::string& as) {
      return op("shift_ids", {labels}, {as + name}, {{"size", part}, {"outside", outside}})[0];
    };
    const ValueId own = shifted(-1, "labels_here_"), all = shifted(part, "labels_");
    const ValueId logits_UV = op("linear", {n_UH, head_}, {"logits_" + name})[0];
    const auto loss = op("cross_entropy_part", {logits_UV, own, scales_}, {"ce_part_" + name, "lse_part_" + name},
                         {{"scale_index", int64_t{scale}}});
    const ValueId parts =
        op("all_gather", {loss[1]}, {"lse_parts_" + name}, {{"ranks", tp()}, {"runs", int64_t{1}}}, "tp")[0];
    const auto rest = op("sharded_loss", {logits_UV, none, all, scales_, parts, own, loss[1]},
                         {"ce_rest_" + name, "lse_" + name}, {{"scale_index", int64_t{scale}}});
    keep(op("add", {loss[0], rest[0]}, {"ce_sum_" + name})[0], "loss." + name);
  }

  // Multi-token prediction (DeepSeek-V3, section 2.2): the module of depth d, from the normed states of the depth
  // before.
  ValueId depth_input(int64_t d, ValueId h_TH) {
    layer_ = depth_layer(d);
    return norm(h_TH, fmt::format("model.layers.{}.hnorm.weight", layer_), "h_normed");
  }
  ValueId depth(int64_t d, ValueId normed_TH) {
    layer_ = depth_layer(d);
    const std::string prefix = fmt::format("model.layers.{}.", layer_);
    const ValueId e_TH = norm(embed(d, "embedded"), prefix + "enorm.weight", "e_normed");
    const ValueId joined =
        op("concat", {e_TH, normed_TH}, {"joined"}, {{"first", c_.hidden_size}, {"second", c_.hidden_size}})[0];
    return layer(layer_, linear(joined, prefix, "eh_proj", c_.hidden_size));
  }
  // Depth 0 is the model itself: the next token.
  void predict_depth(int64_t d, ValueId h_TH) {
    if (d == 0) {
      layer_ = -1;
      return predict(h_TH, "model.norm.weight", labels(1), kScaleNextToken, "next_token");
    }
    layer_ = depth_layer(d);
    predict(h_TH, fmt::format("model.layers.{}.shared_head.norm.weight", layer_), labels(d + 1),
            kScaleDepth + static_cast<int>(d) - 1, fmt::format("depth.{}", d));
  }
  int depth_layer(int64_t d) const { return static_cast<int>(c_.num_hidden_layers + d - 1); }

  const ModelConfig& c_;
  const StageSpec& spec_;
  StageText text_;
  int64_t runs_ = 0, local_ = 0, tokens_ = 0;  // sequences; positions of each in a tp group; tokens of this rank
  Dtype wide_ = Dtype::f32;
  int layer_ = -1, chunk_ = 0;
  std::string part_;
  std::vector<ValueId> tokens_of_;  // ids_0 … ids_D, labels_1 … labels_{D+1}
  ValueId scales_ = none, rope_ = none, head_ = none;
  std::map<int64_t, std::vector<ValueId>> local_states_;  // by edge: what a chunk leaves to another of this rank
};

}  // namespace

StageText deepseek_v3_stage(const ModelConfig& config, const StageSpec& spec) {
  return Writer(config, spec).write();
}

ParameterCount count_parameters(const ModelConfig& config, const std::vector<Parameter>& parameters,
                                const ir::Stage& stage) {
  ParameterCount count;
  for (const Parameter& p : parameters) {
    if (!p.trained) continue;
    int64_t elements = stage.elements(p.value, ir::FixedRows());
    if (p.experts == 0) {
      count.total += elements;
      count.active += elements;
    } else {
      elements = elements / stage.value(p.value).shape[0].count;  // of one expert
      count.total += elements * p.experts;
      count.active += elements * config.num_experts_per_tok;
    }
  }
  return count;
}

}  // namespace heddle::model
