#include "heddle/data/corpus/gzip_reader.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"
#include "heddle/base/random.h"

namespace heddle::data {

GzipReader::GzipReader(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rbe")) {
  if (file_ == nullptr) config_error("cannot open {}: {}", path, std::strerror(errno));
  gzbuffer(file_, 1 << 18);
}

GzipReader::~GzipReader() { gzclose_r(file_); }

size_t GzipReader::read(char* data, size_t size) {
  const int got = gzread(file_, data, static_cast<unsigned>(std::min<size_t>(size, 1 << 30)));
  // A file that ends early gives its bytes first and the error only when asked.
  int code = Z_OK;
  const char* what = gzerror(file_, &code);
  if (got < 0 || code == Z_BUF_ERROR || code == Z_DATA_ERROR) {
    if (code == Z_ERRNO) {
      const int error = errno;
      throw SystemError(error, fmt::format("cannot read {}: {}", path_, std::strerror(error)));
    }
    config_error("{}: damaged or cut short: {}", path_, what);
  }
  return static_cast<size_t>(got);
}

int64_t GzipReader::consumed_bytes() const { return std::max<int64_t>(0, gzoffset(file_)); }

std::string read_possibly_gzipped(const std::string& path, int64_t most_bytes) {
  GzipReader reader(path);
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
