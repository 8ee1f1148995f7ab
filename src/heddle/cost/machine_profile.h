// Capabilities of a machine. A device that is only described has few numbers. Products run at the matrix rate of
// their type, everything else at the bandwidth of a copy, and each op costs a launch. A measured one also has the
// times of ops of many sizes, of messages, and the mutual slowdown of streams that run side by side.
#pragma once

#include "heddle/base/dtype.h"
#include "heddle/cost/op_times.h"
#include "heddle/ir/listing.h"

namespace heddle::cost {

/// The link over which ranks reach each other.
enum class Link : uint8_t { threads, node, nodes };
std::string_view name_of(Link link);

/// A message of one pattern, alone on its link: the time from when all ranks are there until all have ended.
struct LinkTime {
  Link over = Link::threads;
  int ranks = 2;
  double bytes = 0;  // sent by a rank to all others together
  double us = 0;
};

struct MachineProfile {
  double bf16_flops_per_s = 0;  // matrix products, the whole device
  double f32_flops_per_s = 0;
  double f64_flops_per_s = 0;
  double copy_bytes_per_s = 0;  // read and written bytes together
  double launch_us = 0;         // launch of any op: from the end of the one before it to its start
  double fork_us = 0;           // for an op on the compute stream: its threads start and meet again
  double link_bytes_per_s = 0;  // sent by one rank; 0: the ranks share memory, a message is a copy
  double message_us = 0;        // latency of an op that communicates, until the first byte is there

  /// The rest holds for a machine that was measured.
  std::string machine, date;
  std::string backend = "host";      // backend whose ops were measured, as device.backend has it
  double host_copy_bytes_per_s = 0;  // between host and device, as copy_bytes_per_s; 0: as fast as any copy
  int cores = 0;                     // 0: none was measured
  double enqueue_us = 0;             // host time of an op
  double wake_us = 0;                // wake-up of a stream that slept until another stream's op ended
  double oversleep_us = 0;           // excess sleep of a paced op
  double others_share = 0;           // part of the cores' time that other programs took during the measurement
  double engine_from_bytes = 0;      // size of a message from which the copy engine pays; 0: there is none
  double scalar = 1;                 // real steps over their predictions, so far
  std::vector<double> together;      // [n-1]: speed of each of n cores at work, over that of one alone
  OpTimes ops;
  std::vector<LinkTime> links;

  /// The matrix rate for operands of this type.
  double flops_per_s(Dtype dtype) const;
  /// Speed of a thread where `threads` threads want to run.
  double speed(double threads) const;
};

/// The type in which an op multiplies: that of its first operand that is no index.
Dtype product_dtype(const ir::Listing& listing, const ir::Op& op);

/// max(FLOPs ÷ matrix rate, bytes ÷ copy bandwidth) of a cost, in microseconds, without launch and messages.
double roofline_us(const MachineProfile& profile, const ir::Cost& cost, Dtype dtype);

/// Time of an op alone on the machine, in microseconds. InternalError when the profile lacks a rate that it needs.
double op_us(const MachineProfile& profile, const ir::Listing& listing, const ir::Op& op,
             const ir::RowCounts& rows);

/// Time of an op on a machine that was measured, for a stream of `threads` threads within a program of
/// `resident_bytes`, without launch and messages. The roofline holds where the kind was not measured.
double measured_us(const MachineProfile& profile, const ir::Listing& listing, const ir::Op& op,
                   const ir::RowCounts& rows, bool overwrite, int threads, double resident_bytes);

/// Bytes a microsecond of a long message that was measured, sent by each of `ranks`. 0 where nothing was measured.
double link_bytes_per_us(const MachineProfile& profile, Link over, int ranks);

/// Time of a message that was measured, between sizes linearly. 0 where nothing was measured over this link.
double message_us(const MachineProfile& profile, Link over, int ranks, double bytes);

}  // namespace heddle::cost
