// What copies of the state in memory keep a step from, how fast an agent writes them to disk, and how soon a job is
// back from memory, from another host's memory and from disk.
//
//   bench_checkpoint [--experts N] [--rounds N] [--threads N] [--folder DISK] [--json]
//
// blocked_over_copy: steps with and without a copy take turns; the difference of a pair over the time in which as
// many threads copy the same bytes once, between the two. On the CPU the copy and its checksums take the step's
// cores. sealed_seconds: from the begin of such a step until its copy is sealed; foretold_sealed_seconds: the bytes
// at the rate at which a thread copies, or takes checksums where that is slower: the terms of foretold_1tb_seconds
// at this machine's scale. blocked_over_copy_where_it_hides: the same of the simulator, on a
// device whose link copies by itself (bench/linked_device.h). persist_over_disk: shards of a set on disk, checksums
// compared before and after and read back, over the rate of a plain writer of the same bytes (write, fsync, rename,
// fsync of the folder), in turn. restore_seconds: until the trainer stands where the copy was taken: from this
// host's memory; from an agent over the loopback, whose every 4 MiB are compared as they come; from the checkpoint
// on disk. foretold_1tb_seconds: of 1 TB on 1,000 devices, until a copy is sealed in the hosts' memory: the bytes
// of a device at the simulator's rate of the link, or at the rate at which this host takes checksums where that is
// longer. And until it lies in a partner's memory too, at the measured rate of one agent for the eight devices of a
// host, or that of its network, stated at 400 Gbit/s, where that is slower.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/linked_device.h"
#include "bench/published_models.h"
#include "bench/support/main.h"
#include "bench/support/probe.h"
#include "bench/support/stops.h"
#include "heddle/base/clock.h"
#include "heddle/base/files/chunk_sums.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/random_id.h"
#include "heddle/base/statistics.h"
#include "heddle/session/agent/door.h"
#include "heddle/session/agent/partner.h"
#include "heddle/session/agent/persist.h"
#include "heddle/session/agent/run_memory.h"
#include "heddle/session/agent/shared_segments.h"
#include "heddle/train/audit/weight_digest.h"
#include "heddle/train/controllers/snapshot_schedule.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The steps' own times differ by as much as a copy takes: it takes many pairs, of short steps.
constexpr int kPairs = 6;  // a round

struct Options {
  bool json = false;
  int experts = 16, rounds = 7, threads = 2;
  std::string folder;
};

train::TrainerOptions options_of(const Options& given, const std::string& memory) {
  train::TrainerOptions o;
  model::ModelConfig& m = o.model;
  m.hidden_size = 512;
  m.num_hidden_layers = 4;
  m.intermediate_size = 1536;
  m.num_attention_heads = 8;
  m.kv_lora_rank = 128;
  m.qk_nope_head_dim = 64;
  m.qk_rope_head_dim = 32;
  m.v_head_dim = 64;
  m.n_routed_experts = given.experts;
  m.num_experts_per_tok = 4;
  m.moe_intermediate_size = 256;
  o.plan.dtype = Dtype::bf16;
  o.plan.sequences = 1;
  o.plan.sequence_length = 512;
  o.plan.microbatches = 1;
  o.plan.snapshot_every = 2;
  o.threads = given.threads;
  o.length = {1000};
  o.learning_rate = {.shape = config::LearningRate::Shape::constant, .peak = 1e-3};
  o.snapshots = {memory, random_id(), 1};
  return o;
}

template <class Act>
double seconds_of(const Act& act) {
  const double start_s = now_s();
  act();
  return now_s() - start_s;
}

// As write_shard has it on disk, of bytes that need no look.
void write_plainly(const std::string& folder, const std::vector<std::span<const uint8_t>>& pieces) {
  const std::string path = folder + "/plain";
  const int file = ::open((path + ".part").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (const auto& piece : pieces) {
    for (size_t at = 0; at < piece.size();) {
      const ssize_t size = ::write(file, piece.data() + at, std::min<size_t>(piece.size() - at, 4 << 20));
      if (size <= 0) throw SystemError(errno, "the plain writer can't write");
      at += static_cast<size_t>(size);
    }
  }
  if (::fsync(file) != 0) throw SystemError(errno, "the plain writer can't flush");
  ::close(file);
  fs::rename(path + ".part", path);
  flush_folder(folder);
}

// The time at which the last copy of a segment in a folder was sealed.
double sealed_s(const std::string& folder) {
  double last_s = 0;
  for (const train::SegmentFiles& files : train::segments_in(folder)) {
    for (int set = 0; set < train::kSets; ++set) {
      struct stat is {};
      if (::stat(files.seal(set).c_str(), &is) == 0)
        last_s = std::max(last_s,
                          static_cast<double>(is.st_mtim.tv_sec) + 1e-9 * static_cast<double>(is.st_mtim.tv_nsec));
    }
  }
  return last_s;
}

// An agent's door, as another host's would be: what lies in `folder` is lent, and what comes is kept in `kept`.
class OtherHost {
 public:
  OtherHost(const std::string& folder, const std::string& kept, const std::string& token)
      : door_("lo", token), thread_([this, folder, kept] {
          while (!stop_) {
            std::optional<session::Link> link = door_.accept(0.05, stop_);
            if (!link) continue;
            session::SegmentServer lending({folder});
            session::Replicas replicas(kept);
            try {
              while (!stop_) {
                const std::optional<session::Link::Frame> frame = link->receive(0.05);
                if (!frame) continue;
                if (session::SegmentServer::is_asked(*frame)) {
                  lending.answer(*link, *frame);
                } else {
                  replicas.take(*link, *frame);
                }
              }
            } catch (const SystemError&) {
            }
          }
        }) {}
  ~OtherHost() {
    stop_ = true;
    thread_.join();
  }
  const std::string& address() const { return door_.address(); }

 private:
  std::atomic<bool> stop_{false};
  session::Door door_;
  std::thread thread_;
};

struct Folders {
  std::string memory = session::memory_folder(random_id()), kept = session::memory_folder(random_id());
  ScratchFolder scratch;
  ~Folders() {
    std::error_code ignored;
    for (const std::string& path : {memory, kept}) fs::remove_all(path, ignored);
  }
};

// The link's share of a copy on a stated device, and how much longer a step is with one beside it.
struct Predicted {
  double bytes = 0, copy_s = 0, blocked_s = 0;
};
Predicted predicted_on(const bench::LinkedDevice& device) {
  model::ModelConfig model = bench::deepseek_v3(4096);
  model.vocab_size = 2112;
  model.num_hidden_layers = 1;
  model.first_k_dense_replace = 0;
  model.n_routed_experts = 8;
  plan::Plan plan;
  plan.rates = bench::rates_of(device);
  plan.dtype = Dtype::bf16;
  plan.sequence_length = 4096;
  plan.microbatches = 4;
  bench::LinkedRun without(model, plan, 1);
  plan.snapshot_every = 1;
  bench::LinkedRun with(model, plan, 1);
  const plan::Lowered lowered = plan::lower(model, plan);
  const passes::Durations durations_us = plan::nominal_durations(plan.parallel.exchange, plan.rates);
  const ir::Listing& copies =
      lowered.program.listings[static_cast<size_t>(lowered.program.listing_of(0, ir::Purpose::snapshot))];
  Predicted made;
  for (const ir::Op& op : copies.ops) {
    if (op.def->flips) continue;
    made.bytes += static_cast<double>(copies.bytes(op.in[0], ir::FixedRows()));
    made.copy_s += durations_us(copies, op) * 1e-6;
  }
  made.blocked_s = with.predicted_s() - without.predicted_s();
  return made;
}

Json measured(const Options& given) {
  const Folders folders;
  const std::string disk = given.folder.empty() ? folders.scratch / "disk" : given.folder + "/bench-checkpoint";
  fs::create_directories(disk);
  train::Trainer trainer(options_of(given, folders.memory));
  trainer.initialise();
  const auto sequences = train::random_sequences(trainer, 1, 1);
  const auto step = [&] { return seconds_of([&] { trainer.step(sequences); }); };
  for (int i = 0; i < 4; ++i) step();
  const auto bytes = static_cast<double>(trainer.controllers().get<train::SnapshotSchedule>().snapshots().bytes());

  bench::CopyProbe copies(given.threads);
  std::vector<double> blocked, blocked_of_a_step, copied, steps, sealed;
  Json unfinished;
  for (int i = 0; i < kPairs * given.rounds; ++i) {
    const double began_s = wall_time_s();
    const double with_s = step();
    sealed.push_back(sealed_s(folders.memory) - began_s);
    copies.sample();
    const double without_s = step();
    const double copy_s = 2 * bytes / copies.rates().back();
    copied.push_back(copy_s);
    steps.push_back(without_s);
    blocked.push_back((with_s - without_s) / copy_s);
    blocked_of_a_step.push_back((with_s - without_s) / without_s);
    unfinished.update({{"step_s", median(steps)},
                       {"copy_s", median(copied)},
                       {"blocked_over_copy", median(blocked)},
                       {"blocked_of_a_step", median(blocked_of_a_step)},
                       {"sealed_seconds", median(sealed)}});
    bench::so_far(unfinished.dump(2));
  }
  step();  // the last copy is sealed, both sets are whole

  const session::RunFolder run{disk};
  const auto files = train::segments_in(folders.memory);
  const auto segment = std::make_shared<const train::Segment>(files.at(0));
  const int64_t newest = train::newest_in_memory({folders.memory}, false)->state().step;
  const int set = segment->set_of(newest);
  std::vector<std::span<const uint8_t>> pieces;
  double kept_bytes = 0;
  for (const train::SegmentIndex::Tensor& tensor : segment->index().tensors) {
    static std::deque<std::vector<float>> made;
    pieces.push_back(segment->bytes_of(tensor, set, made.emplace_back()));
    kept_bytes += static_cast<double>(pieces.back().size());
  }
  std::vector<double> over_disk, persisted, plain;
  for (int i = 0; i < given.rounds; ++i) {
    const double plain_s = seconds_of([&] { write_plainly(disk, pieces); });
    const double persist_s = seconds_of([&] { session::persist(run, {segment}, newest); });
    plain.push_back(kept_bytes / plain_s);
    persisted.push_back(kept_bytes / persist_s);
    over_disk.push_back(plain_s / persist_s);
    unfinished.update({{"persist_over_disk", median(over_disk)},
                       {"persist_bytes_per_s", median(persisted)},
                       {"disk_bytes_per_s", median(plain)}});
    bench::so_far(unfinished.dump(2));
  }
  fs::remove(disk + "/plain");

  // What ranks find of an agent elsewhere: an entry whose folder is not to be reached from here.
  const std::string token = random_id();
  const OtherHost door(folders.memory, folders.kept, token);
  const std::string entries = disk + session::kAgents;
  fs::create_directories(entries);
  write_file(folders.kept + session::kAgentToken, token);
  write_file(entries + "/here", folders.kept + "\n\n");
  write_file(entries + "/there", fmt::format("/dev/shm/heddle-{}\n{}\n", random_id(), door.address()));

  std::map<std::string, std::vector<double>> restored;
  std::vector<double> given_rates, sum_rates;
  bench::CopyProbe one_thread(1);  // which stands for the link
  std::string digest;
  for (int i = 0; i < given.rounds; ++i) {
    const auto load = [&](const std::optional<train::Checkpoint>& checkpoint) {
      HEDDLE_CHECK(checkpoint && checkpoint->state().step == newest, "no checkpoint to restore");
      train::load_trainer(*checkpoint, trainer);
    };
    const std::vector<std::pair<const char*, std::function<std::optional<train::Checkpoint>()>>> sources{
        {"memory", [&] { return train::newest_in_memory({folders.memory}, true); }},
        {"partner",
         [&] { return train::newest_in_memory({}, true, nullptr, 0, 0, session::shared_segments(run, nullptr)); }},
        {"disk", [&] { return train::latest_checkpoint(run.checkpoints()); }}};
    for (const auto& [name, open] : sources) {
      restored[name].push_back(seconds_of([&] { load(open()); }));
      const std::string found = train::WeightDigest(trainer).take();
      if (digest.empty()) digest = found;
      HEDDLE_CHECK(found == digest, "from {} come weights of the digest {}, not {}", name, found, digest);
    }
    session::Link link = session::Link::to(door.address(), token);
    given_rates.push_back(bytes / seconds_of([&] { session::replicate(link, *segment, newest); }));
    sum_rates.push_back(bytes / seconds_of([&] { segment->verify(set); }));
    one_thread.sample();
    for (const auto& [from, all] : restored) unfinished["restore_seconds"][from] = median(all);
    bench::so_far(unfinished.dump(2));
  }
  if (!given.folder.empty()) fs::remove_all(disk);

  constexpr double kOneTB = 1e12, kDevices = 1000, kOfAHost = 8, kNetwork = 50e9;
  const Predicted device = predicted_on(bench::kLinkedDevices[0]);
  const double of_a_device = kOneTB / kDevices;
  const double sealed_s = std::max(device.copy_s * of_a_device / device.bytes, of_a_device / median(sum_rates));
  const double given_s = kOfAHost * of_a_device / std::min(median(given_rates), kNetwork);
  Json seconds;
  for (const auto& [from, all] : restored) seconds[from] = median(all);
  return {{"bytes", bytes},
          {"rounds", given.rounds},
          {"step_s", median(steps)},
          {"copy_s", median(copied)},
          {"blocked_over_copy", median(blocked)},
          {"blocked_of_a_step", median(blocked_of_a_step)},
          {"sealed_seconds", median(sealed)},
          {"foretold_sealed_seconds", std::max(2 * bytes / one_thread.bytes_per_s(), bytes / median(sum_rates))},
          {"blocked_over_copy_where_it_hides", device.blocked_s / device.copy_s},
          {"persist_over_disk", median(over_disk)},
          {"persist_bytes_per_s", median(persisted)},
          {"disk_bytes_per_s", median(plain)},
          {"restore_seconds", seconds},
          {"given_bytes_per_s", median(given_rates)},
          {"checksums_bytes_per_s", median(sum_rates)},
          {"foretold_1tb_seconds", sealed_s},
          {"foretold_1tb_with_partner_seconds", sealed_s + given_s},
          {"foretold_device", bench::kLinkedDevices[0].name}};
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options given;
  arguments.flag("--json", given.json);
  arguments.number("--experts", given.experts, 4);
  arguments.number("--rounds", given.rounds, 1);
  arguments.number("--threads", given.threads, 1);
  arguments.word("--folder", "DISK", given.folder);
  arguments.read();
  const Json found = measured(given);
  if (given.json) {
    fmt::print("{}\n", found.dump(2));
    return 0;
  }
  for (const auto& [key, value] : found.items()) fmt::print("{:36} {}\n", key, value.dump());
  return 0;
}

}  // namespace heddle
