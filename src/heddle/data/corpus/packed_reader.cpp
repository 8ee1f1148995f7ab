#include "heddle/data/corpus/packed_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"
#include "heddle/base/random.h"

namespace heddle::data {
namespace {

[[noreturn]] void fail_to_read(const std::string& path, int error) {
  throw SystemError(error, fmt::format("cannot read {}: {}", path, std::strerror(error)));
}

// gzip, and what isn't packed.
class Gzip : public PackedReader::Form {
 public:
  explicit Gzip(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rbe")) {
    if (file_ == nullptr) config_error("cannot open {}: {}", path, std::strerror(errno));
    gzbuffer(file_, 1 << 18);
  }
  ~Gzip() override { gzclose_r(file_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  size_t read(char* data, size_t size) override {
    const int got = gzread(file_, data, static_cast<unsigned>(std::min<size_t>(size, 1 << 30)));
    // A file that ends early gives its bytes first and the error only when asked.
    int code = Z_OK;
    const char* what = gzerror(file_, &code);
    if (got < 0 || code == Z_BUF_ERROR || code == Z_DATA_ERROR) {
      if (code == Z_ERRNO) fail_to_read(path_, errno);
      config_error("{}: damaged or cut short: {}", path_, what);
    }
    return static_cast<size_t>(got);
  }
  int64_t consumed_bytes() const override { return std::max<int64_t>(0, gzoffset(file_)); }

 private:
  std::string path_;
  gzFile file_;
};

// Memory that is free for a window: what can be had without swapping, less what the machine needs otherwise.
uint64_t memory_for_window() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kib) == 1) return kib * 1024 / 4 * 3;
  }
  return UINT64_MAX;  // not known: the library says so when there is none
}

// The window that a frame's heading names (RFC 8878, 3.1.1.1); 0 where it is not whole, or no frame begins.
uint64_t window_of(std::string_view frame) {
  uint32_t magic = 0;
  if (frame.size() < 18) return 0;  // of the longest heading
  std::memcpy(&magic, frame.data(), sizeof magic);
  if (magic != ZSTD_MAGICNUMBER) return 0;
  const auto byte = [&](size_t at) { return static_cast<uint64_t>(static_cast<uint8_t>(frame[at])); };
  const uint64_t descriptor = byte(4);
  if ((descriptor & 0x20) == 0) {
    const uint64_t base = uint64_t{1} << (10 + (byte(5) >> 3));
    return base + base / 8 * (byte(5) & 7);
  }
  // A single segment: as large as its content.
  constexpr size_t kIdBytes[] = {0, 1, 2, 4}, kSizeBytes[] = {1, 2, 4, 8};
  const size_t at = 5 + kIdBytes[descriptor & 3], bytes = kSizeBytes[descriptor >> 6];
  uint64_t size = bytes == 2 ? 256 : 0;
  for (size_t i = 0; i < bytes; ++i) size += byte(at + i) << (8 * i);
  return size;
}

// Frames of zstd, one behind another. A frame needs memory of its window's size, which it names first: up to 2 GiB
// (zstd --long=31), of which as much is touched as it unpacks to.
class Zstd : public PackedReader::Form {
 public:
  explicit Zstd(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), stream_(ZSTD_createDStream()) {
    if (file_ < 0) config_error("cannot open {}: {}", path, std::strerror(errno));
    HEDDLE_CHECK(stream_ != nullptr, "out of memory for zstd");
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
    held_.resize(ZSTD_DStreamInSize());
    struct stat status;
    if (::fstat(file_, &status) == 0) size_bytes_ = status.st_size;
  }
  ~Zstd() override {
    ZSTD_freeDStream(stream_);
    if (file_ >= 0) ::close(file_);
  }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;

  size_t read(char* data, size_t size) override {
    ZSTD_outBuffer out{data, size, 0};
    while (out.pos == 0 && size > 0) {
      if (in_.pos == in_.size && !at_end_) refill();
      const size_t before = in_.pos;
      if (!open_frame_) check_window();
      const size_t left = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(left) != 0) refuse(left);
      if (in_.pos > before || out.pos > 0) open_frame_ = left != 0;
      if (at_end_ && in_.pos == in_.size && out.pos == 0) {
        if (open_frame_) config_error("{}: damaged or cut short: it ends within a frame", path_);
        break;
      }
    }
    return out.pos;
  }
  int64_t consumed_bytes() const override { return taken_ - static_cast<int64_t>(in_.size - in_.pos); }

 private:
  // Checks before a window of many megabytes is allocated. A frame that lies across two reads is left to the
  // library.
  void check_window() const {
    constexpr uint64_t kAlways = uint64_t{128} << 20;
    constexpr uint64_t kMostOfAByte = 32 << 10;  // a block of 128 KiB takes four bytes at least
    const uint64_t window = std::min(window_of({static_cast<const char*>(in_.src) + in_.pos, in_.size - in_.pos}),
                                     (static_cast<uint64_t>(size_bytes_) + 1) * kMostOfAByte);
    if (window <= kAlways || window <= memory_for_window()) return;
    config_error("{}: unpacking it takes a window of {} MiB of memory (zstd --long), more than is free here", path_,
                 window >> 20);
  }

  // Reports the error by the library's own word for it; not all of it is damage.
  [[noreturn]] void refuse(size_t error) const {
    const int64_t at = consumed_bytes();
    switch (ZSTD_getErrorCode(error)) {
      case ZSTD_error_dictionary_wrong:
        config_error("{}: packed with a dictionary (zstd -D): unpack it with that first", path_);
      case ZSTD_error_frameParameter_windowTooLarge:
        config_error("{}: needs a larger window than this library of zstd has", path_);
      case ZSTD_error_memory_allocation:
        config_error("{}: unpacking it takes more memory than is free here (zstd --long)", path_);
      case ZSTD_error_version_unsupported:
        config_error("{}: packed by a version of zstd that this library does not read", path_);
      case ZSTD_error_prefix_unknown:
        config_error("{}: something else follows its frames of zstd, at byte {}", path_, at);
      default: config_error("{}: damaged at byte {}: {}", path_, at, ZSTD_getErrorName(error));
    }
  }

  void refill() {
    ssize_t got;
    do {
      got = ::read(file_, held_.data(), held_.size());
    } while (got < 0 && errno == EINTR);
    if (got < 0) fail_to_read(path_, errno);
    at_end_ = got == 0;
    taken_ += got;
    in_ = {held_.data(), static_cast<size_t>(got), 0};
  }

  std::string path_;
  int file_;
  ZSTD_DStream* stream_;
  std::vector<char> held_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  int64_t size_bytes_ = 0, taken_ = 0;
  bool at_end_ = false, open_frame_ = false;
};

// A frame, or one to be skipped, which may come first.
bool begins_as_zstd(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;  // told by whoever opens it
  uint32_t magic = 0;
  const bool whole = ::read(file, &magic, sizeof magic) == sizeof magic;
  ::close(file);
  return whole && (magic == ZSTD_MAGICNUMBER || (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START);
}

}  // namespace

PackedReader::PackedReader(const std::string& path) {
  if (begins_as_zstd(path)) {
    form_ = std::make_unique<Zstd>(path);
  } else {
    form_ = std::make_unique<Gzip>(path);
  }
}

PackedReader::~PackedReader() = default;
size_t PackedReader::read(char* data, size_t size) { return form_->read(data, size); }
int64_t PackedReader::consumed_bytes() const { return form_->consumed_bytes(); }

std::string without_packing(const std::string& name) {
  for (const std::string_view ending : {".gz", ".zst"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

uint64_t fingerprint_of(const std::string& path, uint64_t before) {
  struct stat status;
  uint64_t hash = hash_bytes(path, before);
  if (::stat(path.c_str(), &status) != 0) return hash;
  hash = mix_bits(hash ^ static_cast<uint64_t>(status.st_size));
  hash = mix_bits(hash ^ static_cast<uint64_t>(status.st_mtim.tv_sec));
  return mix_bits(hash ^ static_cast<uint64_t>(status.st_mtim.tv_nsec));
}

}  // namespace heddle::data
