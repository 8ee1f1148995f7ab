// Weights in few bits, against what other implementations make of the same files
// (tools/make_quantised_fixtures.py); stacks; what does not fit.
#include "heddle/formats/quantised.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "heddle/base/error.h"
#include "tests/support/scratch_folder.h"

namespace heddle::formats {
namespace {

const std::string kFixtures = HEDDLE_SOURCE_DIR "/tests/fixtures/quantised/";

TEST(Quantised, EveryFormIsReadAsOthersReadIt) {
  int forms = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFixtures)) {
    SCOPED_TRACE(entry.path().filename());
    const ReleasedFiles files(entry.path());
    const StoredTensor* expected = files.find("expected");
    ASSERT_NE(expected, nullptr);
    QuantisedTensor::Findings findings;
    const auto weight = QuantisedTensor::find(files, "m.weight", expected->shape, findings);
    ASSERT_TRUE(weight);
    EXPECT_EQ(findings.missing, std::vector<std::string>{});
    EXPECT_EQ(findings.wrong, std::vector<std::string>{});
    // All tensors but those of products at inference are known.
    size_t others = 0;
    for (const auto& [name, tensor] : files.tensors())
      others += name == "expected" || name.find("input") < name.size();
    EXPECT_EQ(findings.used.size() + others, files.tensors().size());
    std::vector<float> numbers(static_cast<size_t>(expected->elements())), found(numbers.size());
    expected->read(0, expected->elements(), Dtype::f32, numbers.data());
    weight->read(0, found);
    for (size_t i = 0; i < numbers.size(); ++i)
      ASSERT_NEAR(found[i], numbers[i], 2e-7F * std::abs(numbers[i])) << "element " << i;
    for (const int64_t first : {int64_t{1}, int64_t{95}, std::ssize(numbers) - 3}) {  // any range gives the same
      std::vector<float> some(3);
      weight->read(first, some);
      for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i], found[static_cast<size_t>(first) + i]);
    }
    ++forms;
  }
  EXPECT_GE(forms, 13);
}

struct Written {
  std::string name, type;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

/// A file of these tensors.
std::string file_of(const ScratchFolder& folder, const std::vector<Written>& tensors) {
  std::string header = "{", data;
  for (const Written& t : tensors) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", t.name, t.type, fmt::join(t.shape, ","), data.size(),
                          data.size() + t.bytes.size());
    data.append(t.bytes.begin(), t.bytes.end());
  }
  header += "}";
  uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  const std::string path = folder / "m.safetensors";
  std::ofstream(path, std::ios::binary) << file << header << data;
  return path;
}

// Each matrix of a stack has its own factors.
TEST(Quantised, StacksAreRead) {
  const ScratchFolder folder;
  std::vector<uint8_t> numbers(2 * 2 * 16);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint8_t>(i * 7);
  const std::vector<uint8_t> exponents{127, 128, 126, 130};
  const ReleasedFiles files(
      file_of(folder, {{"e", "I8", {2, 2, 16}, numbers}, {"e_scale", "F8_E8M0", {2, 2, 1}, exponents}}));
  QuantisedTensor::Findings findings;
  const auto stack = QuantisedTensor::find(files, "e", {2, 2, 32}, findings);
  ASSERT_TRUE(stack);
  EXPECT_TRUE(findings.wrong.empty() && findings.missing.empty());
  std::vector<float> found(2 * 2 * 32);
  stack->read(0, found);
  const float e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const float powers[] = {1, 2, 0.5, 8};
  for (size_t i = 0; i < found.size(); ++i) {
    const int bits = numbers[i / 2] >> (i % 2 * 4) & 15;
    EXPECT_EQ(found[i], (bits > 7 ? -1 : 1) * e2m1[bits & 7] * powers[i / 32]) << i;
  }
}

TEST(Quantised, SaysWhatDoesNotFit) {
  struct Case {
    std::vector<Written> tensors;
    std::string says;
  };
  const auto zeros = [](size_t count) { return std::vector<uint8_t>(count); };
  const std::vector<Case> cases{
      {{{"w", "F8_E4M3", {4, 8}, zeros(32)}}, "w_scale_inv"},
      {{{"w_packed", "U8", {4, 4}, zeros(16)}}, "w_scale"},
      {{{"w", "F8_E4M3", {4, 9}, zeros(36)}, {"w_scale_inv", "F32", {1}, zeros(4)}}, "w of F8_E4M3 [4, 9]"},
      {{{"w", "F8_E4M3", {4, 8}, zeros(32)}, {"w_scale_inv", "F32", {3, 1}, zeros(12)}},
       "w_scale_inv of F32 [3, 1]"},
      {{{"w", "F8_E4M3", {4, 8}, zeros(32)}, {"w_scale_inv", "I32", {4, 1}, zeros(16)}}, "w_scale_inv of I32"},
      {{{"w_packed", "I32", {4, 1}, zeros(16)},
        {"w_scale", "F32", {4, 1}, zeros(16)},
        {"w_shape", "I32", {2}, {4, 0, 0, 0, 7, 0, 0, 0}}},
       "w_shape says [4, 7] instead of [4, 8]"},
      {{{"w_packed", "I32", {4, 1}, zeros(16)},
        {"w_scale", "F32", {4, 1}, zeros(16)},
        {"w_zero_point", "I32", {1, 1}, zeros(4)}},
       "without zero points"},
      {{{"w_packed", "F32", {4, 1}, zeros(16)}, {"w_scale", "F32", {4, 1}, zeros(16)}}, "w_packed of F32"},
      {{{"w_packed", "U8", {4, 4}, zeros(16)},
        {"w_scale", "F8_E4M3", {4, 4}, zeros(16)},
        {"w_global_scale", "F32", {2}, zeros(8)}},
       "one number of F32"}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.says);
    const ScratchFolder folder;
    const ReleasedFiles files(file_of(folder, one.tensors));
    QuantisedTensor::Findings findings;
    EXPECT_TRUE(QuantisedTensor::find(files, "w", {4, 8}, findings));
    std::string all = fmt::format("{} {}", fmt::join(findings.missing, "; "), fmt::join(findings.wrong, "; "));
    EXPECT_NE(all.find(one.says), std::string::npos) << all;
  }
  const ScratchFolder folder;
  const ReleasedFiles plain(file_of(folder, {{"w", "F32", {4, 8}, zeros(128)}}));
  QuantisedTensor::Findings findings;
  EXPECT_FALSE(QuantisedTensor::find(plain, "w", {4, 8}, findings));
  EXPECT_FALSE(QuantisedTensor::find(plain, "v", {4, 8}, findings));
}

// Whatever the shapes of a file are, finding and reading stay within its bytes.
TEST(Quantised, StaysWithinTheFile) {
  std::mt19937 random(7);
  const auto any = [&](auto from) { return from[random() % from.size()]; };
  int read = 0;
  for (int draw = 0; draw < 600; ++draw) {
    const std::vector<int64_t> wanted{any(std::vector<int64_t>{0, 1, 4, 8}),
                                      any(std::vector<int64_t>{0, 1, 8, 32})};
    std::vector<Written> tensors;
    const auto add = [&](const std::string& name, const std::string& type, int64_t size,
                         std::vector<int64_t> shape) {
      if (random() % 8 == 0) shape.push_back(1);
      if (random() % 8 == 0) shape.erase(shape.begin());
      Written one{name, type, shape, {}};
      int64_t bytes = size;
      for (const int64_t dim : one.shape) bytes *= dim;
      one.bytes.assign(static_cast<size_t>(bytes), static_cast<uint8_t>(random()));
      tensors.push_back(one);
    };
    using Type = std::pair<std::string, int64_t>;
    const auto [values, width] =
        any(std::vector<Type>{{"U8", 1}, {"I8", 1}, {"I32", 4}, {"F8_E4M3", 1}, {"F32", 4}});
    add(any(std::vector<std::string>{"w", "w_packed", "w_blocks"}), values, width,
        {wanted[0], wanted[1] / any(std::vector<int64_t>{1, 2, 4, 8})});
    for (const std::string name :
         {"w_scale", "w_scales", "w_scale_inv", "w_scale_2", "w_global_scale", "w_shape", "w_zero_point"}) {
      const bool factors = name.starts_with("w_scale") && name != "w_scale_2";
      if (random() % (factors ? 2 : 8) > 0) continue;
      const auto [type, size] =
          any(std::vector<Type>{{"F32", 4}, {"U8", 1}, {"I32", 4}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"BF16", 2}});
      add(name, type, size, {any(std::vector<int64_t>{1, wanted[0]}), any(std::vector<int64_t>{1, 2, 8})});
    }
    const ScratchFolder folder;
    const ReleasedFiles files(file_of(folder, tensors));
    QuantisedTensor::Findings findings;
    const auto found = QuantisedTensor::find(files, "w", wanted, findings);
    if (!found || !findings.wrong.empty() || !findings.missing.empty()) continue;
    std::vector<float> numbers(static_cast<size_t>(wanted[0] * wanted[1]));
    found->read(0, numbers);
    ++read;
  }
  EXPECT_GT(read, 5);
}

}  // namespace
}  // namespace heddle::formats
