#include "heddle/session/slow/wanted_op_times.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "heddle/base/files/output_file.h"
#include "heddle/base/files/pinned_folder.h"

namespace heddle::session {

void want_op_times(const RunFolder& folder, int64_t steps) {
  write_file(folder.op_times_wanted(), fmt::format("{}\n", steps), OutputFile::Flush::to_system);
}

int64_t take_wanted_steps(const RunFolder& folder) {
  const std::string path = held_path(folder.op_times_wanted());
  const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 16> text;
  const ssize_t size = ::read(file, text.data(), text.size());
  ::close(file);
  ::unlink(path.c_str());
  int64_t steps = 0;
  if (size > 0) std::from_chars(text.data(), text.data() + size, steps);
  return steps > 0 && steps <= kMostTimedSteps ? steps : 0;
}

}  // namespace heddle::session
