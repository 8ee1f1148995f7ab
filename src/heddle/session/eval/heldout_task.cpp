#include "heddle/session/eval/heldout_task.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"
#include "heddle/base/utf8.h"
#include "heddle/session/run_data.h"

namespace heddle::session {

namespace {

constexpr int64_t kChoices = 4, kTokens = 16;  // choices of an item, tokens of a choice

}  // namespace

Task heldout_task(const RunData& data, const data::Tokenizer& tokenizer, int64_t most) {
  const std::vector<std::vector<int32_t>> texts =
      data.heldout(most == 0 ? data.dataset->heldout_sequences() : most).tokens;
  if (std::ssize(texts) < kChoices)
    config_error("{} held-out sequences, {} are needed for a task of them", texts.size(), kChoices);
  Task task{.name = "heldout", .items = {}};
  const auto count = texts.size();
  for (size_t i = 0; i < count; ++i) {
    const auto half = static_cast<long>(texts[i].size() / 2);
    const auto text_of = [&](size_t of, long first, long last) {
      return replace_invalid_utf8(
          tokenizer.decode(std::vector<int32_t>(texts[of].begin() + first, texts[of].begin() + last)));
    };
    const long end = std::min<long>(half + kTokens, static_cast<long>(texts[i].size()));
    TaskItem item;
    item.gold = hash_bytes(std::to_string(i)) % kChoices;
    for (size_t choice = 0; choice < kChoices; ++choice) {
      const size_t of = (i + (choice + kChoices - item.gold) % kChoices) % count;
      const std::string text = text_of(of, half, end);
      item.choices.push_back({text_of(i, 0, half), text, characters_of(text)});
    }
    task.items.push_back(std::move(item));
  }
  return task;
}

}  // namespace heddle::session
