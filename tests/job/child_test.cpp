#include "heddle/job/child.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "heddle/base/clock.h"
#include "tests/support/scratch_folder.h"

namespace heddle::job {
namespace {

// A program of the shell that has said "ready": the process of the last line that it wrote, or the status.
struct Shell {
  explicit Shell(const std::string& text, int end_signal)
      : child(
            {"sh", "-c", text}, {}, [this](const std::string& line) { said = line; }, [](const std::string&) {},
            end_signal) {
    for (const double until_s = now_s() + 60; said.empty() && now_s() < until_s;) child.poll(0.01);
  }
  std::string said;
  Child child;
};

TEST(Child, EndsByItsSignalWhereItHasOne) {
  const std::string text = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";
  Shell asked(text, SIGTERM);
  asked.child.kill();
  EXPECT_EQ(asked.child.poll(0), 7);
  Shell killed(text, 0);
  killed.child.kill();
  EXPECT_EQ(killed.child.poll(0), 128 + SIGKILL);
}

// One that pays no heed to the signal is killed; a process beside it that waits for that still does its work.
TEST(Child, LeavesTheRestToAProcessBesideIt) {
  const ScratchFolder scratch;
  const std::string made = scratch / "made";
  Shell still(fmt::format("trap '' TERM; (while kill -0 $$; do sleep 0.01; done; sleep 0.2; : > {}) & "
                          "echo ready; while :; do sleep 0.01; done",
                          made),
              SIGTERM);
  still.child.kill();
  EXPECT_EQ(still.child.poll(0), 128 + SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(made));
}

}  // namespace
}  // namespace heddle::job
