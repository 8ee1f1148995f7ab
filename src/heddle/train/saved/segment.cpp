#include "heddle/train/saved/segment.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/chunk_sums.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/numbers/split_float.h"
#include "heddle/device/host/shared_arena.h"
#include "heddle/train/saved/checked_json.h"
#include "heddle/train/saved/runs_json.h"
#include "heddle/train/saved/state_json.h"

namespace heddle::train {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kSegmentFormat = 1;
constexpr int64_t kMostText = int64_t{1} << 28;
constexpr std::string_view kIndexEnd = ".index";
constexpr int64_t kDataAt = device::SharedArena::kDataAt;

int64_t sum_bytes(int64_t bytes) { return 4 * std::max<int64_t>(1, chunks_of(bytes)); }

// A plain file of this user, and of nobody else's to read; -1: it is none, or not there.
int open_own(const std::string& path, int how, int64_t* size = nullptr) {
  const int file = ::open(path.c_str(), how | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
  if (file < 0) return -1;
  struct stat is {};
  if (fstat(file, &is) != 0 || !S_ISREG(is.st_mode) || is.st_uid != geteuid() || (is.st_mode & 077) != 0) {
    ::close(file);
    return -1;
  }
  if (size != nullptr) *size = is.st_size;
  return file;
}

// The runs of a part that has no more elements than there are bytes.
std::vector<Runs> sound_runs(const json& told, int64_t bytes, const std::string& tensor, const std::string& path) {
  std::vector<Runs> runs = runs_from(told);
  int64_t local = 0;
  for (Runs& r : runs) {
    const bool sound = r.count > 0 && r.times > 0 && r.whole >= 0 && r.stride >= 0 && r.count <= bytes &&
                       r.times <= bytes / r.count && (r.times == 1 || r.stride >= r.count) &&
                       r.elements() <= bytes - local;
    if (!sound) config_error("{}: tensor '{}' has no such elements", path, formats::printable(tensor));
    r.local = local;
    local += r.elements();
  }
  return runs;
}

Dtype dtype_from(const std::string& type, const std::string& tensor, const std::string& path) {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::u8}) {
    if (type == name_of(formats::stored_type(dtype))) return dtype;
  }
  config_error("{}: tensor '{}' is '{}', accepted: F64, F32, BF16, U8", path, formats::printable(tensor),
               formats::printable(type));
}

const SegmentIndex::Held& value_of(const SegmentIndex& index, const SegmentIndex::Tensor& tensor, size_t part) {
  return index.values[static_cast<size_t>(tensor.of[part])];
}

// The second moment's, beside a split master: it has as many elements as the low halves, of 2 bytes each.
Dtype moment_type(const SegmentIndex& index, const SegmentIndex::Tensor& tensor) {
  return value_of(index, tensor, 2).bytes == value_of(index, tensor, 1).bytes ? Dtype::bf16 : Dtype::f32;
}

void check_split(const SegmentIndex& index, const SegmentIndex::Tensor& tensor, const std::string& path) {
  const Dtype moment = moment_type(index, tensor);
  const Dtype made = tensor.form == SegmentIndex::Form::split_master ? Dtype::f32 : moment;
  if (tensor.dtype != made || value_of(index, tensor, 2).bytes / size_of(moment) < tensor.elements())
    config_error("{}: tensor '{}' is of another type than its parts", path, formats::printable(tensor.name));
}

SegmentIndex index_from(const json& from, const std::string& path) {
  SegmentIndex index;
  if (from.at("format").get<int>() != kSegmentFormat)
    config_error("{}: format {}, this program reads format {}", path, from.at("format").get<int>(), kSegmentFormat);
  from.at("run").get_to(index.run);
  from.at("generation").get_to(index.generation);
  from.at("rank").get_to(index.rank);
  from.at("ranks").get_to(index.ranks);
  from.at("bytes").get_to(index.bytes);
  if (index.rank < 0 || index.rank >= index.ranks || index.bytes < 0)
    config_error("{}: rank {} of {}, {} bytes", path, index.rank, index.ranks, index.bytes);
  for (const json& said : from.at("values")) {
    SegmentIndex::Held held{said.at("name").get<std::string>(), said.at("bytes").get<int64_t>(), {}, {}};
    said.at("at").get_to(held.at);
    said.at("sums_at").get_to(held.sums_at);
    for (int set = 0; set < kSets; ++set) {
      const auto s = static_cast<size_t>(set);
      const auto lies = [&](int64_t at, int64_t bytes) {
        return bytes >= 0 && at >= 0 && at % 4 == 0 && bytes <= index.bytes && at <= index.bytes - bytes;
      };
      if (!lies(held.at[s], held.bytes) || !lies(held.sums_at[s], sum_bytes(held.bytes)))
        config_error("{}: '{}' lies nowhere", path, formats::printable(held.name));
    }
    index.values.push_back(std::move(held));
  }
  for (const json& said : from.at("tensors")) {
    SegmentIndex::Tensor tensor;
    said.at("name").get_to(tensor.name);
    tensor.dtype = dtype_from(said.at("type").get<std::string>(), tensor.name, path);
    said.at("shape").get_to(tensor.shape);
    tensor.runs = sound_runs(said.at("runs"), index.bytes, tensor.name, path);
    const int64_t local = tensor.elements();
    const auto form = said.at("form").get<int>();
    said.at("of").get_to(tensor.of);
    if (form < 0 || form > 2) config_error("{}: form {}", path, form);
    tensor.form = static_cast<SegmentIndex::Form>(form);
    const bool plain = tensor.form == SegmentIndex::Form::plain;
    for (size_t i = 0; i < (plain ? 1U : 3U); ++i) {
      const bool known = tensor.of[i] >= 0 && tensor.of[i] < std::ssize(index.values);
      if (!known || value_of(index, tensor, i).bytes / (plain ? size_of(tensor.dtype) : 2) < local)
        config_error("{}: tensor '{}' is made of nothing", path, formats::printable(tensor.name));
    }
    if (!plain) check_split(index, tensor, path);
    index.tensors.push_back(std::move(tensor));
  }
  return index;
}

}  // namespace

std::string text_of(const SegmentIndex& index) {
  json values = json::array(), tensors = json::array();
  for (const SegmentIndex::Held& held : index.values)
    values.push_back({{"name", held.name}, {"bytes", held.bytes}, {"at", held.at}, {"sums_at", held.sums_at}});
  for (const SegmentIndex::Tensor& tensor : index.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"type", name_of(formats::stored_type(tensor.dtype))},
                       {"shape", tensor.shape},
                       {"runs", json_of(tensor.runs)},
                       {"form", static_cast<int>(tensor.form)},
                       {"of", tensor.of}});
  }
  return checked_text({{"format", kSegmentFormat},
                       {"run", index.run},
                       {"generation", index.generation},
                       {"rank", index.rank},
                       {"ranks", index.ranks},
                       {"bytes", index.bytes},
                       {"values", values},
                       {"tensors", tensors}});
}

std::string text_of(const Seal& seal, const SegmentIndex& index, uint32_t sums) {
  const std::string text = text_of(index);
  json elsewhere = json::array();
  for (const auto& [tensor, runs] : seal.elsewhere) elsewhere.push_back({tensor, json_of(runs)});
  return checked_text({{"step", seal.step},
                       {"elsewhere", elsewhere},
                       {"state", json_of(seal.state)},
                       {"persists", seal.persists},
                       {"index", checksum_text(crc32c(text.data(), text.size()))},
                       {"sums", checksum_text(sums)}});
}

void SegmentFiles::remove() const {
  // The seals first: what is half removed is no whole set.
  for (const std::string& path : {seal(0), seal(1), index(), data(), hold(0), hold(1)}) ::unlink(path.c_str());
}

std::vector<SegmentFiles> segments_in(const std::string& folder) {
  std::vector<SegmentFiles> found;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(kIndexEnd))
      found.push_back({folder, name.substr(0, name.size() - kIndexEnd.size())});
  }
  std::sort(found.begin(), found.end(),
            [](const SegmentFiles& a, const SegmentFiles& b) { return a.name < b.name; });
  return found;
}

std::optional<FileHold> FileHold::take(const std::string& path, How how, bool make) {
  const int file = open_own(path, O_RDWR | (make ? O_CREAT : 0));
  if (file < 0) return std::nullopt;
  if (flock(file, (how == How::alone ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
    ::close(file);
    return std::nullopt;
  }
  return FileHold(file);
}
FileHold::~FileHold() {
  if (file_ >= 0) ::close(file_);
}
FileHold::FileHold(FileHold&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

namespace {
SegmentIndex index_in(const std::string& text, const std::string& path) {
  try {
    return index_from(checked_json(text, path), path);
  } catch (const json::exception&) {
    config_error("{}: not the index of a segment: a key is missing or its value is of another type", path);
  }
}
}  // namespace

int64_t bytes_of_index(const std::string& path) { return index_in(read_file(path, kMostText), path).bytes; }

const uint8_t* Segment::data() const { return mapped_ + kDataAt; }

Segment::Segment(SegmentFiles files) : files_(std::move(files)) {
  const std::string text = read_file(files_.index(), kMostText);
  index_ = index_in(text, files_.index());
  index_sum_ = crc32c(text.data(), text.size());
  int64_t size = 0;
  const int file = open_own(files_.data(), O_RDONLY, &size);
  if (file < 0) config_error("{}: no plain file of this user alone", files_.data());
  mapped_bytes_ = kDataAt + std::max<int64_t>(1, index_.bytes);
  if (size != mapped_bytes_) {
    ::close(file);
    config_error("{}: {} bytes, {} are expected", files_.data(), size, mapped_bytes_);
  }
  map(file);
}

Segment::Segment(SegmentFiles files, SharedSegment remote, std::shared_ptr<SegmentOwner> owner)
    : files_(std::move(files)), seals_(std::move(remote.seals)), owner_(std::move(owner)) {
  index_ = index_in(remote.index, files_.index());
  index_sum_ = crc32c(remote.index.data(), remote.index.size());
  mapped_bytes_ = kDataAt + std::max<int64_t>(1, index_.bytes);
  map(-1);
  for (int set = 0; set < kSets; ++set) {
    const std::vector<uint32_t>& all = remote.sums[static_cast<size_t>(set)];
    size_t at = 0;
    for (const SegmentIndex::Held& held : index_.values) {
      const auto count = static_cast<size_t>(chunks_of(held.bytes));
      if (at + count > all.size()) break;  // its seal shows it
      std::memcpy(mapped_ + kDataAt + held.sums_at[static_cast<size_t>(set)], all.data() + at, 4 * count);
      at += count;
    }
  }
}

// A shared segment takes memory only for the parts that have been fetched.
void Segment::map(int file) {
  const bool here = file >= 0;
  void* mapped = mmap(nullptr, static_cast<size_t>(mapped_bytes_), here ? PROT_READ : PROT_READ | PROT_WRITE,
                      here ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, file, 0);
  const int error = errno;
  if (here) ::close(file);
  if (mapped == MAP_FAILED)
    throw SystemError(error, fmt::format("'{}' can't be mapped: {}", files_.data(), std::strerror(error)));
  mapped_ = static_cast<uint8_t*>(mapped);
}

Segment::~Segment() { munmap(mapped_, static_cast<size_t>(mapped_bytes_)); }

SharedSegment Segment::description() const {
  SharedSegment remote{text_of(index_), {}, {}};
  for (int set = 0; set < kSets; ++set) {
    if (!seal(set)) continue;
    const auto s = static_cast<size_t>(set);
    remote.seals[s] = read_file(files_.seal(set), kMostText);
    for (const SegmentIndex::Held& held : index_.values) {
      const auto* from = reinterpret_cast<const uint32_t*>(sums(held, set).data());
      remote.sums[s].insert(remote.sums[s].end(), from, from + chunks_of(held.bytes));
    }
  }
  return remote;
}

void Segment::fetch_bytes(const SegmentIndex::Held& held, int set, int64_t first, int64_t count) const {
  const int64_t chunk = static_cast<int64_t>(kChunkBytes), at = held.at[static_cast<size_t>(set)];
  for (int64_t begin = first / chunk * chunk; begin < first + count; begin += chunk) {
    if (fetched_chunks_.contains(at + begin)) continue;
    const std::span<uint8_t> into(mapped_ + kDataAt + at + begin,
                                  static_cast<size_t>(std::min(chunk, held.bytes - begin)));
    owner_->read(at + begin, into);
    const uint32_t found = crc32c(into.data(), into.size());
    if (std::memcmp(&found, sums(held, set).data() + 4 * (begin / chunk), 4) != 0)
      throw SystemError(EIO, fmt::format("{}: '{}' arrives with other bytes than were copied", files_.data(),
                                         formats::printable(held.name)));
    fetched_chunks_.insert(at + begin);
  }
}

std::span<const uint8_t> Segment::fetch(const SegmentIndex::Tensor& tensor, int set, int64_t first, int64_t count,
                                        std::vector<float>& made) const {
  const auto held = [&](size_t i) -> const SegmentIndex::Held& {
    return index_.values[static_cast<size_t>(tensor.of[i])];
  };
  if (tensor.form == SegmentIndex::Form::plain) {
    fetch_bytes(held(0), set, first * size_of(tensor.dtype), count * size_of(tensor.dtype));
  } else if (made.empty()) {
    for (size_t i = 0; i < 3; ++i) fetch_bytes(held(i), set, 0, held(i).bytes);
  } else {
    return {reinterpret_cast<const uint8_t*>(made.data()),
            static_cast<size_t>(tensor.elements() * size_of(tensor.dtype))};
  }
  return bytes_of(tensor, set, made);
}

std::span<const uint8_t> Segment::value(const SegmentIndex::Held& held, int set) const {
  return {mapped_ + kDataAt + held.at[static_cast<size_t>(set)], static_cast<size_t>(held.bytes)};
}
std::span<const uint8_t> Segment::sums(const SegmentIndex::Held& held, int set) const {
  return {mapped_ + kDataAt + held.sums_at[static_cast<size_t>(set)], static_cast<size_t>(sum_bytes(held.bytes))};
}

uint32_t sum_of_sums(const SegmentIndex& index, int set, const uint8_t* base) {
  uint32_t sum = 0;
  for (const SegmentIndex::Held& held : index.values)
    sum =
        crc32c(base + held.sums_at[static_cast<size_t>(set)], static_cast<size_t>(4 * chunks_of(held.bytes)), sum);
  return sum;
}

std::optional<Seal> Segment::seal(int set) const {
  std::error_code ignored;
  const std::string& told = seals_[static_cast<size_t>(set)];
  if (is_shared() ? told.empty() : !fs::exists(files_.seal(set), ignored)) return std::nullopt;
  try {
    const std::string text = is_shared() ? told : read_file(files_.seal(set), kMostText);
    const json said = checked_json(text, files_.seal(set));
    Seal seal;
    said.at("step").get_to(seal.step);
    said.at("persists").get_to(seal.persists);
    seal.state = state_from(said.at("state"), files_.seal(set));
    for (const json& one : said.at("elsewhere")) {
      const SegmentIndex::Tensor& tensor = index_.tensors.at(one.at(0).get<size_t>());
      std::vector<Runs> runs = sound_runs(one.at(1), index_.bytes, tensor.name, files_.seal(set));
      if (elements_of(runs) != tensor.elements()) return std::nullopt;
      seal.elsewhere[one.at(0).get<size_t>()] = std::move(runs);
    }
    const bool fits =
        said.at("index").get<std::string>() == checksum_text(index_sum_) &&
        said.at("sums").get<std::string>() == checksum_text(sum_of_sums(index_, set, mapped_ + kDataAt)) &&
        seal.step == seal.state.step && seal.state.generation == index_.generation;
    if (fits) return seal;
  } catch (const json::exception&) {
  } catch (const std::out_of_range&) {
  } catch (const ConfigError&) {
  } catch (const SystemError&) {
  }
  return std::nullopt;
}

int Segment::set_of(int64_t step) const {
  for (int set = 0; set < kSets; ++set) {
    if (const auto found = seal(set); found && found->step == step) return set;
  }
  return -1;
}

void Segment::verify(int set) const {
  if (is_shared()) return owner_->verify(set);
  for (const SegmentIndex::Held& held : index_.values) {
    const auto bytes = value(held, set);
    const std::vector<uint32_t> found = chunk_sums(bytes.data(), bytes.size());
    if (!found.empty() && std::memcmp(found.data(), sums(held, set).data(), 4 * found.size()) != 0)
      config_error("{}: '{}' has other bytes than were copied; the memory is damaged", files_.data(),
                   formats::printable(held.name));
  }
}

std::span<const uint8_t> Segment::bytes_of(const SegmentIndex::Tensor& tensor, int set,
                                           std::vector<float>& made) const {
  const auto held = [&](size_t i) { return value(index_.values[static_cast<size_t>(tensor.of[i])], set); };
  const int64_t count = tensor.elements();
  if (tensor.form == SegmentIndex::Form::plain)
    return held(0).first(static_cast<size_t>(count * size_of(tensor.dtype)));
  const auto* nearest = reinterpret_cast<const bf16*>(held(0).data());
  const auto* low = reinterpret_cast<const uint16_t*>(held(1).data());
  const size_t bytes = static_cast<size_t>(count * size_of(tensor.dtype));
  made.resize((bytes + sizeof(float) - 1) / sizeof(float));
  const auto put_together = [&](const auto* v) {
    using Moment = std::remove_cvref_t<decltype(*v)>;
    if (tensor.form == SegmentIndex::Form::split_master) {
      for (int64_t i = 0; i < count; ++i)
        made[static_cast<size_t>(i)] = joined({nearest[i], low[i], std::signbit(static_cast<float>(v[i]))});
      return;
    }
    auto* sizes = reinterpret_cast<Moment*>(made.data());
    for (int64_t i = 0; i < count; ++i) sizes[i] = std::abs(static_cast<float>(v[i]));
  };
  if (moment_type(index_, tensor) == Dtype::bf16) {
    put_together(reinterpret_cast<const bf16*>(held(2).data()));
  } else {
    put_together(reinterpret_cast<const float*>(held(2).data()));
  }
  return {reinterpret_cast<const uint8_t*>(made.data()), bytes};
}

bool Segment::is_written() const { return !FileHold::take(files_.data(), FileHold::How::shared); }

}  // namespace heddle::train
