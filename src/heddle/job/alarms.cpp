#include "heddle/job/alarms.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "heddle/base/escaped.h"
#include "heddle/base/files/pinned_folder.h"

namespace heddle::job {

namespace {

constexpr size_t kMostBytes = 1 << 16;  // limit of a line, and of a read
constexpr size_t kMostReason = 300;

int opened(const std::string& path) {
  return ::open(held_path(path).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

std::optional<SlowRankAlarm> slow_rank_of(const std::string& line, int64_t generation) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || json.value("event", nlohmann::json()) != "slow_rank") return std::nullopt;
  if (json.value("generation", nlohmann::json()) != generation) return std::nullopt;
  const nlohmann::json rank = json.value("rank", nlohmann::json()), text = json.value("text", nlohmann::json());
  if (!rank.is_number_unsigned() || !text.is_string()) return std::nullopt;
  return SlowRankAlarm{rank.get<int64_t>(), escaped(text.get<std::string>(), kMostReason)};
}

}  // namespace

AlarmTail::AlarmTail(std::string path) : path_(std::move(path)) {
  struct stat status {};
  if (::lstat(held_path(path_).c_str(), &status) == 0) at_ = status.st_size;
}

std::optional<SlowRankAlarm> AlarmTail::next(int64_t generation) {
  if (const int file = opened(path_); file >= 0) {
    std::string bytes(kMostBytes, '\0');
    const ssize_t size = ::pread(file, bytes.data(), bytes.size(), at_);
    ::close(file);
    if (size > 0) {
      held_.append(bytes, 0, static_cast<size_t>(size));
      at_ += size;
    }
  }
  for (size_t end = held_.find('\n'); end != held_.npos; end = held_.find('\n')) {
    const std::string line = held_.substr(0, end);
    held_.erase(0, end + 1);
    if (std::optional<SlowRankAlarm> slow = slow_rank_of(line, generation)) return slow;
  }
  if (held_.size() > kMostBytes) held_.clear();
  return std::nullopt;
}

}  // namespace heddle::job
