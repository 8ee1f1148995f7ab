// Names of the Hub and where its cache keeps them, on a cache of the test's own.
#include "heddle/formats/hub_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "heddle/base/error.h"

namespace heddle::formats {
namespace {

namespace fs = std::filesystem;

class HubCache : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) unsetenv(name);
    folder_ = fs::path(testing::TempDir()) / "hub_cache_test";
    fs::remove_all(folder_);
    setenv("HF_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : kVariables) unsetenv(name);
    fs::remove_all(folder_);
  }
  fs::path model() const { return folder_ / "hub/models--Qwen--Qwen3-0.6B"; }
  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  static constexpr const char* kVariables[] = {"HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE", "HF_HOME"};
  fs::path folder_;
};

TEST_F(HubCache, TakesNamesAndNothingThatLeadsElsewhere) {
  const std::optional<HubName> name = hub_name("Qwen/Qwen3-0.6B");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->text(), "Qwen/Qwen3-0.6B");
  EXPECT_EQ(name->revision, "main");
  EXPECT_EQ(hub_name("Qwen/Qwen3-0.6B@v1.2")->revision, "v1.2");
  for (const char* text : {"Qwen3-0.6B", "", "/", "a/", "/b", "../x", "a/..", "a/b/c", "a/b--c", "a/.b",
                           "a/b@../../x", "a/b@", "a b/c", "a@b/c"})
    EXPECT_FALSE(hub_name(text)) << text;
}

TEST_F(HubCache, FollowsTheRevision) {
  const HubName name = *hub_name("Qwen/Qwen3-0.6B");
  EXPECT_EQ(cached_folder(name), "");
  write(model() / "snapshots/abc123/config.json", "{}");
  EXPECT_EQ(cached_folder(name), "") << "no ref names a revision";
  write(model() / "refs/main", "abc123\n");
  EXPECT_EQ(cached_folder(name), (model() / "snapshots/abc123").string());
  EXPECT_EQ(cached_folder(*hub_name("Qwen/Qwen3-0.6B@abc123")), (model() / "snapshots/abc123").string());
  write(model() / "refs/main", "gone");
  EXPECT_EQ(cached_folder(name), "") << "the snapshot is not there";
  write(model() / "refs/main", "../../../etc");
  EXPECT_THROW(cached_folder(name), ConfigError);
}

TEST_F(HubCache, AsksTheEnvironmentInOrder) {
  EXPECT_EQ(hub_cache_folder(), (folder_ / "hub").string());
  setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
  EXPECT_EQ(hub_cache_folder(), "/old");
  setenv("HF_HUB_CACHE", "/new", 1);
  EXPECT_EQ(hub_cache_folder(), "/new") << "as huggingface_hub has it";
}

TEST_F(HubCache, NamesTheCommandThatDownloads) {
  EXPECT_EQ(download_command(*hub_name("Qwen/Qwen3-0.6B")), "hf download Qwen/Qwen3-0.6B");
  EXPECT_EQ(download_command(*hub_name("a/b@v1")), "hf download a/b --revision v1");
}

}  // namespace
}  // namespace heddle::formats
