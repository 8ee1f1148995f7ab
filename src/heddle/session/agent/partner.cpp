#include "heddle/session/agent/partner.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/device/host/shared_arena.h"

namespace heddle::session {

namespace {

namespace fs = std::filesystem;
constexpr int64_t kDataAt = device::SharedArena::kDataAt;
constexpr int64_t kPart = int64_t{4} << 20;
constexpr double kPartnerPatience_s = 60;  // time for a partner that makes room, or checks what has come
constexpr char kIndex = 'I', kBytes = 'B', kSeal = 'S', kDone = 'K', kRefused = 'N';

void await(Link& link, const char* what) {
  const std::optional<Link::Frame> answer = link.receive(kPartnerPatience_s);
  if (!answer) throw SystemError(ETIMEDOUT, fmt::format("the partner does not answer about {}", what));
  if (answer->kind != kDone)
    throw SystemError(EIO, fmt::format("the partner refuses {}: {}", what, answer->bytes.substr(0, 300)));
}

// A name as a rank gives it: no way out of the folder.
bool is_segment_name(std::string_view name) {
  constexpr size_t kDigits = 5, kRandom = 32, kFirst = 5;
  const auto all = [&](size_t from, size_t count, std::string_view of) {
    return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(from),
                       name.begin() + static_cast<std::ptrdiff_t>(from + count),
                       [&](char c) { return of.find(c) != std::string_view::npos; });
  };
  return name.size() == kFirst + kDigits + 1 + kRandom && name.starts_with("rank-") &&
         name[kFirst + kDigits] == '-' && all(kFirst, kDigits, "0123456789") &&
         all(kFirst + kDigits + 1, kRandom, "0123456789abcdef");
}

std::vector<std::pair<int64_t, int64_t>> places_of(const train::SegmentIndex& index, int set) {
  std::vector<std::pair<int64_t, int64_t>> places;  // offset, bytes
  const auto s = static_cast<size_t>(set);
  for (const train::SegmentIndex::Held& held : index.values) {
    places.emplace_back(held.at[s], held.bytes);
    places.emplace_back(held.sums_at[s], 4 * std::max<int64_t>(1, (held.bytes + kPart - 1) / kPart));
  }
  return places;
}

void write_own(const std::string& path, std::string_view text) {
  OutputFile file(path, OutputFile::Open::replace, OutputFile::Access::owner, OutputFile::Flush::to_system);
  file.write(text);
  file.commit();
}

}  // namespace

void replicate(Link& link, const train::Segment& segment, int64_t step) {
  const int set = segment.set_of(step);
  const auto hold =
      set < 0 ? std::nullopt : train::FileHold::take(segment.files().hold(set), train::FileHold::How::shared, true);
  if (!hold || segment.set_of(step) != set)
    config_error("{}: step {} is no longer whole", segment.files().data(), step);
  const std::string& name = segment.files().name;
  const std::string index = train::text_of(segment.index());
  link.send(kIndex, name + "\n" + index);
  await(link, "a segment");
  std::string frame;
  for (const auto& [at, bytes] : places_of(segment.index(), set)) {
    for (int64_t first = 0; first < bytes; first += kPart) {
      const int64_t count = std::min(kPart, bytes - first), place = at + first;
      frame.resize(9);
      frame[0] = static_cast<char>('0' + set);
      std::memcpy(frame.data() + 1, &place, 8);
      frame.append(reinterpret_cast<const char*>(segment.data() + place), static_cast<size_t>(count));
      link.send(kBytes, frame);
    }
  }
  link.send(kSeal, static_cast<char>('0' + set) + read_file(segment.files().seal(set), Link::kMostFrame - 2));
  await(link, "a step");
}

Replicas::Open::~Open() {
  if (file >= 0) ::close(file);
}

void Replicas::take(Link& link, const Link::Frame& frame) {
  std::string refused;
  try {
    refused = taken(frame);
  } catch (const Error& error) {
    refused = error.what();
    open_.reset();
  }
  if (frame.kind == kBytes) return;  // an error shows in its seal
  link.send(refused.empty() ? kDone : kRefused, refused);
}

std::string Replicas::taken(const Link::Frame& frame) {
  if (frame.kind == kIndex) {
    const size_t end = frame.bytes.find('\n');
    const std::string name = frame.bytes.substr(0, end);
    if (end == std::string::npos || !is_segment_name(name)) return "no name of a segment";
    open_ = std::make_unique<Open>();
    open_->files = {folder_, name};
    std::error_code ignored;
    if (fs::exists(open_->files.index(), ignored) &&
        read_file(open_->files.index(), Link::kMostFrame) == frame.bytes.substr(end + 1)) {
      open_->file = ::open(open_->files.data().c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    } else {
      // A rank has one segment: those of a job before are removed.
      for (const train::SegmentFiles& old : train::segments_in(folder_)) {
        if (old.name.substr(0, 10) == name.substr(0, 10)) old.remove();
      }
      open_->file = ::open(open_->files.data().c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    if (open_->file < 0) return fmt::format("{}: {}", name, std::strerror(errno));
    write_own(open_->files.index(), std::string_view(frame.bytes).substr(end + 1));
    open_->bytes = train::bytes_of_index(open_->files.index());
    if (const int error = posix_fallocate(open_->file, 0, kDataAt + std::max<int64_t>(1, open_->bytes));
        error != 0) {
      const std::string why = fmt::format("no room for {} bytes: {}", open_->bytes, std::strerror(error));
      open_->files.remove();
      open_.reset();
      return why;
    }
    return "";
  }
  if (!open_) return "no segment is named";
  const int set = frame.bytes.empty() ? -1 : frame.bytes[0] - '0';
  if (set < 0 || set >= train::kSets) return "no such set";
  if (frame.kind == kBytes) {
    int64_t at = 0;
    const int64_t count = std::ssize(frame.bytes) - 9;
    if (count < 0) return "cut";
    std::memcpy(&at, frame.bytes.data() + 1, 8);
    if (at < 0 || at > open_->bytes - count) return "beyond the segment";
    ::unlink(open_->files.seal(set).c_str());
    if (::pwrite(open_->file, frame.bytes.data() + 9, static_cast<size_t>(count), kDataAt + at) != count)
      throw SystemError(errno, fmt::format("{}: {}", open_->files.data(), std::strerror(errno)));
    return "";
  }
  if (frame.kind != kSeal) return "no such frame";
  // It is removed again where the bytes are others; a reader that comes meanwhile compares them too.
  const std::string seal = open_->files.seal(set);
  write_own(seal, std::string_view(frame.bytes).substr(1));
  try {
    const train::Segment segment(open_->files);
    if (!segment.seal(set)) config_error("{}: the seal does not match the received values", seal);
    segment.verify(set);
  } catch (...) {
    ::unlink(seal.c_str());
    throw;
  }
  return "";
}

}  // namespace heddle::session
