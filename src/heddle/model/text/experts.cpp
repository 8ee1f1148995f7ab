#include "heddle/model/text/experts.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "heddle/ir/placed_figures.h"
#include "heddle/model/expert_costs.h"
#include "heddle/model/loss_scale.h"
#include "heddle/model/text/decoder_layer.h"
#include "heddle/model/text/feed_forward.h"
#include "heddle/ops/margin_bins.h"
#include "heddle/ops/ops.h"

namespace heddle::model {

using ir::Attributes;
using ir::Axis;
using ir::none;
using ir::ValueId;

namespace {

// A router's decision: logits and scores [T, E], chosen experts and gates [T, k], and the order of the rows.
struct Routing {
  ValueId logits = none, scores = none, experts = none, row_of = none, token_of = none, offsets = none,
          gates = none, bias = none;
};

Routing route(Writer& w, ValueId x_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t experts = c.choices();
  const std::string function = c.softplus_scores ? "root_softplus" : c.sigmoid_scores ? "sigmoid" : "softmax";
  const ValueId w_router = w.parameter({.name = prefix + "gate.weight",
                                        .part = Parameter::Part::router,
                                        .deviation = c.initializer_range,
                                        .decays = true},
                                       w.wide(), {experts, c.hidden_size});
  const bool by_id = c.chooses_by_id(w.layer());
  const ValueId bias = c.topk_bias && !by_id ? w.parameter({.name = prefix + "gate.e_score_correction_bias",
                                                            .part = Parameter::Part::router,
                                                            .start = Parameter::Start::zeros,
                                                            .trained = false,
                                                            .balances = true},
                                                           w.wide(), {experts})
                                             : none;
  const Writer::Part part(w, OpPart::router);
  Routing r;
  r.bias = bias;
  r.logits =
      w.op("linear", {x_TH, w_router}, {c.router_bias ? "logits_product" : "logits"}, {{"wide", int64_t{1}}})[0];
  if (c.router_bias)
    r.logits = w.add_bias(r.logits, Parameter::Part::router, prefix + "gate.bias", experts, "logits");
  if (c.router_logit_cap > 0)
    r.logits = w.op("soft_cap", {r.logits}, {"logits_capped"}, {{"cap", c.router_logit_cap}})[0];
  if (!c.sparse_mixer || c.sequence_aux_loss_alpha > 0)
    r.scores = w.op("router_scores", {r.logits}, {"scores"}, {{"function", function}})[0];
  const ValueId table = by_id ? w.parameter({.name = prefix + "gate.tid2eid",
                                             .part = Parameter::Part::router,
                                             .start = Parameter::Start::hashed_experts,
                                             .deviation = static_cast<double>(experts),
                                             .trained = false},
                                            w.wide(), {c.vocab_size, c.num_experts_per_tok})
                              : none;
  const std::vector<std::string> names{"experts", "row_of", "token_of", "offsets"};
  const bool by_logits = c.sparse_mixer || (c.bias_on_logits && bias != none);
  const auto choice = by_id ? w.op("choose_by_id", {w.ids_of_rows(), table}, names, {{"experts", experts}})
                            : w.op("choose", {by_logits ? r.logits : r.scores, bias}, names,
                                   {{"top_k", c.num_experts_per_tok},
                                    {"groups", c.n_group},
                                    {"top_groups", c.topk_group},
                                    {"group_score_top", std::min(c.group_score_top, experts / c.n_group)}});
  r.experts = choice[0];
  r.row_of = choice[1];
  r.token_of = choice[2];
  r.offsets = choice[3];
  r.gates =
      c.sparse_mixer
          ? w.op("mixer_gate", {r.logits, r.experts}, {"gates"}, {{"closeness", 2 * c.router_jitter_noise}})[0]
          : w.op("gate", {r.scores, r.experts}, {"gates"},
                 {{"normalize", int64_t{c.norm_topk_prob}}, {"scale", c.routed_scaling_factor}})[0];
  if (c.expert_scales) {
    const ValueId scales = w.parameter({.name = prefix + "gate.per_expert_scale",
                                        .part = Parameter::Part::router,
                                        .start = Parameter::Start::ones},
                                       w.wide(), {experts});
    r.gates = w.op("scale_by", {r.gates, scales, r.experts}, {"gates_scaled"})[0];
  }
  return r;
}

// The stream as the router reads it: with a norm of its own its logits do not grow with the width.
ValueId router_rows(Writer& w, ValueId x_TH, ValueId stream_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  if (!c.expert_norms) return x_TH;
  const ValueId normed = w.norm(stream_TH, prefix + "gate.scale", "router_normed", c.rms_norm_eps, c.hidden_size);
  return w.scaled(normed, 1 / std::sqrt(static_cast<double>(c.hidden_size)), "router_rows");
}

// A norm of what routed experts read, or of what they or shared ones made, by its released name.
ValueId expert_norm(Writer& w, ValueId x_TH, const char* name, const std::string& out) {
  if (!w.config().expert_norms) return x_TH;
  return w.norm(x_TH, fmt::format("{}{}.weight", layer_prefix(w.config(), w.layer()), name), out);
}

void balance_losses(Writer& w, const Routing& r) {
  const ModelConfig& c = w.config();
  if (w.predicts()) return;
  w.op("count_load", {r.offsets}, {}, {}, "", {w.statistic({.kind = &kLoad, .of = w.layer()}, {c.choices()})});
  if (r.bias != none && c.bias_balance == BiasBalance::quantile && w.spec().purpose == ir::Purpose::train) {
    w.op("count_margins", {r.scores, r.bias}, {}, {{"top_k", c.num_experts_per_tok}}, "",
         {w.statistic({.kind = &kMargins, .of = w.layer()}, {c.choices(), kMarginBins})});
  }
  const int64_t sequence = w.tokens() / w.runs();
  // A choice by id is the same whatever a loss asks for.
  if (c.sequence_aux_loss_alpha > 0 && !c.chooses_by_id(w.layer())) {
    const int64_t sharing = w.cp() * w.tp();
    std::vector<ValueId> in{r.scores, w.scales()};
    if (sharing > 1) {
      const ValueId load = w.op("sequence_load", {r.scores}, {"sequence_load"},
                                {{"top_k", c.num_experts_per_tok}, {"sequence", sequence}})[0];
      in.push_back(w.op("all_reduce", {load}, {"sequence_load_all"}, {{"ranks", sharing}}, "sequence")[0]);
    }
    const ValueId loss = w.op("sequence_aux_loss", in, {"sequence_aux"},
                              {{"top_k", c.num_experts_per_tok},
                               {"sequence", sequence},
                               {"whole", w.spec().sequence_length},
                               {"alpha", c.sequence_aux_loss_alpha},
                               {"scale_index", int64_t{kScaleSequenceAux}}})[0];
    w.keep(loss, {.kind = &kSequenceAuxLoss, .of = w.layer(), .scale = kScaleSequenceAux});
  }
  if (c.z_loss_weight > 0) {
    const ValueId loss = w.op("z_loss", {r.logits, w.scales()}, {"z"},
                              {{"weight", c.z_loss_weight}, {"scale_index", int64_t{kScaleZ}}})[0];
    w.keep(loss, {.kind = &kZLoss, .of = w.layer(), .scale = kScaleZ});
  }
}

// [E, n, k], the width cut as `width_cut` says.
ValueId weight(Writer& w, const std::string& prefix, const std::string& name, int64_t n, int64_t k,
               std::vector<ReleasedPart> parts, Cut width_cut) {
  const int64_t experts = w.config().n_routed_experts;
  for (ReleasedPart& part : parts) part.name = prefix + "experts.{}." + part.name + ".weight";
  return w.parameter({.name = prefix + "experts." + name + ".weight",
                      .part = Parameter::Part::experts,
                      .deviation = w.config().initializer_range,
                      .decays = true,
                      .experts = experts,
                      .cuts = {{0, Axis::ep}, width_cut},
                      .replica_group = "edp",
                      .released = std::move(parts)},
                     w.spec().dtype, {experts, n, k});
}

// [E, n], the experts and the width cut as `cuts` say, with copies on the ranks of `copies`.
ValueId bias(Writer& w, const std::string& prefix, const std::string& name, int64_t n,
             std::vector<ReleasedPart> parts, std::vector<Cut> cuts, const std::string& copies) {
  const int64_t experts = w.config().n_routed_experts;
  for (ReleasedPart& part : parts) part.name = prefix + "experts.{}." + part.name + ".bias";
  return w.parameter({.name = prefix + "experts." + name + ".bias",
                      .part = Parameter::Part::experts,
                      .start = Parameter::Start::zeros,
                      .experts = experts,
                      .cuts = std::move(cuts),
                      .replica_group = copies,
                      .released = std::move(parts)},
                     w.wide(), {experts, n});
}

int64_t expert_ranks(const Writer& w) { return int64_t{w.spec().mesh.of(Axis::ep)} * w.spec().mesh.of(Axis::etp); }

// Slots of a rank for copies of other ranks' experts: a step that isn't trained moves no weights about.
int64_t copies_of(const Writer& w) {
  const bool several = w.spec().mesh.of(Axis::ep) > 1;
  return several && w.spec().purpose == ir::Purpose::train ? w.spec().exchange.replica_slots() : 0;
}

// True if experts may live elsewhere than in the order of their numbers. Anything else that runs on the weights of
// such a training has to know where they are.
bool homes_change(const Writer& w) { return w.spec().mesh.of(Axis::ep) > 1 && w.spec().exchange.migrates(); }

// Places of an expert for this rank's rows: what is not trained drops nothing.
int64_t places_of(const Writer& w) {
  if (w.spec().purpose != ir::Purpose::train) return 0;
  return w.spec().exchange.places(w.tokens(), w.config().num_experts_per_tok, w.config().n_routed_experts);
}

// The rows of tokens, multiplied by their gates. What the experts make is then weighed by 1.
ValueId gated_rows(Writer& w, ValueId x_TH, Routing& r) {
  const Writer::Part part(w, OpPart::router);
  const ValueId y_TH = w.op("zero_experts", {x_TH, r.gates, r.experts}, {"x_gated"}, {{"first", int64_t{0}}})[0];
  r.gates = w.op("unit_gates", {r.experts}, {"gates_of_sum"},
                 {{"dtype", std::string(heddle::name_of(w.spec().dtype))}})[0];
  return y_TH;
}

// The rest of a decision where each expert has so many places: gates of what is dropped are 0.
Routing limited(Writer& w, Routing r, int64_t places) {
  const Writer::Part part(w, OpPart::router);
  const auto limited =
      w.op("apply_capacity", {r.gates, r.row_of, r.token_of, r.offsets},
           {"kept", "place_of", "token_of_places", "local_offsets", "counts"},
           {{"places", places}, {"ranks", expert_ranks(w)}, {"slices", int64_t{w.spec().mesh.of(Axis::etp)}}});
  r.gates = limited[0];
  r.row_of = limited[1];
  r.token_of = limited[2];
  r.offsets = limited[3];
  w.op("count_dropped", {r.row_of}, {}, {}, "", {w.statistic({.kind = &kDropped, .of = w.layer()}, {1})});
  return r;
}

// Rows of the routed experts, and what is added to the tokens' sums of them.
struct Outputs {
  ValueId e_SH = none, beside_TH = none;
};

// With a gate, each token's rows are multiplied by a sigmoid of its own.
ValueId shared_experts(Writer& w, ValueId x_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const ValueId made_TH = feed_forward(w, x_TH, prefix + "shared_experts.", c.shared_width(),
                                       c.shared_expert_gate ? "shared_ungated" : "shared", OpPart::shared);
  if (!c.shared_expert_gate) return made_TH;
  const Writer::Part part(w, OpPart::shared);
  const ValueId gate_T1 = w.linear(x_TH, Parameter::Part::shared_experts, prefix, "shared_expert_gate", 1);
  return w.op("sigmoid_gate", {made_TH, gate_T1}, {"shared"})[0];
}

// The addends of every token stand between dispatch and the experts, so that they run while rows are under way.
// They are the shared expert, the biases of the routed experts' last map, or what experts without computation give.
ValueId beside(Writer& w, ValueId x_TH, const Routing& r, const std::string& prefix) {
  const ModelConfig& c = w.config();
  ValueId shared_TH = none, own_TH = none;
  if (c.n_shared_experts > 0) {
    shared_TH = expert_norm(w, shared_experts(w, x_TH, prefix), "post_feedforward_layernorm_1", "shared_normed");
  }
  if (c.experts_bias) {
    const ValueId b_EH =
        bias(w, prefix, "down_proj", c.hidden_size, {{"down_proj", 0, c.hidden_size}}, {}, "stage");
    const Writer::Part part(w, OpPart::expert_down);
    own_TH = w.op("gated_bias", {r.gates, r.experts, b_EH}, {"down_bias"},
                  {{"dtype", std::string(heddle::name_of(w.spec().dtype))}})[0];
  }
  if (c.zero_expert_num > 0) {
    const Writer::Part part(w, OpPart::expert_down);
    own_TH = w.op("zero_experts", {x_TH, r.gates, r.experts}, {"zero"}, {{"first", c.n_routed_experts}})[0];
  }
  if (shared_TH == none || own_TH == none) return shared_TH == none ? own_TH : shared_TH;
  return w.op("add", {shared_TH, own_TH}, {"beside"})[0];
}

// Rows of the width at which the routed experts work, and their sums back.
ValueId to_latent(Writer& w, ValueId x_TH, const std::string& prefix) {
  if (w.config().moe_latent_size == 0) return x_TH;
  return w.linear(x_TH, Parameter::Part::mlp, prefix, "fc1_latent_proj", w.config().moe_latent_size);
}
ValueId from_latent(Writer& w, ValueId c_TL, const std::string& prefix) {
  if (w.config().moe_latent_size == 0) return c_TL;
  return w.linear(c_TL, Parameter::Part::mlp, prefix, "fc2_latent_proj", w.config().hidden_size);
}

ValueId fetch(Writer& w, ValueId weight, ValueId placement, const std::string& name) {
  return w.op(
      "fetch_copies", {weight, placement}, {name + "_copies"},
      {{"ranks", expert_ranks(w)}, {"slices", int64_t{w.spec().mesh.of(Axis::etp)}}, {"copies", copies_of(w)}},
      "copies")[0];
}

// A product with each row's expert; with `placement`, of which a rank may have copies, unless they are there
// already.
ValueId expert_product(Writer& w, ValueId x, ValueId weight, ValueId offsets, ValueId placement, ValueId copies,
                       const std::string& name) {
  std::vector<ValueId> in{x, weight, offsets};
  if (placement != none) in.push_back(copies == none ? fetch(w, weight, placement, name) : copies);
  return w.op("grouped_linear", in, {name})[0];
}

// The first map's weight: up alone where the activation has no gate.
ValueId gate_up_weight(Writer& w, const std::string& prefix) {
  const int64_t width = w.config().moe_intermediate_size;
  if (!w.config().has_gated_mlp()) {
    return weight(w, prefix, "up_proj", width, w.config().expert_rows_width(), {{"up_proj", 0, width}},
                  {1, Axis::etp});
  }
  return weight(w, prefix, "gate_up_proj", 2 * width, w.config().expert_rows_width(),
                {{"gate_proj", 0, width}, {"up_proj", width, width}}, {1, Axis::etp, 2});
}
ValueId down_weight(Writer& w, const std::string& prefix) {
  const int64_t columns = w.config().expert_rows_width();
  return weight(w, prefix, "down_proj", columns, w.config().moe_intermediate_size, {{"down_proj", 0, columns}},
                {2, Axis::etp});
}

// The bias of the first map; that of the last is not the rows' (`beside`), so whoever computes them needs none.
ValueId gate_up_bias(Writer& w, const std::string& prefix) {
  const int64_t width = w.config().moe_intermediate_size;
  if (!w.config().has_gated_mlp())
    return bias(w, prefix, "up_proj", width, {{"up_proj", 0, width}}, {{0, Axis::ep}, {1, Axis::etp}}, "edp");
  return bias(w, prefix, "gate_up_proj", 2 * width, {{"gate_proj", 0, width}, {"up_proj", width, width}},
              {{0, Axis::ep}, {1, Axis::etp, 2}}, "edp");
}

Outputs run(Writer& w, ValueId x_TH, const Routing& r, ValueId q_SH, ValueId offsets, const ReplicasAhead& copies,
            const std::string& prefix, const Meanwhile& meanwhile) {
  const ModelConfig& c = w.config();
  Outputs out;
  out.beside_TH = beside(w, x_TH, r, prefix);
  if (meanwhile) meanwhile();
  std::optional<Writer::Part> part(std::in_place, w, OpPart::expert_up);
  ValueId u_S2F = expert_product(w, q_SH, gate_up_weight(w, prefix), offsets, copies.placement, copies.gate_up,
                                 c.experts_bias ? "u_product" : "u");
  if (c.experts_bias) {
    std::vector<ValueId> in{u_S2F, gate_up_bias(w, prefix), offsets};
    if (copies.placement != none)
      in.push_back(copies.bias == none ? fetch(w, in[1], copies.placement, "u_bias") : copies.bias);
    u_S2F = w.op("add_expert_bias", in, {"u"})[0];
  }
  const ValueId a_SF = activation(w, u_S2F, c.experts_limit_of(w.layer()), "a");
  part.reset();
  part.emplace(w, OpPart::expert_down);
  out.e_SH = expert_product(w, a_SF, down_weight(w, prefix), offsets, copies.placement, copies.down, "e");
  return out;
}

// Room for what a rank sends to each, where the host does not wait for counts. As many rows come from an expert's
// copies as from the expert. What finds none has a second round, unless all have room in the first.
Attributes rooms_of(const Writer& w) {
  const Dispatcher& exchange = w.spec().exchange;
  if (w.spec().purpose != ir::Purpose::train || exchange.room_factor <= 0) return {};
  const int64_t holders = w.spec().mesh.of(Axis::ep), top_k = w.config().num_experts_per_tok;
  const int64_t each = w.config().n_routed_experts / holders + copies_of(w);
  const int64_t room = exchange.room(w.tokens(), top_k, holders, each);
  const int64_t whole = Dispatcher::whole_room(w.tokens(), top_k, each);
  Attributes rooms{{"room", room}};
  if (exchange.second_round && whole > room) rooms.set("rest", whole);
  return rooms;
}

Attributes exchange_attributes(const Writer& w) {
  const Dispatcher& exchange = w.spec().exchange;
  const int64_t columns = w.config().expert_rows_width();
  const Attributes rooms = rooms_of(w);
  const ir::Topology topology = rooms.has("room") ? ir::Topology::plain : exchange.topology;
  Attributes attributes{{"ranks", expert_ranks(w)},
                        {"slices", int64_t{w.spec().mesh.of(Axis::etp)}},
                        {"experts", w.config().n_routed_experts},
                        {"topology", std::string(heddle::word_of(topology))}};
  for (const auto& [name, rows] : rooms.items()) attributes.set(name, rows);
  if (topology == ir::Topology::automatic) {
    attributes.set("row_bytes", columns * size_of(w.spec().dtype))
        .set("sum_bytes", columns * size_of(w.wide()))
        .set("within_bytes_per_us", exchange.within_bytes_per_us())
        .set("across_bytes_per_us", exchange.across_bytes_per_us())
        .set("within_latency_us", exchange.within_latency_us)
        .set("across_latency_us", exchange.across_latency_us);
  }
  if (copies_of(w) > 0 || homes_change(w)) attributes.set("copies", copies_of(w));
  if (const int64_t without = w.config().zero_expert_num; without > 0) attributes.set("without", without);
  return attributes;
}

// By a number of slots copies cost nothing, and all that counts are rows.
Attributes placing_attributes(const Writer& w) {
  const RankSpec& spec = w.spec();
  const ExpertCosts by_rates = expert_costs(w.config(), spec.exchange,
                                            {.slices = spec.mesh.of(Axis::etp),
                                             .dtype = spec.dtype,
                                             .exact_sums = spec.exact_sums,
                                             .flops_per_us = spec.flops_per_us});
  const ExpertCosts costs = spec.exchange.replicas == Dispatcher::kReplicasByCost ? by_rates : ExpertCosts();
  return {{"ranks", expert_ranks(w)},
          {"slices", int64_t{spec.mesh.of(Axis::etp)}},
          {"experts", w.config().n_routed_experts},
          {"copies", copies_of(w)},
          {"whole", int64_t{spec.exact_sums}},
          {"row_ps", costs.row_ps},
          {"row_within_ps", costs.row_within_ps},
          {"row_across_ps", costs.row_across_ps},
          {"copy_within_ps", costs.replica_within_ps},
          {"copy_across_ps", costs.replica_across_ps}};
}

// The home of each expert of the layer, where experts change ranks. They are at home in the order of their numbers
// until the host says otherwise.
ValueId load_homes(Writer& w) {
  return w.load("homes", {.name = fmt::format("homes.{}", w.layer()),
                          .dtype = Dtype::i32,
                          .shape = {w.config().n_routed_experts},
                          .given = ir::Given::standing,
                          .owner = "migration",
                          .otherwise = ir::Default::in_order()});
}

// The operands of an op that places experts, of which the last are the homes, if they change.
std::vector<ValueId> with_homes(std::vector<ValueId> in, ValueId homes) {
  if (homes != none) in.push_back(homes);
  return in;
}

// The rows that each expert of the layer had in the last steps; all zero where its load is even.
ValueId load_expert_rows(Writer& w) {
  return w.load("expert_rows", {.name = fmt::format("expert_rows.{}", w.layer()),
                                .dtype = Dtype::f64,
                                .shape = {w.config().n_routed_experts},
                                .owner = "history",
                                .otherwise = ir::Default::of(0)});
}

}  // namespace

ReplicasAhead replicas_ahead(Writer& w, const std::string& prefix) {
  if (copies_of(w) == 0 || !w.spec().exchange.recalls()) return {};
  ReplicasAhead ahead;
  Attributes attributes = placing_attributes(w);
  attributes.set("rows", w.tokens() * w.config().num_experts_per_tok);
  ahead.expert_rows = load_expert_rows(w);
  if (homes_change(w)) ahead.homes = load_homes(w);
  const auto recalled = w.op("recall_copies", with_homes({ahead.expert_rows}, ahead.homes), {"placement", "shares"},
                             attributes, "copies");
  ahead.placement = recalled[0];
  ahead.shares = recalled[1];
  {
    const Writer::Part part(w, OpPart::expert_up);
    ahead.gate_up = fetch(w, gate_up_weight(w, prefix), ahead.placement, "u");
    if (w.config().experts_bias) ahead.bias = fetch(w, gate_up_bias(w, prefix), ahead.placement, "u_bias");
  }
  const Writer::Part part(w, OpPart::expert_down);
  ahead.down = fetch(w, down_weight(w, prefix), ahead.placement, "e");
  return ahead;
}

ValueId experts(Writer& w, ValueId x_TH, ValueId stream_TH, const std::string& prefix, ReplicasAhead copies,
                const Meanwhile& meanwhile) {
  Routing r = route(w, router_rows(w, x_TH, stream_TH, prefix), prefix);
  balance_losses(w, r);
  const bool own_norms = w.config().expert_norms;
  ValueId routed_TH = own_norms ? expert_norm(w, stream_TH, "pre_feedforward_layernorm_2", "routed_rows") : x_TH;
  if (w.config().gates_on_inputs) routed_TH = gated_rows(w, routed_TH, r);
  const ValueId rows_TL = to_latent(w, routed_TH, prefix);
  const auto with_beside = [&](ValueId c_TL, ValueId h_TH) {
    const ValueId c_TH =
        expert_norm(w, from_latent(w, c_TL, prefix), "post_feedforward_layernorm_2", "routed_normed");
    const ValueId y_TH = h_TH == none ? c_TH : w.op("add", {c_TH, h_TH}, {"y"})[0];
    return w.scaled(y_TH, w.config().shared_expert_average ? 0.5 : 1, "y_mean");
  };
  const int64_t places = places_of(w);
  // The number of rows is not known before tokens have chosen, where some experts have no computation.
  const bool counted = expert_ranks(w) > 1 || w.config().zero_expert_num > 0;
  if (!counted || places > 0) {
    if (places > 0) r = limited(w, r, places);
    const Attributes over{{"ranks", expert_ranks(w)},
                          {"slices", int64_t{w.spec().mesh.of(Axis::etp)}},
                          {"experts", w.config().n_routed_experts}};
    const auto crossing = [&](std::string_view kind, ValueId rows, std::string name) {
      return expert_ranks(w) == 1 ? rows : w.op(kind, {rows}, {std::move(name)}, over, "experts")[0];
    };
    const ValueId p_RH = w.op("permute", {rows_TL, r.row_of, r.token_of, r.experts}, {"p"})[0];
    const ValueId q_SH = crossing("dispatch_places", p_RH, "q");
    const Outputs out = run(w, x_TH, r, q_SH, r.offsets, {}, prefix, meanwhile);
    const ValueId e_RH = crossing("combine_places", out.e_SH, "e_home");
    return with_beside(w.op("unpermute", {e_RH, r.gates, r.row_of, r.experts}, {"c"})[0], out.beside_TH);
  }
  const Attributes exchange = exchange_attributes(w);
  ValueId slots = r.experts;  // without copies, and where experts never move, they are slots
  std::vector<ValueId> mentions;
  const auto placed = [&] {
    return w.statistic({.kind = &kPlaced, .of = w.layer()}, {int64_t{w.spec().mesh.of(Axis::ep)} + kPlacedFigures});
  };
  const ValueId homes = copies.homes == none && homes_change(w) ? load_homes(w) : copies.homes;
  if (copies.placement != none) {
    slots = w.op("place_rows", with_homes({r.experts, copies.placement, copies.shares, copies.expert_rows}, homes),
                 {"slots"},
                 {{"ranks", expert_ranks(w)},
                  {"slices", int64_t{w.spec().mesh.of(Axis::etp)}},
                  {"experts", w.config().n_routed_experts},
                  {"copies", copies_of(w)}},
                 "experts", {placed()})[0];
  } else if (copies_of(w) > 0) {
    const auto chosen = w.op("place_copies", with_homes({r.experts}, homes), {"slots", "placement"},
                             placing_attributes(w), "experts", {placed()});
    slots = chosen[0];
    copies.placement = chosen[1];
  }
  if (copies.placement != none) mentions = {copies.placement};
  if (mentions.empty() && homes_change(w)) {
    const auto placed_experts = w.op("place_experts", {r.experts, homes}, {"slots", "placement"},
                                     {{"ranks", expert_ranks(w)},
                                      {"slices", int64_t{w.spec().mesh.of(Axis::etp)}},
                                      {"experts", w.config().n_routed_experts},
                                      {"copies", int64_t{0}}});
    slots = placed_experts[0];
    mentions = {placed_experts[1]};
  }
  const auto lists = [&] {  // n, route, forwards, local offsets
    std::vector<ValueId> of{slots};
    of.insert(of.end(), mentions.begin(), mentions.end());
    const auto counts = w.op("share_counts", of, {"counts", "route"}, exchange, "experts");
    if (!exchange.has("room"))
      return w.op("counts_to_host", counts, {"n", "route_n", "forwards", "local_offsets", "most"});
    return w.op("room_for_counts", counts, {"n", "route_n", "forwards", "local_offsets", "most", "beyond"},
                ops::rooms_of(exchange));
  };
  const auto there = lists();
  if (exchange.has("room"))
    w.op("count_dropped", {there[5]}, {}, {}, "", {w.statistic({.kind = &kBeyond, .of = w.layer()}, {1})});
  // The route as the host has read it ends with the placement, which the sender of copies thus knows.
  if (copies.placement != none && copies.gate_up == none) copies.placement = there[1];
  const auto rows = w.op("dispatch", {rows_TL, r.gates, slots, there[0], there[1], there[2]},
                         {"q", "g_rows", "token_of_rows", "passing"}, exchange, "experts", {}, mentions);
  const Outputs out = run(w, x_TH, r, rows[0], there[3], copies, prefix, meanwhile);
  const auto back = lists();
  const ValueId c_TH =
      w.op("combine", {out.e_SH, rows[1], r.gates, slots, back[0], back[1], back[2], rows[2], rows[3]}, {"c"},
           exchange, "experts", {}, mentions)[0];
  return with_beside(c_TH, out.beside_TH);
}

}  // namespace heddle::model
