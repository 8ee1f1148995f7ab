// Megatron's .bin and .idx: the bytes themselves, the way back, and every kind of damage.
#include "heddle/data/token_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "tests/support/scratch_folder.h"

namespace heddle::data {
namespace {

std::string slurp(const std::string& path) { return read_file(path, 1 << 30); }

void spill_token_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void write_three(const std::string& prefix, int64_t vocabulary) {
  TokenFileWriter writer(prefix, vocabulary);
  writer.add_document(std::vector<TokenId>{1, 2, 3});
  writer.add_document(std::vector<TokenId>{});
  writer.add_document(std::vector<TokenId>{4, 5});
  writer.commit();
}

std::string complaint_token_file(const std::string& prefix) {
  try {
    TokenFile file(prefix);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TokenFile, IsMegatronsToTheByte) {
  ScratchFolder folder;
  write_three(folder / "t", 300);
  const char bin[] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0};
  EXPECT_EQ(slurp(folder / "t.bin"), std::string(bin, sizeof bin));
  std::string idx("MMIDIDX\0\0", 9);
  const auto put = [&](uint64_t value, int size) {
    for (int i = 0; i < size; ++i) idx += static_cast<char>(value >> 8 * i & 0xff);
  };
  put(1, 8), put(8, 1), put(3, 8), put(4, 8);
  put(3, 4), put(0, 4), put(2, 4);
  put(0, 8), put(6, 8), put(6, 8);
  put(0, 8), put(1, 8), put(2, 8), put(3, 8);
  EXPECT_EQ(slurp(folder / "t.idx"), idx);
}

TEST(TokenFile, GivesBackWhatWasWritten) {
  for (const int64_t vocabulary : {65499, 65500, 1 << 20}) {
    ScratchFolder folder;
    const RandomKey key(3);
    std::vector<std::vector<TokenId>> documents;
    {
      TokenFileWriter writer(folder / "t", vocabulary);
      for (uint64_t d = 0; d < 300; ++d) {
        documents.emplace_back();
        for (uint64_t i = 0; i < key.bits(d) % 90; ++i) {
          documents.back().push_back(static_cast<TokenId>(key.with(d).bits(i) % static_cast<uint64_t>(vocabulary)));
        }
        documents.back().push_back(static_cast<TokenId>(vocabulary - 1));
        writer.add_document(documents.back());
      }
      writer.commit();
    }
    const TokenFile file(folder / "t");
    EXPECT_EQ(std::filesystem::file_size(folder / "t.bin"),
              static_cast<size_t>(file.tokens() * (vocabulary < 65500 ? 2 : 4)));
    ASSERT_EQ(file.documents(), 300);
    for (int64_t d = 0; d < 300; ++d) {
      const std::vector<TokenId>& wanted = documents[static_cast<size_t>(d)];
      std::vector<TokenId> found(wanted.size());
      ASSERT_EQ(file.document_begin(d + 1) - file.document_begin(d), static_cast<int64_t>(wanted.size()));
      file.read(file.document_begin(d), found);
      ASSERT_EQ(found, wanted);
    }
    EXPECT_NO_THROW(file.check_ids(0, file.tokens(), vocabulary));
    EXPECT_THROW(file.check_ids(0, file.tokens(), vocabulary - 1), ConfigError);
    EXPECT_THROW(file.read(file.tokens(), std::span(documents[0]).first(1)), InternalError);
  }
}

TEST(TokenFile, EveryCutIsRefused) {
  ScratchFolder folder;
  write_three(folder / "t", 300);
  const std::string idx = slurp(folder / "t.idx"), bin = slurp(folder / "t.bin");
  for (size_t size = 0; size < idx.size(); ++size) {
    spill_token_file(folder / "t.idx", idx.substr(0, size));
    EXPECT_NE(complaint_token_file(folder / "t").find("t.idx"), std::string::npos) << size;
  }
  spill_token_file(folder / "t.idx", idx + "x");
  EXPECT_NE(complaint_token_file(folder / "t"), "");
  spill_token_file(folder / "t.idx", idx + "xxx");  // one mode a sequence
  EXPECT_EQ(complaint_token_file(folder / "t"), "");
  spill_token_file(folder / "t.idx", idx);
  for (size_t size = 0; size < bin.size(); ++size) {
    spill_token_file(folder / "t.bin", bin.substr(0, size));
    EXPECT_NE(complaint_token_file(folder / "t").find("t.bin"), std::string::npos) << size;
  }
  spill_token_file(folder / "t.bin", bin + "xy");
  EXPECT_NE(complaint_token_file(folder / "t"), "");
}

TEST(TokenFile, EveryChangedHeaderByteIsSafe) {
  ScratchFolder folder;
  write_three(folder / "t", 300);
  const std::string idx = slurp(folder / "t.idx");
  int refused = 0;
  for (size_t at = 0; at < idx.size(); ++at) {
    for (const int value : {0, 1, 2, 127, 128, 255}) {
      std::string damaged = idx;
      damaged[at] = static_cast<char>(value);
      if (damaged == idx) continue;
      spill_token_file(folder / "t.idx", damaged);
      if (!complaint_token_file(folder / "t").empty()) {
        ++refused;
        continue;
      }
      const TokenFile file(folder / "t");  // then everything in it can be read
      std::vector<TokenId> ids(static_cast<size_t>(file.tokens()));
      file.read(0, ids);
      for (int64_t d = 0; d <= file.documents(); ++d) file.document_begin(d);
    }
  }
  EXPECT_GT(refused, 300);
}

// A file cut while it is in use: what is left can be read, the rest is told, and nobody gets SIGBUS.
TEST(TokenFile, ACutWhileInUseIsTold) {
  ScratchFolder folder;
  TokenFileWriter writer(folder / "t", 300);
  const std::vector<TokenId> document(100'000, 7);
  for (int d = 0; d < 3; ++d) writer.add_document(document);
  writer.commit();
  const auto told = [](const auto& body) {
    try {
      body();
    } catch (const SystemError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const TokenFile file(folder / "t");
  std::vector<TokenId> ids(10'000);
  std::filesystem::resize_file(folder / "t.bin", 200'000);
  file.read(90'000, ids);
  EXPECT_EQ(ids.back(), 7);
  EXPECT_EQ(told([&] { file.read(90'001, ids); }),
            (folder / "t.bin") +
                ": cut short while in use: it ends before byte 200001, it had 600000 when it was opened");
  EXPECT_NE(told([&] { file.check_ids(0, file.tokens(), 300); }).find("cut short while in use"), std::string::npos);
  EXPECT_EQ(file.document_begin(2), 200'000);
  std::filesystem::resize_file(folder / "t.idx", 40);
  EXPECT_NE(told([&] { file.document_begin(2); }).find("t.idx: cut short while in use"), std::string::npos);
}

TEST(TokenFile, BeginsOfManyDocumentsAreThoseOfEach) {
  ScratchFolder folder;
  TokenFileWriter writer(folder / "t", 300);
  for (size_t d = 0; d < 500; ++d) writer.add_document(std::vector<TokenId>(d * d % 7, 1));
  writer.commit();
  const TokenFile file(folder / "t");
  for (const int64_t first : {0, 1, 437, 500}) {
    std::vector<int64_t> begins(static_cast<size_t>(501 - first));
    file.document_begins(first, begins);
    for (int64_t d = first; d <= 500; ++d) {
      EXPECT_EQ(begins[static_cast<size_t>(d - first)], file.document_begin(d));
    }
  }
}

TEST(TokenFile, HugeCountsDoNotWrap) {
  ScratchFolder folder;
  write_three(folder / "t", 300);
  std::string idx = slurp(folder / "t.idx");
  for (const uint64_t count : {uint64_t{1} << 62, ~uint64_t{0}, uint64_t{0x5555555555555556}, uint64_t{1} << 63}) {
    for (const size_t at : {18u, 26u}) {
      std::string damaged = idx;
      std::memcpy(damaged.data() + at, &count, 8);
      spill_token_file(folder / "t.idx", damaged);
      EXPECT_NE(complaint_token_file(folder / "t"), "") << count;
    }
  }
}

TEST(TokenFile, ADiskThatFillsUpLeavesTheOldFiles) {
  ScratchFolder folder;
  write_three(folder / "t", 300);
  const std::string bin = slurp(folder / "t.bin"), idx = slurp(folder / "t.idx");
  // A limit on file sizes fails writes as a full disk does.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 16, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string what;
  try {
    TokenFileWriter writer(folder / "t", 300);
    for (int i = 0; i < 40; ++i) writer.add_document(std::vector<TokenId>(1000, 7));
    writer.commit();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code, EFBIG);
    what = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, signal_before);
  EXPECT_NE(what.find("t.bin: File too large"), std::string::npos) << what;
  EXPECT_EQ(slurp(folder / "t.bin"), bin);
  EXPECT_EQ(slurp(folder / "t.idx"), idx);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);  // nothing left lying about
}

TEST(OutputFile, IsThereOnlyOnceCommitted) {
  ScratchFolder folder;
  spill_token_file(folder / "f", "old");
  {
    OutputFile file(folder / "f");
    file.write(std::string(3 << 20, 'n'));
  }
  EXPECT_EQ(slurp(folder / "f"), "old");
  write_file(folder / "f", "new");
  EXPECT_EQ(slurp(folder / "f"), "new");
  EXPECT_THROW(OutputFile(folder / "no/such/f"), SystemError);
  EXPECT_THROW(read_file(folder / "none", 10), ConfigError);
  EXPECT_THROW(read_file(folder / "f", 2), ConfigError);
  EXPECT_THROW(read_file(folder.path().string(), 10), ConfigError);
}

}  // namespace
}  // namespace heddle::data
