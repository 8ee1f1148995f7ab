#include "heddle/train/average.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/train/audit/digest_sums.h"
#include "heddle/train/checkpoint.h"

namespace heddle::train {

namespace {

constexpr int64_t kAveragedAtOnce = int64_t{1} << 20;

// The oldest first.
std::deque<Checkpoint> newest(const std::string& folder, int64_t count, std::vector<std::string>* refused) {
  std::deque<Checkpoint> found;
  int64_t last_step = std::numeric_limits<int64_t>::max();
  while (std::ssize(found) < count) {
    std::vector<std::string> reasons;
    std::optional<Checkpoint> next = latest_checkpoint(folder, &reasons, last_step);
    if (refused != nullptr) refused->insert(refused->end(), reasons.begin(), reasons.end());
    if (!next)
      config_error("{}: {} checkpoints, {} are to be averaged; train.keep_checkpoints says how many stay", folder,
                   found.size(), count);
    last_step = next->state().step - 1;
    found.push_front(std::move(*next));
  }
  return found;
}

std::vector<formats::TensorHeading> headings_of(const Checkpoint& checkpoint) {
  std::vector<formats::TensorHeading> headings;
  for (const SavedTensor& tensor : checkpoint.tensors())
    headings.push_back(
        {tensor.name, tensor.type == formats::StoredType::f64 ? Dtype::f64 : Dtype::f32, tensor.shape});
  return headings;
}

template <class A>
void write_mean(const std::deque<Checkpoint>& all, const formats::TensorHeading& tensor,
                const std::function<void(const void*, size_t)>& write) {
  const int64_t elements = tensor.size_bytes() / size_of(tensor.dtype);
  const auto most = static_cast<size_t>(std::min(elements, kAveragedAtOnce));
  std::vector<double> sums(most);
  std::vector<A> part(most);
  for (int64_t first = 0; first < elements; first += kAveragedAtOnce) {
    const int64_t count = std::min(kAveragedAtOnce, elements - first);
    std::fill(sums.begin(), sums.end(), 0.0);
    for (const Checkpoint& each : all) {
      each.at(tensor.name).read(first, count, tensor.dtype, part.data());
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) sums[i] += double{part[i]};
    }
    for (size_t i = 0; i < static_cast<size_t>(count); ++i)
      part[i] = static_cast<A>(sums[i] / static_cast<double>(all.size()));
    write(part.data(), static_cast<size_t>(count) * sizeof(A));
  }
}

}  // namespace

std::vector<int64_t> save_average(const std::string& from, int64_t count, const std::string& to,
                                  std::vector<std::string>* refused) {
  const std::deque<Checkpoint> all = newest(from, count, refused);
  const Checkpoint& last = all.back();
  const std::vector<formats::TensorHeading> headings = headings_of(last);
  for (const Checkpoint& each : all) each.check_fits(last.state().model, headings);
  CheckpointState state = last.state();
  state.weights_digest = state.moments_digest = "";  // they are of other weights
  save_checkpoint(to, state, headings, [&](const formats::TensorHeading& tensor, const auto& write) {
    if (stands_beside_weight(tensor.name)) {  // as the newest has it
      for (const auto& bytes : last.at(tensor.name).pieces()) write(bytes.data(), bytes.size());
    } else if (tensor.dtype == Dtype::f64) {
      write_mean<double>(all, tensor, write);
    } else {
      write_mean<float>(all, tensor, write);
    }
  });
  std::vector<int64_t> steps;
  for (const Checkpoint& each : all) steps.push_back(each.state().step);
  return steps;
}

}  // namespace heddle::train
