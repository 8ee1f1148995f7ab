#include "heddle/data/encode_documents.h"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "heddle/base/hash.h"
#include "heddle/base/parallel.h"

namespace heddle::data {
namespace {

constexpr size_t kBatchBytes = 1 << 20;  // of text; one document more where it doesn't fit
constexpr size_t kBatchesAThread = 3;    // under way: waiting, being encoded, done

// Documents one behind another.
struct Batch {
  std::string text;
  std::vector<size_t> text_ends, id_ends;
  std::vector<TokenId> ids;
  std::vector<uint64_t> hashes;
  bool done = false;

  std::string_view document(size_t i) const {
    const size_t begin = i == 0 ? 0 : text_ends[i - 1];
    return std::string_view(text).substr(begin, text_ends[i] - begin);
  }
  void encode(Encoder& encoder) {
    for (size_t i = 0; i < text_ends.size(); ++i) {
      encoder.encode_document(document(i), ids);
      id_ends.push_back(ids.size());
      hashes.push_back(hash_bytes(document(i)));
    }
  }
  void give_to(const std::function<void(const EncodedDocument&)>& use) const {
    for (size_t i = 0; i < text_ends.size(); ++i) {
      const size_t begin = i == 0 ? 0 : id_ends[i - 1];
      use({document(i), std::span(ids).subspan(begin, id_ends[i] - begin), hashes[i]});
    }
  }
};

std::unique_ptr<Batch> read_batch(DocumentSource& source) {
  auto batch = std::make_unique<Batch>();
  Document document;
  while (batch->text.size() < kBatchBytes && source.next(document)) {
    batch->text += document.text;
    batch->text_ends.push_back(batch->text.size());
  }
  return batch;
}

// Batches in the order of the text. The first threads of work take what waits; the caller takes the oldest.
class Queue {
 public:
  void put(std::unique_ptr<Batch> batch) {
    const std::lock_guard lock(mutex_);
    batches_.push_back(std::move(batch));
    changed_.notify_all();
  }
  /// The oldest that nobody has taken yet; null when there will be none.
  Batch* take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || taken_ < batches_.size(); });
    return taken_ < batches_.size() && !failed_ ? batches_[taken_++].get() : nullptr;
  }
  void mark_done(Batch& batch) {
    const std::lock_guard lock(mutex_);
    batch.done = true;
    changed_.notify_all();
  }
  /// The oldest, once it is done; null when a thread has failed.
  std::unique_ptr<Batch> oldest() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failed_ || batches_.front()->done; });
    if (failed_) return nullptr;
    std::unique_ptr<Batch> batch = std::move(batches_.front());
    batches_.pop_front();
    --taken_;
    return batch;
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return batches_.size();
  }
  void end(bool failed) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    failed_ |= failed;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Batch>> batches_;
  size_t taken_ = 0;
  bool ended_ = false, failed_ = false;
};

}  // namespace

void encode_documents(DocumentSource& source, const Tokenizer& tokenizer, int threads,
                      const std::function<void(const EncodedDocument&)>& use) {
  if (threads <= 1) {
    Encoder encoder(tokenizer);
    while (true) {
      const std::unique_ptr<Batch> batch = read_batch(source);
      if (batch->text_ends.empty()) return;
      batch->encode(encoder);
      batch->give_to(use);
    }
  }
  Queue queue;
  const size_t most = kBatchesAThread * static_cast<size_t>(threads);
  const auto lead = [&] {
    while (true) {
      std::unique_ptr<Batch> next = read_batch(source);
      const bool last = next->text_ends.empty();
      if (!last) queue.put(std::move(next));
      while (queue.size() > (last ? 0 : most - 1)) {
        const std::unique_ptr<Batch> done = queue.oldest();
        if (done == nullptr) return;
        done->give_to(use);
      }
      if (last) return queue.end(false);
    }
  };
  const auto follow = [&] {
    Encoder encoder(tokenizer);
    while (Batch* batch = queue.take()) {
      batch->encode(encoder);
      queue.mark_done(*batch);
    }
  };
  on_threads(threads + 1, [&](int thread) {
    try {
      thread == 0 ? lead() : follow();
    } catch (...) {
      queue.end(true);
      throw;
    }
  });
}

}  // namespace heddle::data
