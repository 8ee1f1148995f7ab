#include "heddle/job/hosts/hosts.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/text.h"

namespace heddle::job {

namespace {

constexpr int64_t kMostFileBytes = 1 << 20;
constexpr size_t kMostHosts = 100'000, kMostNameBytes = 255;
constexpr int kMostSlots = 1024;

// True if a name may stand on a launcher's line without being taken for an option or a list.
bool is_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  };
  return !name.empty() && name.size() <= kMostNameBytes && name[0] != '-' && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), fits);
}

int number_in(std::string_view text) {
  int number = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && at == text.data() + text.size() ? number : -1;
}

// "07-12" or "3" behind a prefix.
void add_range(std::string_view prefix, std::string_view range, std::vector<std::string>& names) {
  const size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash), last = dash == range.npos ? first : range.substr(dash + 1);
  const int from = number_in(first), to = number_in(last);
  if (from < 0 || to < from || static_cast<size_t>(to - from) > kMostHosts)
    config_error("Slurm's list of nodes has '{}', expected a number or two as in 1-3", shown(range));
  for (int n = from; n <= to; ++n) names.push_back(fmt::format("{}{:0{}}", prefix, n, first.size()));
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text, const std::string& path) {
  std::vector<Host> hosts;
  std::set<std::string> seen;
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const size_t gap = line.find_first_of(" \t");
    Host host{std::string(line.substr(0, gap))};
    if (!is_name(host.name)) config_error("{}:{}: '{}' is no name of a host", path, number, shown(host.name));
    if (const std::string_view rest = trimmed(gap == line.npos ? "" : line.substr(gap)); !rest.empty()) {
      host.slots = rest.starts_with("slots=") ? number_in(rest.substr(6)) : -1;
      if (host.slots < 1 || host.slots > kMostSlots)
        config_error("{}:{}: '{}', expected slots=N with N from 1 to {}", path, number, shown(rest), kMostSlots);
    }
    if (!seen.insert(host.name).second) config_error("{}:{}: {} is here twice", path, number, host.name);
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) config_error("{}: no host in it; a line a host, as `node1 slots=8`", path);
  return hosts;
}

std::vector<Host> read_hosts(const std::string& path) { return parse_hosts(read_file(path, kMostFileBytes), path); }

std::vector<std::string> expanded_nodes(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t bracket = list.find('['), comma = list.find(',');
    if (bracket == list.npos || comma < bracket) {
      names.emplace_back(list.substr(0, comma));
      list = comma == list.npos ? "" : list.substr(comma + 1);
    } else {
      const size_t close = list.find(']', bracket);
      if (close == list.npos) config_error("Slurm's list of nodes has no ] in '{}'", shown(list));
      const std::string_view prefix = list.substr(0, bracket);
      std::string_view ranges = list.substr(bracket + 1, close - bracket - 1);
      while (!ranges.empty()) {
        const size_t next = ranges.find(',');
        add_range(prefix, ranges.substr(0, next), names);
        ranges = next == ranges.npos ? "" : ranges.substr(next + 1);
      }
      list = list.substr(close + 1);
      if (!list.empty() && list[0] != ',')
        config_error("Slurm's list of nodes goes on with '{}' behind ]", shown(list));
      if (!list.empty()) list = list.substr(1);
    }
    if (names.size() > kMostHosts) config_error("Slurm's list has more than {} nodes", kMostHosts);
  }
  for (const std::string& name : names) {
    if (!is_name(name)) config_error("Slurm's list of nodes has '{}', which is no name of a host", shown(name));
  }
  return names;
}

std::vector<int> expanded_counts(std::string_view text) {
  std::vector<int> counts;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    text = comma == text.npos ? "" : text.substr(comma + 1);
    int times = 1;
    if (const size_t open = part.find("(x"); open != part.npos && part.ends_with(')')) {
      times = number_in(part.substr(open + 2, part.size() - open - 3));
      part = part.substr(0, open);
    }
    const int count = number_in(part);
    if (count < 1 || count > kMostSlots || times < 1 || counts.size() + static_cast<size_t>(times) > kMostHosts)
      config_error("Slurm's tasks a node has '{}', expected a number or as in 4(x2)", shown(part));
    counts.insert(counts.end(), static_cast<size_t>(times), count);
  }
  return counts;
}

std::vector<Host> slurm_hosts() {
  const char* nodes = std::getenv("SLURM_JOB_NODELIST");
  if (nodes == nullptr) return {};
  const char* tasks = std::getenv("SLURM_TASKS_PER_NODE");
  const std::vector<int> counts = expanded_counts(tasks != nullptr ? tasks : "");
  std::vector<Host> hosts;
  for (std::string& name : expanded_nodes(nodes))
    hosts.push_back({std::move(name), hosts.size() < counts.size() ? counts[hosts.size()] : 1});
  return hosts;
}

int slots_of(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  return slots;
}

std::optional<std::string> host_of_rank(const std::vector<Host>& hosts, int64_t rank) {
  for (const Host& host : hosts) {
    if (rank >= 0 && rank < host.slots) return host.name;
    rank -= host.slots;
  }
  return std::nullopt;
}

std::vector<std::string> names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

}  // namespace heddle::job
