// Who prints is not ended by it.
#include "heddle/base/say.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heddle/base/error.h"

namespace heddle {
namespace {

// The exit status of `body` in a process of its own, whose two outputs go where `path` says; −1: a signal ended it.
template <class Body>
int status_of(const char* path, const Body& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen(path, "w", stdout) == nullptr || std::freopen(path, "w", stderr) == nullptr) _exit(99);
    int status = 98;
    try {
      status = body();
    } catch (const SystemError&) {
      status = 1;
    } catch (...) {
      status = 97;
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Say, AFullDiskThrowsNothing) {
  const auto body = [] {
    say(stderr, "{} of {}\n", 1, 2);
    say("the answer {}\n", std::string(1 << 20, 'x'));
    return 7;
  };
  EXPECT_EQ(status_of("/dev/full", body), 7);
  EXPECT_EQ(status_of("/dev/null", body), 7);
}

TEST(Say, WhetherItWasHeardIsToBeAsked) {
  const auto body = [] {
    say("short\n");
    check_heard();
    return 0;
  };
  EXPECT_EQ(status_of("/dev/full", body), 1);
  EXPECT_EQ(status_of("/dev/null", body), 0);
}

TEST(Say, AReaderThatHasGoneEndsNothing) {
  EXPECT_EQ(status_of("/dev/null",
                      [] {
                        outlive_readers();
                        int ends[2];
                        if (pipe(ends) != 0) return 96;
                        close(ends[0]);
                        dup2(ends[1], STDOUT_FILENO);
                        say("{}\n", std::string(1 << 20, 'x'));
                        check_heard();
                        return 0;
                      }),
            1);
}

TEST(Say, AClosedStreamIsNoFiles) {
  EXPECT_EQ(status_of("/dev/null",
                      [] {
                        close(STDERR_FILENO);
                        outlive_readers();
                        const int opened = dup(STDIN_FILENO);
                        return opened > STDERR_FILENO ? 0 : 5;
                      }),
            0);
}

}  // namespace
}  // namespace heddle
