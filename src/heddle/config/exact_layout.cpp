#include "heddle/config/exact_layout.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "heddle/comm/exchange/places.h"
#include "heddle/device/merge_tree.h"

namespace heddle::config {

namespace {

// True if a token's sum over any of its experts has the tree of one rank, where an expert's key is its id. The tree
// of all experts decides: that of some of them is what is left of it.
bool sums_as_one_rank(const comm::Places& places, int64_t experts) {
  const auto ranks = std::ssize(places.node);
  const int64_t each = experts / ranks,
                keys_each = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(each)));
  std::vector<int64_t> keys, ids(static_cast<size_t>(experts));
  std::iota(ids.begin(), ids.end(), 0);
  for (const int64_t id : ids) keys.push_back(places.key_of(static_cast<int>(id / each)) * keys_each + id % each);
  if (!std::is_sorted(keys.begin(), keys.end())) return false;
  std::vector<uint8_t> joins(keys.size()), wanted(keys.size());
  device::merges_of(keys.data(), experts, joins.data());
  device::merges_of(ids.data(), experts, wanted.data());
  return joins == wanted;
}

std::string of_degrees(const plan::Degrees& mesh) {
  const auto one = [](const char* key, int degree, const char* why) {
    return degree == 1 ? "" : fmt::format("{} = {} ({}), it needs {} = 1", key, degree, why, key);
  };
  for (const std::string& text : {one("mesh.tp", mesh.tp, "it cuts the sums inside products"),
                                  one("mesh.cp", mesh.cp, "it cuts a microbatch's partial gradients"),
                                  one("mesh.etp", mesh.etp, "it cuts the sums inside experts")}) {
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace

std::string why_not_exact(const model::ModelConfig& model, const plan::Degrees& degrees,
                          const std::vector<int>& node_of) {
  if (const std::string cut = of_degrees(degrees); !cut.empty()) return cut;
  // Two numbers have one sum in any order.
  if (degrees.ep == 1 || model.num_experts_per_tok <= 2) return "";
  const int64_t experts = model.n_routed_experts;
  if (experts % degrees.ep != 0) return "";  // no layout at all
  const auto holds = [&](int64_t ep) {
    return experts % ep == 0 &&
           sums_as_one_rank(comm::Places(0, std::vector<int>(static_cast<size_t>(ep), 0)), experts);
  };
  if (!holds(degrees.ep)) {
    std::vector<int64_t> accepted;
    for (int64_t ep = 1; ep <= std::min<int64_t>(experts, degrees.stage_ranks()); ++ep) {
      if (degrees.stage_ranks() % ep == 0 && holds(ep)) accepted.push_back(ep);
    }
    return fmt::format(
        "mesh.ep = {} (a rank's {} of {} experts sum a token's rows in another order than one rank), it needs "
        "a power of two experts a rank: mesh.ep {}",
        degrees.ep, experts / degrees.ep, experts, fmt::join(accepted, ", "));
  }
  if (node_of.empty()) return "";
  const plan::Mesh mesh(degrees);
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    std::vector<int> nodes;
    for (const int of : mesh.group("experts", rank)) nodes.push_back(node_of.at(static_cast<size_t>(of)));
    if (sums_as_one_rank(comm::Places(0, nodes), experts)) continue;
    return fmt::format(
        "mesh.ep = {} on these hosts (ranks that share the experts lie on hosts {}, whose sums come in "
        "another order than on one rank), it needs ranks of one host side by side, a power of two on each",
        degrees.ep, fmt::join(nodes, ", "));
  }
  return "";
}

}  // namespace heddle::config
