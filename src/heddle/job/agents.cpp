#include "heddle/job/agents.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <sstream>
#include <utility>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"
#include "heddle/base/files/random_id.h"
#include "heddle/session/agent/persist.h"
#include "heddle/session/agent/run_memory.h"

namespace heddle::job {

namespace {

constexpr double kReady_s = 10;      // in which one says that it is there
constexpr double kAgentsEnd_s = 60;  // in which one writes what it holds
constexpr double kForget_s = 10;     // in which one frees what it holds
constexpr double kAsk_s = 2;         // between two questions
constexpr double kSilent_s = 15;     // without an answer it stands still
constexpr double kCheck_s = 0.5;     // longer than between two looks
constexpr double kStandIn_s = 30;    // in which another one is ready in its place
constexpr double kSteady_s = 30;     // one that lived so long dies for the first time
constexpr double kLongestPause_s = 60;

// True if the folder is still found by its name.
bool leads_to_held(const std::string& folder) {
  struct stat by_name {
  }, held{};
  return ::stat(folder.c_str(), &by_name) == 0 && ::stat(held_path(folder).c_str(), &held) == 0 &&
         by_name.st_ino == held.st_ino && by_name.st_dev == held.st_dev;
}

}  // namespace

Agents::Agents(AgentsOptions options, const Launcher& launcher, Journal& journal, Tell tell)
    : options_(std::move(options)),
      launcher_(launcher),
      journal_(journal),
      tell_(std::move(tell)),
      token_(random_id()) {}

Agents::~Agents() {
  try {
    if (!all_.empty()) end(false);
  } catch (const std::exception&) {  // earlier errors are reported already
  }
}

// "ready port 41000 at 10.0.0.3:41000 folder /dev/shm/heddle-0123..."
void Agents::hear(One& one, const std::string& line) {
  if (line.starts_with("answers ")) {
    one.answered = true;
    return;
  }
  std::istringstream words(line);
  std::string ready, port, number, at, address, folder, path;
  words >> ready >> port >> number >> at >> address >> folder >> path;
  if (ready != "ready" || port != "port" || folder != "folder") {
    journal_.add("agent", {{"host", one.host}, {"said", escaped(line)}});
    return tell_(fmt::format("agent of {}: {}", one.host, escaped(line)));
  }
  one.address = address == "-" ? "" : address;
  one.entry = options_.run + session::kAgents + "/" + path.substr(path.find_last_of('-') + 1);
  one.replaces = "";
  one.answered = true;
  one.asked_s = now_s();
  journal_.add("agent", {{"host", one.host}, {"ready", one.address}});
  pair_up();
}

void Agents::begin(One& one) {
  if (!leads_to_held(options_.run)) {  // an agent would find what has been put in its place
    one.again_s = now_s() + kLongestPause_s;
    return;
  }
  std::vector<std::string> words{options_.program, "agent", options_.run, "--supervised"};
  if (!options_.listen.empty()) {
    words.push_back("--listen");
    words.push_back(options_.listen);
  }
  one.began_s = now_s();
  one.address = one.entry = one.partner = "";
  one.answered = true;
  try {
    one.child = std::make_unique<Child>(
        launcher_.on_host(one.host, options_.shell, words), Environment{},
        [this, &one](const std::string& line) { hear(one, line); },
        [this, &one](const std::string& line) { tell_(fmt::format("agent of {}: {}", one.host, escaped(line))); },
        launcher_.end_signal, Child::Input::lines);
    if (!one.replaces.empty()) one.child->tell("replaces " + one.replaces);
    one.child->tell("token " + token_);
  } catch (const SystemError& error) {
    tell_(fmt::format("no agent on {}: {}", one.host, error.what()));
    one.again_s = now_s() + kLongestPause_s;
  }
}

// Each gives to the next of the hosts that train, the last to the first.
void Agents::pair_up() {
  std::vector<One*> row;
  for (const auto& one : all_) {
    if (one->trains && one->child && !one->address.empty()) row.push_back(one.get());
  }
  for (size_t i = 0; i < row.size(); ++i) {
    const std::string partner = row.size() > 1 ? row[(i + 1) % row.size()]->address : "";
    if (std::exchange(row[i]->partner, partner) != partner) row[i]->child->tell("partner " + partner);
  }
}

void Agents::start(const std::vector<Host>& hosts) {
  for (const auto& one : all_) one->trains = false;
  for (const Host& host : hosts) {
    auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one->host == host.name; });
    if (at == all_.end()) {
      at = all_.insert(all_.end(), std::make_unique<One>());
      (*at)->host = host.name;
      // The last one there may stand still yet, where this host did.
      if (const auto left = lost_.extract(host.name)) (*at)->replaces = left.mapped();
    }
    (*at)->trains = true;
    (*at)->again_s = 0;
  }
  const auto unready = [&] {
    std::vector<std::string> names;
    for (const auto& one : all_) {
      if (one->trains && !one->is_ready()) names.push_back(one->host);
    }
    return names;
  };
  for (const double until_s = now_s() + kReady_s; now_s() < until_s;) {
    (void)look();  // missing ones are reported below
    if (unready().empty()) break;
    ::usleep(2000);
  }
  pair_up();
  if (const std::vector<std::string> names = unready(); !names.empty())
    tell_(fmt::format("no agent on {}: snapshots in memory are lost when this generation ends",
                      fmt::join(names, ", ")));
}

void Agents::ask(One& one) const {
  if (!one.is_ready() || !one.answered || now_s() - one.asked_s < kAsk_s) return;
  one.answered = false;
  one.silent_s = 0;
  one.asked_s = now_s();
  one.child->tell(fmt::format("answer {:.0f}", now_s()));
}

// Ends the one that stands still, as far as it is to be reached from here: another one on its host does the rest.
void Agents::replace(One& one) {
  tell_(fmt::format("the agent of {} hangs: it has not answered for {:.0f} s; another one replaces it", one.host,
                    kSilent_s));
  journal_.add("agent", {{"host", one.host}, {"silent_s", one.silent_s}});
  forget_address(one);
  one.replaces = one.id();
  one.child.reset();
  one.address = one.entry = "";
  one.again_s = now_s();
}

std::vector<std::string> Agents::look() {
  std::vector<std::string> silent;
  // A supervisor that stood still itself, or was busy, hasn't waited for anybody meanwhile.
  const double waited_s = std::min(kCheck_s, now_s() - std::exchange(checked_s_, now_s()));
  for (const auto& one : all_) {
    if (!one->child) {
      if (one->trains && now_s() >= one->again_s) begin(*one);
      continue;
    }
    const std::optional<int> status = one->child->poll(0);
    if (!status) {
      ask(*one);
      if (!one->answered) one->silent_s += waited_s;
      if (!one->answered && one->silent_s > kSilent_s) replace(*one);
      if (one->child && !one->replaces.empty() && now_s() - one->began_s > kStandIn_s) {
        one->child.reset();
        one->again_s = now_s() + kLongestPause_s;
        if (one->trains) silent.push_back(one->host);
      }
      continue;
    }
    forget_address(*one);
    if (now_s() - one->began_s > kSteady_s) one->died = 0;
    double pause_s = 0;
    if (one->died++ > 0) pause_s = std::min(kLongestPause_s, static_cast<double>(1 << std::min(one->died - 2, 10)));
    tell_(fmt::format("the agent of {} ended with status {}", one->host, *status));
    journal_.add("agent", {{"host", one->host}, {"ended", *status}});
    one->child.reset();
    one->address = one->entry = "";
    one->again_s = now_s() + pause_s;
  }
  return silent;
}

// Removes an agent's address, so that no reader of memory waits for one that can't answer. The folder stays known
// to the next agent there.
void Agents::forget_address(const One& one) const {
  if (!one.is_ready()) return;
  try {
    const std::string text = read_file(one.entry, 4096);
    session::write_agent_entry(one.entry, text.substr(0, text.find('\n')), "");
  } catch (const Error&) {  // it has gone with its agent
  }
}

void Agents::lose(const std::string& host) {
  for (const auto& one : all_) {
    if (one->host != host) continue;
    forget_address(*one);
    lost_[host] = one->is_ready() ? one->id() : one->replaces;
  }
  std::erase_if(all_, [&](const auto& one) { return one->host == host; });
}

std::vector<pid_t> Agents::processes() const {
  std::vector<pid_t> all;
  for (const auto& one : all_) {
    if (one->child) all.push_back(one->child->process());
  }
  return all;
}

void Agents::await_ends(double seconds) {
  const auto running = [](const auto& one) { return one->child && !one->child->poll(0); };
  for (const double until_s = now_s() + seconds;
       now_s() < until_s && std::any_of(all_.begin(), all_.end(), running);)
    ::usleep(2000);
}

void Agents::end(bool well) {
  // Somebody has to take away what the last one of a host has left, where that host answers after all.
  for (const auto& [host, id] : well ? std::exchange(lost_, {}) : std::map<std::string, std::string>()) {
    const bool is_back = std::any_of(all_.begin(), all_.end(), [&](const auto& one) { return one->host == host; });
    if (is_back) continue;
    One& one = *all_.emplace_back(std::make_unique<One>());
    one.host = host;
    one.replaces = id;
  }
  const auto tell_to_end = [&](One& one) {
    if (!one.child) return;
    if (well) one.child->tell("forget");
    one.child->end_input();
  };
  for (const auto& one : all_) {
    if (well && !one->child) begin(*one);
    tell_to_end(*one);
  }
  await_ends(well ? kForget_s : kAgentsEnd_s);
  // An agent that is still there stands still, or its host does: another one ends in its place.
  bool any = false;
  for (const auto& one : all_) {
    if (!one->child || one->child->poll(0) || !one->is_ready()) continue;
    any = true;
    one->replaces = one->id();
    one->child.reset();
    begin(*one);
    tell_to_end(*one);
  }
  if (any) await_ends(well ? kForget_s : kAgentsEnd_s);
  all_.clear();
  if (!well) return;
  // Remove what lost hosts have left on disk: nobody comes for it any more.
  std::error_code ignored;
  std::filesystem::remove_all(held_path(options_.run + session::kAgents), ignored);
  session::remove_pending({options_.run}, std::numeric_limits<int64_t>::max());
}

}  // namespace heddle::job
