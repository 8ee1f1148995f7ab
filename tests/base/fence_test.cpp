#include "heddle/base/files/fence.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/random_id.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

// A process reads its generation once, at its first write: suites of this ending run before others.
class FencedFolderDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (fs::temp_directory_path() / ("heddle-fence-" + std::to_string(::getpid()))).string();
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A process of that generation writes a file; whether it was let.
  bool writes(const Fence& as, const std::string& name) const {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv(kFenceVariable, text_of(as).c_str(), 1);
      try {
        write_file(folder_ + "/" + name, "x");
      } catch (const SystemError&) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  // In another process, too: what this one's environment says is read once.
  static void raise_elsewhere(const Fence& fence) {
    const pid_t child = ::fork();
    if (child == 0) {
      raise_fence(fence);
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
  }
  std::string folder_;
};

TEST_F(FencedFolderDeathTest, LetsOneGenerationCommit) {
  const Fence first{1, random_id(), folder_}, second{2, random_id(), folder_};
  EXPECT_FALSE(writes(first, "a"));  // nobody has been let yet
  raise_elsewhere(first);
  EXPECT_TRUE(writes(first, "b"));
  EXPECT_FALSE(writes(second, "c"));
  raise_elsewhere(second);
  EXPECT_FALSE(writes(first, "d"));
  EXPECT_TRUE(writes(second, "e"));
  EXPECT_FALSE(writes({2, random_id(), folder_}, "f"));  // the number alone is no right
  for (const char* name : {"a", "c", "d", "f"}) EXPECT_FALSE(fs::exists(folder_ + "/" + name)) << name;
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_FALSE(is_temporary(entry.path().filename().string())) << entry.path();
}

TEST_F(FencedFolderDeathTest, IsReadBackAndRefusedWhereItIsDamaged) {
  EXPECT_FALSE(open_fence(folder_));
  const Fence fence{12, random_id(), folder_};
  raise_elsewhere(fence);
  ASSERT_TRUE(open_fence(folder_));
  EXPECT_EQ(open_fence(folder_)->number, 12);
  EXPECT_EQ(open_fence(folder_)->token, fence.token);
  std::ofstream(folder_ + "/.generation") << "12 short\n";
  EXPECT_THROW(open_fence(folder_), SystemError);
}

TEST(Fence, IsReadFromOneVariable) {
  const Fence fence = parse_fence("3:0123456789abcdef0123456789abcdef:/runs/a:b");
  EXPECT_EQ(fence.number, 3);
  EXPECT_EQ(fence.folder, "/runs/a:b");
  EXPECT_EQ(parse_fence(text_of(fence)).token, fence.token);
  for (const char* wrong :
       {"", "3", "3:xyz:/a", "-1:0123456789abcdef0123456789abcdef:/a", "3:0123456789abcdef0123456789abcdef:"})
    EXPECT_THROW(parse_fence(wrong), ConfigError) << wrong;
}

}  // namespace
}  // namespace heddle
