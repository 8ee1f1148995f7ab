#include "heddle/observe/tensorboard.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <protozero/pbf_writer.hpp>
#include <vector>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/files/pinned_folder.h"
#include "heddle/base/hash.h"

namespace heddle::observe {
namespace {

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class Number>
void append_little_endian(std::string& out, Number number) {
  for (size_t i = 0; i < sizeof(Number); ++i) out += static_cast<char>(number >> (8 * i) & 0xff);
}

std::string new_path(const std::string& folder) {
  std::error_code code;
  std::filesystem::create_directories(held_path(folder), code);
  if (code) throw SystemError(code.value(), fmt::format("cannot make folder {}: {}", folder, code.message()));
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {'h', 'o', 's', 't'};
  static std::atomic<int> count = 0;
  // The reader takes files in the order of their names; ten digits of seconds keep that until 2286.
  return fmt::format("{}/events.out.tfevents.{:010d}.{}.{}.{}", folder, static_cast<int64_t>(wall_time_s()),
                     host.data(), ::getpid(), count++);
}

}  // namespace

std::string tensorboard_record(std::string_view payload) {
  std::string record;
  record.reserve(payload.size() + 16);
  append_little_endian(record, static_cast<uint64_t>(payload.size()));
  append_little_endian(record, masked_crc(record));
  record += payload;
  append_little_endian(record, masked_crc(payload));
  return record;
}

TensorboardFile::TensorboardFile(const std::string& folder) : file_(new_path(folder), OutputFile::Open::begin) {
  std::string payload;
  protozero::pbf_writer event(payload);
  event.add_double(1, wall_time_s());
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
  for (const Figures::Number& number : metrics.numbers()) {
    const std::string_view tag = number.row->tag;
    scalars.push_back({tag.empty() ? "extra/" + number.key() : std::string(tag), number.value});
  }
  add(metrics.step, metrics.wall_time_s, scalars);
}

}  // namespace heddle::observe
