// Attention by its definition, with masks that it should not have. Queries, keys and values are the reference's.
// o = softmax(scale · q kᵀ + mask) v, head by head.
#include <algorithm>
#include <cmath>

#include "check/fault_rows.h"

namespace heddle::check {

using ir::Axis;

namespace {

// The cp rank of a position, and its row there.
struct Place {
  int rank = 0;
  int64_t row = 0;
};
std::vector<Place> places_of(int64_t length, int cp) {
  std::vector<Place> places(static_cast<size_t>(length));
  for (int r = 0; r < cp; ++r) {
    for (int64_t j = 0; j < length / cp; ++j) places[static_cast<size_t>(ir::position(j, length, r, cp))] = {r, j};
  }
  return places;
}

using Sees = std::function<bool(int64_t query, int64_t key, const Place& of_query, const Place& of_key)>;

std::optional<Numbers> attention(const Seen& seen, const Sees& sees) {
  const model::ModelConfig& m = seen.reference.model();
  if (seen.all.stage != Stage::forward || !seen.all.name.ends_with("self_attn.core") || m.is_latent() || m.attention_sinks)
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
  const int64_t length = q->dims[1], heads = m.num_attention_heads, groups = m.num_key_value_heads;
  const int64_t width = q->dims[2] / heads, value_width = v->dims[2] / groups;
  const std::vector<Place> places = places_of(length, seen.reference.dump().layout.mesh.cp);
  Numbers out(static_cast<size_t>(q->dims[0] * length * heads * value_width), 0.0), weights(static_cast<size_t>(length));
  for (int64_t b = 0; b < q->dims[0]; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t g = h / (heads / groups);
      for (int64_t i = 0; i < length; ++i) {
        double sum = 0;
        const double* query = &q->values[static_cast<size_t>((b * length + i) * q->dims[2] + h * width)];
        double top = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < length; ++j) {
          double& score = weights[static_cast<size_t>(j)];
          score = -std::numeric_limits<double>::infinity();
          if (!sees(i, j, places[static_cast<size_t>(i)], places[static_cast<size_t>(j)])) continue;
          const double* key = &k->values[static_cast<size_t>((b * length + j) * k->dims[2] + g * width)];
          double dot = 0;
          for (int64_t e = 0; e < width; ++e) dot += query[e] * key[e];
          score = dot * m.softmax_scale();
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

}  // namespace

void mask_faults(const Setting& s, std::vector<Fault>& all) {
  const auto mask = [&](std::string name, std::string sentence, Sees sees) {
    all.push_back({.name = std::move(name),
                   .sentence = std::move(sentence),
                   .change = [sees = std::move(sees)](const Numbers&, const Seen& seen) { return attention(seen, sees); },
                   .text = [](const std::string& line) {
                     std::string changed = line;
                     const size_t at = changed.find("causal 1");
                     return at == std::string::npos ? changed + "  {another mask}" : changed.replace(at, 8, "causal 0");
                   }});
  };
  mask("not_causal", "attention is not causal: each token sees those after it", [](int64_t, int64_t, const Place&, const Place&) { return true; });
  mask("not_itself", "a token does not see itself", [](int64_t q, int64_t k, const Place&, const Place&) { return k < q || (q == 0 && k == 0); });
  mask("one_ahead", "a token sees the one after it", [](int64_t q, int64_t k, const Place&, const Place&) { return k <= q + 1; });
  if (s.layout.mesh.cp > 1) {
    mask("own_chunks_alone.cp", "a cp rank sees its own keys alone: those of other ranks never come",
         [](int64_t q, int64_t k, const Place& a, const Place& b) { return a.rank == b.rank && k <= q; });
    mask("no_mask_at_boundary.cp", "the mask is missing at the boundary of cp: keys of other ranks are all seen, also later ones",
         [](int64_t q, int64_t k, const Place& a, const Place& b) { return a.rank != b.rank || k <= q; });
    mask("mask_by_row.cp", "the mask depends on rows of a cp rank, not on positions: a row sees as many rows of each rank",
         [](int64_t, int64_t, const Place& a, const Place& b) { return b.row <= a.row; });
    mask("own_mask_by_row.cp", "the mask among a cp rank's own rows depends on positions, and all rows of earlier ranks are seen",
         [](int64_t q, int64_t k, const Place& a, const Place& b) { return a.rank == b.rank ? k <= q : b.rank < a.rank; });
    mask("earlier_chunk_missing.cp", "a cp rank does not see its own earlier chunk",
         [cp = s.layout.mesh.cp, length = s.layout.sequence_length](int64_t q, int64_t k, const Place& a, const Place& b) {
           const int64_t chunk = length / (2 * cp);
           return k <= q && !(a.rank == b.rank && q / chunk != k / chunk);
         });
  }
  const model::ModelConfig& m = s.reference.model();
  if (m.sliding_window > 0)
    mask("no_window", "attention has no window", [](int64_t q, int64_t k, const Place&, const Place&) { return k <= q; });
}

}  // namespace heddle::check
