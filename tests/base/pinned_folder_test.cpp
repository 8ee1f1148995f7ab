// What is written below a folder's path goes into that folder, whatever stands at the path meanwhile.
#include "heddle/base/files/pinned_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/files/folder_lock.h"
#include "heddle/base/files/mapped_file.h"
#include "heddle/base/files/output_file.h"
#include "tests/support/scratch_folder.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

TEST(PinnedFolder, WritesFollowIt) {
  const ScratchFolder scratch;
  const std::string run = scratch / "run", old = scratch / "old";
  fs::create_directory(run);
  std::string holder;
  std::optional<FolderLock> lock = FolderLock::take(run, holder);
  OutputFile begun(run + "/report.html");
  fs::rename(run, old);
  fs::create_directory(run);
  write_file(run + "/config.toml", "mine");
  begun.write("report");
  begun.commit();
  EXPECT_EQ(read_file(run + "/config.toml", 100), "mine");
  EXPECT_EQ(MappedFile(run + "/config.toml").size_bytes(), 4);
  const auto names = [](const std::string& folder) {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder)) all.insert(entry.path().filename().string());
    return all;
  };
  EXPECT_EQ(names(old), (std::set<std::string>{".lock", "config.toml", "report.html"}));
  EXPECT_EQ(names(run), std::set<std::string>());
  EXPECT_EQ(lock->folder().place(), old);
  {  // another's, in its place: both are written into
    std::optional<FolderLock> other = FolderLock::take(run, holder);
    ASSERT_TRUE(other);
    write_file(run + "/config.toml", "other");
  }
  EXPECT_EQ(read_file(old + "/config.toml", 100), "mine");
  fs::create_directory(old + "/.left.0123456789abcdef.part");
  fs::create_directory(run + "/.left.0123456789abcdef.part");
  remove_temporaries(run);
  EXPECT_TRUE(fs::exists(run + "/.left.0123456789abcdef.part"));
  EXPECT_FALSE(fs::exists(old + "/.left.0123456789abcdef.part"));
  lock.reset();
  EXPECT_EQ(read_file(run + "/config.toml", 100), "other") << "nothing is pinned any more";
}

TEST(PinnedFolder, ItsWholePathAndALinkToItLeadThere) {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "run");
  fs::create_directory_symlink("run", scratch / "link");
  const PinnedFolder pinned(scratch / "link");
  fs::rename(scratch / "run", scratch / "old");
  fs::create_directory(scratch / "run");
  write_file(scratch / "link/a", "a");
  write_file(scratch / "run/b", "b");
  write_file(scratch / "runs", "beside: no part of it");
  EXPECT_TRUE(fs::exists(scratch / "old/a"));
  EXPECT_TRUE(fs::exists(scratch / "old/b"));
  EXPECT_TRUE(fs::is_empty(scratch / "run"));
  EXPECT_TRUE(fs::exists(scratch / "runs"));
}

TEST(PinnedFolder, OneThatWasRemovedSaysSo) {
  const ScratchFolder scratch;
  const std::string run = scratch / "run";
  fs::create_directory(run);
  const PinnedFolder pinned(run);
  EXPECT_FALSE(pinned.removed());
  fs::remove(run);
  fs::create_directory(run);
  EXPECT_TRUE(pinned.removed());
  EXPECT_EQ(pinned.place(), "");
  try {
    write_file(run + "/a", "a");
    ADD_FAILURE() << "it was written";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("its folder " + run + " was removed"), std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(fs::is_empty(run));
  EXPECT_THROW(PinnedFolder(scratch / "none"), SystemError);
}

}  // namespace
}  // namespace heddle
