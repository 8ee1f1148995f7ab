// A user's program that is told of alarms: it gets the object, has its time, and never harms the run.
#include "heddle/session/slow/alarm_command.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "heddle/base/clock.h"
#include "heddle/session/slow/wanted_op_times.h"
#include "tests/support/scratch_folder.h"

namespace heddle::session {
namespace {

namespace fs = std::filesystem;

class AlarmCommands : public testing::Test {
 protected:
  std::string script(const std::string& text) {
    const std::string path = folder_ / "hook";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  AlarmCommand::Warn warn() {
    return [this](const std::string& line) { warned_.push_back(line); };
  }
  ScratchFolder folder_;
  std::vector<std::string> warned_;
};

TEST_F(AlarmCommands, ReadTheAlarm) {
  AlarmCommand command(script("cat > \"$1\"; echo '$HOME' >> \"$1\"") + " " + (folder_ / "out;touch"), warn());
  command.run("{\"rank\": 3}\n");
  command.finish();
  std::ifstream made(folder_ / "out;touch");  // no shell has read the line
  std::string line;
  std::getline(made, line);
  EXPECT_EQ(line, "{\"rank\": 3}");
  EXPECT_TRUE(warned_.empty());
}

TEST_F(AlarmCommands, HaveTheirTimeAndNoMore) {
  AlarmCommand command(script("sleep 60 & sleep 60"), warn(), 0.2);
  const double began_s = now_s();
  command.run("{}");
  EXPECT_LT(now_s() - began_s, 5);
  command.finish();
  EXPECT_LT(now_s() - began_s, 20);
  ASSERT_EQ(warned_.size(), 1u);
  EXPECT_NE(warned_[0].find("was ended after 0.2 s; training goes on"), std::string::npos) << warned_[0];
}

TEST_F(AlarmCommands, ThatFailAreToldOnce) {
  AlarmCommand nowhere(folder_ / "nowhere", warn());
  nowhere.run("{}");
  nowhere.run("{}");
  AlarmCommand fails(script("exit 3"), warn());
  fails.run("{}");
  fails.finish();
  AlarmCommand none("", warn());
  none.run("{}");
  ASSERT_EQ(warned_.size(), 2u);
  EXPECT_NE(warned_[0].find("can't be started: No such file"), std::string::npos) << warned_[0];
  EXPECT_NE(warned_[1].find("ended with status 3"), std::string::npos) << warned_[1];
}

TEST_F(AlarmCommands, TimesOfOpsAreAskedForByAFileThatIsRead) {
  const RunFolder run{folder_.path().string()};
  EXPECT_EQ(take_wanted_steps(run), 0);
  want_op_times(run, 12);
  EXPECT_EQ(take_wanted_steps(run), 12);
  EXPECT_EQ(take_wanted_steps(run), 0);
  std::ofstream(run.op_times_wanted()) << "9999999999999999999999";
  EXPECT_EQ(take_wanted_steps(run), 0);
  std::ofstream(folder_ / "other") << "5";
  fs::create_symlink(folder_ / "other", run.op_times_wanted());
  EXPECT_EQ(take_wanted_steps(run), 0);
}

}  // namespace
}  // namespace heddle::session
