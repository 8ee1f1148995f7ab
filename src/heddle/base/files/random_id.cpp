#include "heddle/base/files/random_id.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "heddle/base/error.h"

namespace heddle {

std::string random_id() {
  std::array<uint64_t, 2> bits{};
  while (::getrandom(bits.data(), sizeof bits, 0) != sizeof bits) {
    if (errno != EINTR) throw SystemError(errno, "the system gives no random numbers");
  }
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

}  // namespace heddle
