#include "heddle/session/agent/agent.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"
#include "heddle/base/files/random_id.h"
#include "heddle/base/hash.h"
#include "heddle/session/agent/door.h"
#include "heddle/session/agent/partner.h"
#include "heddle/session/agent/persist.h"
#include "heddle/session/agent/run_memory.h"
#include "heddle/session/agent/shared_segments.h"
#include "heddle/session/agent/stand_in.h"

namespace heddle::session {

namespace {

namespace fs = std::filesystem;
using Segments = std::vector<std::shared_ptr<const train::Segment>>;

constexpr double kAgentCheck_s = 0.05;
constexpr auto kGlance = std::chrono::milliseconds(5);  // pause between checks whether a step was sealed
constexpr size_t kMostVisits = 1024;
constexpr double kAgain_s = 2;        // after something has failed
constexpr double kPartnerGone_s = 3;  // without a word of a partner whose ranks are not heard of either

// The agents that have left something on this host, and whether they live, know each other by their folders' locks.
class AgentPlace {
 public:
  AgentPlace(const RunFolder& run, const std::string& address, const std::string& token)
      : registry_(held_path(run.path + kAgents)) {
    std::error_code ignored;
    fs::create_directories(registry_, ignored);
    if (fs::is_symlink(registry_, ignored))
      config_error("{}{} is a link: agents write their state to no other place", run.path, kAgents);
    if (std::optional<Left> left = take_left()) {
      folder = left->folder;
      entry_ = left->entry;
      lock_.emplace(std::move(left->lock));
    }
    if (folder.empty()) {
      // Noted before it is there: one who dies in between leaves nobody else who knows of it.
      const std::string id = random_id();
      entry_ = registry_ + "/" + id;
      write_agent_entry(entry_, kPlace + id, "");
      folder = memory_folder(id);
      auto lock = train::FileHold::take(folder + kAgentLock, train::FileHold::How::alone, true);
      if (!lock) throw SystemError(EIO, fmt::format("cannot lock {}", folder));
      lock_.emplace(std::move(*lock));
    }
    note_holder(folder + kAgentLock);
    if (!token.empty()) {
      OutputFile file(folder + kAgentToken, OutputFile::Open::replace, OutputFile::Access::owner,
                      OutputFile::Flush::to_system);
      file.write(token);
      file.commit();
    }
    write_agent_entry(entry_, folder, address);
    partner = folder + "/" + train::kPartnerFolder;
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

  /// Removes, as `remove` does, the files of this host's agents that were still dying when the next ones came.
  void remove_left() {
    std::error_code ignored;
    while (const std::optional<Left> left = take_left()) {
      fs::remove_all(left->folder, ignored);
      if (!fs::remove(left->entry, ignored)) return;
    }
  }

  std::string folder, partner;

 private:
  // The memory that an ended agent left.
  struct Left {
    std::string folder, entry;
    train::FileHold lock;
  };
  std::optional<Left> take_left() const {
    std::error_code ignored;
    for (fs::directory_iterator at(registry_, ignored), end; !ignored && at != end; at.increment(ignored)) {
      const std::string name = at->path().filename().string();
      if (name.size() != 32) continue;
      const std::string left = kPlace + name;
      if (!is_memory_here(left)) continue;
      if (auto lock = train::FileHold::take(left + kAgentLock, train::FileHold::How::alone, true))
        return Left{left, at->path().string(), std::move(*lock)};
    }
    return std::nullopt;
  }

  std::string registry_, entry_;
  std::optional<train::FileHold> lock_;
};

// The segments of a folder, each opened once. Every thread has its own.
class Opened {
 public:
  /// Returns the segments of the newest job, by rank.
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

  /// A number that changes when a set is sealed or written again; it reads no file's contents.
  size_t stamp() const {
    size_t stamp = opened_.size();
    for (const auto& [path, segment] : opened_) {
      for (int set = 0; segment && set < train::kSets; ++set) {
        struct stat is {};
        if (::stat(segment->files().seal(set).c_str(), &is) == 0)
          stamp = mix_bits(stamp ^ (is.st_ino + static_cast<size_t>(is.st_mtim.tv_nsec)));
      }
    }
    return stamp;
  }

 private:
  std::map<std::string, std::shared_ptr<const train::Segment>> opened_;  // segments by index
};

// The newest step that all of them hold, and whether a rank wants it on disk; −1: there is none.
std::pair<int64_t, bool> common_step(const Segments& segments) {
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

bool all_live(const Segments& segments) {
  return std::all_of(segments.begin(), segments.end(), [](const auto& segment) { return segment->is_written(); });
}

// Gives each step of the own ranks to the partner, beside whatever is written to disk meanwhile.
class Giver {
 public:
  Giver(const AgentOptions& options, std::string folder, const std::function<void(const std::string&)>& say)
      : token_(options.token),
        orders_(options.orders),
        folder_(std::move(folder)),
        say_(say),
        partner_(options.partner) {}

  void run(const std::atomic<bool>& stop) {
    stop_ = &stop;
    double looked_s = 0;
    for (size_t seen = 0; !stop; std::this_thread::sleep_for(kGlance)) {
      obey();
      const size_t stamp = opened_.stamp();
      if (partner_.empty() || (stamp == seen && now_s() - looked_s < kAgentCheck_s)) continue;
      seen = stamp;
      looked_s = now_s();
      look();
    }
  }

 private:
  void obey() {
    std::optional<std::string> named = orders_ ? orders_->new_partner() : std::nullopt;
    if (!named || *named == partner_) return;
    partner_ = std::move(*named);
    link_.reset();
    given_ = -1;
    again_s_ = 0;
  }

  void look() {
    const Segments own = opened_.newest_job(folder_);
    if (own.empty() || now_s() < again_s_) return;
    if (own.front()->index().run != job_) {
      job_ = own.front()->index().run;
      given_ = -1;
    }
    const int64_t step = common_step(own).first;
    if (step <= given_ || !all_live(own)) return;
    try {
      if (!link_) link_.emplace(Link::to(partner_, token_, stop_));
      for (const auto& segment : own) replicate(*link_, *segment, step);
      given_ = step;
      refused_.clear();
    } catch (const ConfigError&) {
      // It was written again meanwhile: the next one goes.
    } catch (const SystemError& error) {
      link_.reset();
      again_s_ = now_s() + kAgain_s;
      if (!*stop_ && std::exchange(refused_, error.what()) != error.what())
        say_(fmt::format("step {} not given to {}: {}", step, partner_, error.what()));
    }
  }

  const std::string token_;
  const std::shared_ptr<AgentOrders> orders_;
  const std::string folder_;
  const std::function<void(const std::string&)>& say_;
  const std::atomic<bool>* stop_ = nullptr;
  std::string partner_, job_;
  std::string refused_;  // reason why the last step was not given, as reported
  std::optional<Link> link_;
  Opened opened_;
  int64_t given_ = -1;
  double again_s_ = 0;
};

class Agent {
 public:
  Agent(const AgentOptions& options, std::function<void(const std::string&)> say)
      : options_(options),
        run_{options.run},
        say_([this, say = std::move(say)](const std::string& line) {
          const std::lock_guard lock(saying_);
          say(line);
        }),
        door_(options.listen.empty() ? nullptr : std::make_unique<Door>(options.listen, options.token)),
        place_(run_, door_ ? door_->address() : "", options.token) {
    say_(fmt::format("ready port {} at {} folder {}", door_ ? door_->port() : 0, door_ ? door_->address() : "-",
                     place_.folder));
  }

  void run(const std::atomic<bool>& stop) {
    std::thread door;
    if (door_) door = std::thread([&] { stand_at_door(stop); });
    std::thread giving([&] { Giver(options_, place_.folder, say_).run(stop); });
    while (!stop) {
      look();
      std::this_thread::sleep_for(std::chrono::duration<double>(kAgentCheck_s));
    }
    const bool forgets = options_.orders && options_.orders->forgets();
    if (!forgets) look(true);
    giving.join();
    if (door.joinable()) door.join();
    remove_pending(run_, train::newest_step(run_.checkpoints()));
    if (forgets) place_.remove_left();
    if (forgets || nothing_left()) place_.remove();
  }

 private:
  void look(bool stopping = false) {
    const Segments own = opened_.newest_job(place_.folder);
    if (own.empty()) return;
    if (own.front()->index().run != job_) {
      job_ = own.front()->index().run;
      persisted_ = -1;
    }
    const auto [step, wanted] = common_step(own);
    if (step < 0 || (now_s() < again_s_ && !stopping)) return;
    const bool dead = !all_live(own);
    const bool due = step > persisted_ && (wanted || dead || stopping);
    if (due) write(own, step, dead ? "a rank has ended" : stopping ? "asked to stop" : "asked for");
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

  // Writes the segments that a host has given once that host is no longer heard of.
  void write_partner(int64_t step) {
    if (!door_ || now_s() - heard_s_ < kPartnerGone_s) return;
    Segments held = opened_.newest_job(place_.partner);
    std::erase_if(held,
                  [&](const auto& segment) { return segment->set_of(step) < 0 || segment->index().run != job_; });
    if (!held.empty()) write(held, step, "its host does not answer");
  }

  // A thread for each that is let in: agents that give, ranks that borrow. All end at once with `stop`.
  void stand_at_door(const std::atomic<bool>& stop) {
    struct Visit {
      std::atomic<bool> over{false};
      std::thread thread;
    };
    std::vector<std::unique_ptr<Visit>> visits;
    while (!stop) {
      std::optional<Link> from = door_->accept(kAgentCheck_s, stop);
      std::erase_if(visits, [](const auto& visit) {
        if (visit->over) visit->thread.join();
        return visit->over.load();
      });
      if (!from || visits.size() >= kMostVisits) continue;
      Visit& visit = *visits.emplace_back(std::make_unique<Visit>());
      visit.thread = std::thread([this, &stop, &visit, link = std::make_shared<Link>(std::move(*from))] {
        receive(*link, stop);
        visit.over = true;
      });
    }
    for (const auto& visit : visits) visit->thread.join();
  }

  void receive(Link& from, const std::atomic<bool>& stop) {
    Replicas replicas(place_.partner);
    SegmentServer server({place_.folder, place_.partner});
    bool gives = false;
    try {
      while (!stop) {
        if (const std::optional<Link::Frame> frame = from.receive(0.2)) {
          if (SegmentServer::is_asked(*frame)) {
            server.answer(from, *frame);
          } else {
            gives = true;
            replicas.take(from, *frame);
          }
        }
        if (gives) heard_s_ = now_s();
      }
    } catch (const SystemError&) {
    }
  }

  bool nothing_left() {
    const Segments own = opened_.newest_job(place_.folder), held = opened_.newest_job(place_.partner);
    const auto lives = [](const auto& segment) { return segment->is_written(); };
    if (std::any_of(own.begin(), own.end(), lives)) return false;
    if (!held.empty()) return false;
    return own.empty() || common_step(own).first <= persisted_;
  }

  const AgentOptions options_;
  const RunFolder run_;
  std::mutex saying_;
  const std::function<void(const std::string&)> say_;
  std::unique_ptr<Door> door_;
  AgentPlace place_;
  Opened opened_;
  std::string job_;
  int64_t persisted_ = -1;
  double again_s_ = 0;
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
  const PinnedFolder pinned(options.run);  // whatever is put in its place meanwhile is left alone
  if (options.orders)
    for (const std::string& id : options.orders->replaced()) end_agent_of(memory_path(id), options.run);
  Agent(options, say).run(stop);
}

}  // namespace heddle::session
