#include "heddle/data/token_file.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include "heddle/base/error.h"

namespace heddle::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are read and written as they lie in memory");

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr int64_t kHeaderBytes = 34;
constexpr uint8_t kTypeI32 = 4, kTypeU16 = 8;
constexpr int64_t kNarrowBelow = 65500;
constexpr const char *kWeights = ".weights", *kFirsts = ".firsts";
constexpr int64_t kTableChunk = 1 << 16;  // entries of .idx looked at at once

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

TokenFileWriter::TokenFileWriter(const std::string& prefix, int64_t vocabulary, bool any_weights)
    : prefix_(prefix),
      vocabulary_(vocabulary),
      narrow_(vocabulary < kNarrowBelow),
      any_weights_(any_weights),
      bin_(prefix + ".bin") {}

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

void TokenFileWriter::add_sample(std::span<const TokenId> ids, std::span<const float> weights) {
  HEDDLE_CHECK(ids.size() == weights.size(), "{} weights for {} ids", weights.size(), ids.size());
  if (weights_ == nullptr) {
    HEDDLE_CHECK(lengths_.empty(), "{}: samples behind documents", prefix_);
    weights_ = std::make_unique<OutputFile>(prefix_ + kWeights);
  }
  add_document(ids);
  if (any_weights_) {
    weights_->write(weights.data(), weights.size_bytes());
    return;
  }
  for (const float weight : weights) {
    HEDDLE_CHECK(weight == 0 || weight == 1, "a weight of {} among weights of 0 and 1", weight);
    weights_->write_number(static_cast<uint8_t>(weight));
  }
}

void TokenFileWriter::repeats(int64_t first) {
  const int64_t document = documents() - 1;
  HEDDLE_CHECK(first >= 0 && first < document, "document {} repeats {}", document, first);
  repeats_.emplace_back(document, first);
}

void TokenFileWriter::commit() {
  std::unique_ptr<OutputFile> firsts;
  if (!repeats_.empty()) {
    firsts = std::make_unique<OutputFile>(prefix_ + kFirsts);
    auto next = repeats_.begin();
    for (int64_t document = 0; document < documents(); ++document) {
      const bool repeated = next != repeats_.end() && next->first == document;
      firsts->write_number(repeated ? (next++)->second : document);
    }
    firsts->sync();
  }
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
  if (weights_ != nullptr) weights_->sync();
  for (const char* end : {".idx", kWeights, kFirsts}) {
    if (::unlink((prefix_ + end).c_str()) != 0 && errno != ENOENT) {
      const int code = errno;
      throw SystemError(code, fmt::format("cannot replace {}{}: {}", prefix_, end, std::strerror(code)));
    }
  }
  bin_.commit();
  if (weights_ != nullptr) weights_->commit();
  if (firsts != nullptr) firsts->commit();
  idx.commit();
}

TokenFile::TokenFile(const std::string& prefix) : idx_(prefix + ".idx"), bin_(prefix + ".bin") {
  const std::string& name = idx_.path();
  const int64_t size = idx_.size_bytes();
  if (size < kHeaderBytes) config_error("{}: {} bytes, the header alone has {}", name, size, kHeaderBytes);
  uint8_t header[kHeaderBytes];
  idx_.read(0, header, kHeaderBytes);
  if (std::memcmp(header, kMagic, sizeof kMagic) != 0) config_error("{}: doesn't begin with MMIDIDX", name);
  const auto version = load<uint64_t>(header + 9);
  if (version != 1) config_error("{}: version {}, accepted is 1", name, version);
  const uint8_t type = header[17];
  if (type != kTypeI32 && type != kTypeU16) {
    config_error("{}: element type {}, accepted are {} (i32) and {} (u16)", name, type, kTypeI32, kTypeU16);
  }
  narrow_ = type == kTypeU16;
  const auto sequences = load<uint64_t>(header + 18), marks = load<uint64_t>(header + 26);
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
  offsets_at_ = kHeaderBytes + sequences_ * 4;
  marks_at_ = offsets_at_ + sequences_ * 8;
  check_sequences();
  check_marks();
  std::error_code ignored;
  if (std::filesystem::exists(prefix + kFirsts, ignored)) {
    firsts_ = std::make_unique<InputFile>(prefix + kFirsts);
    if (firsts_->size_bytes() != 8 * documents_)
      config_error("{}: {} bytes, {} documents have a number of eight bytes each", firsts_->path(),
                   firsts_->size_bytes(), documents_);
  }
  if (!std::filesystem::exists(prefix + kWeights, ignored)) return;
  weights_ = std::make_unique<InputFile>(prefix + kWeights);
  if (weights_->size_bytes() != tokens_ && weights_->size_bytes() / 4 != tokens_) {
    config_error("{}: {} bytes, {} has {} tokens, each with a byte of weight, or each with an f32",
                 weights_->path(), weights_->size_bytes(), bin_.path(), tokens_);
  }
}

void TokenFile::check_sequences() {
  const int64_t width_bytes = narrow_ ? 2 : 4;
  std::vector<int32_t> lengths(static_cast<size_t>(std::min(sequences_, kTableChunk)));
  std::vector<int64_t> offsets(lengths.size());
  int64_t expected =
      0;  // can't wrap: at most 2^31 * 4 bytes for each of at most 2^60 / 12 sequences; checked as it goes
  for (int64_t first = 0; first < sequences_; first += kTableChunk) {
    const int64_t count = std::min(kTableChunk, sequences_ - first);
    idx_.read(kHeaderBytes + 4 * first, lengths.data(), 4 * count);
    idx_.read(offsets_at_ + 8 * first, offsets.data(), 8 * count);
    for (int64_t j = 0; j < count; ++j) {
      const int32_t length = lengths[j];
      const int64_t offset = offsets[j], i = first + j;
      if (length < 0) config_error("{}: sequence {} has the length {}", idx_.path(), i, length);
      if (offset != expected) {
        config_error("{}: sequence {} begins at byte {}, expected is {}: sequences must follow each other",
                     idx_.path(), i, offset, expected);
      }
      expected += length * width_bytes;
      if (expected > bin_.size_bytes()) {
        config_error("{}: cut short: {} bytes, but sequence {} ends at {}", bin_.path(), bin_.size_bytes(), i,
                     expected);
      }
    }
  }
  if (expected != bin_.size_bytes()) {
    config_error("{}: {} bytes, but {} describes {}", bin_.path(), bin_.size_bytes(), idx_.path(), expected);
  }
  tokens_ = expected / width_bytes;
}

void TokenFile::check_marks() const {
  std::vector<int64_t> marks(static_cast<size_t>(std::min(documents_ + 1, kTableChunk)));
  int64_t before = 0;
  for (int64_t first = 0; first <= documents_; first += kTableChunk) {
    const int64_t count = std::min(kTableChunk, documents_ + 1 - first);
    idx_.read(marks_at_ + 8 * first, marks.data(), 8 * count);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t mark = marks[j], i = first + j;
      if (mark < before || mark > sequences_ || (i == 0 && mark != 0) || (i == documents_ && mark != sequences_)) {
        config_error("{}: document mark {} is {}; marks must rise from 0 to {}", idx_.path(), i, mark, sequences_);
      }
      before = mark;
    }
  }
}

int64_t TokenFile::document_begin(int64_t document) const {
  int64_t begin;
  document_begins(document, {&begin, 1});
  return begin;
}

void TokenFile::document_begins(int64_t first, std::span<int64_t> begins) const {
  const auto count = static_cast<int64_t>(begins.size());
  HEDDLE_CHECK(first >= 0 && count <= documents_ + 1 - first, "documents {} + {} of {}", first, count, documents_);
  if (count == 0) return;
  idx_.read(marks_at_ + 8 * first, begins.data(), 8 * count);
  // The marks were checked when the file was opened, but it may have been written over since.
  for (const int64_t mark : begins) {
    if (mark < 0 || mark > sequences_ || mark < begins.front()) {
      throw SystemError(EIO,
                        fmt::format("{}: written over while in use: a document mark is {}", idx_.path(), mark));
    }
  }
  const int64_t lowest = begins.front(), width_bytes = narrow_ ? 2 : 4;
  const int64_t span = std::min(begins.back(), sequences_ - 1) - lowest + 1;
  std::vector<int64_t> offsets;
  const bool dense = span <= std::max<int64_t>(64, 4 * count);
  if (dense && span > 0) {
    offsets.resize(static_cast<size_t>(span));
    idx_.read(offsets_at_ + 8 * lowest, offsets.data(), 8 * span);
  }
  int64_t before = 0;
  for (int64_t& begin : begins) {
    const int64_t sequence = begin;
    if (sequence == sequences_) {
      before = begin = tokens_;
      continue;
    }
    int64_t offset;
    if (dense && sequence - lowest < span) {
      offset = offsets[sequence - lowest];
    } else {
      idx_.read(offsets_at_ + 8 * sequence, &offset, 8);
    }
    begin = offset / width_bytes;
    if (begin < before || begin > tokens_) {
      throw SystemError(EIO, fmt::format("{}: written over while in use: sequence {} begins at byte {}",
                                         idx_.path(), sequence, offset));
    }
    before = begin;
  }
}

int64_t TokenFile::first_alike(int64_t document) const {
  if (firsts_ == nullptr) return document;
  int64_t first;
  firsts_->read(8 * document, &first, 8);
  if (first < 0 || first > document)
    config_error("{}: document {} repeats document {}, which is none before it", firsts_->path(), document, first);
  return first;
}

void TokenFile::read(int64_t position, std::span<TokenId> ids) const {
  const auto count = static_cast<int64_t>(ids.size());
  HEDDLE_CHECK(position >= 0 && count <= tokens_ && position <= tokens_ - count, "tokens {} + {} of {}", position,
               count, tokens_);
  if (!narrow_) {
    bin_.read(4 * position, ids.data(), 4 * count);
    return;
  }
  uint16_t part[4096];
  for (int64_t done = 0; done < count;) {
    const auto here = std::min<int64_t>(count - done, std::size(part));
    bin_.read(2 * (position + done), part, 2 * here);
    std::copy_n(part, here, ids.begin() + done);
    done += here;
  }
}

void TokenFile::read_weights(int64_t position, std::span<float> weights) const {
  HEDDLE_CHECK(weights_ != nullptr, "{}: has no weights", bin_.path());
  const bool any = has_any_weights();
  if (any) {
    weights_->read(4 * position, weights.data(), 4 * std::ssize(weights));
  } else {
    std::vector<uint8_t> bytes(weights.size());
    weights_->read(position, bytes.data(), std::ssize(bytes));
    std::copy(bytes.begin(), bytes.end(), weights.begin());
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const float weight = weights[i];
    if (any ? weight >= 0 && weight <= kMostWeight : weight <= 1) continue;
    config_error("{}: position {}: weight {}, accepted are {}", weights_->path(),
                 position + static_cast<int64_t>(i), weight, any ? fmt::format("0 to {}", kMostWeight) : "0 and 1");
  }
}

void TokenFile::check_ids(int64_t position, int64_t count, int64_t vocabulary) const {
  std::vector<TokenId> held(static_cast<size_t>(std::min<int64_t>(count, 1 << 14)));
  while (count > 0) {
    const auto part = std::min<int64_t>(count, std::ssize(held));
    const std::span<TokenId> ids(held.data(), static_cast<size_t>(part));
    read(position, ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= 0 && ids[i] < vocabulary) continue;
      config_error("{}: position {}: token id {}, the vocabulary's limit is {}", bin_.path(),
                   position + static_cast<int64_t>(i), ids[i], vocabulary);
    }
    position += part;
    count -= part;
  }
}

}  // namespace heddle::data
