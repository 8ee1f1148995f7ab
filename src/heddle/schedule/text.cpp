#include "heddle/schedule/text.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "heddle/base/error.h"
#include "heddle/schedule/links.h"

namespace heddle::schedule {

ActionNames::ActionNames(const Placement& placement)
    : chunk_of_(placement.rank_of.size()), chunks_(placement.rank_of.size()) {
  std::vector<int> seen(static_cast<size_t>(placement.ranks), 0);
  for (size_t s = 0; s < chunk_of_.size(); ++s) chunk_of_[s] = seen[placement.rank_of[s]]++;
  for (size_t s = 0; s < chunk_of_.size(); ++s) chunks_[s] = seen[placement.rank_of[s]];
}

std::string ActionNames::operator()(const Compute& c) const {
  const auto at = static_cast<size_t>(c.stage);
  if (chunks_[at] == 1) return fmt::format("{}{}", letter_of(c.kind), c.microbatch);
  return fmt::format("{}{}.{}", letter_of(c.kind), chunk_of_[at], c.microbatch);
}

std::string ActionNames::operator()(const Action& action) const {
  if (!action.with) return (*this)(action.first);
  return fmt::format("[{}|{}]", (*this)(action.first), (*this)(*action.with));
}

namespace {

std::string rank_line(const Schedule& schedule, const ActionNames& name, int rank) {
  std::string text = fmt::format("r{}", rank);
  for (const Action& action : schedule.order[rank]) text += ' ' + name(action);
  return text;
}

std::string placement_text(const Placement& placement) {
  if (placement.routes == 1 && placement.stages % placement.ranks == 0 &&
      placement == loop_placement(placement.ranks, placement.stages / placement.ranks))
    return "placement=loop";
  if (placement.stages == 2 * placement.ranks && placement == v_placement(placement.ranks)) return "placement=v";
  if (placement.stages == placement.ranks && placement == two_way_placement(placement.ranks))
    return "placement=two_way";
  return fmt::format("{}placement={}", placement.routes == 1 ? "" : fmt::format("routes={} ", placement.routes),
                     fmt::join(placement.rank_of, ","));
}

// The text found, fit for a message.
std::string quoted(std::string_view found) {
  constexpr size_t kMost = 40;
  std::string text(found.substr(0, kMost));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return fmt::format("'{}{}'", text, found.size() > kMost ? "..." : "");
}

class ScheduleReader {
 public:
  explicit ScheduleReader(std::string_view text) : rest_(text) {}

  Schedule read() {
    if (!next_line()) fail("nothing", "a line such as 'NAME ranks=4 stages=4 microbatches=8 placement=loop'");
    header();
    check_size(schedule_.placement, schedule_.microbatches);
    const Placement& placement = schedule_.placement;
    stages_.resize(static_cast<size_t>(placement.ranks));
    for (size_t s = 0; s < placement.rank_of.size(); ++s)
      stages_[placement.rank_of[s]].push_back(static_cast<int>(s));
    most_actions_ = Numbering(schedule_).size();
    for (int r = 0; r < placement.ranks; ++r) {
      if (!next_line()) fail("the end", fmt::format("the line of rank {}", r));
      rank(r);
    }
    if (next_line()) fail(quoted(line_), fmt::format("nothing after rank {}", placement.ranks - 1));
    return std::move(schedule_);
  }

 private:
  [[noreturn]] void fail(const std::string& found, const std::string& accepted) const {
    config_error("schedule text, line {}: found {}, accepted {}", line_number_, found, accepted);
  }

  bool next_line() {
    while (!rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      line_ = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++line_number_;
      const size_t first = line_.find_first_not_of(" \t\r");
      if (first == std::string_view::npos || line_[first] == '#') continue;
      return true;
    }
    return false;
  }

  std::string_view next_word() {
    const size_t first = std::min(line_.find_first_not_of(" \t\r"), line_.size());
    line_.remove_prefix(first);
    const size_t end = std::min(line_.find_first_of(" \t\r"), line_.size());
    const std::string_view word = line_.substr(0, end);
    line_.remove_prefix(end);
    return word;
  }

  // The number at the beginning of `text`, taken off it; false where there is none or a huge one.
  static bool take_number(std::string_view& text, int& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || text.empty() || text[0] == '-') return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
  }

  int whole_number(std::string_view key, std::string_view value) {
    int number = 0;
    std::string_view rest = value;
    if (!take_number(rest, number) || !rest.empty())
      fail(fmt::format("{}={}", key, quoted(value)), fmt::format("{}= and a whole number", key));
    return number;
  }

  void header() {
    const std::string_view name = next_word();
    constexpr size_t kLongestName = 100;
    if (name.size() > kLongestName || name.find('=') != std::string_view::npos ||
        std::any_of(name.begin(), name.end(), [](char c) { return c <= ' ' || c > '~'; })) {
      fail(quoted(name), fmt::format("a name of up to {} printable letters", kLongestName));
    }
    schedule_.name = name;
    const std::vector<std::string> keys = {"ranks", "stages", "microbatches", "routes", "placement"};
    std::map<std::string, std::string_view> values;
    for (std::string_view word = next_word(); !word.empty(); word = next_word()) {
      const size_t equals = std::min(word.find('='), word.size());
      const std::string key(word.substr(0, std::min<size_t>(equals, 40)));
      if (std::find(keys.begin(), keys.end(), key) == keys.end() || equals == word.size())
        fail(quoted(word), fmt::format("{}", fmt::join(keys, "=, ")) + "=");
      if (!values.emplace(key, word.substr(equals + 1)).second) fail(quoted(word), fmt::format("{}= once", key));
    }
    const auto number = [&](const std::string& key, int otherwise) {
      const auto at = values.find(key);
      if (at != values.end()) return whole_number(key, at->second);
      if (otherwise == 0) fail(fmt::format("no {}=", key), fmt::format("{}= and a whole number", key));
      return otherwise;
    };
    schedule_.microbatches = number("microbatches", 0);
    const int ranks = number("ranks", 0), stages = number("stages", 0), routes = number("routes", 1);
    if (ranks < 1 || ranks > kMostRanks) fail(fmt::format("ranks={}", ranks), fmt::format("1 to {}", kMostRanks));
    if (stages < 1 || stages > kMostStages)
      fail(fmt::format("stages={}", stages), fmt::format("1 to {}", kMostStages));
    if (routes < 1 || routes > 2) fail(fmt::format("routes={}", routes), "1 or 2");
    place(ranks, stages, routes, values.contains("placement") ? values["placement"] : "loop");
  }

  void place(int ranks, int stages, int routes, std::string_view found) {
    Placement& placement = schedule_.placement;
    if (found == "loop") {
      if (stages % ranks != 0) fail(fmt::format("placement=loop, {} stages", stages), "a multiple of the ranks");
      placement = loop_placement(ranks, stages / ranks);
    } else if (found == "v") {
      if (stages != 2 * ranks) fail(fmt::format("placement=v, {} stages", stages), "two stages a rank");
      placement = v_placement(ranks);
    } else if (found == "two_way") {
      if (stages != ranks) fail(fmt::format("placement=two_way, {} stages", stages), "one stage a rank");
      placement = two_way_placement(ranks);
    } else {
      placement = {ranks, stages, routes, {}};
      const auto wanted = static_cast<size_t>(stages) * static_cast<size_t>(routes);
      std::string_view rest = found;
      int rank = 0;
      while (placement.rank_of.size() < wanted && take_number(rest, rank) && rank < ranks) {
        placement.rank_of.push_back(rank);
        if (placement.rank_of.size() < wanted) {
          if (!rest.starts_with(",")) break;
          rest.remove_prefix(1);
        }
      }
      if (placement.rank_of.size() != wanted || !rest.empty()) {
        fail(fmt::format("placement={}", quoted(found)),
             fmt::format("loop, v, two_way, or {} ranks below {} with commas between them", wanted, ranks));
      }
    }
  }

  void rank(int r) {
    const std::string_view first = next_word();
    if (first != fmt::format("r{}", r)) fail(quoted(first), fmt::format("r{}", r));
    std::vector<Action>& list = schedule_.order.emplace_back();
    for (std::string_view word = next_word(); !word.empty(); word = next_word()) {
      if (++actions_ > most_actions_)
        fail(fmt::format("{} actions", actions_), fmt::format("up to {}", most_actions_));
      std::string_view rest = word;
      Action action;
      bool ok = false;
      if (rest.starts_with('[')) {
        rest.remove_prefix(1);
        action.with.emplace();
        ok = take_compute(r, rest, action.first) && rest.starts_with('|');
        if (ok) rest.remove_prefix(1);
        ok = ok && take_compute(r, rest, *action.with) && rest == "]";
      } else {
        ok = take_compute(r, rest, action.first) && rest.empty();
      }
      if (!ok) fail(fmt::format("{} on rank {}", quoted(word), r), accepted_actions(r));
      list.push_back(action);
    }
  }

  bool take_compute(int r, std::string_view& text, Compute& compute) {
    constexpr std::string_view kLetters = "FIWB";
    if (text.empty() || kLetters.find(text[0]) == std::string_view::npos) return false;
    compute.kind = static_cast<Kind>(kLetters.find(text[0]));
    text.remove_prefix(1);
    int chunk = 0, last = 0;
    if (!take_number(text, last)) return false;
    if (text.starts_with('.')) {
      text.remove_prefix(1);
      chunk = last;
      if (!take_number(text, last)) return false;
    } else if (stages_[r].size() > 1) {
      return false;
    }
    const std::vector<int>& own = stages_[r];
    if (chunk >= std::ssize(own) || last >= schedule_.microbatches) return false;
    compute.stage = own[chunk];
    compute.microbatch = last;
    return true;
  }

  std::string accepted_actions(int r) const {
    const size_t chunks = stages_[r].size();
    if (chunks == 0) return "no actions: the rank has no stage";
    const std::string many = fmt::format("microbatches below {}", schedule_.microbatches);
    if (chunks == 1) return fmt::format("F0, I0, W0, B0 or [F1|B0], {}", many);
    return fmt::format("F0.0, I0.0, W0.0, B0.0 or [F0.1|B1.0], chunks below {}, {}", chunks, many);
  }

  std::string_view rest_, line_;
  int64_t line_number_ = 0;
  Schedule schedule_;
  std::vector<std::vector<int>> stages_;  // of each rank
  size_t actions_ = 0, most_actions_ = 0;
};

}  // namespace

std::string rank_text(const Schedule& schedule, int rank) {
  return rank_line(schedule, ActionNames(schedule.placement), rank);
}

std::string text_of(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  std::string text = fmt::format("{} ranks={} stages={} microbatches={} {}\n", schedule.name, placement.ranks,
                                 placement.stages, schedule.microbatches, placement_text(placement));
  const ActionNames name(placement);
  for (int r = 0; r < placement.ranks; ++r) text += rank_line(schedule, name, r) + '\n';
  return text;
}

Schedule read_schedule(std::string_view text) { return ScheduleReader(text).read(); }

}  // namespace heddle::schedule
