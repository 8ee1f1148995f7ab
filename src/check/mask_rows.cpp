// Attention with masks that it should not have, with another scale, and with the keys of other heads.

#include "check/attention.h"
#include "check/fault_rows.h"

namespace heddle::check {

void mask_faults(const Setting& s, std::vector<Fault>& all) {
  const auto mask = [&](std::string name, std::string sentence, decltype(AttentionChange::sees) sees) {
    AttentionChange change;
    change.sees = std::move(sees);
    all.push_back({.name = std::move(name),
                   .sentence = std::move(sentence),
                   .change = [change = std::move(change)](
                                 const Numbers&, const Seen& seen) { return changed_attention(seen, change); },
                   .text =
                       [](const std::string& line) {
                         std::string changed = line;
                         const size_t at = changed.find("causal 1");
                         return at == std::string::npos ? changed + "  {another mask}"
                                                        : changed.replace(at, 8, "causal 0");
                       }});
  };
  mask("not_causal", "attention is not causal: each token sees those after it",
       [](int64_t, int64_t, const Place&, const Place&) { return true; });
  mask("not_itself", "a token does not see itself",
       [](int64_t q, int64_t k, const Place&, const Place&) { return k < q || (q == 0 && k == 0); });
  mask("one_ahead", "a token sees the one after it",
       [](int64_t q, int64_t k, const Place&, const Place&) { return k <= q + 1; });
  if (s.layout.mesh.cp > 1) {
    mask("own_chunks_alone.cp", "a cp rank sees its own keys alone: those of other ranks never come",
         [](int64_t q, int64_t k, const Place& a, const Place& b) { return a.rank == b.rank && k <= q; });
    mask("no_mask_at_boundary.cp",
         "the mask is missing at the boundary of cp: keys of other ranks are all seen, also later ones",
         [](int64_t q, int64_t k, const Place& a, const Place& b) { return a.rank != b.rank || k <= q; });
    mask("mask_by_row.cp",
         "the mask depends on rows of a cp rank, not on positions: a row sees as many rows of each rank",
         [](int64_t, int64_t, const Place& a, const Place& b) { return b.row <= a.row; });
    mask("own_mask_by_row.cp",
         "the mask among a cp rank's own rows depends on positions, and all rows of earlier ranks are seen",
         [](int64_t q, int64_t k, const Place& a, const Place& b) {
           return a.rank == b.rank ? k <= q : b.rank < a.rank;
         });
    mask("earlier_chunk_missing.cp", "a cp rank does not see its own earlier chunk",
         [cp = s.layout.mesh.cp, length = s.layout.sequence_length](int64_t q, int64_t k, const Place& a,
                                                                    const Place& b) {
           const int64_t chunk = length / (2 * cp);
           return k <= q && !(a.rank == b.rank && q / chunk != k / chunk);
         });
  }
  const model::ModelConfig& m = s.reference.model();
  if (m.sliding_window > 0)
    mask("no_window", "attention has no window",
         [](int64_t q, int64_t k, const Place&, const Place&) { return k <= q; });
  if (m.sliding_window > 0 || m.is_latent()) return;
  const auto changed = [&](std::string name, std::string sentence, std::string note, AttentionChange change) {
    all.push_back({.name = std::move(name),
                   .sentence = std::move(sentence),
                   .change = [change = std::move(change)](
                                 const Numbers&, const Seen& seen) { return changed_attention(seen, change); },
                   .text = [note = std::move(note)](const std::string& line) { return line + "  " + note; }});
  };
  AttentionChange change;
  change.scale = 1;
  changed("scores_not_scaled", "scores of attention are not scaled", "{scale 1}", change);
  change.scale = m.softmax_scale() * m.softmax_scale();
  changed("scores_scaled_twice", "scores of attention are scaled twice", "{scale²}", change);
  const int64_t heads = m.num_attention_heads, groups = m.num_key_value_heads, tp = s.layout.mesh.tp;
  if (groups == heads || groups % tp != 0 || groups == tp) return;
  AttentionChange by_place;
  by_place.group = [own_heads = heads / tp, own_groups = groups / tp](int64_t head) {
    return head / own_heads * own_groups + head % own_heads % own_groups;
  };
  changed("groups_by_place",
          "a head reads the keys of the group of its number: heads take groups in turn, where neighbours share one",
          "{groups in turn}", by_place);
}

}  // namespace heddle::check
