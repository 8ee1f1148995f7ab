// Files that appear whole or not at all, and those written at their place: what others may put in the way.
#include "heddle/base/files/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "heddle/base/error.h"
#include "tests/support/scratch_folder.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Open = OutputFile::Open;

int64_t entries(const ScratchFolder& folder) {
  return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator());
}

std::string text_of(const std::string& path) { return read_file(path, 1 << 20); }

TEST(OutputFile, ReplacesWhenCommittedAndLeavesNothingElse) {
  const ScratchFolder folder;
  write_file(folder / "a", "old");
  {
    OutputFile file(folder / "a");
    file.write("new");
    EXPECT_EQ(text_of(folder / "a"), "old");
    EXPECT_EQ(entries(folder), 2);
  }
  EXPECT_EQ(text_of(folder / "a"), "old");
  EXPECT_EQ(entries(folder), 1);
  write_file(folder / "a", std::string(3 << 20, 'x'));
  EXPECT_EQ(fs::file_size(folder / "a"), 3u << 20);
  EXPECT_EQ(entries(folder), 1);
  EXPECT_THROW(write_file(folder / "none/a", ""), SystemError);
}

TEST(OutputFile, TemporaryNamesAreRandomAndKnown) {
  const ScratchFolder folder;
  const std::string one = temporary_beside(folder / "a.b"), two = temporary_beside(folder / "a.b");
  EXPECT_NE(one, two);
  EXPECT_EQ(fs::path(one).parent_path(), folder.path());
  EXPECT_TRUE(is_temporary(fs::path(one).filename().string()));
  for (const char* name : {"a.part", ".part", ".a.part", ".0123456789abcdef.part", ".a.0123456789abcdeg.part",
                           ".a.0123456789abcdef.part.", "a.0123456789abcdef.part", ".lock"}) {
    EXPECT_FALSE(is_temporary(name)) << name;
  }
  std::ofstream(folder / "mine.part") << "kept";
  std::ofstream(one) << "left";
  fs::create_directories(fs::path(two) / "inner");
  remove_temporaries(folder.path().string());
  EXPECT_EQ(entries(folder), 1);
  remove_temporaries(folder / "none");
}

TEST(OutputFile, LinksAreReplacedOrRefusedNeverFollowed) {
  const ScratchFolder folder;
  write_file(folder / "precious", "precious");
  fs::create_symlink("precious", folder / "link");
  for (const Open how : {Open::begin, Open::append}) EXPECT_THROW(OutputFile(folder / "link", how), SystemError);
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  write_file(folder / "link", "own");
  EXPECT_FALSE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(text_of(folder / "precious"), "precious");
  EXPECT_EQ(text_of(folder / "link"), "own");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(OutputFile(folder / "pipe", Open::append), SystemError) << "nobody reads it: not waited for";
}

TEST(OutputFile, ReplacesNothingButPlainFiles) {
  const ScratchFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", folder / "link");
  fs::create_symlink("/proc/self/exe", folder / "own");  // a plain file, as a redirected /dev/stdout is
  fs::create_directory(folder / "inner");
  for (const char* name : {"pipe", "link", "own", "inner"}) {
    try {
      write_file(folder / name, "text");
      ADD_FAILURE() << name;
    } catch (const SystemError& error) {
      EXPECT_EQ(error.what(), "cannot write " + (folder / name) + ": no plain file");
    }
  }
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_TRUE(fs::is_symlink(folder / "own"));
  EXPECT_EQ(entries(folder), 4) << "nothing is left beside them";
}

TEST(OutputFile, OwnersFilesAreTheirs) {
  const ScratchFolder folder;
  const mode_t before = umask(0);
  {
    OutputFile file(folder / "mine", Open::replace, OutputFile::Access::owner);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) {
      EXPECT_EQ(entry.status().permissions(), fs::perms::owner_read | fs::perms::owner_write);
    }
    file.commit();
  }
  umask(before);
  EXPECT_EQ(fs::status(folder / "mine").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(OutputFile, AppendsAndCuts) {
  const ScratchFolder folder;
  {
    OutputFile file(folder / "log", Open::begin);
    file.write_whole("one\ntwo\n");
    EXPECT_EQ(text_of(folder / "log"), "one\ntwo\n") << "it is with the system at once";
  }
  OutputFile file(folder / "log", Open::append);
  EXPECT_EQ(file.size_bytes(), 8);
  file.truncate(4);
  file.write("three\n");
  file.close();
  EXPECT_EQ(text_of(folder / "log"), "one\nthree\n");
}

}  // namespace
}  // namespace heddle
