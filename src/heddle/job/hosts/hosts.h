// The hosts of a job: as a file lists them, or as Slurm has allotted them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::job {

struct Host {
  std::string name;
  int slots = 1;  // ranks that it takes
  bool operator==(const Host&) const = default;
};

/// A line a host: "NAME" or "NAME slots=N"; what follows # is for people. ConfigError names file and line.
std::vector<Host> read_hosts(const std::string& path);
std::vector<Host> parse_hosts(std::string_view text, const std::string& path);

/// Hosts of the allocation that this process runs in; empty where it runs in none.
std::vector<Host> slurm_hosts();
/// "a[1-3,07],b" as Slurm writes it. ConfigError where it is no such list or longer than a job can be.
std::vector<std::string> expanded_nodes(std::string_view list);
/// "4(x2),3": how many for each node.
std::vector<int> expanded_counts(std::string_view text);

int slots_of(const std::vector<Host>& hosts);
/// The host of a rank where ranks fill the hosts' slots in order, as every launcher does; none: it has no place.
std::optional<std::string> host_of_rank(const std::vector<Host>& hosts, int64_t rank);
std::vector<std::string> names_of(const std::vector<Host>& hosts);

}  // namespace heddle::job
