// Documents out of files, broken ones included.
#include "heddle/data/corpus/text_files.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/random.h"
#include "heddle/base/utf8.h"
#include "tests/support/scratch_folder.h"

namespace heddle::data {
namespace {

void spill(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

void spill_gzipped(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

std::vector<Document> all(DocumentSource& source) {
  std::vector<Document> documents;
  Document document;
  while (source.next(document)) documents.push_back(document);
  return documents;
}

std::string complaint(const std::string& path) {
  try {
    all(*open_text(path));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string paragraphs(int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i) {
    text += "Paragraph number " + std::to_string(i) +
            " speaks of looms, of threads, and of nothing else at any length.\n\n";
  }
  return text;
}

TEST(TextFiles, CutsTextAtBlankLines) {
  ScratchFolder folder;
  const std::string text = paragraphs(0, 1000);
  spill(folder / "a.txt", text);
  spill_gzipped(folder / "sub/b.txt.gz", "short");
  spill(folder / "c.md", "not read");
  const auto source = open_text(folder.path().string());
  const std::vector<Document> documents = all(*source);
  ASSERT_GT(documents.size(), 5u);
  EXPECT_EQ(documents.back().text, "short");
  std::string joined;
  for (size_t i = 0; i + 1 < documents.size(); ++i) {
    if (i + 2 < documents.size()) {
      EXPECT_GE(documents[i].text.size(), kLeastDocumentBytes);
    }
    EXPECT_LT(documents[i].text.size(), kLeastDocumentBytes + 200);
    EXPECT_EQ(documents[i].text.substr(0, 9), "Paragraph");
    joined += documents[i].text + "\n";
  }
  EXPECT_TRUE(joined.substr(0, text.size() - 1) == text.substr(0, text.size() - 1)) << joined.size();
  EXPECT_DOUBLE_EQ(source->progress(), 1.0);
  source->rewind();
  EXPECT_EQ(all(*source).size(), documents.size());
}

TEST(TextFiles, ReadsZstd) {
  ScratchFolder folder;
  const std::string text = paragraphs(0, 3000);
  spill(folder / "plain.txt", text);
  // Two frames, with one to be skipped before each.
  const auto frame = [](std::string_view part) {
    std::string packed(ZSTD_compressBound(part.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), part.data(), part.size(), 3));
    return std::string("\x50\x2a\x4d\x18\x03\0\0\0abc", 11) + packed;
  };
  const std::string packed = frame(text.substr(0, 70'001)) + frame(text.substr(70'001));
  spill(folder / "p.txt.zst", packed);
  const std::vector<Document> plain = all(*open_text(folder / "plain.txt")),
                              read = all(*open_text(folder / "p.txt.zst"));
  ASSERT_EQ(read.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(read[i].text, plain[i].text);
  const auto complaint = [&](std::string bytes) -> std::string {
    spill(folder / "bad.txt.zst", bytes);
    try {
      all(*open_text(folder / "bad.txt.zst"));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(complaint(packed.substr(0, packed.size() - 5)).find("cut short"), std::string::npos);
  std::string damaged = packed;
  damaged[packed.size() / 2] = static_cast<char>(~damaged[packed.size() / 2]);
  damaged[40] = static_cast<char>(~damaged[40]);
  EXPECT_NE(complaint(damaged), "");
}

TEST(TextFiles, ReadsAnyKeyAndRefusesOtherFormsByName) {
  ScratchFolder folder;
  spill(folder / "a.jsonl", "{\"content\": \"one\", \"text\": 3, \"url\": \"u\"}\n{\"content\": \"two\"}\n");
  const std::vector<Document> documents = all(*open_text(folder / "a.jsonl", {.key = "content"}));
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[1].text, "two");
  EXPECT_NE(open_text(folder / "a.jsonl", {.key = "content"})->fingerprint(),
            open_text(folder / "a.jsonl", {.key = "url"})->fingerprint());
  const auto complaint = [&](const std::string& path) -> std::string {
    try {
      all(*open_text(path));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(
      complaint(folder / "a.jsonl").find("a.jsonl:1: no string under the key \"text\"; there are \"content\""),
      std::string::npos);
  spill(folder / "sub/b.parquet", "PAR1");
  EXPECT_NE(complaint(folder / "sub/b.parquet").find(".parquet files are not read"), std::string::npos);
  EXPECT_NE(complaint(folder / "sub").find(".parquet files are not read"), std::string::npos);
}

std::vector<std::string> texts_of(const std::string& path, const TextOptions& options = {}) {
  std::vector<std::string> texts;
  for (const Document& document : all(*open_text(path, options))) texts.push_back(document.text);
  return texts;
}

std::string zstd_of(const std::string& text, int window_log = 0) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  if (window_log > 0) {
    ZSTD_CCtx_setParameter(context, ZSTD_c_enableLongDistanceMatching, 1);
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
    // As of a stream, whose size is not known: the heading names the window.
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  }
  std::string packed(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_outBuffer out{packed.data(), packed.size(), 0};
  ZSTD_inBuffer in{text.data(), text.size(), 0};
  while (ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush) != 0) {
  }
  while (ZSTD_compressStream2(context, &out, &in, ZSTD_e_end) != 0) {
  }
  ZSTD_freeCCtx(context);
  packed.resize(out.pos);
  return packed;
}

const std::string kThree = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n";
const std::vector<std::string> kTexts{"one", "two", "three"};

TEST(TextFiles, JsonIsKnownUnderAnyName) {
  ScratchFolder folder;
  for (const char* name : {"a.json", "a.jsonl", "a.ndjson", "a.jsonlines", "a.txt", "a", "a.data"}) {
    for (const char* before : {"", "\xef\xbb\xbf", "\n \n"}) {
      spill(folder / name, before + kThree);
      EXPECT_EQ(texts_of(folder / name), kTexts) << name;
    }
    const std::string packed = std::string(name) + ".gz", other = std::string(name) + ".zst";
    spill_gzipped(folder / packed, kThree);
    spill(folder / other, zstd_of(kThree));
    EXPECT_EQ(texts_of(folder / packed), kTexts) << packed;
    EXPECT_EQ(texts_of(folder / other), kTexts) << other;
  }
  // Braces alone make no JSON of a text.
  spill(folder / "b.txt", "{\"other\": \"one\"}\n");
  EXPECT_EQ(texts_of(folder / "b.txt"), std::vector<std::string>{"{\"other\": \"one\"}\n"});
  spill(folder / "c.txt", "{ a loom {\n");
  EXPECT_EQ(texts_of(folder / "c.txt").size(), 1u);
  spill(folder / "d.json", "one document");
  EXPECT_NE(complaint(folder / "d.json").find("JSON that holds no documents: it begins with 'one document'"),
            std::string::npos)
      << complaint(folder / "d.json");
}

TEST(TextFiles, OneJsonListIsReadItemByItem) {
  ScratchFolder folder;
  const std::string list =
      "[\n  {\"text\": \"one\",\n   \"at\": [1, {\"]\": \"}, {\"}]},\n{\"text\": \"two\"} , {\"text\": "
      "\"th\\\"ree\"}\n]\n";
  for (const char* name : {"a.json", "a.jsonl", "a"}) {
    spill(folder / name, list);
    EXPECT_EQ(texts_of(folder / name), (std::vector<std::string>{"one", "two", "th\"ree"})) << name;
  }
  const std::vector<Document> documents = all(*open_text(folder / "a.json"));
  EXPECT_EQ(documents[0].line, 2);
  EXPECT_EQ(documents[1].line, 4);
  // Longer than what is read at once.
  std::string large = "[";
  for (int i = 0; i < 20000; ++i)
    large += fmt::format("{}{{\"text\": \"number {}\", \"n\": {}}}", i == 0 ? "" : ",\n", i, i);
  spill(folder / "b.json", large + "]");
  const std::vector<std::string> read = texts_of(folder / "b.json");
  ASSERT_EQ(read.size(), 20000u);
  EXPECT_EQ(read[19999], "number 19999");
  // Objects one after another, over several lines.
  spill(folder / "c.json", "{\n  \"text\": \"one\"\n}\n{\n  \"text\": \"two\"\n}\n");
  EXPECT_EQ(texts_of(folder / "c.json"), (std::vector<std::string>{"one", "two"}));
  const std::pair<const char*, const char*> kBroken[] = {
      {"[{\"text\": \"a\"}, {\"text\": \"b\"}", "cut short: the list has no end"},
      {"[{\"text\": \"a\"}, {\"text\": \"b", "cut short: an object has no end"},
      {"[{\"text\": \"a\"} {\"text\": \"b\"}]", "where ',' or the end of the list is expected"},
      {"[{\"text\": \"a\"}] x", "follows the end of the list"},
      {"[{\"text\": \"a\"}, 3]", "not a JSON object"},
      {"[{\"text\": \"a\"}\n, {\"txt\": \"b\"}]", "d.json:2: no string under the key"},
      {"[{\"text\": \"a\"},", "cut short: the list has no end"},
      {"{\"text\": \"a\"\n{\"text\": \"b\"}\n", "d.json:1: not a JSON object: it ends too early"},
      {"[]", "holds no text"},
  };
  for (const auto& [text, part] : kBroken) {
    spill(folder / "d.json", text);
    EXPECT_NE(complaint(folder / "d.json").find(part), std::string::npos)
        << text << ": " << complaint(folder / "d.json");
  }
}

TEST(TextFiles, ReadsWhatPythonWrites) {
  ScratchFolder folder;
  spill(folder / "a.jsonl", "{\"text\": \"one\", \"a\": NaN, \"b\": [Infinity, -Infinity], \"c\": 1" +
                                std::string(400, '0') +
                                ", \"d\": -12345678901234567890123}\n"
                                "{\"text\": \"no\", \"text\": \"lone \\ud800 and pair \\ud83d\\ude42 \\udc00\"}\n");
  EXPECT_EQ(texts_of(folder / "a.jsonl"),
            (std::vector<std::string>{"one", "lone \xef\xbf\xbd and pair \xf0\x9f\x99\x82 \xef\xbf\xbd"}));
}

TEST(TextFiles, BadLinesArePassedOverWhereThatIsAskedFor) {
  ScratchFolder folder;
  spill(folder / "a.jsonl",
        "{\"text\": \"one\"\n{\"text\": \"two\"}\n{\"text\": 3}\n{\"text\": \"\\u0001\"}\n{\"text\": \"three\"}\n");
  EXPECT_NE(complaint(folder / "a.jsonl").find("a.jsonl:1: not a JSON object"), std::string::npos);
  const auto source = open_text(folder / "a.jsonl", {.skip_bad_lines = true});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(all(*source).size(), 2u);
    const PassedOver passed = source->passed_over();
    EXPECT_EQ(passed.lines, 3);
    ASSERT_EQ(passed.first_lines.size(), 3u);
    EXPECT_NE(passed.first_lines[1].find("a.jsonl:3: no string"), std::string::npos);
    source->rewind();
  }
}

TEST(TextFiles, AFolderNamesWhatItPassesOver) {
  ScratchFolder folder;
  spill(folder / "in/a.ndjson", kThree);
  spill(folder / "in/b.json", "[{\"text\": \"four\"}]");
  spill(folder / "in/dataset_info.json", "{\n  \"splits\": []\n}\n");
  spill(folder / "in/notes.md", "no");
  const auto source = open_text(folder / "in");
  EXPECT_EQ(all(*source).size(), 4u);
  const PassedOver passed = source->passed_over();
  EXPECT_EQ(passed.files, 2);
  ASSERT_EQ(passed.first_files.size(), 2u);
  EXPECT_TRUE(passed.first_files[0].ends_with("dataset_info.json"));
  EXPECT_TRUE(passed.first_files[1].ends_with("notes.md"));
}

TEST(TextFiles, ReadsLongWindowsOfZstd) {
  ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 30000; ++i) text += fmt::format("{{\"text\": \"line {}\"}}\n", i);
  for (const int log : {28, 31}) {
    const std::string packed = zstd_of(text, log);
    EXPECT_EQ(static_cast<uint8_t>(packed[5]) >> 3, log - 10);  // the heading says so
    spill(folder / "a.jsonl.zst", packed);
    EXPECT_EQ(texts_of(folder / "a.jsonl.zst").size(), 30000u) << log;
  }
}

TEST(TextFiles, SaysWhyAFileIsNotWhatItsNameSays) {
  ScratchFolder folder;
  // What is packed otherwise, or not at all, is read all the same.
  spill_gzipped(folder / "a.jsonl.zst", kThree);
  spill(folder / "b.jsonl.gz", zstd_of(kThree));
  spill(folder / "c.jsonl.gz", kThree);
  spill(folder / "d.jsonl.zst", kThree);
  for (const char* name : {"a.jsonl.zst", "b.jsonl.gz", "c.jsonl.gz", "d.jsonl.zst"})
    EXPECT_EQ(texts_of(folder / name), kTexts) << name;
  const std::pair<std::string, const char*> kOthers[] = {
      {std::string("\xfd") + "7zXZ" + std::string("\0\0\x04", 3), "packed by xz"},
      {"BZh91AY&SY\x12\x34", "packed by bzip2"},
      {"PK\x03\x04\x14", "a zip archive"},
      {"\x04\x22\x4d\x18\x64", "packed by lz4"},
      {std::string("PAR1\0\0", 6), "Parquet"},
      {std::string(257, 'a') + "ustar", "a tar archive"},
  };
  for (const auto& [bytes, part] : kOthers) {
    for (const char* name : {"e.jsonl.gz", "e.txt", "e.jsonl.zst"}) {
      spill(folder / name, bytes);
      EXPECT_NE(complaint(folder / name).find(part), std::string::npos) << complaint(folder / name);
      EXPECT_EQ(complaint(folder / name).find("damaged"), std::string::npos) << complaint(folder / name);
    }
  }
  spill(folder / "f.jsonl.zst", zstd_of(zstd_of(kThree)));
  EXPECT_NE(complaint(folder / "f.jsonl.zst").find("packed twice"), std::string::npos)
      << complaint(folder / "f.jsonl.zst");
  spill(folder / "g.jsonl.zst", zstd_of(kThree) + "and more behind it");
  EXPECT_NE(complaint(folder / "g.jsonl.zst").find("something else follows its frames of zstd"), std::string::npos)
      << complaint(folder / "g.jsonl.zst");
}

TEST(TextFiles, CutsLongLinesBetweenCharacters) {
  ScratchFolder folder;
  std::string text = "a";
  while (text.size() < 5 * kMostDocumentBytes / 2) text += "\xe4\xb8\xad";
  spill(folder / "a.txt", text);
  std::string joined;
  for (const Document& document : all(*open_text(folder / "a.txt"))) {
    EXPECT_LE(document.text.size(), kMostDocumentBytes);
    EXPECT_TRUE(is_valid_utf8(document.text));
    joined += document.text;
  }
  EXPECT_TRUE(joined == text) << joined.size();
}

TEST(TextFiles, KnowsWindowsLineEnds) {
  ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += "A line of some length for the test, number " + std::to_string(i) + ".\r\n\r\n";
  spill(folder / "a.txt", text);
  EXPECT_GT(all(*open_text(folder / "a.txt")).size(), 4u);
}

TEST(TextFiles, ReadsJsonLines) {
  ScratchFolder folder;
  spill(folder / "a.jsonl",
        "{\"text\": \"one\\nline\", \"id\": 3}\n\n{\"text\": \"\"}\r\n{\"id\": 4, \"text\": \"zw\\u00e9i\"}");
  const std::vector<Document> documents = all(*open_text(folder / "a.jsonl"));
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].text, "one\nline");
  EXPECT_EQ(documents[1].text, "zwéi");
}

TEST(TextFiles, NamesFileAndLine) {
  ScratchFolder folder;
  const struct {
    const char *content, *named;
  } cases[] = {
      {"{\"text\": \"ok\"}\n{\"text\": 3}\n", "a.jsonl:2: no string"},
      {"{\"text\": \"ok\"}\n{\"txt\": \"x\"}\n", "a.jsonl:2: no string"},
      {"{\"text\": \"ok\"}\n\n{\"text\": \n", "a.jsonl:3: not a JSON"},
      {"[1]\n", "a.jsonl:1: not a JSON object"},
      {"{\"text\": \"\xff\"}\n", "a.jsonl:1: not a JSON"},
      {"", "holds no text"},
      {"\n\n", "holds no text"},
  };
  for (const auto& [content, named] : cases) {
    spill(folder / "a.jsonl", content);
    EXPECT_NE(complaint(folder / "a.jsonl").find(named), std::string::npos) << complaint(folder / "a.jsonl");
  }
  spill(folder / "a.jsonl", "{\"text\": " + std::string(100000, '['));
  EXPECT_NE(complaint(folder / "a.jsonl").find("deep"), std::string::npos);
  EXPECT_NE(complaint(folder / "none").find("no such file"), std::string::npos);
  std::filesystem::create_directory(folder / "empty");
  EXPECT_NE(complaint(folder / "empty").find("no .txt or .jsonl"), std::string::npos);
  EXPECT_NE(complaint("/dev/null").find("neither a file"), std::string::npos);
  spill(folder / "blank.txt", " \n\n \n");
  EXPECT_NE(complaint(folder / "blank.txt").find("holds no text"), std::string::npos);
}

TEST(TextFiles, NoticesDamagedGzip) {
  ScratchFolder folder;
  spill_gzipped(folder / "a.txt.gz", paragraphs(0, 500));
  const std::string good = read_file(folder / "a.txt.gz", 1 << 20);
  spill(folder / "a.txt.gz", good.substr(0, good.size() / 2));
  EXPECT_NE(complaint(folder / "a.txt.gz").find("damaged or cut short"), std::string::npos);
  std::string flipped = good;
  flipped[good.size() / 2] ^= 0x20;
  spill(folder / "a.txt.gz", flipped);
  EXPECT_NE(complaint(folder / "a.txt.gz").find("damaged or cut short"), std::string::npos);
}

TEST(TextFiles, WhatIsNoTextIsRefusedWithItsPlace) {
  const ScratchFolder folder;
  const auto refusal = [&](const std::string& name, const std::string& bytes) {
    spill(folder / name, bytes);
    EXPECT_FALSE(all(*open_text(folder / name, {Bytes::any})).empty());
    try {
      all(*open_text(folder / name));
    } catch (const ConfigError& error) {
      return std::string(error.what()).substr((folder / name).size());
    }
    return std::string("accepted");
  };
  const std::string all_the_same = "; --any-bytes (data.any_bytes = true) trains on it all the same";
  EXPECT_EQ(refusal("a.txt", "one\ntwo \xff three\n"),
            ":2: no text: holds the byte '\\xff', which is no UTF-8" + all_the_same);
  EXPECT_EQ(refusal("b.txt", std::string("one\n\ntwo\0", 9)),
            ":3: no text: holds the control character '\\x00'" + all_the_same);
  EXPECT_EQ(refusal("c.txt", "\x1b[1mbold"), ":1: no text: holds the control character '\\x1b'" + all_the_same);
  EXPECT_EQ(
      refusal("d.txt", std::string("\xff\xfeh\0i\0", 6)),
      ":1: no text: holds the byte '\\xff', and begins as UTF-16 does (iconv -f UTF-16 -t UTF-8 makes text of it)" +
          all_the_same);
  EXPECT_EQ(refusal("e.jsonl", "{\"text\": \"fine\"}\n\n{\"text\": \"not \\u0001\"}\n"),
            ":3: no text: holds the control character '\\x01'" + all_the_same);
  // Behind documents that were cut, and their blank lines.
  std::string long_text;
  for (int i = 0; i < 4000; ++i) long_text += "some words\n\n\n";
  EXPECT_EQ(refusal("f.txt", long_text + "end\x80"),
            ":12001: no text: holds the byte '\\x80', which is no UTF-8" + all_the_same);
  EXPECT_EQ(refusal("g.txt", "page\fbreak,\ttab,\r\nline, café, \u0085\n"), "accepted");
}

}  // namespace
}  // namespace heddle::data
