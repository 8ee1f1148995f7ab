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

}  // namespace

PublishedKey time_step_limit_key() {
  return {.name = kLimit, .ours = "linear_step_least", .read = read_step_limit, .write = write_step_limit};
}

}  // namespace heddle::config
