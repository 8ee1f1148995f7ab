// Life of the progress thread: start, loop, naps, end.
#include "heddle/comm/mpi/progress.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "heddle/base/clock.h"
#include "heddle/base/failure.h"
#include "heddle/base/hash.h"
#include "heddle/comm/mpi/control.h"
#include "heddle/comm/mpi/roll_call.h"

namespace heddle::comm::mpi {

namespace {

std::chrono::duration<double> for_seconds(double s) { return std::chrono::duration<double>(s); }

constexpr double spin_seconds = 20e-6;
constexpr double shortest_nap = 10e-6, longest_nap = 250e-6, idle_nap = 5e-3;
// After a failure, how long others are given to hear of it: before MPI falls silent, and before this process may
// end (when one ends, launchers end all).
constexpr double telling_seconds = 1.0, linger_seconds = 0.5;
constexpr double kLeastRollCall_s = 5, kLeastStart_s = 60;  // ranks may be late by that

}  // namespace

void Call::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
  if (failure_) std::rethrow_exception(failure_);
}

void Completions::add(size_t message) {
  const std::lock_guard lock(mutex_);
  completed_.push_back(message);
  if (wake_) wake_();
}

std::vector<size_t> Completions::take() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  return std::exchange(completed_, {});
}

void Completions::end(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  if (wake_) wake_();
}

void Completions::leave() {
  const std::lock_guard lock(mutex_);
  wake_ = nullptr;
}

void Call::finish(std::exception_ptr failure) {
  if (completions && failure) completions->end(failure);
  const std::lock_guard lock(mutex_);
  done_ = true;
  failure_ = std::move(failure);
  changed_.notify_all();
}

Progress::Progress(const MpiOptions& options)
    : options_(options), patience_s_(options.timeout_seconds), exceptions_at_start_(std::uncaught_exceptions()) {
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::unique_lock lock(mutex_);
  // Collectives of MPI's own can't be given up: where one doesn't end, this process does.
  const double start_s = std::max(options_.timeout_seconds, kLeastStart_s);
  if (!changed_.wait_for(lock, for_seconds(start_s), [&] { return ready_; })) {
    if (options_.report) options_.report(fmt::format("MPI has not started all ranks in {:.0f} s", start_s), -1);
    std::_Exit(EXIT_FAILURE);
  }
  if (start_failure_) {
    lock.unlock();
    thread_.join();
    std::rethrow_exception(start_failure_);
  }
}

Progress::~Progress() {
  if (std::uncaught_exceptions() > exceptions_at_start_) abort(fmt::format("{} ends with an error", named(rank_)));
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

Channel& Progress::channel(const std::vector<int>& ranks, const std::string& name) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Channel>& channel = channels_[{ranks, name}];
  if (channel) return *channel;
  HEDDLE_CHECK(std::ssize(channels_) <= most_channels_, "more than {} communicators", most_channels_);
  channel = std::make_unique<Channel>();
  channel->name = name;
  channel->ranks = ranks;
  channel->number = static_cast<int>(channels_.size()) - 1;
  channel->sent_letters.resize(ranks.size());
  channel->received_letters.resize(ranks.size());
  channel->introduced.resize(ranks.size());
  channel->their_number.assign(ranks.size(), -1);
  for (size_t i = 0; i < 2; ++i) {
    uint64_t& hash = channel->hash[i];
    hash = fnv1a(name, kFnvStart + i);
    hash = fnv1a({reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(int)}, hash);
  }
  return *channel;
}

void Progress::submit(std::shared_ptr<Call> call) {
  const std::lock_guard lock(mutex_);
  if (failed_) std::rethrow_exception(failure_);
  inbox_.push_back(std::move(call));
  wake_.notify_all();
}

void Progress::watch(std::shared_ptr<PastIt> one) {
  const std::lock_guard lock(mutex_);
  if (failed_) std::rethrow_exception(failure_);
  past_.push_back(std::move(one));
}

void Progress::unwatch(const std::shared_ptr<PastIt>& one) {
  const std::lock_guard lock(mutex_);
  std::erase(past_, one);
}

void Progress::check() {
  const std::lock_guard lock(mutex_);
  if (failed_) std::rethrow_exception(failure_);
}

void Progress::move_on(int core) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<size_t>(core), &only);
  pthread_setaffinity_np(thread_.native_handle(), sizeof only, &only);
}

void Progress::abort(const std::string& reason, bool input) {
  std::unique_lock lock(mutex_);
  if (!asked_to_abort_) asked_to_abort_ = Failure{reason, -1, input};
  wake_.notify_all();
  changed_.wait_for(lock, for_seconds(2 * telling_seconds), [&] { return failed_; });
}

std::string Progress::named(int rank) const { return fmt::format("rank {} ({})", rank, host_of(rank)); }

void Progress::run() {
  pthread_setname_np(pthread_self(), "heddle-mpi");
  prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);  // ns; else a nap of 10 us lasts 60
  try {
    start();
  } catch (...) {
    start_failure_ = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    ready_ = true;
    changed_.notify_all();
  }
  if (start_failure_) return;
  try {
    loop();
  } catch (const std::exception& error) {
    fail({fmt::format("{}: {}", named(rank_), error.what()), rank_}, true);
  }
  if (failed_) {
    const double began = now_s();
    std::unique_lock lock(mutex_);
    if (!wake_.wait_for(lock, for_seconds(options_.grace_seconds), [&] { return stopping_; })) {
      lock.unlock();
      force_end();
    }
    lock.unlock();
    std::this_thread::sleep_for(for_seconds(std::max(0.0, began + linger_seconds - now_s())));
  } else {
    finish_mpi();
  }
}

void Progress::start() {
  // Open MPI's TCP by default lets the receiver name the place of each part, and then both directions of a link
  // take turns. Long messages both ways at once moved at half the link's rate. Plain sends fill it. A user's own
  // choice stays.
  setenv("OMPI_MCA_btl_tcp_flags", "1", 0);
  int there = 0, provided = 0;
  must(MPI_Initialized(&there), "MPI_Initialized");
  HEDDLE_CHECK(!there, "a second MPI world in one process");
  must(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED)
    throw SystemError(provided, "this MPI does not allow a program to have threads");
  must(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int size = 0;
  must(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  must(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  if (const int launched = launched_ranks(); size == 1 && launched > 1) {
    MPI_Finalize();
    throw SystemError(0, fmt::format("the launcher started {} processes, but MPI sees each alone; with srun, try "
                                     "--mpi=pmix (`srun --mpi=list` shows what there is)",
                                     launched));
  }
  if (options_.silence_seconds > 0) roll_call(rank_, size, std::max(options_.silence_seconds, kLeastRollCall_s));
  must(MPI_Comm_dup(MPI_COMM_WORLD, &data_), "MPI_Comm_dup");
  must(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");

  // A node is what shares memory; its first rank stands for it.
  MPI_Comm node = MPI_COMM_NULL;
  must(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
       "MPI_Comm_split_type");
  struct {
    int first;
    char host[256];
  } own{rank_, {}};
  must(MPI_Bcast(&own.first, 1, MPI_INT, 0, node), "MPI_Bcast");
  must(MPI_Comm_free(&node), "MPI_Comm_free");
  if (gethostname(own.host, sizeof(own.host) - 1) != 0) own.host[0] = 0;
  std::vector<decltype(own)> all(static_cast<size_t>(size));
  must(MPI_Allgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE, MPI_COMM_WORLD),
       "MPI_Allgather");
  std::vector<int> firsts;
  for (const auto& one : all) {
    const auto at = std::find(firsts.begin(), firsts.end(), one.first);
    nodes_.push_back(static_cast<int>(at - firsts.begin()));
    if (at == firsts.end()) firsts.push_back(one.first);
    hosts_.emplace_back(one.host);
  }

  int* tag_bound = nullptr;
  int found = 0;
  must(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_bound, &found), "MPI_Comm_get_attr");
  const int bound = found ? *tag_bound : 32767;
  kind_bits_ = bound >= 1 << 24 ? 9 : 5;  // exchange or letter, and 8 or 4 bits of a count
  most_channels_ = bound >> kind_bits_;
  watch_ = std::make_unique<Watch>(size, options_.silence_seconds);
  heard_ = std::make_unique<ControlMessage>();
  requests_.push_back(MPI_REQUEST_NULL);
  slots_.emplace_back();
  listen();
}

void Progress::loop() {
  std::deque<std::shared_ptr<Call>> taken;
  while (true) {
    watch_->advance(now_s());
    std::optional<Failure> asked;
    {
      const std::lock_guard lock(mutex_);
      taken.swap(inbox_);
      asked = asked_to_abort_;
      if (stopping_ && !ends_) end_began_ = watch_->attentive_seconds();
      ends_ = stopping_;
    }
    bool moved = !taken.empty();
    for (; !taken.empty(); taken.pop_front()) post(taken.front());
    if (asked) return fail(*asked, true);
    moved |= test();
    if (!failed_) look_around();
    if (failed_ || (ends_ && active_.empty() && ending())) return;
    nap(moved);
  }
}

/// All ranks' work is done when each has come here and heard that the others have.
bool Progress::ending() {
  if (!end_posted_) {
    must(MPI_Ibarrier(control_, &all_end_), "MPI_Ibarrier");
    end_posted_ = true;
  }
  int done = 0;
  must(MPI_Test(&all_end_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

void Progress::finish_mpi() {
  MPI_Cancel(&requests_[0]);
  MPI_Wait(&requests_[0], MPI_STATUS_IGNORE);
  MPI_Comm_free(&data_);
  MPI_Comm_free(&control_);
  MPI_Finalize();
}

void Progress::nap(bool moved) {
  const double now = now_s();
  if (moved) moved_at_ = now;
  const bool busy = !active_.empty() || ends_;
  const double waited = now - moved_at_;
  if (busy && waited < spin_seconds) return;
  const double length = busy ? std::clamp(waited / 32, shortest_nap, longest_nap) : idle_nap;
  std::unique_lock lock(mutex_);
  if (inbox_.empty() && !asked_to_abort_ && ends_ == stopping_) wake_.wait_for(lock, for_seconds(length));
}

void Progress::fail(const Failure& failure, bool tell_others, std::exception_ptr own, const Call* of) {
  if (failed_) return;
  const auto& [reason, accused, input] = failure;
  if (options_.report) options_.report(reason, accused);
  if (tell_others) {
    last_words_ = std::make_unique<ControlMessage>();
    last_words_->kind = ControlMessage::abort;
    last_words_->number = accused;
    last_words_->input = input;
    last_words_->say(reason);
    std::vector<MPI_Request> under_way;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      const int code = MPI_Isend(last_words_.get(), last_words_->bytes(), MPI_BYTE, peer, 0, control_, &request);
      if (code == MPI_SUCCESS && peer != accused) under_way.push_back(request);
    }
    for (const double began = now_s(); now_s() - began < telling_seconds;) {
      int done = 0;
      if (MPI_Testall(static_cast<int>(under_way.size()), under_way.data(), &done, MPI_STATUSES_IGNORE) || done)
        break;
      std::this_thread::sleep_for(for_seconds(longest_nap));
    }
  }
  const std::lock_guard lock(mutex_);
  failure_ =
      input ? std::make_exception_ptr(ConfigError(reason)) : std::make_exception_ptr(PeerError(reason, accused));
  failed_ = true;
  for (const auto& call : active_) call->finish(call.get() == of ? own : failure_);
  for (const auto& call : inbox_) call->finish(failure_);
  for (const auto& one : past_) one->completions->end(failure_);
  inbox_.clear();
  changed_.notify_all();
}

void Progress::force_end() {
  if (options_.report) {
    options_.report(
        fmt::format("{} has not ended {} s after the failure: by force", named(rank_), options_.grace_seconds),
        rank_);
  }
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(5));  // MPI_Abort may wait for a launcher that is cut off
    std::_Exit(EXIT_FAILURE);
  }).detach();
  MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

}  // namespace heddle::comm::mpi
