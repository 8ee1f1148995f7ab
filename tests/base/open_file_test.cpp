// Whose fault it is that a file can't be opened.
#include "heddle/base/files/open_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/files/input_file.h"
#include "heddle/base/files/mapped_file.h"
#include "heddle/base/files/output_file.h"
#include "tests/support/scratch_folder.h"

namespace heddle {
namespace {

// No file can be opened while it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(OpenFile, ThePathIsToBlame) {
  const ScratchFolder folder;
  write_file(folder / "file", "text");
  std::filesystem::create_symlink("loop", folder / "loop");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder / "none", folder / "file/below", folder / "loop", folder / "pipe",
                                  folder.path().string(), folder / std::string(300, 'x')}) {
    EXPECT_THROW(open_to_read(path), ConfigError) << path;
    EXPECT_THROW(read_file(path, 10), ConfigError) << path;
    EXPECT_THROW(InputFile{path}, ConfigError) << path;
    EXPECT_THROW(MappedFile{path}, ConfigError) << path;
  }
}

TEST(OpenFile, TheSystemIsToBlame) {
  const ScratchFolder folder;
  const std::string path = folder / "file";
  write_file(path, "text");
  std::vector<int> codes;
  {
    const NoDescriptors none;
    const auto code_of = [&](const auto& open) {
      try {
        open();
        codes.push_back(0);
      } catch (const SystemError& error) {
        codes.push_back(error.code);
      } catch (const Error&) {
        codes.push_back(-1);
      }
    };
    code_of([&] { open_to_read(path); });
    code_of([&] { read_file(path, 10); });
    code_of([&] { InputFile{path}; });
    code_of([&] { MappedFile{path}; });
  }
  EXPECT_EQ(codes, std::vector<int>(4, EMFILE));
  EXPECT_EQ(read_file(path, 10), "text") << "it passes";
}

}  // namespace
}  // namespace heddle
