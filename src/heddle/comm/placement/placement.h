// The replicas of hot experts for one microbatch of a layer: which ranks hold them, and how much of each source's
// rows every replica takes. They follow from the counts of all sources, before any row moves.
//
// One pure function of whole numbers, so that every rank comes to the same choice: ties go to the lower index.
// There are H holders (a rank, or the `slices` ranks that cut the width of the same experts) and S = H × slices
// sources. Of E experts each holder owns E ÷ H; beside them it has `copies` slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle::comm {

/// Rows that each source has for each expert.
struct Loads {
  int64_t sources = 0, experts = 0;
  std::span<const int32_t> rows_SE;
  int64_t at(int64_t source, int64_t expert) const { return rows_SE[source * experts + expert]; }
};

struct Holders {
  int64_t slices = 1;
  int64_t replicas = 0;      // slots for them on each holder
  std::vector<int> node_of;  // of each source
  int64_t count() const { return static_cast<int64_t>(node_of.size()) / slices; }
  /// True if each slice of a has its counterpart of b on its own node.
  bool near(int64_t a, int64_t b) const;
};

/// The time that a row or a replica takes, in picoseconds, forward and backward together. A row takes it in its
/// expert's products and on a link within a node or between nodes, a replica's weights and gradients on such a
/// link.
struct CopyCosts {
  int64_t row_ps = 1, row_within_ps = 0, row_across_ps = 0, replica_within_ps = 0, replica_across_ps = 0;
};

struct PlacementRules {
  CopyCosts costs;
  bool whole_sources = false;  // all rows of a source for an expert go to one slot
};

class Placement {
 public:
  /// No copies yet.
  Placement(const Holders& holders, int64_t experts);

  int64_t slots_each() const { return own_ + replicas_; }
  int64_t slots() const { return static_cast<int64_t>(expert_of_slot_.size()); }
  /// The expert that stands in each slot, −1 in an empty one.
  const std::vector<int32_t>& expert_of_slot() const { return expert_of_slot_; }
  int64_t owner(int64_t expert) const { return expert / own_; }
  int64_t slot_of(int64_t expert) const { return owner(expert) * slots_each() + expert % own_; }

  struct Replica {
    int64_t expert = 0, holder = 0, slot = 0;
    std::vector<int64_t> rows_S;  // that it takes of each source
    int64_t rows() const;
  };
  /// By expert, then in the order in which they were made.
  const std::vector<Replica>& replicas() const { return list_; }
  void add(int64_t expert, int64_t holder, std::vector<int64_t> rows_S);
  /// Rows at each holder.
  std::vector<int64_t> rows_of(const Loads& loads) const;

 private:
  int64_t own_, replicas_;
  std::vector<int32_t> expert_of_slot_;
  std::vector<int64_t> used_H_;
  std::vector<Replica> list_;
};

/// As many rows of each of `sources`, shared out as `share_E` says: in whole numbers, [S, E].
std::vector<int32_t> alike_sources(const std::vector<double>& share_E, int64_t sources, int64_t rows);

/// True if the fullest holder has so much more than the even share that replicas are looked for.
bool is_uneven(const std::vector<int64_t>& rows_H);
Placement choose_placement(const Loads& loads, const Holders& holders, const PlacementRules& rules);
/// The predicted time of a microbatch with the replicas so chosen, if any, by the costs of the rules: picoseconds
/// of products, rows and replicas.
int64_t predicted_ps(const Loads& loads, const Holders& holders, const PlacementRules& rules);

}  // namespace heddle::comm
