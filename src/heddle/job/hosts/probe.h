// Hosts tried, a rank on each: a matrix product whose bits every host must get, timed; and transfers between each
// pair, in rounds in which every rank has one partner. A host is bad whose bits are other than most hosts', whose
// product takes far longer than the middle one's, or at which slow transfers meet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/comm/world.h"

namespace heddle::job {

struct HostProbe {
  std::string host;
  uint64_t digest = 0;             // digest of the product's bits
  double product_s = 0;            // the shortest of a few
  std::vector<double> transfer_s;  // to and from each host, likewise; 0 to itself
};

struct BadHost {
  size_t place = 0;
  std::string why;
};

/// Probes the hosts. All ranks call it together; rank 0 gets all results, the others none.
std::vector<HostProbe> probe_hosts(comm::World& world);
std::vector<BadHost> bad_hosts(const std::vector<HostProbe>& probes);

std::string probe_json(const std::vector<HostProbe>& probes, const std::vector<BadHost>& bad);
/// Returns the bad hosts of such a text of `hosts` hosts; none of any other text.
std::vector<BadHost> parse_probe(std::string_view text, size_t hosts);
/// Returns the host that a failed probe has not heard of (comm/mpi/messages): its starter may see it, other hosts
/// don't. None where it says nothing of the kind.
std::optional<BadHost> silent_host(std::string_view said, size_t hosts);

}  // namespace heddle::job
