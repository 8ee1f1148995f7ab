#include "heddle/session/agent/agent.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/random_id.h"
#include "heddle/session/agent/partner.h"
#include "heddle/session/agent/persist.h"
#include "heddle/session/agent/run_memory.h"

namespace heddle::session {

namespace {

namespace fs = std::filesystem;
using Segments = std::vector<std::shared_ptr<const train::Segment>>;

constexpr auto kLook = std::chrono::milliseconds(50);
constexpr double kAgain_s = 2;        // after something has failed
constexpr double kPartnerGone_s = 3;  // without a word of a partner whose ranks are not heard of either

// The agents that have left something on this host, and whether they live, know each other by their folders' locks.
class Place {
 public:
  explicit Place(const RunFolder& run) : registry_(run.path + "/.agents") {
    std::error_code ignored;
    fs::create_directories(registry_, ignored);
    // What an agent before has left is taken over.
    for (fs::directory_iterator at(registry_, ignored), end; !ignored && at != end; at.increment(ignored)) {
      const std::string name = at->path().filename().string();
      if (name.size() != 32) continue;
      const std::string left = "/dev/shm/heddle-" + name;
      if (auto lock = train::FileHold::take(left + "/.agent", train::FileHold::How::alone)) {
        lock_.emplace(std::move(*lock));
        folder = left;
        entry_ = at->path().string();
        break;
      }
    }
    if (folder.empty()) {
      folder = new_memory_folder();
      auto lock = train::FileHold::take(folder + "/.agent", train::FileHold::How::alone, true);
      if (!lock) throw SystemError(EIO, fmt::format("cannot lock {}", folder));
      lock_.emplace(std::move(*lock));
      entry_ = registry_ + "/" + folder.substr(folder.size() - 32);
      write_file(entry_, folder + "\n");
    }
    partner = folder + "/" + kPartnerFolder;
    if (::mkdir(partner.c_str(), 0700) != 0 && errno != EEXIST)
      throw SystemError(errno, fmt::format("cannot create {}: {}", partner, std::strerror(errno)));
  }

  /// Nothing is left that anybody needs.
  void remove() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    fs::remove(entry_, ignored);
    fs::remove(registry_, ignored);  // if it was the last
  }

  std::string folder, partner;

 private:
  std::string registry_, entry_;
  std::optional<train::FileHold> lock_;
};

class Agent {
 public:
  Agent(const AgentOptions& options, std::function<void(const std::string&)> say)
      : options_(options), run_{options.run}, say_(std::move(say)), place_(run_) {
    if (!options_.listen.empty()) listener_.emplace(options_.listen, options_.token);
    say_(fmt::format("ready port {} folder {}", listener_ ? listener_->port() : 0, place_.folder));
  }

  void run(const std::atomic<bool>& stop) {
    std::thread receiver;
    if (listener_) receiver = std::thread([&] { receive(stop); });
    while (!stop) {
      look();
      std::this_thread::sleep_for(kLook);
    }
    look(true);
    if (receiver.joinable()) receiver.join();
    remove_pending(run_, train::newest_step(run_.checkpoints()));
    if (nothing_left()) place_.remove();
  }

 private:
  // The segments of the newest job in a folder, by rank.
  Segments newest_job(const std::string& folder) {
    std::map<std::pair<int64_t, std::string>, Segments> jobs;
    std::set<std::string> there;
    for (const train::SegmentFiles& files : train::segments_in(folder)) {
      const std::string key = files.index();
      there.insert(key);
      auto& opened = opened_[key];
      try {
        if (!opened) opened = std::make_shared<const train::Segment>(files);
        jobs[{opened->index().generation, opened->index().run}].push_back(opened);
      } catch (const InternalError&) {
        throw;
      } catch (const Error&) {
        opened.reset();  // not finished, or not whole
      }
    }
    std::erase_if(opened_, [&](const auto& entry) {
      return entry.first.starts_with(folder + "/rank-") && !there.contains(entry.first);
    });
    return jobs.empty() ? Segments() : jobs.rbegin()->second;
  }

  // The newest step that all of them hold, and whether a rank wants it on disk; −1: there is none.
  static std::pair<int64_t, bool> common_step(const Segments& segments) {
    std::map<int64_t, std::pair<size_t, bool>> steps;
    for (const auto& segment : segments) {
      for (int set = 0; set < train::kSets; ++set) {
        if (const auto seal = segment->seal(set)) {
          ++steps[seal->step].first;
          steps[seal->step].second = steps[seal->step].second || seal->persists;
        }
      }
    }
    for (auto at = steps.rbegin(); at != steps.rend(); ++at) {
      if (at->second.first == segments.size()) return {at->first, at->second.second};
    }
    return {-1, false};
  }

  void look(bool stopping = false) {
    const Segments own = newest_job(place_.folder);
    if (own.empty()) return;
    if (own.front()->index().run != job_) {
      job_ = own.front()->index().run;
      persisted_ = replicated_ = -1;
    }
    const auto [step, wanted] = common_step(own);
    if (step < 0) return;
    const auto living =
        std::count_if(own.begin(), own.end(), [](const auto& segment) { return segment->is_written(); });
    const bool dead = living < std::ssize(own);
    if (!options_.partner.empty() && step > replicated_ && !dead && !stopping) give(own, step);
    if (now_s() < again_s_ && !stopping) return;
    const bool due = step > persisted_ && (wanted || dead || stopping);
    if (due) write(own, step, dead ? "a rank has ended" : stopping ? "told to stop" : "asked for");
    if ((dead || stopping) && due) write_partner(step);
  }

  void write(const Segments& segments, int64_t step, const char* why) {
    try {
      const Persisted done = persist(run_, segments, step);
      persisted_ = std::max(persisted_, step);
      const double rate = done.seconds > 0 ? static_cast<double>(done.bytes) / done.seconds * 1e-6 : 0;
      say_(fmt::format("step {} {} ({}): {:.1f} MB in {:.2f} s, {:.0f} MB/s", step,
                       done.path.empty() ? "written, other hosts' shards are awaited" : "persisted to " + done.path,
                       why, static_cast<double>(done.bytes) * 1e-6, done.seconds, rate));
    } catch (const InternalError&) {
      throw;
    } catch (const ConfigError& error) {
      // The next step may be whole, this one never is again; a disk may be.
      say_(fmt::format("step {} not persisted: {}", step, error.what()));
      again_s_ = now_s() + kAgain_s;
    } catch (const std::exception& error) {
      say_(fmt::format("step {} not persisted: {}", step, error.what()));
      again_s_ = now_s() + kAgain_s;
    }
  }

  // What a host has given that is no longer heard of.
  void write_partner(int64_t step) {
    if (!listener_ || now_s() - heard_s_ < kPartnerGone_s) return;
    Segments held = newest_job(place_.partner);
    std::erase_if(held,
                  [&](const auto& segment) { return segment->set_of(step) < 0 || segment->index().run != job_; });
    if (!held.empty()) write(held, step, "its host is not heard of");
  }

  void give(const Segments& segments, int64_t step) {
    if (now_s() < call_again_s_) return;
    try {
      if (!link_) link_.emplace(Link::to(options_.partner, options_.token));
      for (const auto& segment : segments) replicate(*link_, *segment, step);
      replicated_ = step;
    } catch (const ConfigError& error) {
      // It was written again meanwhile: the next one goes.
    } catch (const SystemError& error) {
      link_.reset();
      call_again_s_ = now_s() + kAgain_s;
      say_(fmt::format("step {} not given to {}: {}", step, options_.partner, error.what()));
    }
  }

  // One partner at a time: a second one takes the place of a first that has gone.
  void receive(const std::atomic<bool>& stop) {
    while (!stop) {
      std::optional<Link> from = listener_->accept(0.2);
      if (!from) continue;
      Replicas replicas(place_.partner);
      try {
        while (!stop) {
          if (const std::optional<Link::Frame> frame = from->receive(0.2)) replicas.take(*from, *frame);
          heard_s_ = now_s();
        }
      } catch (const SystemError&) {
      }
    }
  }

  bool nothing_left() {
    const Segments own = newest_job(place_.folder), held = newest_job(place_.partner);
    const auto lives = [](const auto& segment) { return segment->is_written(); };
    if (std::any_of(own.begin(), own.end(), lives)) return false;
    if (!held.empty()) return false;
    return own.empty() || common_step(own).first <= persisted_;
  }

  const AgentOptions options_;
  const RunFolder run_;
  const std::function<void(const std::string&)> say_;
  Place place_;
  std::optional<Listener> listener_;
  std::optional<Link> link_;
  std::map<std::string, std::shared_ptr<const train::Segment>> opened_;  // by index
  std::string job_;
  int64_t persisted_ = -1, replicated_ = -1;
  double again_s_ = 0, call_again_s_ = 0;
  std::atomic<double> heard_s_{now_s()};
};

}  // namespace

void run_agent(const AgentOptions& options, const std::atomic<bool>& stop,
               const std::function<void(const std::string& line)>& say) {
  if ((!options.partner.empty() || !options.listen.empty()) && options.token.size() < 16)
    config_error("--partner and --listen need the job's token, of 16 characters at least (--token-file)");
  std::error_code ignored;
  fs::create_directories(options.run, ignored);
  if (!fs::is_directory(options.run, ignored)) config_error("{}: no folder", options.run);
  Agent(options, say).run(stop);
}

}  // namespace heddle::session
