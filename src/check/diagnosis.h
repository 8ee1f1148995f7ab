// The diagnosis of a dump: where it differs from the reference, and which faults of a program give what its ranks
// hold.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "check/faults.h"

namespace heddle::check {

/// One or more faults at once, and all the tensors that every rank would then hold as the dump has them.
struct Explanation {
  std::vector<const Fault*> faults;
  std::vector<size_t> cases;        // of Findings::differing
  double worst = 0;                 // ratio of the worst rank to what the faults predict
  bool on_some = false;             // the ranks that are equal do not have the fault
  std::vector<const Fault*> alike;  // single faults that predict the same here
  std::string line, mutated;        // of the program's text
  std::string name() const;
  std::string sentence() const;
};

struct Findings {
  size_t tensors = 0, ranks = 0;
  double worst = 0;                       // ratio of all that is equal, or of all
  std::vector<Case> all;                  // in program order
  std::vector<size_t> differing;          // of `all`
  std::vector<size_t> follows;            // of `differing`: what the dump's own tensors before it make of it
  std::vector<Explanation> explanations;  // those of most tensors first
  std::vector<std::string> notes;
  bool equal() const { return differing.empty(); }
  const Case* first() const { return differing.empty() ? nullptr : &all[differing.front()]; }
  /// Differing tensors that no explanation has and that follow from none.
  std::vector<size_t> unexplained() const;
};

class Diagnosis {
 public:
  explicit Diagnosis(const Dump& dump);
  const Reference& reference() const { return *reference_; }
  const Findings& findings() const { return findings_; }
  /// "ranks 1, 3 (tp 1)": of a case, those that differ.
  std::string ranks_of(const Case& one) const;
  /// Axes along which ranks that hold the same slice hold different numbers: "dp"; "" where there are none.
  std::string group_of(const Case& one) const;

 private:
  void compare();
  void add_local_sums();
  void mark_what_follows();
  void explain();
  double ratio_of(const std::vector<const Fault*>& faults, const Case& one, bool on_some = false) const;
  void explain_by_single(std::set<size_t>& open, bool on_some);
  std::vector<const Fault*> pair_for(size_t index) const;
  void add_lines(Explanation& explanation) const;
  std::string line_of(const Case& one) const;

  const Dump& dump_;
  std::unique_ptr<Reference> reference_;
  std::unique_ptr<Parts> parts_;
  std::vector<Fault> faults_;
  std::deque<Record> sums_;  // of gradients before reduction
  Findings findings_;
};

}  // namespace heddle::check
