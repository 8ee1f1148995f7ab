#include "heddle/kernels/cuda/cublaslt/algorithms.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"

namespace heddle::kernels::cuda {

namespace {

constexpr std::string_view kTitle = "heddle algorithms of cuBLASLt 1";
constexpr std::string_view kColumns = "in out a b M N K batch algorithm";
constexpr int64_t kMostSize = int64_t{1} << 40, kMostBytes = 16 << 20;
constexpr float kQuicker = 0.98f;

class Lines {
 public:
  Lines(const std::string& text, const std::string& place) : text_(text), place_(place) {}

  bool ended() const { return at_ >= text_.size(); }
  std::string_view next() {
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view line = std::string_view(text_).substr(at_, end - at_);
    at_ = end + 1;
    ++number_;
    return line;
  }
  [[noreturn]] void refuse(std::string_view line, std::string_view accepted) const {
    config_error("{}, line {}: '{}', accepted: {}", place_, number_, shown(line), accepted);
  }
  /// The rest of the line behind `word` and a space.
  std::string after(std::string_view word) {
    const std::string_view line = next();
    if (!line.starts_with(word) || line.size() < word.size() + 2 || line.size() > 200 || line[word.size()] != ' ')
      refuse(line, fmt::format("{} and its text", word));
    return std::string(line.substr(word.size() + 1));
  }

 private:
  const std::string& text_;
  const std::string& place_;
  size_t at_ = 0;
  int number_ = 0;
};

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace

std::string ProductShape::text() const {
  return fmt::format("{} {} {}×{}×{} of {}{}{}", name_of(in), name_of(out), M, N, K, batch,
                     a_by_k ? ", a by k" : "", b_by_k ? ", b by k" : "");
}

int AlgorithmTable::of(const ProductShape& shape) const {
  const auto at = chosen.find(shape);
  return at == chosen.end() ? 0 : at->second;
}

std::string AlgorithmTable::text() const {
  std::string text = fmt::format("{}\nlibrary {}\ndevice {}\n{}\n", kTitle, library, device, kColumns);
  for (const auto& [s, algorithm] : chosen) {
    text += fmt::format("{} {} {} {} {} {} {} {} {}\n", name_of(s.in), name_of(s.out), s.a_by_k ? "k" : "rows",
                        s.b_by_k ? "k" : "rows", s.M, s.N, s.K, s.batch, algorithm);
  }
  return text;
}

AlgorithmTable AlgorithmTable::parse(const std::string& text, const std::string& place) {
  Lines lines(text, place);
  AlgorithmTable table;
  if (const auto line = lines.next(); line != kTitle) lines.refuse(line, kTitle);
  table.library = lines.after("library");
  table.device = lines.after("device");
  if (const auto line = lines.next(); line != kColumns) lines.refuse(line, kColumns);
  while (!lines.ended()) {
    const std::string_view line = lines.next();
    const std::vector<std::string_view> words = words_of(line);
    if (words.size() != 9) lines.refuse(line, kColumns);
    const auto dtype = [&](std::string_view word) {
      if (word != "bf16" && word != "f32") lines.refuse(line, "types bf16, f32");
      return word == "bf16" ? Dtype::bf16 : Dtype::f32;
    };
    const auto by_k = [&](std::string_view word) {
      if (word != "k" && word != "rows") lines.refuse(line, "operands by rows or k");
      return word == "k";
    };
    const auto number = [&](std::string_view word, int64_t least, int64_t most) {
      int64_t x = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), x);
      if (error != std::errc() || end != word.data() + word.size() || x < least || x > most)
        lines.refuse(line, fmt::format("sizes from 1, algorithms 0 to {}", kMostAlgorithms - 1));
      return x;
    };
    const ProductShape shape{.in = dtype(words[0]),
                             .out = dtype(words[1]),
                             .a_by_k = by_k(words[2]),
                             .b_by_k = by_k(words[3]),
                             .M = number(words[4], 1, kMostSize),
                             .N = number(words[5], 1, kMostSize),
                             .K = number(words[6], 1, kMostSize),
                             .batch = number(words[7], 1, kMostSize)};
    const auto algorithm = static_cast<int>(number(words[8], 0, kMostAlgorithms - 1));
    if (!table.chosen.emplace(shape, algorithm).second) lines.refuse(line, "each product once");
  }
  return table;
}

AlgorithmTable AlgorithmTable::read(const std::string& path, const std::string& library,
                                    const std::string& device) {
  AlgorithmTable table = parse(read_file(path, kMostBytes), path);
  if (table.library != library || table.device != device) {
    config_error(
        "{}: measured with cuBLASLt {} on a device of {}, here are cuBLASLt {} and {}: measure again "
        "(HEDDLE_CUBLASLT_MEASURE)",
        path, shown(table.library), shown(table.device), library, device);
  }
  return table;
}

int quickest(const float* times, int count) {
  int best = 0;
  for (int i = 1; i < count; ++i) {
    if (times[i] > 0 && (times[best] <= 0 || times[i] < kQuicker * times[best])) best = i;
  }
  return best;
}

}  // namespace heddle::kernels::cuda
