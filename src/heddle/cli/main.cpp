// The program `heddle`: whatever goes wrong becomes one message and an exit status, never a stack trace.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/cli/commands.h"

int main(int count, char** arguments) {
  using namespace heddle;
  std::signal(SIGXFSZ,
              SIG_IGN);  // a write beyond a limit on file sizes fails, and is told, as one to a full disk is
  try {
    const int status = cli::run_command_line(count, arguments);
    if (std::fflush(stdout) != 0) {
      fmt::print(stderr, "heddle: the output could not be written\n");
      return kFailed;
    }
    return status;
  } catch (const ConfigError& error) {
    fmt::print(stderr, "heddle: {}\n", escaped_lines(error.what()));
    return kBadInput;
  } catch (const InternalError& error) {
    fmt::print(stderr,
               "heddle: this is a bug of Heddle: {}\n"
               "heddle: please report it with the command and the output of `heddle doctor`\n",
               escaped_lines(error.what()));
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "heddle: out of memory on the host\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "heddle: {}\n", escaped_lines(error.what()));
  }
  return kFailed;
}
