#include "heddle/data/corpus/packed_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
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

// Frames of zstd, one behind another. A window above 128 MiB, which few files have, is refused by the library.
class Zstd : public PackedReader::Form {
 public:
  explicit Zstd(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), stream_(ZSTD_createDStream()) {
    if (file_ < 0) config_error("cannot open {}: {}", path, std::strerror(errno));
    HEDDLE_CHECK(stream_ != nullptr, "out of memory for zstd");
    held_.resize(ZSTD_DStreamInSize());
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
      const size_t left = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(left) != 0) config_error("{}: damaged: {}", path_, ZSTD_getErrorName(left));
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
  int64_t taken_ = 0;
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

std::string read_possibly_packed(const std::string& path, int64_t most_bytes) {
  PackedReader reader(path);
  std::string text;
  char piece[1 << 16];
  while (const size_t got = reader.read(piece, sizeof piece)) {
    text.append(piece, got);
    if (static_cast<int64_t>(text.size()) > most_bytes) config_error("{}: more than {} bytes", path, most_bytes);
  }
  return text;
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
