// The safetensors reader against files as they should not be, and the writer against a disk as it should not be.
#include "heddle/formats/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "tests/support/scratch_folder.h"

namespace heddle::formats {
namespace {

std::string file_of(const std::string& header, size_t data_bytes, uint64_t length) {
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  return bytes + header + std::string(data_bytes, '\1');
}

std::string refusal_safetensors(const std::string& bytes) {
  const ScratchFolder folder;
  std::ofstream(folder / "x.safetensors", std::ios::binary) << bytes;
  try {
    const SafetensorsFile file(folder / "x.safetensors");
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_NE(text.find("x.safetensors"), std::string::npos) << text;
    return text;
  }
  return "";
}

std::string refusal_safetensors(const std::string& header, size_t data_bytes) {
  return refusal_safetensors(file_of(header, data_bytes, header.size()));
}

void expect_refused(const std::string& header, size_t data_bytes, const std::string& part) {
  const std::string reason = refusal_safetensors(header, data_bytes);
  EXPECT_NE(reason.find(part), std::string::npos) << header << " -> " << reason;
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const ScratchFolder folder;
  const std::string path = folder / "x.safetensors";
  std::vector<TensorHeading> headings{{"b", Dtype::bf16, {3}},    {"a", Dtype::f32, {2, 2}},
                                      {"scalar", Dtype::f64, {}}, {"none", Dtype::i64, {0}},
                                      {"i", Dtype::i32, {1}},     {"u", Dtype::u8, {5}}};
  sort_for_file(headings);
  std::vector<std::string> order;
  SafetensorsWriter writer(path, headings, {{"format", "pt"}, {"quote", "\"\n"}});
  uint8_t next = 0;
  for (const TensorHeading& heading : headings) {
    order.push_back(heading.name);
    for (int64_t i = 0; i < heading.size_bytes(); ++i) writer.write(&++next, 1);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.commit();
  EXPECT_EQ(order, (std::vector<std::string>{"none", "scalar", "a", "i", "b", "u"}));

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"quote", "\"\n"}}));
  EXPECT_EQ(file.header().size() % 8, 0u);
  ASSERT_EQ(file.tensors().size(), headings.size());
  uint8_t expected = 0;
  for (size_t i = 0; i < headings.size(); ++i) {
    const StoredTensor& tensor = file.tensors()[i];
    EXPECT_EQ(tensor.name, headings[i].name);
    EXPECT_EQ(tensor.shape, headings[i].shape);
    EXPECT_EQ(tensor.type, stored_type(headings[i].dtype));
    for (const uint8_t byte : tensor.bytes) EXPECT_EQ(byte, ++expected);
  }
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_THROW(file.at("scalars"), ConfigError);
}

TEST(Safetensors, EmptyFileOfNoTensors) {
  EXPECT_EQ(refusal_safetensors("{}", 0), "");
  EXPECT_EQ(refusal_safetensors("{}      ", 0), "");
  EXPECT_EQ(refusal_safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4), "");
}

TEST(Safetensors, BadFilesAreRefusedWithTheirReason) {
  EXPECT_NE(refusal_safetensors("").find("at least 8"), std::string::npos);
  EXPECT_NE(refusal_safetensors("1234567").find("at least 8"), std::string::npos);
  EXPECT_NE(refusal_safetensors(file_of("{}", 0, 3)).find("cut"), std::string::npos);
  EXPECT_NE(refusal_safetensors(file_of("{}", 0, UINT64_MAX)).find("at most"), std::string::npos);
  EXPECT_NE(refusal_safetensors(file_of("{}", 0, 100'000'001)).find("at most"), std::string::npos);
  expect_refused("", 0, "does not begin");
  expect_refused(" {}", 0, "does not begin");
  expect_refused("{} x", 0, "not JSON");
  expect_refused("{", 0, "not JSON");
  expect_refused("{\"\xff\":{}}", 0, "not JSON");
  expect_refused(R"({"a":5})", 0, "'a' has a number");
  expect_refused(R"({"a":[]})", 0, "'a' has a list");
  expect_refused(R"({"a":null})", 0, "'a' has null");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "lacks its data_offsets");
  expect_refused(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "lacks its shape");
  expect_refused(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "lacks its dtype");
  expect_refused(R"({"a":{"dtype":"F8","shape":[1],"data_offsets":[0,4]}})", 4, "type 'F8'");
  expect_refused(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "a list");
  expect_refused(R"({"a":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})", 4, "an object");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4, "twice");
  expect_refused(R"({"a":{"dtype":"F32","more":1,"shape":[1],"data_offsets":[0,4]}})", 4, "a number");
  expect_refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "-1");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "1.0");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4, "larger");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4, "cut");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "a begin and an end");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "a begin and an end");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "F32 [2] has 4 bytes");
  expect_refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "has 0 bytes");
  expect_refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967297],"data_offsets":[0,16]}})", 16,
                 "has 16 bytes");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4, "more than 8");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
      4, "'b' begins at byte 2");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
      4, "'b' begins at byte 2");
  expect_refused(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 4, "1 bytes after the last tensor");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
      4, "two tensors are named 'a'");
  expect_refused(R"({"__metadata__":{"a":{}}})", 0, "metadata");
  expect_refused(R"({"__metadata__":{"a":1}})", 0, "metadata");
  expect_refused(R"({"x\ny":{"dtype":"F9"}})", 0, "'x\\ny'");
  expect_refused("{" + std::string(100'000, '['), 0, "not JSON");
  expect_refused("{\"a\":" + std::string(100'000, '[') + "}", 0, "a list");
}

// Random bytes of a good file changed: it is refused in one line, or every tensor it has lies inside the file.
TEST(Safetensors, ChangedBytesNeverReachOutsideOfTheFile) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";
  const std::string good = file_of(header, 32, header.size());
  const ScratchFolder folder;
  const RandomKey key(11);
  const std::string from_format = R"({}[],:"0123456789-.eEFUIB8dtypeshap_ )";
  int64_t accepted = 0;
  for (uint64_t trial = 0; trial < 1000; ++trial) {
    std::string bytes = good;
    for (uint64_t change = 0; change <= key.bits(100 * trial) % 4; ++change) {
      const uint64_t at = key.bits(100 * trial + 3 * change + 1) % bytes.size();
      const uint64_t what = key.bits(100 * trial + 3 * change + 2);
      bytes[at] = what % 2 == 0 ? static_cast<char>(what >> 8) : from_format[(what >> 8) % from_format.size()];
    }
    const std::string path = folder / "x.safetensors";
    std::ofstream(path, std::ios::binary) << bytes;
    try {
      const SafetensorsFile file(path);
      size_t sum = file.header().size();
      for (const StoredTensor& tensor : file.tensors()) sum += tensor.bytes.size();
      EXPECT_EQ(sum, bytes.size());
      ++accepted;
    } catch (const ConfigError&) {
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 750);
}

template <class T>
StoredTensor stored(StoredType type, const std::vector<T>& values) {
  return {"x",
          type,
          {std::ssize(values)},
          {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)}};
}

TEST(Safetensors, ConvertsBetweenFloats) {
  const std::vector<uint16_t> half{0x0000, 0x8000, 0x3c00, 0xc000, 0x7bff, 0x0001, 0x0400, 0x7c00, 0x3555};
  const std::vector<double> expected{0, -0.0, 1, -2, 65504, 0x1p-24, 0x1p-14, INFINITY, 0.333251953125};
  std::vector<double> found(half.size());
  stored(StoredType::f16, half).read(0, std::ssize(half), Dtype::f64, found.data());
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), 8 * half.size()), 0);
  const std::vector<uint16_t> not_a_number{0x7e00};
  stored(StoredType::f16, not_a_number).read(0, 1, Dtype::f64, found.data());
  EXPECT_TRUE(std::isnan(found[0]));

  // Just above the middle of two bf16, by less than a float tells: rounding twice would go down.
  const std::vector<double> wide{1.00390625 + 0x1p-40, 1.00390625, -1.00390625 - 0x1p-40, 1.5, 1e300};
  std::vector<bf16> narrow(wide.size());
  stored(StoredType::f64, wide).read(0, std::ssize(wide), Dtype::bf16, narrow.data());
  const std::vector<float> rounded{1.0078125F, 1.0F, -1.0078125F, 1.5F, INFINITY};
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(static_cast<float>(narrow[i]), rounded[i]) << i;

  float single = 0;
  stored(StoredType::f64, wide).read(3, 1, Dtype::f32, &single);
  EXPECT_EQ(single, 1.5F);
  const std::vector<int64_t> whole{1};
  EXPECT_THROW(stored(StoredType::i64, whole).read(0, 1, Dtype::f32, &single), ConfigError);
  EXPECT_THROW(stored(StoredType::f64, wide).read(4, 2, Dtype::f32, &single), InternalError);
}

TEST(Safetensors, PromisesAreKeptOrNothingIsWritten) {
  const ScratchFolder folder;
  {
    SafetensorsWriter writer(folder / "x.safetensors", {{"a", Dtype::f32, {2}}});
    writer.write("1234", 4);
    EXPECT_THROW(writer.commit(), InternalError);
  }
  EXPECT_THROW(SafetensorsWriter(folder / "x.safetensors", {{"a", Dtype::f32, {2}}, {"a", Dtype::f32, {2}}}),
               InternalError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(SafetensorsWriter(folder / "none/x.safetensors", {}), SystemError);
}

// Checkpoints and weights are mapped: what another program cuts away ends this one with a line, not by a bare
// signal.
TEST(SafetensorsDeathTest, ACutWhileInUseEndsWithOneLine) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const ScratchFolder folder;
  const std::string path = folder / "cut.safetensors";
  const std::vector<float> values(1 << 16, 1.0F);
  SafetensorsWriter writer(path, {{"a", Dtype::f32, {1 << 16}}});
  writer.write(values.data(), values.size() * sizeof(float));
  writer.commit();
  EXPECT_EXIT(
      {
        const SafetensorsFile file(path);
        std::filesystem::resize_file(path, 4096);
        float last = 0;
        file.at("a").read((1 << 16) - 1, 1, Dtype::f32, &last);
        std::exit(static_cast<int>(last) + 1);
      },
      testing::ExitedWithCode(1), "heddle: .*cut\\.safetensors: cut short while in use: it had [0-9]+ bytes");
}

}  // namespace
}  // namespace heddle::formats
