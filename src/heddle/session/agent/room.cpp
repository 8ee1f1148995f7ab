#include "heddle/session/agent/room.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "heddle/base/files/random_id.h"
#include "heddle/device/host/shared_arena.h"
#include "heddle/ir/walk/walk.h"
#include "heddle/plan/plan.h"
#include "heddle/session/run_environment.h"
#include "heddle/train/rank_exchange.h"

namespace heddle::session {

namespace {

constexpr int64_t kBeside = int64_t{1} << 20;  // index, seals and locks

int64_t replica_bytes(const train::TrainerOptions& options, int rank) {
  const plan::Lowered lowered = plan::lower(options.model, options.plan);
  const ir::Walk walk(lowered.program, rank, 0);
  return walk.storage(ir::Space::shared).reserved_bytes() + device::SharedArena::kDataAt + kBeside;
}

}  // namespace

std::string no_room_for_copies(const train::TrainerOptions& options, comm::World* world) {
  train::RankExchange ranks(world);
  const int64_t bytes = replica_bytes(options, ranks.rank());
  const std::string path = options.snapshots.folder + "/.room-" + random_id();
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  const int error = file < 0 ? errno : ::posix_fallocate(file, 0, bytes);
  std::string why;
  if (error != 0)
    why = fmt::format("{} has no room for {:.1f} MB of rank {}: {}", host_name(), static_cast<double>(bytes) * 1e-6,
                      ranks.rank(), std::strerror(error));
  std::string first;
  for (std::string& said : ranks.share(why)) {  // all that is taken stays taken until all have said so
    if (first.empty()) first = std::move(said);
  }
  if (file >= 0) {
    ::unlink(path.c_str());
    ::close(file);
  }
  ranks.any(false);  // nobody takes it in earnest before all have given it back
  return first;
}

}  // namespace heddle::session
