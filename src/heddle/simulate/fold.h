// Finds the ranks of a job that do the same, so that one of them can be simulated for all.
//
// Two ranks are of one kind when they run the same ops for the same times and meet ranks of the same kinds in the
// same places. The places are those of every group that they communicate in, of the machine whose cores they share,
// and of the host whose links they share. That is the coarsest equitable partition of the ranks: start from what
// the caller says is alike and split until nothing splits any more (Cardon and Crochemore 1982). Events of ranks of
// one kind then fall on the same times, in any run in which those of one kind begin together.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace heddle::simulate {

/// Groups of each stream that communicates: ranks in the order of their communicator.
using Groups = std::map<std::string, std::vector<std::vector<int>>>;

struct Fold {
  std::vector<int> kind_of;  // [rank]
  std::vector<int> first;    // [kind]: its first rank
  std::vector<int> count;    // [kind]: number of its ranks

  int kinds() const { return static_cast<int>(first.size()); }
};

/// `alike`: a number for each rank, which differs where what they run does. `shared`: ways in which ranks stand
/// together (on a machine, on a host), each with the number of each rank's place; an empty one is left out.
Fold fold(const std::vector<int>& alike, const Groups& groups, const std::vector<std::vector<int>>& shared);

/// Returns the fold in which every rank is a kind of its own.
Fold unfolded(size_t ranks);

/// True if a channel carries messages from one to another, where a rank's place in the group matters.
bool is_line(const std::string& channel);

}  // namespace heddle::simulate
