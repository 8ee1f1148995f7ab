// Rotary positions that queries and keys should not have. A rotated pair of elements (a, b) of position p turns by
// the angle p · θ^(−2i/d). So the reference's rotated values, turned back and on again, are those of any other
// position.
#include <cmath>

#include "check/attention.h"
#include "check/fault_rows.h"

namespace heddle::check {

using ir::Axis;

namespace {

struct Turn {
  std::function<int64_t(int64_t position)> position;
  bool other_pairs = false;  // neighbours in place of halves, or the other way round
};

// Queries or keys [sequences, positions, heads · width] with the positions of a turn.
Numbers turned(const Whole& whole, const model::ModelConfig& model, const Turn& turn) {
  Numbers all = whole.values;
  const int64_t length = whole.dims[1], rotary = model.rotary_width(), pairs = rotary / 2;
  const auto by_angle = [&](double* head, int64_t i, bool neighbours, double angle) {
    double &a = head[neighbours ? 2 * i : i], &b = head[neighbours ? 2 * i + 1 : pairs + i];
    const double c = std::cos(angle), s = std::sin(angle), first = a;
    a = first * c - b * s;
    b = first * s + b * c;
  };
  for (int64_t row = 0; row < whole.dims[0] * length; ++row) {
    const auto p = static_cast<double>(row % length), other = static_cast<double>(turn.position(row % length));
    for (int64_t h = 0; h < whole.dims[2] / model.head_dim; ++h) {
      double* head = &all[static_cast<size_t>(row * whole.dims[2] + h * model.head_dim)];
      for (int64_t i = 0; i < pairs; ++i)
        by_angle(head, i, model.rope_interleave,
                 -p * std::pow(model.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary)));
      for (int64_t i = 0; i < pairs; ++i)
        by_angle(head, i, model.rope_interleave != turn.other_pairs,
                 other * std::pow(model.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary)));
    }
  }
  return all;
}

}  // namespace

void rope_faults(const Setting& s, std::vector<Fault>& all) {
  const model::ModelConfig& m = s.reference.model();
  if (!m.turns() || m.is_latent() || m.rope_scaling || m.has_window_rotation() || m.turning_pairs_factor < 1 ||
      m.sliding_window > 0 || m.rotary_width() % 2 != 0)
    return;
  const auto rope = [&](std::string name, std::string sentence, std::string note, Turn turn) {
    all.push_back(
        {.name = std::move(name),
         .sentence = std::move(sentence),
         .change = [&m, turn = std::move(turn)](const Numbers&, const Seen& seen) -> std::optional<Numbers> {
           if (seen.all.stage != Stage::forward) return std::nullopt;
           const auto other = [&](const Whole& whole) { return turned(whole, m, turn); };
           if (seen.all.name.ends_with("_rotated"))
             return taken(other(seen.reference.of(seen.record)), seen.record.slice);
           AttentionChange change;
           change.turn = other;
           return changed_attention(seen, change);
         },
         .text = [note = std::move(note)](const std::string& line) { return line + "  " + note; }});
  };
  const int cp = s.layout.mesh.cp;
  if (cp > 1) {
    const int64_t local = s.layout.sequence_length / cp;
    const std::vector<Place> places = places_of(s.layout.sequence_length, cp);
    rope("rope.from_zero.cp", "rotary positions begin at 0 on each rank of cp", "{positions of its rows}",
         {[places](int64_t p) { return places[static_cast<size_t>(p)].row; }});
    rope("rope.in_a_row.cp", "rotary positions of a cp rank are one run, though it has two chunks of each sequence",
         "{positions in a row}", {[places, local](int64_t p) {
           return places[static_cast<size_t>(p)].rank * local + places[static_cast<size_t>(p)].row;
         }});
    rope("rope.of_rank_0.cp", "every rank of cp has the rotary positions of rank 0", "{positions of cp rank 0}",
         {[places, cp, length = s.layout.sequence_length](int64_t p) {
           return ir::position(places[static_cast<size_t>(p)].row, length, 0, cp);
         }});
  }
  rope("rope.none", "queries and keys are not rotated", "{positions 0}", {[](int64_t) { return int64_t{0}; }});
  rope("rope.one_ahead", "rotary positions begin at 1", "{positions + 1}", {[](int64_t p) { return p + 1; }});
  rope("rope.backwards", "the rotation has the other sense", "{positions × −1}", {[](int64_t p) { return -p; }});
  rope("rope.twice", "queries and keys are rotated twice", "{positions × 2}", {[](int64_t p) { return 2 * p; }});
  rope("rope.other_pairs",
       m.rope_interleave ? "the rotation pairs the halves of a head, not neighbours"
                         : "the rotation pairs neighbours, not the halves of a head",
       "{other pairs}", {[](int64_t p) { return p; }, true});
}

}  // namespace heddle::check
