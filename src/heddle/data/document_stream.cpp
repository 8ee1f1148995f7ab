#include "heddle/data/document_stream.h"

#include <algorithm>
#include <array>

#include "heddle/base/error.h"

namespace heddle::data {
namespace {

constexpr int64_t kStride = 64;  // documents between the marks of tokens_before_

}  // namespace

std::vector<DocumentStream> DocumentStream::of(const TokenFile& file, const std::vector<Chosen>& choices) {
  std::vector<DocumentStream> streams;
  for (const Chosen& chosen : choices) streams.push_back(DocumentStream(file, chosen));
  constexpr int64_t kDocumentsAtOnce = 256 * kStride;
  std::vector<int64_t> begins;
  for (int64_t document = 0; document < file.documents(); ++document) {
    const auto at = static_cast<size_t>(document % kDocumentsAtOnce);
    if (at == 0) {
      begins.resize(static_cast<size_t>(std::min(kDocumentsAtOnce, file.documents() - document)) + 1);
      file.document_begins(document, begins);
    }
    for (DocumentStream& stream : streams) {
      if (document % kStride == 0) stream.tokens_before_.push_back(stream.tokens_);
      if (stream.chosen_(document)) stream.tokens_ += begins[at + 1] - begins[at];
    }
  }
  return streams;
}

void DocumentStream::read(int64_t position, int64_t vocabulary, std::span<int32_t> tokens,
                          std::span<Begins> begins_of) const {
  std::fill(begins_of.begin(), begins_of.end(), Begins::nothing);
  HEDDLE_CHECK(position >= 0 && static_cast<int64_t>(tokens.size()) <= tokens_ - position,
               "tokens {} + {} of a stream of {}", position, tokens.size(), tokens_);
  // The last mark at or before the position; from there on document by document.
  const auto after = std::upper_bound(tokens_before_.begin(), tokens_before_.end(), position);
  const auto mark = static_cast<int64_t>(after - tokens_before_.begin()) - 1;
  int64_t skip = position - tokens_before_[mark];
  size_t done = 0;
  std::array<int64_t, kStride + 1> begins;
  for (int64_t document = mark * kStride; done < tokens.size(); ++document) {
    HEDDLE_CHECK(document < file_->documents(), "the stream at {} runs past the last document", position);
    const auto at = static_cast<size_t>(document % kStride);
    if (at == 0) {
      const auto held = static_cast<size_t>(std::min(kStride, file_->documents() - document)) + 1;
      file_->document_begins(document, {begins.data(), held});
    }
    if (!chosen_(document)) continue;
    const int64_t begin = begins[at], size = begins[at + 1] - begin;
    if (skip >= size) {
      skip -= size;
      continue;
    }
    if (skip == 0 && size > 0 && !begins_of.empty()) begins_of[done] = Begins::document;
    const auto part = std::min<int64_t>(size - skip, static_cast<int64_t>(tokens.size() - done));
    const auto room = tokens.subspan(done, static_cast<size_t>(part));
    file_->read(begin + skip, room);
    for (const int32_t id : room) {
      if (id < 0 || id >= vocabulary) file_->check_ids(begin + skip, part, vocabulary);
    }
    done += static_cast<size_t>(part);
    skip = 0;
  }
}

}  // namespace heddle::data
