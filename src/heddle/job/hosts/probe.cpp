#include "heddle/job/hosts/probe.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/hash.h"
#include "heddle/base/statistics.h"
#include "heddle/job/ending.h"
#include "heddle/session/run_environment.h"
#include "heddle/session/slow/pair_probe.h"
#include "heddle/train/rank_exchange.h"

namespace heddle::job {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSide = 160, kTimes = 3;
constexpr int64_t kTransferBytes = 1 << 20;
// Limits far beyond those of shared cores, or of a link that others use too.
constexpr double kSlowProduct = 3, kSlowTransfer = 4, kLeastTransfer_s = 0.02;

// Whole numbers small enough that every product and sum is exact: one digest, whatever the processor.
uint64_t product() {
  std::vector<float> a(kSide * kSide), b(kSide * kSide), c(kSide * kSide, 0.f);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(mix_bits(i) % 64);
    b[i] = static_cast<float>(mix_bits(i + a.size()) % 64);
  }
  for (int i = 0; i < kSide; ++i) {
    for (int k = 0; k < kSide; ++k) {
      const float x = a[i * kSide + k];
      for (int j = 0; j < kSide; ++j) c[i * kSide + j] += x * b[k * kSide + j];
    }
  }
  return hash_bytes({reinterpret_cast<const char*>(c.data()), c.size() * sizeof(float)});
}

}  // namespace

std::vector<HostProbe> probe_hosts(comm::World& world) {
  train::RankExchange ranks(&world);
  HostProbe own;
  own.host = session::host_name();
  for (int i = 0; i < kTimes; ++i) {
    const double began_s = now_s();
    own.digest = product();
    const double took_s = now_s() - began_s;
    own.product_s = i == 0 ? took_s : std::min(own.product_s, took_s);
  }
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  const auto link = world.communicator(all, "comm.probe");
  own.transfer_s = session::transfer_times(*link, ranks, kTransferBytes, kTimes);
  const Json mine{
      {"host", own.host}, {"digest", own.digest}, {"product_s", own.product_s}, {"transfer_s", own.transfer_s}};
  std::vector<HostProbe> probes;
  for (const std::string& text : ranks.share(mine.dump())) {
    if (!ranks.leads()) break;
    const Json json = Json::parse(text);
    probes.push_back({json["host"], json["digest"], json["product_s"], json["transfer_s"]});
  }
  return probes;
}

std::vector<BadHost> bad_hosts(const std::vector<HostProbe>& probes) {
  std::map<uint64_t, int> votes;
  std::vector<double> products, transfers;
  for (const HostProbe& probe : probes) {
    ++votes[probe.digest];
    products.push_back(probe.product_s);
    // A host's quickest: of all transfers half may be slow where one of four hosts is.
    double quickest_s = 0;
    for (const double s : probe.transfer_s) {
      if (s > 0 && (quickest_s == 0 || s < quickest_s)) quickest_s = s;
    }
    if (quickest_s > 0) transfers.push_back(quickest_s);
  }
  if (probes.empty()) return {};
  const auto most = std::max_element(votes.begin(), votes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const double product_s = median(products), transfer_s = transfers.empty() ? 0 : median(transfers);
  std::vector<BadHost> bad;
  for (size_t p = 0; p < probes.size(); ++p) {
    const HostProbe& probe = probes[p];
    int slow = 0, pairs = 0;
    for (const double s : probe.transfer_s) {
      pairs += s > 0;
      slow += s > kSlowTransfer * transfer_s && s > kLeastTransfer_s;
    }
    if (probe.digest != most->first && 2 * most->second > static_cast<int>(probes.size())) {
      bad.push_back({p, "its product has other bits than the others'"});
    } else if (probes.size() > 2 && probe.product_s > kSlowProduct * product_s) {
      bad.push_back({p, fmt::format("its product takes {:.1f} times as long as the middle one's",
                                    probe.product_s / product_s)});
    } else if (probes.size() > 2 && pairs > 1 &&
               slow == pairs) {  // the other end of a slow pair has quick ones too
      bad.push_back(
          {p, fmt::format("every transfer to and from it takes over {:.0f} times the usual time", kSlowTransfer)});
    }
  }
  return bad;
}

std::string probe_json(const std::vector<HostProbe>& probes, const std::vector<BadHost>& bad) {
  Json json{{"hosts", Json::array()}, {"bad", Json::array()}};
  for (const HostProbe& probe : probes)
    json["hosts"].push_back({{"host", probe.host},
                             {"digest", fmt::format("{:016x}", probe.digest)},
                             {"product_seconds", probe.product_s},
                             {"transfer_seconds", probe.transfer_s}});
  for (const BadHost& one : bad) json["bad"].push_back({{"place", one.place}, {"why", one.why}});
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::vector<BadHost> parse_probe(std::string_view text, size_t hosts) {
  const Json json = Json::parse(text, nullptr, false);
  std::vector<BadHost> bad;
  if (!json.is_object() || !json.contains("bad") || !json["bad"].is_array()) return bad;
  for (const Json& one : json["bad"]) {
    if (!one.is_object() || !one.contains("place") || !one["place"].is_number_unsigned()) continue;
    const auto place = one["place"].get<size_t>();
    const std::string why = one.contains("why") && one["why"].is_string() ? one["why"].get<std::string>() : "";
    if (place < hosts) bad.push_back({place, escaped(why, 200)});
  }
  return bad;
}

std::optional<BadHost> silent_host(std::string_view said, size_t hosts) {
  for (size_t begin = 0; begin < said.size();) {
    const size_t end = std::min(said.find('\n', begin), said.size());
    const std::string_view line = said.substr(begin, end - begin);
    const int place = silent_rank(line, static_cast<int>(hosts));
    if (place >= 0) return BadHost{static_cast<size_t>(place), escaped(line.substr(line.find("rank ")), 200)};
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace heddle::job
