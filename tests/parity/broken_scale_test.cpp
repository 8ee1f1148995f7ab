// Every factor of a step broken on purpose, one at a time, on sixteen ranks with all axes, depths and losses: the
// comparison with one rank must find it, and name a tensor that it spoils.
#include <gtest/gtest.h>

#include "tests/parity/parity.h"
#include "tests/runtime/tiny_run.h"

namespace heddle::parity {
namespace {

using ir::Axis;

constexpr double kWrong = 1 + 1e-6;  // where one term of many is wrong, what is left of it stands above 1e-10

Draw all_axes() {
  Draw d;
  d.seed = 10;  // with padding
  d.model = draw(d.seed, 16).model;
  plan::Plan& p = d.plan;
  p.mesh.tp = p.mesh.cp = p.mesh.dp = p.mesh.pp = p.mesh.ep = p.mesh.etp = 2;
  p.microbatches = 4;
  p.sequences = 2;
  p.sequence_length = 48;
  p.dtype = Dtype::f64;
  p.fusions.clear();
  p.update.clip_norm = 0.05;
  d.backend = "reference";
  d.node_of.assign(16, 0);
  d.routing = Routing::spread;
  d.token_kinds = 48;
  d.tolerance = 1e-10;
  model::ModelConfig& c = d.model;
  c.attention = model::ModelConfig::Attention::latent;
  c.rope_interleave = true;
  c.shortcut_experts = c.sparse_mixer = false;
  c.zero_expert_num = c.num_hash_layers = 0;
  c.num_hidden_layers = 3;
  c.first_k_dense_replace = 1;
  c.n_shared_experts = 1;
  c.num_experts_per_tok = 3;
  c.sequence_aux_loss_alpha = 0.01;
  c.z_loss_weight = 0.001;
  c.num_nextn_predict_layers = 1;
  c.nextn_blocks.clear();
  c.tie_word_embeddings = true;
  return d;
}

// ---- Faults

using Where = std::function<bool(const ir::Coordinates&)>;
const Where kEverywhere = [](const ir::Coordinates&) { return true; };
Where at(Axis axis, int coordinate) {
  return [=](const ir::Coordinates& place) { return place.at(axis) == coordinate; };
}

/// A loss's factor; -1: all of them.
Fault loss_scale(int index, const Where& where) {
  return {.batch = [=](const ir::Coordinates& place, test::Batch& batch) {
    for (size_t i = 0; i < batch.scales.size(); ++i) {
      if (where(place) && (index < 0 || static_cast<size_t>(index) == i)) batch.scales[i] *= kWrong;
    }
  }};
}

/// An attribute of all ops of a kind.
Fault attribute(const std::string& kind, const std::string& name) {
  return {.text = [=](ir::Op& op) {
    if (op.kind() == kind) op.attributes.set(name, op.attributes.number(name) * kWrong);
  }};
}

void multiply(const device::TensorView& view, double factor) {
  for (int64_t i = 0; i < view.elements(); ++i) {
    test::RankRun::set(view, i, test::RankRun::get(view, i) * factor);
  }
}

/// What ops of a kind write as `name`, or add to it.
Fault written(const std::string& kind, const std::string& name, double factor = kWrong,
              const Where& where = kEverywhere) {
  return {.after = [=](const ir::Listing& listing, const device::KernelCall& call) {
    const ir::Op& op = *call.op;
    if (op.kind() != kind || !where(*call.place)) return;
    for (size_t i = 0; i < op.out.size(); ++i) {
      if (listing.value(op.out[i]).name == name) multiply(call.out[i], factor);
    }
    for (size_t i = 0; i < op.updates.size(); ++i) {
      if (listing.value(op.updates[i]).name == name) multiply(call.updates[i], factor);
    }
  }};
}

/// What a rank brings to the sum `name` over a group is left out.
Fault left_out(const std::string& name, const Where& where) {
  return {.after = [=](const ir::Listing& listing, const device::KernelCall& call) {
    const ir::ValueId sum = listing.find(name);
    if (sum == ir::none || !where(*call.place)) return;
    const auto reduce =
        std::ranges::find_if(listing.ops, [&](const ir::Op& op) { return std::ranges::count(op.out, sum) > 0; });
    for (size_t i = 0; i < call.op->out.size(); ++i) {
      if (call.op->out[i] == reduce->in[0]) multiply(call.out[i], 0);
    }
  }};
}

struct Case {
  const char* what;
  Fault fault;
  std::string spoiled;  // what the comparison names
};

std::vector<Case> cases() {
  const std::string layers = "model.layers.", experts = "mlp.experts.gate_up_proj.weight";
  return {
      {"loss divisor", loss_scale(0, kEverywhere), "grad.model.norm.weight"},
      {"one data rank's share of the mean", loss_scale(-1, at(Axis::dp, 1)), "grad.model.norm.weight"},
      {"one context rank's share of the mean", loss_scale(-1, at(Axis::cp, 1)), "grad.model.norm.weight"},
      {"sequences that the balance loss divides by", loss_scale(1, kEverywhere), "grad.model.layers.1.mlp.gate"},
      {"tokens that the z-loss divides by", loss_scale(2, kEverywhere), "grad.model.layers.1.mlp.gate"},
      {"weight of the prediction depth", loss_scale(3, kEverywhere), "grad.model.layers.3.shared_head.norm"},
      {"experts' gradient over their copies", written("reduce_gradients", "shard.grad." + layers + "1." + experts),
       "m." + layers + "1." + experts},
      {"one copy's share of an expert's gradient",
       written("reduce_gradients", "shard.grad." + layers + "2." + experts, kWrong, at(Axis::dp, 1)),
       "m." + layers + "2." + experts},
      {"gradient over cp and dp", written("reduce_gradients", "shard.grad." + layers + "0.mlp.down_proj.weight"),
       "m." + layers + "0.mlp.down_proj.weight"},
      {"balance loss", attribute("sequence_aux_loss", "alpha"), "loss.sequence_aux.1"},
      {"balance loss's gradient", attribute("sequence_aux_loss_dgrad", "alpha"), "grad.model.layers.1.mlp.gate"},
      {"balance loss's counts over cp and tp", left_out("1.sequence_load_all", at(Axis::tp, 1)),
       "loss.sequence_aux.1"},
      {"z-loss", attribute("z_loss", "weight"), "loss.z.2"},
      {"z-loss's gradient", attribute("z_loss_dgrad", "weight"), "grad.model.layers.2.mlp.gate"},
      {"routed scaling factor", attribute("gate", "scale"), "grad.model.layers.1." + experts},
      {"routed scaling factor's gradient", attribute("gate_dgrad", "scale"), "grad.model.layers.1.mlp.gate"},
      {"scale of attention's logits", attribute("attention", "scale"), "loss.next_token"},
      {"gradient norm, a copy counted twice",
       written("grad_square_sum", "square.model.norm.weight", 2, at(Axis::dp, 1)), "grad_norm"},
      {"gradient norm, experts of half of the ranks",
       written("grad_square_sum", "square." + layers + "1." + experts, kWrong, at(Axis::tp, 0)), "grad_norm"},
      {"clipping", attribute("grad_norm", "max_norm"), "m.model.norm.weight"},
      {"tensor ranks' partial output of attention", left_out("0.o_proj", at(Axis::tp, 1)), "loss.next_token"},
      {"tensor ranks' partial gradient of a latent", left_out("d1.kv_latent", at(Axis::tp, 1)),
       "grad.model.layers.1.self_attn.kv_a"},
      {"tensor ranks' partial sums of the vocabulary", left_out("dhanded_on", at(Axis::tp, 1)),
       "grad.model.norm.weight"},
      {"context ranks' partial gradient of keys", left_out("d2.k_rope", at(Axis::cp, 1)),
       "grad.model.layers.2.self_attn.kv_a"},
      {"experts' rows, brought back", written("combine", "2.c", kWrong, at(Axis::dp, 1)), "loss.next_token"},
      {"gradient between pipeline stages", written("receive", "d1.x"), "grad.model.layers.1.mlp.gate"},
      {"a tied weight's use by the prediction depth",
       written("embedding_wgrad", "grad.model.embed_tokens.weight.use2"), "grad.model.embed_tokens.weight"},
  };
}

TEST(BrokenScale, IsFoundAndNamed) {
  const Draw draw = all_axes();
  for (const std::string& difference : differences_on_threads(draw)) ADD_FAILURE() << "unbroken: " << difference;
  for (const Case& broken : cases()) {
    const std::vector<std::string> found = differences_on_threads(draw, broken.fault);
    const bool named = std::ranges::any_of(found, [&](const std::string& line) {
      return line.find(": " + broken.spoiled) != std::string::npos &&
             line.find(" differs by ") != std::string::npos;
    });
    EXPECT_TRUE(named) << broken.what << ": " << broken.spoiled << " is not among " << found.size()
                       << " differences" << (found.empty() ? "" : ", the first of them\n" + found[0]);
  }
}

}  // namespace
}  // namespace heddle::parity
