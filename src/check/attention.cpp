#include "check/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace heddle::check {

std::vector<Place> places_of(int64_t length, int cp) {
  std::vector<Place> places(static_cast<size_t>(length));
  for (int r = 0; r < cp; ++r) {
    for (int64_t j = 0; j < length / cp; ++j) places[static_cast<size_t>(ir::position(j, length, r, cp))] = {r, j};
  }
  return places;
}

std::optional<Numbers> changed_attention(const Seen& seen, const AttentionChange& change) {
  const model::ModelConfig& m = seen.reference.model();
  if (seen.all.stage != Stage::forward || !seen.all.name.ends_with("self_attn.core") || m.is_latent() ||
      m.attention_sinks)
    return std::nullopt;
  const auto input = [&](const char* module) {
    Record other = seen.record;
    other.name = seen.all.name.substr(0, seen.all.name.size() - 4) + module;
    const Whole* whole = seen.reference.find(seen.reference.key_of(other));
    if (whole == nullptr && std::string(module) != "v_proj") {  // a model without positions in attention
      other.name = seen.all.name.substr(0, seen.all.name.size() - 4) + module[0] + "_proj";
      whole = seen.reference.find(seen.reference.key_of(other));
    }
    return whole;
  };
  const Whole *q = input("q_rotated"), *k = input("k_rotated"), *v = input("v_proj");
  if (q == nullptr || k == nullptr || v == nullptr) return std::nullopt;
  const Numbers queries = change.turn ? change.turn(*q) : q->values,
                keys = change.turn ? change.turn(*k) : k->values;
  const double scale = change.scale > 0 ? change.scale : m.softmax_scale();
  const int64_t length = q->dims[1], heads = m.num_attention_heads, groups = m.num_key_value_heads;
  const int64_t width = q->dims[2] / heads, value_width = v->dims[2] / groups;
  const std::vector<Place> places = places_of(length, seen.reference.dump().layout.mesh.cp);
  Numbers out(static_cast<size_t>(q->dims[0] * length * heads * value_width), 0.0),
      weights(static_cast<size_t>(length));
  for (int64_t b = 0; b < q->dims[0]; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t g = change.group ? change.group(h) : h / (heads / groups);
      for (int64_t i = 0; i < length; ++i) {
        double sum = 0;
        const double* query = &queries[static_cast<size_t>((b * length + i) * q->dims[2] + h * width)];
        double top = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < length; ++j) {
          double& score = weights[static_cast<size_t>(j)];
          score = -std::numeric_limits<double>::infinity();
          if (!change.sees(i, j, places[static_cast<size_t>(i)], places[static_cast<size_t>(j)])) continue;
          const double* key = &keys[static_cast<size_t>((b * length + j) * k->dims[2] + g * width)];
          double dot = 0;
          for (int64_t e = 0; e < width; ++e) dot += query[e] * key[e];
          score = dot * scale;
          top = std::max(top, score);
        }
        for (double& weight : weights) sum += weight = std::exp(weight - top);
        double* o = &out[static_cast<size_t>(((b * length + i) * heads + h) * value_width)];
        for (int64_t j = 0; j < length && sum > 0; ++j) {
          const double share = weights[static_cast<size_t>(j)] / sum;
          const double* value = &v->values[static_cast<size_t>((b * length + j) * v->dims[2] + g * value_width)];
          for (int64_t e = 0; e < value_width && share > 0; ++e) o[e] += share * value[e];
        }
      }
    }
  }
  return taken(out, seen.record.slice);
}

}  // namespace heddle::check
