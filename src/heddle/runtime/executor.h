// Runs a rank's step program on a device: its streams, and an arena for each memory in which the program puts
// values. The next executor that gets its file finds the memory that outlives the process again.
//
// Kernels are chosen once, when the executor is made. run_step walks the program, enqueues every op with the waits
// that the walk has found, and returns when all have ended. Otherwise the host waits only in the ops that the
// program marks as host stalls.
//
// When an op throws, its stream stops the peers at once (the host may be waiting on a stream that waits for them).
// Streams that wait for it end likewise, and the host enqueues nothing more. The first cause is what run_step then
// throws: the op's own exception with the op and the rank behind it, or PeerError where it was another rank's.
#pragma once

#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "heddle/backends/backend.h"
#include "heddle/comm/communicator.h"
#include "heddle/device/counted_rows.h"
#include "heddle/device/device.h"
#include "heddle/device/host_copies.h"
#include "heddle/device/inputs.h"
#include "heddle/ir/walk/walk.h"
#include "heddle/plan/plan.h"

namespace heddle::runtime {

struct ExecutorOptions {
  int rank = 0;
  std::string backend = "host";
  int threads = 1;                  // OpenMP team of the compute stream
  int64_t capacity_bytes = 0;       // size of the arena, as predicted; 0 means the memory of the machine
  int64_t limit_bytes = 0;          // bytes to which it may grow beyond; 0: not at all
  int64_t host_capacity_bytes = 0;  // size of the arena of values on the host, likewise
  /// The file of the memory that outlives the process; needed where the program puts something there.
  std::string shared_file;
  /// Communicator of each channel ("comm.experts", "comm.pp.forward", …). Not owned.
  std::map<std::string, comm::Communicator*> communicators;
  ir::Coordinates place;             // place of the rank in the mesh
  device::Device* device = nullptr;  // not owned; null: the backend's
  bool poison = false;               // fill the arena with NaN first (tests)
};

class Executor : private ir::Issuer {
 public:
  /// The program must outlive the executor. InternalError when an op has no kernel.
  Executor(const ir::StepProgram& program, ExecutorOptions options);
  ~Executor() override;

  /// InternalError where the inputs are not what the program takes (device::RankInputs).
  void run_step(const device::Inputs& inputs, ir::Purpose purpose = ir::Purpose::train);
  /// Starts the step without waiting for its end: has_ended() tells. The inputs must last until then.
  void start_step(const device::Inputs& inputs, ir::Purpose purpose = ir::Purpose::train);
  /// Replaces all standing inputs, for the steps to come of every purpose (device::RankInputs::stand).
  void stand(device::Inputs inputs) { inputs_.stand(std::move(inputs)); }
  /// True if the work put on the streams up to these marks has ended; false where the device has no way to tell.
  /// Any thread may ask.
  bool has_ended(const ir::Marks& marks) const;
  /// Runs the step one op at a time and calls `look` after each with its outputs and updates.
  void run_step(const device::Inputs& inputs,
                const std::function<void(const ir::Issue&, const device::KernelCall&)>& look);

  /// Makes the weights that kernels read (packed, rounded) from their masters. Only between steps.
  void make_weights();

  /// A persistent value as the host may read it. Only between steps. Where the host can't read the arena it is a
  /// copy made now, which stands until the next step; what is written to it counts once make_weights() has run.
  device::TensorView view(int listing, ir::ValueId id) const;
  /// True if the host reads the device's memory in place.
  bool host_reads() const { return device_->shares_memory(); }
  /// Memory that the device has put behind the arena, where it says so; else 0.
  int64_t held_bytes() const { return arenas_[0]->held_bytes(); }
  /// True if the memory that outlives the process was there already, with what an executor before left in it.
  bool found_shared() const { return found_shared_; }

  /// The listing that this rank runs for a purpose, and where it stands in the mesh.
  const ir::Listing& listing(ir::Purpose purpose = ir::Purpose::train) const {
    return program_.listings[program_.listing_of(options_.rank, purpose)];
  }
  const ir::Coordinates& place() const { return options_.place; }
  const ir::Walk& walk() const { return walk_; }
  ir::Walk& walk() { return walk_; }
  const kernels::KernelEntry* kernel(int listing, uint32_t op) const;
  /// The rank's place when a step failed: its actions, the one whose op threw between > and <. "" if none threw.
  std::string stood_at() const;
  device::Stream& stream(int i) { return *streams_[i]; }

  void set_trace(bool on);
  /// Times of the compute stream since they were last taken. Only between steps.
  device::StreamTimes take_compute_times();
  /// Calls `look` from the next step on for each op that has run, by the thread of its stream: several at a time.
  /// Empty ends it. ConfigError where the host can't read the device's memory.
  void watch(std::function<void(const device::Launch&)> look);
  /// Calls `change` with each launch before it goes to its stream; null ends it. For tests and measurements that
  /// put something around kernels. Only between steps.
  void change_launches(std::function<void(device::Launch&)> change) { change_ = std::move(change); }
  /// Runs `kernel` instead of an op's own from now on, which is returned: for measurements and
  /// tests.
  device::Kernel replace(int listing, uint32_t op, device::Kernel kernel);
  /// Host time spent enqueueing the ops of the last step, and their count. Left out is what the host waited for:
  /// room in a full queue, and row counts at a host stall.
  int64_t enqueue_ns() const { return enqueue_ns_; }
  int64_t enqueued_ops() const { return enqueued_ops_; }
  /// Ops of the last step at which the host stalled for counts of rows.
  int64_t host_stalls() const { return host_stalls_; }

 private:
  struct Prepared;
  int64_t scratch_bytes(int listing, uint32_t op, const ir::RowCounts& rows) override;
  void issue(const ir::Issue& issue) override;
  int64_t read_rows(const ir::Issue& issue, size_t output) override;
  /// The views of a call as the host may read them, copied into `kept`.
  std::vector<device::TensorView> fetch(std::span<const device::TensorView> views,
                                        std::vector<std::vector<std::byte>>& kept) const;
  void write_back();
  device::TensorView view_of(const ir::Listing& listing, ir::ValueId id, int64_t offset,
                             const ir::RowCounts& rows) const;
  void note_failure(const std::exception_ptr& failure, const device::Span& at);
  void guarded(const std::function<void()>& run);
  void stop_peers(const std::exception_ptr& failure);

  const ir::StepProgram& program_;
  ExecutorOptions options_;
  const backends::Backend& backend_;
  std::unique_ptr<device::Device> own_device_;
  device::Device* device_;
  std::array<std::unique_ptr<device::Arena>, ir::kSpaces> arenas_;  // by space; null where nothing lies there
  ir::Walk walk_;
  std::byte* arena_of(ir::Space space) const { return arenas_[static_cast<size_t>(space)]->base(); }
  void reach();

  bool found_shared_ = false;
  device::HostCopies host_copies_;
  mutable std::map<std::byte*, std::vector<std::byte>> handed_out_;  // by view(), by address on the device
  std::atomic<bool> failed_{false};  // an op has thrown, and failure_ is what to tell; streams write it
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::vector<std::unique_ptr<device::Stream>> streams_;
  std::vector<std::vector<Prepared>> prepared_;  // [listing][op]
  std::function<void(device::Launch&)> change_;
  device::RankInputs inputs_;
  const std::function<void(const ir::Issue&, const device::KernelCall&)>* look_ = nullptr;
  std::function<void(const device::Launch&)> watch_;
  std::map<std::pair<int, int>, device::CountedRows> counted_;  // by listing and microbatch
  int64_t enqueue_ns_ = 0, enqueued_ops_ = 0, stalled_ns_ = 0, host_stalls_ = 0;
};

}  // namespace heddle::runtime
