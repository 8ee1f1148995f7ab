// One holder of a folder at a time, whichever way the one before ended.
#include "heddle/base/files/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "heddle/base/error.h"
#include "tests/support/scratch_folder.h"

namespace heddle {
namespace {

TEST(FolderLock, OneAtATimeAndTheHolderIsNamed) {
  const ScratchFolder folder;
  std::string holder;
  {
    std::optional<FolderLock> lock = FolderLock::take(folder.path().string(), holder);
    ASSERT_TRUE(lock && lock->locked());
    FolderLock moved(std::move(*lock));
    lock.reset();
    EXPECT_FALSE(FolderLock::take(folder.path().string(), holder));
    EXPECT_EQ(holder.find(fmt::format("process {} on host ", ::getpid())), 0u) << holder;
    EXPECT_NE(holder.find(" UTC"), holder.npos);
  }
  EXPECT_TRUE(FolderLock::take(folder.path().string(), holder));
  EXPECT_EQ(std::filesystem::file_size(folder / ".lock"), 0u) << "nobody holds it";
}

TEST(FolderLock, AKilledHolderHoldsNothing) {
  const ScratchFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string holder;
    const std::optional<FolderLock> lock = FolderLock::take(folder.path().string(), holder);
    const char said = lock ? 'y' : 'n';
    if (::write(ready[1], &said, 1) == 1) pause();
    _exit(1);
  }
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  ASSERT_EQ(said, 'y');
  std::string holder;
  EXPECT_FALSE(FolderLock::take(folder.path().string(), holder));
  EXPECT_EQ(holder.find(fmt::format("process {} ", child)), 0u) << holder;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(FolderLock::take(folder.path().string(), holder));
  close(ready[0]);
  close(ready[1]);
}

TEST(FolderLock, WaitsUntilItIsFree) {
  const ScratchFolder folder;
  std::string holder;
  std::optional<FolderLock> first = FolderLock::take(folder.path().string(), holder);
  std::atomic<int> told = 0;
  std::atomic<bool> held = false;
  std::thread other([&] {
    const FolderLock lock = FolderLock::wait(folder.path().string(), [&](const std::string&) { ++told; });
    held = true;
  });
  while (told == 0) std::this_thread::yield();
  EXPECT_FALSE(held);
  first.reset();
  other.join();
  EXPECT_EQ(told, 1);
}

TEST(FolderLock, WhatStandsInItsPlaceIsRefused) {
  const ScratchFolder folder;
  std::string holder;
  EXPECT_THROW(FolderLock::take(folder / "none", holder), SystemError);
  std::ofstream(folder / "precious") << "precious";
  std::filesystem::create_symlink("precious", folder / ".lock");
  EXPECT_THROW(FolderLock::take(folder.path().string(), holder), SystemError);
  EXPECT_EQ(std::filesystem::file_size(folder / "precious"), 8u);
}

}  // namespace
}  // namespace heddle
