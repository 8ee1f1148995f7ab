#include "heddle/train/token_file.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

#include "heddle/base/error.h"

namespace heddle::train {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are read and written as they lie in memory");

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr int64_t kHeaderBytes = 34;
constexpr uint8_t kTypeI32 = 4, kTypeU16 = 8;
constexpr int64_t kNarrowBelow = 65500;

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

TokenFileWriter::TokenFileWriter(const std::string& prefix, int64_t vocabulary)
    : prefix_(prefix), vocabulary_(vocabulary), narrow_(vocabulary < kNarrowBelow), bin_(prefix + ".bin") {}

void TokenFileWriter::add_document(std::span<const TokenId> ids) {
  if (ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    config_error("{}: document {} has {} tokens, at most {} fit the format", prefix_, documents(), ids.size(),
                 std::numeric_limits<int32_t>::max());
  }
  for (const TokenId id : ids) {
    HEDDLE_CHECK(id >= 0 && id < vocabulary_, "token {} outside a vocabulary of {}", id, vocabulary_);
    if (narrow_) {
      bin_.write_number(static_cast<uint16_t>(id));
    } else {
      bin_.write_number(id);
    }
  }
  lengths_.push_back(static_cast<int32_t>(ids.size()));
  tokens_ += static_cast<int64_t>(ids.size());
}

void TokenFileWriter::commit() {
  OutputFile idx(prefix_ + ".idx");
  idx.write(kMagic, sizeof kMagic);
  idx.write_number<uint64_t>(1);
  idx.write_number<uint8_t>(narrow_ ? kTypeU16 : kTypeI32);
  idx.write_number<uint64_t>(lengths_.size());
  idx.write_number<uint64_t>(lengths_.size() + 1);
  for (const int32_t length : lengths_) idx.write_number(length);
  int64_t offset = 0;
  for (const int32_t length : lengths_) {
    idx.write_number(offset);
    offset += int64_t{length} * (narrow_ ? 2 : 4);
  }
  for (int64_t mark = 0; mark <= documents(); ++mark) idx.write_number(mark);
  // All bytes are on disk before anything is renamed; between the two renames an old index must not describe the
  // new tokens, so it goes first.
  idx.sync();
  bin_.sync();
  if (::unlink((prefix_ + ".idx").c_str()) != 0 && errno != ENOENT) {
    const int code = errno;
    throw SystemError(code, fmt::format("cannot replace {}.idx: {}", prefix_, std::strerror(code)));
  }
  bin_.commit();
  idx.commit();
}

TokenFile::TokenFile(const std::string& prefix) : idx_(prefix + ".idx"), bin_(prefix + ".bin") {
  const std::string& name = idx_.path();
  const uint8_t* data = idx_.data();
  const int64_t size = idx_.size_bytes();
  if (size < kHeaderBytes) config_error("{}: {} bytes, the header alone has {}", name, size, kHeaderBytes);
  if (std::memcmp(data, kMagic, sizeof kMagic) != 0) config_error("{}: doesn't begin with MMIDIDX", name);
  const auto version = load<uint64_t>(data + 9);
  if (version != 1) config_error("{}: version {}, accepted is 1", name, version);
  const uint8_t type = data[17];
  if (type != kTypeI32 && type != kTypeU16) {
    config_error("{}: element type {}, accepted are {} (i32) and {} (u16)", name, type, kTypeI32, kTypeU16);
  }
  narrow_ = type == kTypeU16;
  const auto sequences = load<uint64_t>(data + 18), marks = load<uint64_t>(data + 26);
  const auto room = static_cast<uint64_t>(size - kHeaderBytes);
  // Compared by division first, so that no product wraps.
  if (sequences > room / 12) {
    config_error("{}: cut short: {} sequences don't fit {} bytes", name, sequences, size);
  }
  const uint64_t left = room - sequences * 12;
  if (marks < 1 || marks > left / 8) {
    config_error("{}: {} document marks don't fit the {} bytes left for them", name, marks, left);
  }
  const uint64_t rest = left - marks * 8;
  if (rest != 0 && rest != sequences) config_error("{}: {} bytes too many at the end", name, rest);
  sequences_ = static_cast<int64_t>(sequences);
  documents_ = static_cast<int64_t>(marks) - 1;
  const uint8_t* lengths = data + kHeaderBytes;
  offsets_ = lengths + sequences * 4;
  marks_ = offsets_ + sequences * 8;

  const int64_t width_bytes = narrow_ ? 2 : 4;
  int64_t expected =
      0;  // can't wrap: at most 2^31 * 4 bytes for each of at most 2^60 / 12 sequences; checked as it goes
  for (int64_t i = 0; i < sequences_; ++i) {
    const auto length = load<int32_t>(lengths + 4 * i);
    const auto offset = load<int64_t>(offsets_ + 8 * i);
    if (length < 0) config_error("{}: sequence {} has the length {}", name, i, length);
    if (offset != expected) {
      config_error("{}: sequence {} begins at byte {}, expected is {}: sequences must follow each other", name, i,
                   offset, expected);
    }
    expected += length * width_bytes;
    if (expected > bin_.size_bytes()) {
      config_error("{}: cut short: {} bytes, but sequence {} ends at {}", bin_.path(), bin_.size_bytes(), i,
                   expected);
    }
  }
  if (expected != bin_.size_bytes()) {
    config_error("{}: {} bytes, but {} describes {}", bin_.path(), bin_.size_bytes(), name, expected);
  }
  tokens_ = expected / width_bytes;
  int64_t before = 0;
  for (int64_t i = 0; i <= documents_; ++i) {
    const auto mark = load<int64_t>(marks_ + 8 * i);
    if (mark < before || mark > sequences_ || (i == 0 && mark != 0) || (i == documents_ && mark != sequences_)) {
      config_error("{}: document mark {} is {}; marks must rise from 0 to {}", name, i, mark, sequences_);
    }
    before = mark;
  }
}

int64_t TokenFile::sequence_begin(int64_t sequence) const {
  if (sequence == sequences_) return tokens_;
  return load<int64_t>(offsets_ + 8 * sequence) / (narrow_ ? 2 : 4);
}

int64_t TokenFile::document_begin(int64_t document) const {
  HEDDLE_CHECK(document >= 0 && document <= documents_, "document {} of {}", document, documents_);
  return sequence_begin(load<int64_t>(marks_ + 8 * document));
}

void TokenFile::read(int64_t position, std::span<TokenId> ids) const {
  const auto count = static_cast<int64_t>(ids.size());
  HEDDLE_CHECK(position >= 0 && count <= tokens_ && position <= tokens_ - count, "tokens {} + {} of {}", position,
               count, tokens_);
  if (count == 0) return;
  if (!narrow_) {
    std::memcpy(ids.data(), bin_.data() + 4 * position, ids.size_bytes());
    return;
  }
  const uint8_t* from = bin_.data() + 2 * position;
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = load<uint16_t>(from + 2 * i);
}

void TokenFile::check_ids(int64_t position, int64_t count, int64_t vocabulary) const {
  TokenId ids[1024];
  while (count > 0) {
    const auto part = std::min<int64_t>(count, 1024);
    read(position, std::span(ids, static_cast<size_t>(part)));
    for (int64_t i = 0; i < part; ++i) {
      if (ids[i] >= 0 && ids[i] < vocabulary) continue;
      config_error("{}: position {}: token id {}, the vocabulary's limit is {}", bin_.path(), position + i, ids[i],
                   vocabulary);
    }
    position += part;
    count -= part;
  }
}

}  // namespace heddle::train
