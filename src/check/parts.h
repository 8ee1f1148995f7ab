// The addends of what ranks reduce: Heddle's program of the dump's layout, run on threads in fp64, before its sums.
//
//   gradient of a weight   one part a rank and microbatch; of the auxiliary losses, parts of their own
//   loss                   one part a rank and microbatch
//   output of a product that tp cuts by its columns, and the gradient of what tp gathers: one part a rank
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "check/reference.h"

namespace heddle::check {

struct Part {
  ir::Coordinates at;
  int rank = 0;  // of Heddle's mesh
  int microbatch = 0;
  bool auxiliary = false;  // of a router's losses
  Numbers whole;           // zeros where the rank holds nothing
};

class Parts {
 public:
  /// Runs the layout. Where Heddle does not run it, there are no parts, and `why_not` says the reason.
  explicit Parts(const Reference& reference);

  /// The parts whose sum is the whole tensor of a record; one, the reference itself, where nothing is known.
  std::vector<const Part*> of(const Record& record) const;
  /// The reference less the sum of the parts: what is not of them (a bias behind a sum).
  const Numbers& rest_of(const Record& record) const;

  /// The squared norm of the elements of each parameter's gradient that a rank of the mesh holds.
  const std::vector<std::map<std::string, double>>& squares() const { return squares_; }
  const model::Parameter* parameter(const std::string& name) const;
  const plan::Mesh& mesh() const { return mesh_; }
  const plan::Lowered* lowered() const { return lowered_ ? &*lowered_ : nullptr; }
  const std::string& why_not() const { return why_not_; }

 private:
  void add_gradients(const std::vector<RankValues>& all, const std::vector<RankValues>& without);
  void add_losses(const std::vector<RankValues>& all);
  void add_rows(const std::vector<RankValues>& all);
  void add_squares();
  Numbers whole_rows(const Captured& captured, const ir::Coordinates& at, int64_t width) const;

  const Reference& reference_;
  plan::Mesh mesh_;
  std::string why_not_;
  std::optional<plan::Lowered> lowered_;
  std::map<Key, std::vector<Part>> parts_;
  std::map<Key, Numbers> rests_;
  mutable std::map<Key, Part> alone_;  // of what is not made of parts
  std::vector<std::map<std::string, double>> squares_;
};

}  // namespace heddle::check
