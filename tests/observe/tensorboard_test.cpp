// Event files byte by byte; the check values of CRC-32C are those of RFC 3720, appendix B.4.
#include "heddle/observe/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <protozero/pbf_reader.hpp>
#include <sstream>

#include "heddle/base/error.h"

namespace heddle::observe {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

std::string read_all_tensorboard(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// Takes the first record off `bytes` and checks both of its sums.
std::string take_record(std::string& bytes) {
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const std::string payload = bytes.substr(8 + 4, length);
  EXPECT_EQ(bytes.substr(0, 16 + length), tensorboard_record(payload));
  bytes.erase(0, 16 + length);
  return payload;
}

TEST(Tensorboard, KnownRecord) {
  // A record as TensorBoard's own RecordWriter gives it.
  std::string payload = "\x09";
  payload += std::string(8, '\0');
  payload +=
      "\x1a\x0d"
      "brain.Event:2";
  ASSERT_EQ(payload.size(), 24u);
  EXPECT_EQ(hex(tensorboard_record(payload)),
            "1800000000000000a37f4b22"
            "0900000000000000001a0d627261696e2e4576656e743a32"
            "eedf28a3");
}

TEST(Tensorboard, WritesEvents) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("heddle-tensorboard-{}", ::getpid())).string();
  StepMetrics metrics;
  metrics.step = 12;
  metrics.wall_time_s = 1.7e9;
  metrics.set(figures::kLoss, 2.5);
  metrics.set(figures::kRewardMargin, -1);
  std::string path;
  {
    TensorboardFile file(folder + "/run");
    file.add(metrics);
    path = file.path();
    EXPECT_NE(TensorboardFile(folder + "/run").path(), path) << "a new file each time";
  }
  std::string bytes = read_all_tensorboard(path);
  const std::string version = take_record(bytes);
  EXPECT_NE(version.find("brain.Event:2"), std::string::npos);
  const std::string payload = take_record(bytes);
  EXPECT_TRUE(bytes.empty());

  protozero::pbf_reader event(payload);
  ASSERT_TRUE(event.next(1));
  EXPECT_EQ(event.get_double(), 1.7e9);
  ASSERT_TRUE(event.next(2));
  EXPECT_EQ(event.get_int64(), 12);
  ASSERT_TRUE(event.next(5));
  protozero::pbf_reader summary = event.get_message();
  std::vector<std::pair<std::string, float>> values;
  while (summary.next(1)) {
    protozero::pbf_reader value = summary.get_message();
    ASSERT_TRUE(value.next(1));
    const std::string tag = value.get_string();
    ASSERT_TRUE(value.next(2));
    values.emplace_back(tag, value.get_float());
  }
  EXPECT_EQ(values,
            (std::vector<std::pair<std::string, float>>{{"loss/lm", 2.5f}, {"extra/reward_margin", -1.0f}}));
  std::filesystem::remove_all(folder);
}

TEST(Tensorboard, FolderThatCantBeMade) { EXPECT_THROW(TensorboardFile("/proc/none/such"), SystemError); }

}  // namespace
}  // namespace heddle::observe
