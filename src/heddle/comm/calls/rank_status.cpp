#include "heddle/comm/calls/rank_status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/pinned_folder.h"

namespace heddle::comm {

namespace {

template <size_t N>
std::string text_in(const std::array<char, N>& bytes, size_t most = N) {
  const size_t size = std::min(most, N);
  return escaped(std::string_view(bytes.data(), ::strnlen(bytes.data(), size)));
}

OpenCall call_of(const CallPage& page, const CallPage::Call& c) {
  OpenCall call;
  const CallKind kind = c.kind.load();
  call.kind = kind == CallKind::send || kind == CallKind::receive ? kind : CallKind::exchange;
  const auto channel = static_cast<uint32_t>(c.channel.load());
  if (channel < std::min(page.channels.load(), CallPage::kChannels)) {
    call.channel = text_in(page.channel[channel].name);
    call.members = page.channel[channel].members;
  }
  call.sequence = c.sequence.load();
  if (call.kind != CallKind::exchange) call.peer = static_cast<int>(call.sequence & 0x7fffffff);
  call.listing = c.listing.load();
  call.op = c.op.load();
  call.entered_ns = c.entered_ns.load();
  call.left_ns = c.left_ns.load();
  call.bytes = c.bytes.load();
  return call;
}

std::string named(int rank, const std::vector<RankStatus>& ranks) {
  const auto at = std::find_if(ranks.begin(), ranks.end(), [&](const RankStatus& s) { return s.rank == rank; });
  return at == ranks.end() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, at->host);
}

bool waits(const RankStatus& rank) {
  return std::any_of(rank.open.begin(), rank.open.end(),
                     [](const OpenCall& c) { return c.kind != CallKind::send; });
}

}  // namespace

std::string page_path(const std::string& folder, int rank) { return fmt::format("{}/rank-{:05}", folder, rank); }

std::optional<RankStatus> read_rank_status(const std::string& path) {
  const int file = ::open(held_path(path).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  const auto page = std::make_unique<CallPage>();
  const ssize_t size = ::pread(file, static_cast<void*>(page.get()), sizeof *page, 0);
  ::close(file);
  if (size != static_cast<ssize_t>(sizeof *page) || page->magic.load() != CallPage::kMagic) return std::nullopt;
  if (page->rank < 0 || page->ranks <= page->rank) return std::nullopt;
  RankStatus s;
  s.rank = page->rank;
  s.ranks = page->ranks;
  s.process = page->process;
  s.generation = page->generation;
  s.host = text_in(page->host);
  s.first_step = page->first_step.load();
  s.step = page->step.load();
  s.moved_ns = page->moved_ns.load();
  s.patience_ms = page->patience_ms.load();
  const RankState state = page->state.load();
  s.state = state == RankState::done || state == RankState::failed ? state : RankState::running;
  s.accused = page->accused.load();
  s.input = page->input.load() == 1;
  s.reason = text_in(page->reason, page->reason_bytes.load());
  for (uint32_t c = 0; c < std::min(page->channels.load(), CallPage::kChannels); ++c) {
    const CallPage::Channel& channel = page->channel[c];
    s.channels.push_back({text_in(channel.name), channel.members, channel.entered.load(), channel.left.load()});
  }
  uint64_t newest = 0;
  for (const CallPage::Call& call : page->ring) {
    const uint64_t number = call.number.load();
    if (number == 0) continue;
    if (call.left_ns.load() == 0) {
      s.open.push_back(call_of(*page, call));
      continue;
    }
    s.recent.push_back(call_of(*page, call));
    if (number > newest) {
      newest = number;
      s.last = s.recent.back();
    }
  }
  std::sort(s.recent.begin(), s.recent.end(),
            [](const OpenCall& a, const OpenCall& b) { return a.entered_ns < b.entered_ns; });
  return s;
}

std::vector<RankStatus> read_rank_statuses(const std::string& folder, int64_t generation) {
  std::vector<RankStatus> all;
  std::error_code ignored;
  for (std::filesystem::directory_iterator at(held_path(folder), ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    if (!at->path().filename().string().starts_with("rank-")) continue;
    std::optional<RankStatus> one = read_rank_status(at->path().string());
    if (one && (generation < 0 || one->generation == generation)) all.push_back(std::move(*one));
  }
  std::sort(all.begin(), all.end(), [](const RankStatus& a, const RankStatus& b) { return a.rank < b.rank; });
  return all;
}

std::vector<Awaited> awaited(const std::vector<RankStatus>& ranks) {
  std::map<std::pair<uint64_t, uint64_t>, Awaited> collectives;  // by channel and sequence
  std::vector<Awaited> all;
  const auto standing = [&](int rank) -> const RankStatus* {
    const auto at = std::find_if(ranks.begin(), ranks.end(), [&](const RankStatus& s) { return s.rank == rank; });
    return at == ranks.end() ? nullptr : &*at;
  };
  for (const RankStatus& s : ranks) {
    for (const OpenCall& call : s.open) {
      if (call.kind == CallKind::send) continue;
      if (call.kind == CallKind::receive) {
        all.push_back({call, {s.rank}, {call.peer}, call.entered_ns});
        continue;
      }
      Awaited& one = collectives.try_emplace({call.members, call.sequence}, Awaited{call, {}, {}, call.entered_ns})
                         .first->second;
      one.waiting.push_back(s.rank);
      one.since_ns = std::min(one.since_ns, call.entered_ns);
    }
  }
  for (auto& [key, one] : collectives) {
    for (const RankStatus& s : ranks) {
      for (const RankStatus::Channel& channel : s.channels) {
        if (channel.members == key.first && channel.entered < key.second) one.missing.push_back(s.rank);
      }
    }
    if (!one.missing.empty()) all.push_back(std::move(one));
  }
  const auto waits_elsewhere = [&](const Awaited& a) {
    return std::all_of(a.missing.begin(), a.missing.end(), [&](int rank) {
      const RankStatus* s = standing(rank);
      return s != nullptr && waits(*s);
    });
  };
  std::sort(all.begin(), all.end(), [&](const Awaited& a, const Awaited& b) {
    return std::pair(waits_elsewhere(a), a.since_ns) < std::pair(waits_elsewhere(b), b.since_ns);
  });
  return all;
}

std::vector<Meeting> meetings(const std::vector<RankStatus>& ranks) {
  std::map<std::pair<uint64_t, uint64_t>, Meeting> all;
  for (const RankStatus& rank : ranks) {
    for (const OpenCall& call : rank.recent) {
      if (call.kind != CallKind::exchange) continue;
      Meeting& m = all[{call.members, call.sequence}];
      m.channel = call.channel;
      m.sequence = call.sequence;
      m.bytes = std::max(m.bytes, call.bytes);
      m.ranks.push_back(rank.rank);
      m.entered_ns.push_back(call.entered_ns);
      m.left_ns.push_back(call.left_ns);
    }
  }
  std::vector<Meeting> met;
  for (auto& [key, m] : all) {
    if (m.ranks.size() < 2) continue;
    const auto first = std::min_element(m.entered_ns.begin(), m.entered_ns.end());
    const auto last = std::max_element(m.entered_ns.begin(), m.entered_ns.end());
    m.last = m.ranks[last - m.entered_ns.begin()];
    m.spread_ns = *last - *first;
    m.shortest_ns = m.left_ns[0] - m.entered_ns[0];
    for (size_t i = 1; i < m.ranks.size(); ++i)
      m.shortest_ns = std::min(m.shortest_ns, m.left_ns[i] - m.entered_ns[i]);
    met.push_back(std::move(m));
  }
  std::sort(met.begin(), met.end(), [](const Meeting& a, const Meeting& b) {
    return *std::min_element(a.entered_ns.begin(), a.entered_ns.end()) <
           *std::min_element(b.entered_ns.begin(), b.entered_ns.end());
  });
  return met;
}

std::string place_text(const RankStatus& rank, int64_t now_ns) {
  const auto named_call = [](const OpenCall& call) {
    switch (call.kind) {
      case CallKind::exchange: return fmt::format("exchange {} of {}", call.sequence, call.channel);
      case CallKind::send: return fmt::format("a send to rank {} on {}", call.peer, call.channel);
      case CallKind::receive: return fmt::format("a receive from rank {} on {}", call.peer, call.channel);
    }
    return std::string();
  };
  std::string text = "outside of any call";
  if (!rank.open.empty()) {
    const OpenCall& call = rank.open.front();
    text =
        fmt::format("in {} since {:.1f} s", named_call(call), static_cast<double>(now_ns - call.entered_ns) * 1e-9);
  } else if (rank.last) {
    text = fmt::format("behind {}", named_call(*rank.last));
  }
  return fmt::format("{}, in step {}", text, rank.step);
}

std::string text_of(const Awaited& a, const std::vector<RankStatus>& ranks, int64_t now_ns) {
  std::vector<std::string> missing;
  for (const int rank : a.missing) missing.push_back(named(rank, ranks));
  const double waited_s = static_cast<double>(now_ns - a.since_ns) * 1e-9;
  const std::string who = fmt::format("{}", fmt::join(missing, ", "));
  if (a.call.kind == CallKind::receive)
    return fmt::format("{} has not sent what rank {} waits for on {} since {:.1f} s", who, a.waiting[0],
                       a.call.channel, waited_s);
  return fmt::format("{} never entered exchange {} of {}, where rank{} {} wait{} since {:.1f} s", who,
                     a.call.sequence, a.call.channel, a.waiting.size() > 1 ? "s" : "", fmt::join(a.waiting, ", "),
                     a.waiting.size() > 1 ? "" : "s", waited_s);
}

}  // namespace heddle::comm
