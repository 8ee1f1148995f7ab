#include "check/modules.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::check {

namespace {

// One row: a module's name behind its layer's, and the values that it may be called, of which the first that the
// text has is it.
struct Row {
  const char* name;
  std::vector<const char*> values;
  int half = -1;  // of the value's columns; −1: all
  const char* part = "";
  const char* gathered = "";
  const char* weight = "";
};

std::vector<Row> rows_of_layer(const model::ModelConfig& model) {
  const bool before = model.norm_places != model::NormPlaces::after;
  const bool both = model.norm_places == model::NormPlaces::both;
  const bool after = !before || both || model.norm_places == model::NormPlaces::mixed;
  std::vector<Row> rows;
  if (before) rows.push_back({"input_layernorm", {"n"}, -1, "", "n_all"});
  rows.insert(rows.end(), {{"self_attn.q_proj", {"q_proj"}, -1, "", "", "self_attn.q_proj.weight"},
                           {"self_attn.k_proj", {"k_proj"}, -1, "", "", "self_attn.k_proj.weight"},
                           {"self_attn.v_proj", {"v_proj"}, -1, "", "", "self_attn.v_proj.weight"},
                           {"self_attn.q_rotated", {"q"}},
                           {"self_attn.k_rotated", {"k"}},
                           {"self_attn.core", {"o"}},
                           {"self_attn.o_proj", {"o_proj"}, -1, "o_proj_part", "", "self_attn.o_proj.weight"}});
  if (model.recurrence == model::Recurrence::gated_delta && model.linear_tensors_apart) {
    rows.insert(rows.end(),
                {{"linear_attn.q_proj", {"in_proj_q"}, -1, "", "", "linear_attn.q_proj.weight"},
                 {"linear_attn.k_proj", {"in_proj_k"}, -1, "", "", "linear_attn.k_proj.weight"},
                 {"linear_attn.v_proj", {"in_proj_v"}, -1, "", "", "linear_attn.v_proj.weight"},
                 {"linear_attn.g_proj", {"in_proj_z"}, -1, "", "", "linear_attn.g_proj.weight"},
                 {"linear_attn.b_proj", {"in_proj_b"}, -1, "", "", "linear_attn.b_proj.weight"},
                 {"linear_attn.a_proj", {"in_proj_a"}, -1, "", "", "linear_attn.a_proj.weight"},
                 {"linear_attn.core", {"recurred"}},
                 {"linear_attn.o_norm", {"recurred_gated"}},
                 {"linear_attn.o_proj", {"out_proj"}, -1, "out_proj_part", "", "linear_attn.o_proj.weight"}});
  } else if (model.recurrence == model::Recurrence::gated_delta) {
    rows.insert(rows.end(),
                {{"linear_attn.in_proj_qkvz", {"in_proj_qkvz"}, -1, "", "", "linear_attn.in_proj_qkvz.weight"},
                 {"linear_attn.in_proj_ba", {"in_proj_ba"}, -1, "", "", "linear_attn.in_proj_ba.weight"},
                 {"linear_attn.in_proj_z", {"in_proj_z"}, -1, "", "", "linear_attn.in_proj_z.weight"},
                 {"linear_attn.in_proj_b", {"in_proj_b"}, -1, "", "", "linear_attn.in_proj_b.weight"},
                 {"linear_attn.in_proj_a", {"in_proj_a"}, -1, "", "", "linear_attn.in_proj_a.weight"},
                 {"linear_attn.core", {"recurred"}},
                 {"linear_attn.norm", {"recurred_gated"}},
                 {"linear_attn.out_proj", {"out_proj"}, -1, "out_proj_part", "", "linear_attn.out_proj.weight"}});
  }
  if (model.recurrence == model::Recurrence::kimi_delta) {
    rows.insert(rows.end(), {{"self_attn.f_a_proj", {"f_a_proj"}, -1, "", "", "self_attn.f_a_proj.weight"},
                             {"self_attn.f_b_proj", {"f_b_proj"}, -1, "", "", "self_attn.f_b_proj.weight"},
                             {"self_attn.b_proj", {"b_proj"}, -1, "", "", "self_attn.b_proj.weight"},
                             {"self_attn.g_a_proj", {"g_a_proj"}, -1, "", "", "self_attn.g_a_proj.weight"},
                             {"self_attn.g_b_proj", {"g_b_proj"}, -1, "", "", "self_attn.g_b_proj.weight"},
                             {"self_attn.f_proj", {"f_proj"}, -1, "", "", "self_attn.f_proj.weight"},
                             {"self_attn.g_proj", {"g_proj"}, -1, "", "", "self_attn.g_proj.weight"},
                             {"self_attn.recurrence", {"recurred"}},
                             {"self_attn.o_norm", {"recurred_gated"}}});
  }
  if (model.recurrence == model::Recurrence::lightning) {
    rows.insert(rows.end(),
                {{"self_attn.qkv_proj", {"qkv_proj"}, -1, "", "", "self_attn.qkv_proj.weight"},
                 {"self_attn.output_gate", {"output_gate"}, -1, "", "", "self_attn.output_gate.weight"},
                 {"self_attn.recurrence", {"recurred"}},
                 {"self_attn.norm", {"recurred_normed"}},
                 {"self_attn.out_proj", {"out_proj"}, -1, "out_proj_part", "", "self_attn.out_proj.weight"}});
  }
  if (model.recurrence == model::Recurrence::mamba2) {
    rows.insert(rows.end(),
                {{"linear_attn.in_proj", {"in_proj"}, -1, "", "", "linear_attn.in_proj.weight"},
                 {"linear_attn.core", {"recurred"}},
                 {"linear_attn.norm", {"recurred_gated"}},
                 {"linear_attn.out_proj", {"out_proj"}, -1, "out_proj_part", "", "linear_attn.out_proj.weight"}});
  }
  if (model.recurrence == model::Recurrence::short_convolution) {
    rows.insert(rows.end(),
                {{"linear_attn.in_proj", {"in_proj"}, -1, "", "", "linear_attn.in_proj.weight"},
                 {"linear_attn.core", {"recurred_gated"}},
                 {"linear_attn.out_proj", {"out_proj"}, -1, "out_proj_part", "", "linear_attn.out_proj.weight"}});
  }
  if (after) rows.push_back({"post_attention_layernorm", {"a_normed"}});
  rows.push_back({"attention_residual", {"x_mid"}});
  if (before)
    rows.push_back(
        {both ? "pre_feedforward_layernorm" : "post_attention_layernorm", {"n_mid"}, -1, "", "y_in_all"});
  rows.insert(rows.end(), {{"mlp.gate", {"logits"}, -1, "", "", "mlp.gate.weight"},
                           {"mlp.scores", {"scores"}},
                           {"mlp.gate_proj", {"y_u"}, 0, "", "", "mlp.gate_proj.weight"},
                           {"mlp.up_proj", {"y_u"}, 1, "", "", "mlp.up_proj.weight"},
                           {"mlp.up_proj", {"up_proj"}, -1, "", "", "mlp.up_proj.weight"},
                           {"mlp.act", {"y_a"}},
                           {"mlp.shared_experts", {"shared"}, -1, "shared_part"},
                           {"mlp.experts", {"c"}},
                           {"mlp.down_proj", {"y"}, -1, "y_part", "", "mlp.down_proj.weight"},
                           {"mlp", {"y", "c"}}});
  if (after) rows.push_back({"post_feedforward_layernorm", {"y_normed"}});
  rows.push_back({"", {"x"}});
  return rows;
}

}  // namespace

int written_at(const ir::Listing& listing, std::string_view value) {
  const ir::ValueId id = listing.find(value);
  for (auto i = static_cast<int>(listing.ops.size()) - 1; id != ir::none && i >= 0; --i) {
    const ir::Op& op = listing.ops[static_cast<size_t>(i)];
    if (std::find(op.out.begin(), op.out.end(), id) != op.out.end()) return i;
  }
  return -1;
}

std::string gradient_of(const ir::Listing& listing, std::string_view value) {
  const std::string plain = fmt::format("d{}", value);
  for (auto i = std::ssize(listing.ops) - 1; i >= 0; --i) {
    for (const ir::ValueId id : listing.ops[static_cast<size_t>(i)].out) {
      if (id == ir::none) continue;
      const std::string& name = listing.value(id).name;
      if (!name.starts_with(plain)) continue;
      const std::string rest = name.substr(plain.size());
      if (rest.empty() ||
          (rest[0] == '.' && rest.find_first_not_of("0123456789", 1) == std::string::npos && rest.size() > 1))
        return name;
    }
  }
  // A term of a sum alone has the sum's gradient, which has no second name.
  const ir::ValueId id = listing.find(value);
  const ir::Op* sum = nullptr;
  int readers = 0;
  for (const ir::Op& op : listing.ops) {
    if (id == ir::none || op.phase != ir::Phase::F || std::find(op.in.begin(), op.in.end(), id) == op.in.end())
      continue;
    ++readers;
    if (op.kind() == "add") sum = &op;
  }
  return readers == 1 && sum != nullptr ? gradient_of(listing, listing.value(sum->out[0]).name) : "";
}

std::vector<Module> modules_of(const model::ModelConfig& model, const ir::Listing& one_rank) {
  std::vector<Module> modules;
  const auto add = [&](std::string name, const Row& row, const std::string& value_prefix,
                       const std::string& weight_prefix) {
    for (const char* value : row.values) {
      const ir::ValueId id = one_rank.find(value_prefix + value);
      if (id == ir::none) continue;
      Module& module = modules.emplace_back();
      module.name = std::move(name);
      module.value = value_prefix + value;
      const int64_t width = one_rank.value(id).shape.back().count;
      if (row.half >= 0) module.columns = width / 2, module.first = row.half * module.columns;
      if (*row.part != '\0') module.part = value_prefix + row.part;
      if (*row.gathered != '\0') module.gathered = value_prefix + row.gathered;
      if (*row.weight != '\0') module.weight = weight_prefix + row.weight;
      return;
    }
  };
  add("model.embed_tokens",
      {"",
       {"x_tokens", "x"},
       -1,
       one_rank.find("x_tokens") != ir::none ? "x_tokens_part" : "x_part",
       "",
       "model.embed_tokens.weight"},
      "", "");
  const std::vector<Row> rows = rows_of_layer(model);
  for (int64_t l = 0; l < model.num_hidden_layers; ++l) {
    const std::string layer = fmt::format("model.layers.{}", l), prefix = fmt::format("{}.", l);
    const bool moe = model.is_moe(l);
    for (const Row& row : rows) {
      const std::string name = row.name;
      const bool of_dense =
          name == "mlp.down_proj" || name == "mlp.act" || name == "mlp.gate_proj" || name == "mlp.up_proj";
      if (of_dense && moe) continue;
      add(name.empty() ? layer : layer + "." + name, row, prefix, layer + ".");
    }
  }
  add("model.norm", {"", {"n_next_token"}, -1, "", "n_next_token_all"}, "", "");
  add("lm_head", {"", {"logits_next_token"}, -1, "", "", "lm_head.weight"}, "", "");
  std::stable_sort(modules.begin(), modules.end(), [&](const Module& a, const Module& b) {
    return written_at(one_rank, a.value) < written_at(one_rank, b.value);
  });
  return modules;
}

}  // namespace heddle::check
