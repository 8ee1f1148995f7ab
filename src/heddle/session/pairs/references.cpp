#include "heddle/session/pairs/references.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/files/input_file.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"
#include "heddle/base/hash.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/session/run_data.h"
#include "heddle/train/evaluate.h"

namespace heddle::session {

namespace {

// The file: this, then the losses of the training sequences and of the held-out ones.
struct Heading {
  char magic[8] = {'H', 'E', 'D', 'R', 'E', 'F', '1', '\n'};
  int64_t train = 0, heldout = 0;
  uint64_t hash = 0;  // hash of the losses
};

uint64_t hash_of(const PairReferences& references) {
  uint64_t hash = 0;
  for (const auto* losses : {&references.train, &references.heldout})
    hash = hash_bytes({reinterpret_cast<const char*>(losses->data()), losses->size() * sizeof(double)}, hash);
  return hash;
}

}  // namespace

void make_references(const RunFolder& folder, int64_t heldout, train::Trainer& trainer, RunData& data) {
  const int64_t each = trainer.options().plan.sequences * trainer.options().plan.mesh.dp;
  const int64_t train = data.dataset->train_sequences();
  std::optional<observe::Doing> doing;
  if (trainer.ranks().leads()) doing.emplace("the reference of all pairs");
  PairReferences made;
  for (int64_t first = 0; first < train; first += each) {
    const std::vector<double> losses =
        train::sequence_losses(trainer, data.numbered(first, std::min(each, train - first)));
    made.train.insert(made.train.end(), losses.begin(), losses.end());
    if (doing) doing->now("the reference of all pairs", static_cast<double>(first) / static_cast<double>(train));
  }
  made.heldout = train::sequence_losses(trainer, data.heldout(heldout / 2 * 2));
  data.references = std::move(made);
  if (!trainer.ranks().leads()) return;
  Heading heading;
  heading.train = std::ssize(data.references.train);
  heading.heldout = std::ssize(data.references.heldout);
  heading.hash = hash_of(data.references);
  std::string bytes(reinterpret_cast<const char*>(&heading), sizeof heading);
  for (const auto* losses : {&data.references.train, &data.references.heldout})
    bytes.append(reinterpret_cast<const char*>(losses->data()), losses->size() * sizeof(double));
  write_file(folder.references(), bytes);
}

void read_references(const RunFolder& folder, RunData& data) {
  const std::string path = folder.references();
  if (!std::filesystem::exists(held_path(path))) {
    config_error(
        "--resume: {} is gone. It holds the likelihood of each answer under the run's first weights; without it "
        "the run can't resume",
        path);
  }
  const InputFile file(path);
  const Heading expected;
  Heading heading;
  const auto payload = file.size_bytes() - static_cast<int64_t>(sizeof heading);
  if (payload >= 0) file.read(0, &heading, sizeof heading);
  const int64_t train = data.dataset->train_sequences(), heldout = data.dataset->heldout_sequences();
  const bool fits = payload >= 0 && std::memcmp(heading.magic, expected.magic, sizeof heading.magic) == 0 &&
                    heading.train == train && heading.heldout >= 0 && heading.heldout <= heldout &&
                    payload == (heading.train + heading.heldout) * static_cast<int64_t>(sizeof(double));
  if (!fits) config_error("--resume: {} is not of this run's {} training sequences", path, train);
  PairReferences read;
  read.train.resize(static_cast<size_t>(heading.train));
  read.heldout.resize(static_cast<size_t>(heading.heldout));
  const auto bytes = [](const std::vector<double>& losses) { return std::ssize(losses) * int64_t{sizeof(double)}; };
  file.read(sizeof heading, read.train.data(), bytes(read.train));
  file.read(static_cast<int64_t>(sizeof heading) + bytes(read.train), read.heldout.data(), bytes(read.heldout));
  if (hash_of(read) != heading.hash) config_error("--resume: {} is damaged: its checksum differs", path);
  data.references = std::move(read);
}

train::Preference look_at_pairs(int64_t heldout, train::Trainer& trainer, const RunData& data) {
  const std::vector<double>& references = data.references.heldout;
  const int64_t count = std::min(heldout / 2 * 2, std::ssize(references));
  return train::preference_of(train::sequence_losses(trainer, data.heldout(count)),
                              std::span(references).first(static_cast<size_t>(count)),
                              trainer.options().plan.objective);
}

}  // namespace heddle::session
