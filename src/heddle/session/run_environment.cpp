#include "heddle/session/run_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "heddle/base/files/output_file.h"
#include "heddle_commit.h"

namespace heddle::session {

namespace {

constexpr int64_t kMostCommandBytes = 1 << 20;

std::string quoted(std::string_view word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789-_./=,:+@%") == word.npos;
  if (plain) return std::string(word);
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? "'\\''" : std::string(1, letter);
  return text + "'";
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string command_text() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string bytes(kMostCommandBytes, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\0', at), bytes.size());
    text += (text.empty() ? "" : " ") + quoted(std::string_view(bytes).substr(at, end - at));
    at = end + 1;
  }
  return text;
}

std::string version_text() {
  const std::string commit = HEDDLE_COMMIT;
  return commit.empty() ? HEDDLE_VERSION : fmt::format("{}, commit {}", HEDDLE_VERSION, commit);
}

std::string processor_text() {
  std::ifstream file("/proc/cpuinfo");
  std::string name = "unknown processor";
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (colon == line.npos || !line.starts_with("model name")) continue;
    name = line.substr(colon + 2);
    break;
  }
  return name;
}

}  // namespace heddle::session
