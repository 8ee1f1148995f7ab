// What tools/hosts --self-test runs under mpirun.
//
//   hosts_probe measure SECONDS   latency and bandwidth from rank 0 to a rank of its host and to one of another
//   hosts_probe pulse SECONDS     one exchange a millisecond between rank 0 and a rank of another host: where did
//   it stop?
//
// Rank 0 prints one line of JSON. Latency is half the median round trip of one byte. Bandwidth is payload bytes
// over the time from before the first send until the receiver's answer to the last byte, so it can't be too high.
#include <fmt/core.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kData = 1, kLast = 2, kAnswer = 3;  // tags
constexpr int kMessage_bytes = 256 << 10;
constexpr int kWindow = 8;                // messages under way
constexpr int kWarm = 20, kRounds = 401;  // round trips
constexpr double kLongGap_s = 0.25;

void send_byte(int peer, char value, int tag) { MPI_Send(&value, 1, MPI_CHAR, peer, tag, MPI_COMM_WORLD); }

char receive_byte(int peer, int tag) {
  char value = 0;
  MPI_Recv(&value, 1, MPI_CHAR, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return value;
}

double latency_s(int peer) {
  std::vector<double> trips_s;
  for (int round = 0; round < kWarm + kRounds; ++round) {
    const double start = MPI_Wtime();
    send_byte(peer, 0, kData);
    receive_byte(peer, kData);
    if (round >= kWarm) trips_s.push_back(MPI_Wtime() - start);
  }
  std::nth_element(trips_s.begin(), trips_s.begin() + kRounds / 2, trips_s.end());
  return trips_s[kRounds / 2] / 2;
}

void answer_latency(int peer) {
  for (int round = 0; round < kWarm + kRounds; ++round) send_byte(peer, receive_byte(peer, kData), kData);
}

// Sends for `seconds`, returns payload bytes per second.
double stream(int peer, double seconds) {
  std::vector<char> payload(kMessage_bytes, 1);
  std::array<MPI_Request, kWindow> under_way;
  under_way.fill(MPI_REQUEST_NULL);
  const double start = MPI_Wtime();
  int64_t bytes = 0;
  for (int i = 0; MPI_Wtime() - start < seconds; i = (i + 1) % kWindow) {
    MPI_Wait(&under_way[i], MPI_STATUS_IGNORE);
    MPI_Isend(payload.data(), kMessage_bytes, MPI_CHAR, peer, kData, MPI_COMM_WORLD, &under_way[i]);
    bytes += kMessage_bytes;
  }
  MPI_Waitall(kWindow, under_way.data(), MPI_STATUSES_IGNORE);
  for (int i = 0; i < kWindow; ++i) send_byte(peer, 0, kLast);  // one for each receive that waits
  receive_byte(peer, kAnswer);
  return static_cast<double>(bytes) / (MPI_Wtime() - start);
}

// Takes what `stream` sends, with as many receives posted as there are sends under way: a large message starts only
// once its receive is known to the sender, a round trip later. Messages of one sender match receives in order.
void sink(int peer) {
  std::vector<char> payload(size_t{kMessage_bytes} * kWindow);
  std::array<MPI_Request, kWindow> under_way;
  const auto post = [&](int i) {
    MPI_Irecv(payload.data() + size_t{kMessage_bytes} * i, kMessage_bytes, MPI_CHAR, peer, MPI_ANY_TAG,
              MPI_COMM_WORLD, &under_way[i]);
  };
  for (int i = 0; i < kWindow; ++i) post(i);
  for (int i = 0;; i = (i + 1) % kWindow) {
    MPI_Status status;
    MPI_Wait(&under_way[i], &status);
    if (status.MPI_TAG == kLast) break;
    post(i);
  }
  MPI_Waitall(kWindow, under_way.data(), MPI_STATUSES_IGNORE);
  send_byte(peer, 0, kAnswer);
}

struct Pair {
  double latency_s = 0, forth = 0, back = 0;  // payload bytes per second
};

Pair measure_with(int peer, double seconds) {
  Pair found;
  found.latency_s = latency_s(peer);
  stream(peer, 0.1);  // opens TCP's window
  found.forth = stream(peer, seconds);
  sink(peer);
  sink(peer);
  MPI_Recv(&found.back, 1, MPI_DOUBLE, peer, kAnswer, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return found;
}

void measured_by(int peer, double seconds) {
  answer_latency(peer);
  sink(peer);
  sink(peer);
  stream(peer, 0.1);
  const double back = stream(peer, seconds);
  MPI_Send(&back, 1, MPI_DOUBLE, peer, kAnswer, MPI_COMM_WORLD);
}

std::string pulse(int peer, double seconds) {
  std::string gaps;
  const double start = MPI_Wtime();
  double last = start;
  int count = 0;
  for (; last - start < seconds; ++count) {
    send_byte(peer, 1, kData);
    receive_byte(peer, kData);
    const double now = MPI_Wtime();
    if (now - last > kLongGap_s) {
      gaps += fmt::format("{}[{:.3f}, {:.3f}]", gaps.empty() ? "" : ", ", last - start, now - last);
    }
    last = now;
    usleep(1000);
  }
  send_byte(peer, 0, kData);
  return fmt::format(R"("pulses": {}, "gaps": [{}])", count, gaps);
}

void answer_pulse(int peer) {
  while (const char value = receive_byte(peer, kData)) send_byte(peer, value, kData);
}

// The ranks that don't measure must leave the cores to those that do, and polling in MPI_Barrier would not.
void wait_asleep() {
  MPI_Request all;
  MPI_Ibarrier(MPI_COMM_WORLD, &all);
  for (int done = 0; MPI_Test(&all, &done, MPI_STATUS_IGNORE), !done;) usleep(1000);
}

std::string json_of(const Pair& pair) {
  return fmt::format(R"({{"latency_us": {:.1f}, "forth_mbit": {:.2f}, "back_mbit": {:.2f}}})", pair.latency_s * 1e6,
                     pair.forth * 8e-6, pair.back * 8e-6);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 3 ? argv[1] : "";
  const double seconds = argc == 3 ? std::atof(argv[2]) : 0;
  if ((mode != "measure" && mode != "pulse") || !(seconds > 0)) {
    fmt::print(stderr, "hosts_probe measure|pulse SECONDS, under mpirun\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0, length = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  using Name = std::array<char, MPI_MAX_PROCESSOR_NAME>;
  Name name = {};
  MPI_Get_processor_name(name.data(), &length);
  std::vector<Name> names(ranks);
  MPI_Allgather(name.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, names.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR,
                MPI_COMM_WORLD);
  int near = 0, far = 0;  // the first rank beside rank 0 on its host, the first on another; 0: there is none
  std::string hosts;
  for (int i = 0; i < ranks; ++i) {
    int& first = std::strcmp(names[i].data(), names[0].data()) == 0 ? near : far;
    if (first == 0) first = i;
    hosts += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", names[i].data());
  }
  if (far == 0) {
    if (rank == 0) fmt::print(stderr, "hosts_probe: all ranks are on one host\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (mode == "pulse") {
    if (rank == 0) fmt::print("{{\"hosts\": [{}], {}}}\n", hosts, pulse(far, seconds));
    if (rank == far) answer_pulse(0);
  } else if (rank == 0) {
    std::string found;
    if (near != 0) found = fmt::format(", \"near\": {}", json_of(measure_with(near, seconds)));
    found += fmt::format(", \"far\": {}", json_of(measure_with(far, seconds)));
    fmt::print("{{\"hosts\": [{}]{}}}\n", hosts, found);
  } else if (rank == near || rank == far) {
    measured_by(0, seconds);
  }
  wait_asleep();
  MPI_Finalize();
  return 0;
}
