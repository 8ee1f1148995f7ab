#include "heddle/comm/mpi/roll_call.h"

#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "heddle/base/clock.h"
#include "heddle/base/failure.h"
#include "heddle/comm/mpi/control.h"
#include "heddle/comm/mpi/watch.h"

namespace heddle::comm::mpi {

namespace {

constexpr int kTag = 0;  // nothing else is sent on MPI_COMM_WORLD itself
constexpr std::chrono::microseconds kNap(100);

struct Letters {
  std::vector<int> from;  // by request, those that are received first
  std::vector<MPI_Request> requests;
  std::vector<int> done;
  std::vector<MPI_Status> statuses;
};

std::string host() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

}  // namespace

void roll_call(int rank, int size, double patience_s) {
  auto letters = std::make_unique<Letters>();
  for (int distance = 1; distance < size; distance *= 2) {
    letters->from.push_back((rank + size - distance) % size);
    MPI_Request request = MPI_REQUEST_NULL;
    must(MPI_Irecv(nullptr, 0, MPI_BYTE, letters->from.back(), kTag, MPI_COMM_WORLD, &request), "MPI_Irecv");
    letters->requests.push_back(request);
  }
  for (int distance = 1; distance < size; distance *= 2) {
    MPI_Request request = MPI_REQUEST_NULL;
    must(MPI_Isend(nullptr, 0, MPI_BYTE, (rank + distance) % size, kTag, MPI_COMM_WORLD, &request), "MPI_Isend");
    letters->requests.push_back(request);
  }
  const auto count = static_cast<int>(letters->requests.size());
  letters->done.resize(letters->requests.size());
  letters->statuses.resize(letters->requests.size());
  Watch watch(0, 0);
  for (int left = count; left > 0; std::this_thread::sleep_for(kNap)) {
    int done = 0;
    must(MPI_Testsome(count, letters->requests.data(), &done, letters->done.data(), letters->statuses.data()),
         "MPI_Testsome");
    if (done > 0) left -= done;  // or MPI_UNDEFINED
    watch.advance(now_s());
    if (left == 0 || watch.attentive_seconds() < patience_s) continue;
    size_t missing = 0;
    while (letters->requests[missing] == MPI_REQUEST_NULL) ++missing;
    const bool silent = missing < letters->from.size();
    const int peer = silent ? letters->from[missing] : (rank + (1 << (missing - letters->from.size()))) % size;
    (void)letters.release();  // MPI may yet write there
    throw PeerError(
        fmt::format("rank {} is dead, stopped or cut off: it has not answered rank {} ({}) for {:.3g} s at "
                    "the start",
                    peer, rank, host(), patience_s),
        peer);
  }
}

}  // namespace heddle::comm::mpi
