#include "heddle/train/audit/op_digests.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/files/input_file.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"
#include "heddle/base/hash.h"
#include "heddle/ir/print.h"
#include "heddle/runtime/executor.h"
#include "heddle/train/step/moment.h"

namespace heddle::train {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMagic = 0x3153504f4c444548;  // "HEDLOPS1"

// An entry as the file has it.
struct Entry {
  int32_t listing;
  uint32_t op;
  int32_t microbatch;
  uint32_t unused;
  uint64_t digest;
};
static_assert(sizeof(Entry) == 24);

struct Heading {
  uint64_t magic, program, entries;
};

uint64_t digest_of(const device::TensorView& view, uint64_t seed) {
  constexpr int64_t kPart = 1 << 16;
  const int64_t bytes = view.elements() * size_of(view.dtype), parts = (bytes + kPart - 1) / kPart;
  const char* data = view.as<const char>();
  uint64_t sum = mix_bits(seed);
#pragma omp parallel for schedule(static) reduction(+ : sum) if (parts > 4)
  for (int64_t i = 0; i < parts; ++i) {
    const auto size = static_cast<size_t>(std::min(kPart, bytes - i * kPart));
    sum += hash_bytes({data + i * kPart, size}, mix_bits(seed + static_cast<uint64_t>(i) + 1));
  }
  return sum;
}

}  // namespace

OpRecorder::OpRecorder(Trainer& trainer) : trainer_(trainer) {
  trainer.executor().watch([this](const device::Launch& launch) { note(launch); });
}

OpRecorder::~OpRecorder() { trainer_.executor().watch({}); }

void OpRecorder::note(const device::Launch& launch) {
  uint64_t digest = 0, place = 0;
  for (const auto views : {launch.call.out, launch.call.updates}) {
    for (const device::TensorView& view : views) {
      ++place;  // packed values have gaps that hold anything
      if (!view || view.layout == ir::Layout::packed) continue;
      for (int64_t i = 0; i < view.stretches; ++i)
        digest += digest_of(view.stretch(i), place + (static_cast<uint64_t>(i) << 32));
    }
  }
  const std::lock_guard lock(mutex_);
  uint64_t& kept = digests_[{launch.listing, launch.op_index, launch.call.microbatch}];
  kept = mix_bits(kept) + digest;
}

OpDigests OpRecorder::take() { return std::exchange(digests_, {}); }

OpDigestFiles::OpDigestFiles(std::string folder, Trainer& trainer)
    : folder_(std::move(folder)),
      rank_(trainer.ranks().rank()),
      program_(hash_bytes(ir::text_of(trainer.lowered().program))) {}

std::string OpDigestFiles::folder_of(int64_t step) const { return fmt::format("{}/step-{:06}", folder_, step); }

std::string OpDigestFiles::file_of(int64_t step) const {
  return fmt::format("{}/rank-{:04}.ops", folder_of(step), rank_);
}

void OpDigestFiles::write(int64_t step, const OpDigests& digests, int64_t keep) const {
  std::error_code error;
  fs::create_directories(held_path(folder_of(step)), error);
  if (error) throw SystemError(error.value(), fmt::format("cannot make {}: {}", folder_of(step), error.message()));
  std::string bytes(sizeof(Heading), '\0');
  const Heading heading{kMagic, program_, digests.size()};
  std::memcpy(bytes.data(), &heading, sizeof heading);
  for (const auto& [run, digest] : digests) {
    const Entry entry{run.listing, run.op, run.microbatch, 0, digest};
    bytes.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  }
  const uint32_t sum = crc32c(bytes.data(), bytes.size());
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  OutputFile file(file_of(step), OutputFile::Open::replace, OutputFile::Access::owner,
                  OutputFile::Flush::to_system);
  file.write(bytes);
  file.commit();
  fs::remove(held_path(file_of(step - keep)), error);
  fs::remove(held_path(folder_of(step - keep)), error);  // the last rank to leave it
}

std::optional<OpDigests> OpDigestFiles::read(int64_t step) const {
  const std::string path = file_of(step);
  if (!fs::exists(path)) return std::nullopt;
  const InputFile file(path);
  Heading heading{};
  constexpr int64_t kLeast = sizeof heading + sizeof(uint32_t), kMost = int64_t{1} << 32;
  if (file.size_bytes() < kLeast || file.size_bytes() > kMost)
    config_error("{}: {} bytes are no digests of ops", path, file.size_bytes());
  std::string bytes(static_cast<size_t>(file.size_bytes()), '\0');
  file.read(0, bytes.data(), file.size_bytes());
  std::memcpy(&heading, bytes.data(), sizeof heading);
  if (heading.magic != kMagic) config_error("{}: no digests of ops", path);
  uint32_t sum = 0;
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  if (sum != crc32c(bytes.data(), bytes.size() - sizeof sum)) config_error("{}: its checksum is another", path);
  if (heading.entries != (bytes.size() - kLeast) / sizeof(Entry))
    config_error("{}: {} bytes for {} digests", path, bytes.size(), heading.entries);
  if (heading.program != program_) return std::nullopt;
  OpDigests digests;
  for (uint64_t i = 0; i < heading.entries; ++i) {
    Entry entry{};
    std::memcpy(&entry, bytes.data() + sizeof heading + i * sizeof entry, sizeof entry);
    digests[{entry.listing, entry.op, entry.microbatch}] = entry.digest;
  }
  return digests;
}

std::string first_difference(Trainer& trainer, const OpDigests& recorded, const OpDigests& now) {
  const plan::Lowered& lowered = trainer.lowered();
  Moment first;
  std::string found;
  for (const auto& [run, digest] : now) {
    const auto before = recorded.find(run);
    if (before != recorded.end() && before->second == digest) continue;
    const ir::Listing& listing = lowered.program.listings.at(static_cast<size_t>(run.listing));
    const ir::Op& op = listing.ops.at(run.op);
    const Moment moment = moment_of(lowered, run.listing, op, run.microbatch, run.op, trainer.ranks().rank());
    if (moment >= first) continue;
    first = moment;
    const ir::ValueId made = !op.out.empty() ? op.out[0] : !op.updates.empty() ? op.updates[0] : ir::none;
    found = place_text(op, made == ir::none ? "" : listing.value(made).name, run.microbatch, trainer.ranks());
  }
  return earliest(trainer.ranks(), first, found, "");
}

}  // namespace heddle::train
