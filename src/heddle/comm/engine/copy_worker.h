// The copy engine of the CPU: a thread of the process on a core of its own. It moves bytes for all ranks of the
// process while their threads sleep or compute. It reads memory of its own process, or of another one of its host
// (process_vm_readv), and writes its own.
//
// Jobs go in turns of kTurnBytes, so that a short one does not wait for a long one to end. Another rank's memory is
// read under a lease that this rank has given. A rank that gives one back before its time, because its world has
// failed, waits until nobody reads, and nobody begins to.
//
// Lines are written past the caches (non-temporal stores), for what arrives is read later and elsewhere; it would
// push operands of products out of the cache that the cores share. Reads still pass through it.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace heddle::comm {

/// Bytes that lie side by side on both sides.
struct CopyRun {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;  // an address of `process`
  int64_t bytes = 0;
};

class CopyWorker {
 public:
  /// The worker of this process, started when it is first wanted; it ends with its last holder. It runs on the copy
  /// core, where there is one.
  static std::shared_ptr<CopyWorker> of_process();

  /// `core` < 0: wherever the system puts it.
  explicit CopyWorker(int core);
  ~CopyWorker();
  CopyWorker(const CopyWorker&) = delete;
  CopyWorker& operator=(const CopyWorker&) = delete;

  /// Copies under way. It stays where it is, and its memory is written by nobody once it has ended.
  class Job {
   public:
    /// From memory of `process` (0: this one) under a lease of this process (0: none is needed).
    Job(CopyWorker& worker, std::vector<CopyRun> runs, pid_t process = 0, uint64_t lease = 0);
    /// Leaves unfinished copies as far as they are.
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    /// Sleeps until all is there. PeerError where the memory can no longer be read.
    void wait();

   private:
    friend class CopyWorker;
    void move_turn();
    CopyWorker& worker_;
    std::vector<CopyRun> runs_;
    pid_t process_;
    uint64_t lease_;
    size_t next_ = 0;
    bool over_ = false, queued_ = true;
    std::condition_variable ended_;
    std::string failure_;
  };

  /// Bytes that this process lets others read for as long as it lives.
  class Lease {
   public:
    explicit Lease(CopyWorker& worker);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    uint64_t number() const { return number_; }

   private:
    CopyWorker& worker_;
    uint64_t number_;
  };

  /// Copies memory of another rank that shows it under a lease; by the calling thread, at once. PeerError where it
  /// can no longer be read.
  void read(void* to, const void* from, int64_t bytes, pid_t process, uint64_t lease);

  /// A message on its way between two ranks of this process: what is left here, until the other takes it.
  uint64_t leave(std::unique_ptr<std::byte[]> bytes);
  std::unique_ptr<std::byte[]> take(uint64_t number);

  static constexpr int64_t kTurnBytes = 512 << 10;

 private:
  void work(int core);

  std::mutex mutex_;
  std::condition_variable posted_, turned_;
  int leaving_ = 0;  // who wait for the turn to end
  std::deque<Job*> queue_;
  const Job* moving_ = nullptr;
  uint64_t moving_lease_ = 0;
  std::set<uint64_t> leases_;
  std::map<uint64_t, std::unique_ptr<std::byte[]>> left_;
  uint64_t last_number_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

/// Reads `bytes` of another process' memory. "" or why it can't.
std::string read_process(pid_t process, std::byte* to, const std::byte* from, int64_t bytes);

}  // namespace heddle::comm
