#include "heddle/job/agents.h"

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
#include "heddle/base/files/random_id.h"
#include "heddle/session/agent/persist.h"
#include "heddle/session/agent/run_memory.h"

namespace heddle::job {

namespace {

constexpr double kReady_s = 10;   // in which one says that it is there
constexpr double kEnd_s = 60;     // in which one writes what it holds
constexpr double kSteady_s = 30;  // one that lived so long dies for the first time
constexpr double kLongestPause_s = 60;

}  // namespace

Agents::Agents(AgentsOptions options, const Launcher& launcher, Journal& journal, Tell tell)
    : options_(std::move(options)),
      launcher_(launcher),
      journal_(journal),
      tell_(std::move(tell)),
      token_(random_id()) {}

// "ready port 41000 at 10.0.0.3:41000 folder /dev/shm/heddle-0123..."
void Agents::hear(One& one, const std::string& line) {
  std::istringstream words(line);
  std::string ready, port, number, at, address, folder, path;
  words >> ready >> port >> number >> at >> address >> folder >> path;
  if (ready != "ready" || port != "port" || folder != "folder") {
    journal_.add("agent", {{"host", one.host}, {"said", escaped(line)}});
    return tell_(fmt::format("agent of {}: {}", one.host, escaped(line)));
  }
  one.address = address == "-" ? "" : address;
  one.entry = options_.run + session::kAgents + "/" + path.substr(path.find_last_of('-') + 1);
  journal_.add("agent", {{"host", one.host}, {"ready", one.address}});
  pair_up();
}

void Agents::begin(One& one) {
  std::vector<std::string> words{options_.program, "agent", options_.run, "--supervised"};
  if (!options_.listen.empty()) {
    words.push_back("--listen");
    words.push_back(options_.listen);
  }
  one.began_s = now_s();
  one.address = one.entry = one.partner = "";
  try {
    one.child = std::make_unique<Child>(
        launcher_.on_host(one.host, options_.shell, words), Environment{},
        [this, &one](const std::string& line) { hear(one, line); },
        [this, &one](const std::string& line) { tell_(fmt::format("agent of {}: {}", one.host, escaped(line))); },
        Child::Input::told);
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
    look();
    if (unready().empty()) break;
    ::usleep(2000);
  }
  pair_up();
  if (const std::vector<std::string> names = unready(); !names.empty())
    tell_(fmt::format("no agent on {}: nobody keeps copies in memory across this generation's end",
                      fmt::join(names, ", ")));
}

void Agents::look() {
  for (const auto& one : all_) {
    if (!one->child) {
      if (one->trains && now_s() >= one->again_s) begin(*one);
      continue;
    }
    const std::optional<int> status = one->child->poll(0);
    if (!status) continue;
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
}

// Whoever looks for memory waits for nobody who can't answer; the folder stays known to the next agent there.
void Agents::forget_address(const One& one) const {
  if (!one.is_ready()) return;
  try {
    const std::string text = read_file(one.entry, 4096);
    write_file(one.entry, text.substr(0, text.find('\n')) + "\n\n");
  } catch (const Error&) {  // it has gone with its agent
  }
}

void Agents::lose(const std::string& host) {
  for (const auto& one : all_) {
    if (one->host != host) continue;
    forget_address(*one);
    lost_.insert(host);
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

void Agents::end(bool well) {
  // Somebody has to take away what the last one of a host has left, where that host answers after all.
  for (const std::string& host : well ? std::exchange(lost_, {}) : std::set<std::string>()) {
    const bool is_back = std::any_of(all_.begin(), all_.end(), [&](const auto& one) { return one->host == host; });
    if (!is_back) all_.emplace_back(std::make_unique<One>())->host = host;
  }
  for (const auto& one : all_) {
    if (well && !one->child) begin(*one);
    if (!one->child) continue;
    if (well) one->child->tell("forget");
    one->child->end_input();
  }
  const double began_s = now_s();
  const auto is_over = [&](const auto& one) {
    return !one->child || one->child->poll(0) || now_s() - began_s > (well && !one->trains ? kReady_s : kEnd_s);
  };
  while (!all_.empty()) {
    std::erase_if(all_, is_over);
    ::usleep(2000);
  }
  if (!well) return;
  // What hosts that were lost have left on disk: nobody comes for it any more.
  std::error_code ignored;
  std::filesystem::remove_all(options_.run + session::kAgents, ignored);
  session::remove_pending({options_.run}, std::numeric_limits<int64_t>::max());
}

}  // namespace heddle::job
