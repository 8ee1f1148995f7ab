#include "heddle/base/files/standard_input.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"

namespace heddle {

namespace {

constexpr size_t kPieceBytes = 1 << 20;

// Calls `take` with pieces until the end.
template <class Take>
void read_pieces(const Take& take) {
  if (::isatty(STDIN_FILENO) == 1) say(stderr, "reading the standard input; Ctrl-D ends it\n");
  std::vector<char> piece(kPieceBytes);
  while (true) {
    const ssize_t now = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) {
      const int code = errno;
      throw SystemError(code, fmt::format("cannot read the standard input: {}", std::strerror(code)));
    }
    if (now == 0) return;
    take(std::string_view(piece.data(), static_cast<size_t>(now)));
  }
}

}  // namespace

const std::string& standard_input(int64_t most_bytes) {
  static const std::string whole = [&] {
    std::string text;
    read_pieces([&](std::string_view piece) {
      text += piece;
      if (text.size() > static_cast<size_t>(most_bytes))
        config_error("the standard input has more than {} bytes", most_bytes);
    });
    return text;
  }();
  return whole;
}

std::string keep_standard_input(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw SystemError(error.value(), fmt::format("cannot make the folder {}: {}", folder, error.message()));
  std::optional<OutputFile> file;
  std::string path;
  read_pieces([&](std::string_view piece) {
    if (!file) {
      const size_t first = piece.find_first_not_of(" \t\r\n");
      const bool json = first != std::string_view::npos && piece[first] == '{';
      path = folder + (json ? "/input.jsonl" : "/input.txt");
      file.emplace(path);
    }
    file->write(piece);
  });
  if (!file) config_error("the standard input is empty");
  file->commit();
  return path;
}

}  // namespace heddle
