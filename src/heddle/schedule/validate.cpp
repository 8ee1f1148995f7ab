#include "heddle/schedule/validate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/schedule/text.h"

namespace heddle::schedule {

std::vector<StageBytes> even_bytes(const Placement& placement, const StageBytes& rank) {
  const double part = static_cast<double>(placement.ranks) / placement.stages;
  return std::vector<StageBytes>(static_cast<size_t>(placement.stages),
                                 {rank.until_input_grad * part, rank.until_weight_grad * part});
}

std::vector<Peak> peaks_of(const Schedule& schedule, const std::vector<StageBytes>& of_stage) {
  const Placement& placement = schedule.placement;
  if (std::ssize(of_stage) != placement.stages)
    config_error("schedule: bytes of {} stages, accepted of {}", of_stage.size(), placement.stages);
  std::vector<Peak> peaks;
  for (const std::vector<Action>& list : schedule.order) {
    Peak peak, held;
    for (const Action& action : list) {
      const Parts parts = parts_of(action);
      const auto bytes = [&](const Compute& c) { return of_stage[c.stage % placement.stages]; };
      for (const Compute& c : parts) {
        if (c.kind == Kind::F) held.bytes += bytes(c).until_input_grad + bytes(c).until_weight_grad;
      }
      if (held.bytes > peak.bytes) peak = held;
      for (const Compute& c : parts) {
        if (c.kind == Kind::I || c.kind == Kind::B) held.bytes -= bytes(c).until_input_grad;
        if (c.kind == Kind::W || c.kind == Kind::B) held.bytes -= bytes(c).until_weight_grad;
        if (c.kind == Kind::I) held.for_weight_grad += bytes(c).until_weight_grad;
        if (c.kind == Kind::W) held.for_weight_grad -= bytes(c).until_weight_grad;
      }
    }
    peaks.push_back(peak);
  }
  return peaks;
}

namespace {

void check_complete(const Schedule& schedule, const Links& links) {
  const Numbering number(schedule);
  for (int s = 0; s < std::ssize(schedule.placement.rank_of); ++s) {
    const auto [first, last] = schedule.placement.microbatches_of(s, schedule.microbatches);
    for (int m = first; m < last; ++m) {
      for (const Kind kind : {Kind::F, Kind::I, Kind::W}) {
        if (links.producer[number(kind, s, m)] < 0)
          config_error("schedule {}: {} of stage {}, microbatch {} is missing", schedule.name, letter_of(kind), s,
                       m);
      }
    }
  }
}

std::string first_out_of_order(const Schedule& schedule, const Links& links) {
  const Numbering number(schedule);
  for (int s = 0; s < std::ssize(schedule.placement.rank_of); ++s) {
    const auto [first, last] = schedule.placement.microbatches_of(s, schedule.microbatches);
    for (int m = first; m + 1 < last; ++m) {
      if (links.producer[number(Kind::W, s, m)] > links.producer[number(Kind::W, s, m + 1)])
        return fmt::format("the weight gradient of microbatch {} before that of {} on stage {}", m + 1, m, s);
    }
  }
  return "";
}

// All messages between ranks, channel by channel in the order sent.
class Messages {
 public:
  Messages(const Schedule& schedule, const Links& links) : schedule_(schedule), links_(links) {
    std::map<std::tuple<int, int, Kind>, std::vector<Message>> found;
    for (int a = 0; a < links.actions(); ++a) {
      const auto at = static_cast<size_t>(a);
      int i = links.begin[at];
      for (const Compute& c : parts_of(*links.at[at])) {
        for (const Compute& need : needs(schedule.placement, c)) {
          const int producer = links.from[i++];
          const int from = links.rank_of[producer], to = links.rank_of[at];
          if (from != to) found[{from, to, need.kind}].push_back({producer, a});
        }
      }
    }
    sent_by_.resize(links.at.size());
    for (auto& [key, messages] : found) {
      std::stable_sort(messages.begin(), messages.end(),
                       [](const Message& a, const Message& b) { return a.sender < b.sender; });
      const auto& [from, to, kind] = key;
      Channel& channel = channels.emplace_back(Channel{from, to, kind, static_cast<int>(messages.size()), 0});
      // A message is taken by the first action that needs it or one behind it.
      std::vector<int>& taken = taken_by_.emplace_back(messages.size());
      int first = std::numeric_limits<int>::max();
      for (size_t i = messages.size(); i-- > 0;) taken[i] = first = std::min(first, messages[i].user);
      channel.most_early = most_early(messages, taken);
      for (size_t i = 0; i < messages.size(); ++i) {
        sent_by_[messages[i].sender].push_back({static_cast<int>(channels.size()) - 1, static_cast<int>(i)});
      }
    }
  }

  std::vector<Channel> channels;

  Progress run(int buffers) const {
    return run_lists(links_, [&](int a, const std::vector<char>& done) {
      for (const Sent& sent : sent_before(a)) {
        const int needed = makes_room(sent, buffers);
        if (needed >= 0 && !done[needed]) return needed;
      }
      return -1;
    });
  }
  bool suffices(int buffers) const { return run(buffers).order.size() == links_.at.size(); }

  int least_buffers() const {
    int most = 0;
    for (const Channel& channel : channels) most = std::max(most, channel.messages);
    if (most == 0) return 0;
    int low = 0, high = 1;  // `low` doesn't suffice, `high` shall; more room never harms
    while (high < most && !suffices(high)) {
      low = high;
      high = std::min(2 * high, most);
    }
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      (suffices(middle) ? high : low) = middle;
    }
    return high;
  }

  std::string picture(int buffers) const {
    const Progress progress = run(buffers);
    const ActionNames name(schedule_.placement);
    return stuck_picture(schedule_, links_, progress, [&](int a) -> std::string {
      for (const Sent& sent : sent_before(a)) {
        const int needed = makes_room(sent, buffers);
        if (needed < 0 || progress.done[needed]) continue;
        return fmt::format("room for {} on the way to rank {}", name(*links_.at[a - 1]), channels[sent.channel].to);
      }
      return "";
    });
  }

 private:
  struct Message {
    int sender, user;  // actions
  };
  struct Sent {
    int channel, index;
  };

  // Messages that wait at the receiver because a later one was needed first.
  static int most_early(const std::vector<Message>& messages, const std::vector<int>& taken) {
    std::vector<std::pair<int, int>> changes;  // at an action: +1 before it, −1 when it uses the message
    for (size_t i = 0; i < messages.size(); ++i) {
      if (taken[i] == messages[i].user) continue;
      changes.emplace_back(taken[i], 1);
      changes.emplace_back(messages[i].user, -1);
    }
    std::sort(changes.begin(), changes.end());
    int now = 0, most = 0;
    for (const auto& [action, change] : changes) most = std::max(most, now += change);
    return most;
  }

  const std::vector<Sent>& sent_before(int a) const {
    static const std::vector<Sent> none;
    const bool first = a == links_.first_of[links_.rank_of[a]];
    return first ? none : sent_by_[a - 1];
  }
  // The action that takes the message whose place this one needs, −1 when there is room from the start.
  int makes_room(const Sent& sent, int buffers) const {
    const int before = sent.index - buffers;
    return before < 0 ? -1 : taken_by_[sent.channel][before];
  }

  const Schedule& schedule_;
  const Links& links_;
  std::vector<std::vector<int>> taken_by_;  // channel, message: the action
  std::vector<std::vector<Sent>> sent_by_;  // action
};

}  // namespace

Certificate validate(const Schedule& schedule, const Requirements& requirements) {
  const Links links = links_of(schedule);
  check_complete(schedule, links);
  running_order(schedule, links);
  Certificate certificate;
  certificate.out_of_order = first_out_of_order(schedule, links);
  if (requirements.same_sums && !certificate.out_of_order.empty())
    config_error("schedule {}: {}, accepted in increasing order", schedule.name, certificate.out_of_order);
  Messages messages(schedule, links);
  certificate.least_buffers = messages.least_buffers();
  if (requirements.buffers > 0 && requirements.buffers < certificate.least_buffers) {
    config_error(
        "schedule {}: with room for {} messages between two ranks it can't go on, accepted {} or more:\n{}",
        schedule.name, requirements.buffers, certificate.least_buffers, messages.picture(requirements.buffers));
  }
  certificate.channels = std::move(messages.channels);
  certificate.peaks =
      peaks_of(schedule, requirements.bytes.empty() ? even_bytes(schedule.placement) : requirements.bytes);
  return certificate;
}

}  // namespace heddle::schedule
