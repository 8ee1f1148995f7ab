#include "heddle/base/files/fence.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"

namespace heddle {

namespace {

constexpr const char* kFenceName = "/.generation";
constexpr size_t kTokenDigits = 32, kMostBytes = 64;

bool is_token(std::string_view text) {
  return text.size() == kTokenDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// "7" before `end`, and what comes behind it.
std::optional<std::pair<int64_t, std::string_view>> numbered(std::string_view text, char end) {
  int64_t number = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || at == text.data() + text.size() || *at != end || number < 0) return std::nullopt;
  return std::pair{number, text.substr(static_cast<size_t>(at - text.data()) + 1)};
}

std::optional<Fence> own_by_environment() {
  const char* text = std::getenv(kFenceVariable);
  if (text == nullptr) return std::nullopt;
  return parse_fence(text);
}

// Why this process's generation may write no more; "": it may.
std::string why_over() {
  const std::optional<Fence>& own = own_fence();
  if (!own) return "";
  const std::optional<Fence> now = open_fence(own->folder);
  if (now && now->number == own->number && now->token == own->token) return "";
  return fmt::format("generation {} of this job is over{}", own->number,
                     now ? fmt::format(", generation {} has taken its place", now->number) : "");
}

}  // namespace

Fence parse_fence(std::string_view text) {
  if (const auto found = numbered(text, ':')) {
    const size_t colon = found->second.find(':');
    if (colon != std::string_view::npos && is_token(found->second.substr(0, colon)) &&
        colon + 1 < found->second.size())
      return {found->first, std::string(found->second.substr(0, colon)),
              std::string(found->second.substr(colon + 1))};
  }
  config_error("{} is '{}', expected NUMBER:TOKEN:FOLDER with a token of {} hexadecimal digits", kFenceVariable,
               shown(text), kTokenDigits);
}

std::string text_of(const Fence& fence) { return fmt::format("{}:{}:{}", fence.number, fence.token, fence.folder); }

std::optional<Fence> open_fence(const std::string& folder) {
  const std::string path = folder + kFenceName;
  const int file = ::open(held_path(path).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return std::nullopt;
  if (file < 0) throw SystemError(errno, fmt::format("cannot open {}", path));
  std::array<char, kMostBytes> bytes{};
  const ssize_t size = ::pread(file, bytes.data(), bytes.size(), 0);
  ::close(file);
  if (const auto found = numbered({bytes.data(), static_cast<size_t>(std::max<ssize_t>(0, size))}, ' ')) {
    const std::string_view token = found->second.substr(0, kTokenDigits);
    if (is_token(token)) return Fence{found->first, std::string(token), folder};
  }
  throw SystemError(0, fmt::format("{} names no generation", path));
}

void raise_fence(const Fence& fence) {
  write_file(fence.folder + kFenceName, fmt::format("{} {}\n", fence.number, fence.token));
}

const std::optional<Fence>& own_fence() {
  static const std::optional<Fence> own = own_by_environment();
  return own;
}

void check_fence(std::string_view path) {
  if (const std::string over = why_over(); !over.empty())
    throw SystemError(0, fmt::format("{}: {} is not written", over, path));
}

void await_turn(int processes) {
  const std::optional<Fence>& own = own_fence();
  if (!own) return;
  const std::chrono::milliseconds between(std::max(20, processes));
  for (std::optional<Fence> now = open_fence(own->folder); now && now->number < own->number;
       now = open_fence(own->folder))
    std::this_thread::sleep_for(between);
  if (const std::string over = why_over(); !over.empty()) throw SystemError(0, over);
}

}  // namespace heddle
