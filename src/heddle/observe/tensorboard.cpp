#include "heddle/observe/tensorboard.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <protozero/pbf_writer.hpp>
#include <vector>

#include "heddle/base/error.h"

namespace heddle::observe {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}

uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

template <class Number>
void append_little_endian(std::string& out, Number number) {
  for (size_t i = 0; i < sizeof(Number); ++i) out += static_cast<char>(number >> (8 * i) & 0xff);
}

double wall_time_now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string new_path(const std::string& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) throw SystemError(code.value(), fmt::format("cannot make folder {}: {}", folder, code.message()));
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {'h', 'o', 's', 't'};
  static std::atomic<int> count = 0;
  // The reader takes files in the order of their names; ten digits of seconds keep that until 2286.
  return fmt::format("{}/events.out.tfevents.{:010d}.{}.{}.{}", folder, static_cast<int64_t>(wall_time_now_s()),
                     host.data(), ::getpid(), count++);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> table = crc_table();
  uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

std::string tensorboard_record(std::string_view payload) {
  std::string record;
  record.reserve(payload.size() + 16);
  append_little_endian(record, static_cast<uint64_t>(payload.size()));
  append_little_endian(record, masked(crc32c(record)));
  record += payload;
  append_little_endian(record, masked(crc32c(payload)));
  return record;
}

TensorboardFile::TensorboardFile(const std::string& folder) : file_(new_path(folder), OutputFile::Open::begin) {
  std::string payload;
  protozero::pbf_writer event(payload);
  event.add_double(1, wall_time_now_s());
  event.add_string(3, "brain.Event:2");
  file_.write_whole(tensorboard_record(payload));
}

void TensorboardFile::add(int64_t step, double wall_time_s, std::span<const Scalar> scalars) {
  std::string payload;
  {
    protozero::pbf_writer event(payload);
    event.add_double(1, wall_time_s);
    event.add_int64(2, step);
    protozero::pbf_writer summary(event, 5);
    for (const Scalar& scalar : scalars) {
      protozero::pbf_writer value(summary, 1);
      value.add_string(1, scalar.tag);
      value.add_float(2, static_cast<float>(scalar.value));
    }
  }
  file_.write_whole(tensorboard_record(payload));
}

void TensorboardFile::add(const StepMetrics& metrics) {
  std::vector<Scalar> scalars;
  for (const MetricField& field : metric_fields()) {
    if (const auto& value = metrics.*field.value) scalars.push_back({std::string(field.tag), *value});
  }
  for (const auto& [name, value] : metrics.extra) scalars.push_back({"extra/" + name, value});
  add(metrics.step, metrics.wall_time_s, scalars);
}

}  // namespace heddle::observe
