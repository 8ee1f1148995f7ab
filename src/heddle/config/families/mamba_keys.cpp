#include "heddle/config/families/mamba_keys.h"

#include "heddle/base/error.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

constexpr const char* kLimit = "time_step_limit";

// A bound, which may be Infinity, or as Transformers 5 writes that.
double bound_of(const Json& value, const JsonKeys& keys) {
  constexpr double kNone = 1e6;
  const bool is_word = value.is_object() && value.value("__float__", Json()) == "Infinity";
  if (!is_word && !(value.is_number() && value >= 0)) {
    config_error("{}: '{}' is {}: the least and the largest time step are expected", keys.place(), kLimit,
                 formats::shown(*keys.find(kLimit)));
  }
  return is_word || value > kNone ? 0 : value.get<double>();
}

void read_step_limit(const JsonKeys& keys, ModelConfig& c) {
  const Json* limit = keys.find(kLimit);
  if (limit == nullptr) return;
  const bool are_two = limit->is_array() && limit->size() == 2;
  c.linear_step_least = bound_of(are_two ? (*limit)[0] : Json(), keys);
  c.linear_step_most = bound_of((*limit)[1], keys);
}

// No key says what its default says: JSON has no word for a bound that is none.
Written write_step_limit(const ModelConfig& c) {
  constexpr double kAny = 1e30;
  if (c.linear_step_least == 0 && c.linear_step_most == 0) return Written(Written::value_t::discarded);
  return Written::array({c.linear_step_least, c.linear_step_most > 0 ? c.linear_step_most : kAny});
}

// A model without recurrent layers has no sizes of theirs. Transformers wants some that fit.
Written mamba_size(const ModelConfig& c, int64_t size, int64_t otherwise) {
  return Written(c.recurs() ? size : otherwise);
}

PublishedKey mamba_count_key(const char* name, const char* ours, int64_t ModelConfig::*member, int64_t standard,
                             int64_t without) {
  return {.name = name,
          .ours = ours,
          .read = [=](const JsonKeys& keys, ModelConfig& c) { c.*member = keys.whole(name, standard); },
          .write = [=](const ModelConfig& c) { return mamba_size(c, c.*member, without); }};
}

}  // namespace

PublishedKey time_step_limit_key() {
  return {.name = kLimit, .ours = "linear_step_least", .read = read_step_limit, .write = write_step_limit};
}

void read_mamba_width(const JsonKeys& keys, int64_t inner, const char* said, ModelConfig& c) {
  const int64_t heads = c.linear_num_value_heads;
  const Json* width = keys.find("mamba_d_head");
  const bool follows_inner = width == nullptr || *width == "auto";
  if (follows_inner && (heads < 1 || inner % heads != 0)) {
    config_error("{}: 'mamba_n_heads' is {}, of which {} = {} is no multiple", keys.place(), heads, said, inner);
  }
  c.linear_value_head_dim = follows_inner ? inner / heads : keys.whole("mamba_d_head");
  if (c.linear_values_width() != inner) {
    config_error("{}: 'mamba_n_heads' × 'mamba_d_head' is {}, and {} {}", keys.place(), c.linear_values_width(),
                 said, inner);
  }
}

void add_mamba_keys(Family& family) {
  const auto read_width = [](const JsonKeys& keys, ModelConfig& c) {
    const int64_t inner = keys.whole("mamba_expand", 2) * c.hidden_size;
    read_mamba_width(keys, inner, "'mamba_expand' × 'hidden_size'", c);
  };
  add_keys(
      family,
      {
          mamba_count_key("mamba_n_heads", "linear_num_value_heads", &ModelConfig::linear_num_value_heads, 128, 2),
          mamba_count_key("mamba_n_groups", "linear_num_key_heads", &ModelConfig::linear_num_key_heads, 1, 1),
          key("mamba_d_state", "linear_key_head_dim", 256),
          {.name = "mamba_d_head",
           .ours = "linear_value_head_dim",
           .read = read_width,
           .write = [](const ModelConfig& c) { return mamba_size(c, c.linear_value_head_dim, c.hidden_size); }},
          read_elsewhere(
              "mamba_expand",
              [](const ModelConfig& c) { return mamba_size(c, c.linear_values_width() / c.hidden_size, 2); }),
          key("mamba_d_conv", "linear_conv_kernel_dim", 4),
          fixed("mamba_conv_bias", true),
          key("mamba_proj_bias", "linear_bias", false),
          time_step_limit_key(),
      });
  family.only.push_back(is("mamba_conv_bias", true, "the convolution has a bias"));
  family.said.emplace_back("linear_step_most");
  family.read_besides.emplace_back("mamba_chunk_size");
}

}  // namespace heddle::config
