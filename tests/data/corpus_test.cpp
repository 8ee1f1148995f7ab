// Markup to text, packages to documents, and the user's files, broken ones included.
#include "heddle/data/corpus/corpus.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/random.h"
#include "heddle/base/utf8.h"
#include "heddle/data/corpus/markup.h"
#include "heddle/data/corpus/r_strings.h"
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

TEST(Markup, PlainTextJoinsProseAndKeepsDrawings) {
  EXPECT_EQ(plain_text("   One sentence that is\n   wrapped in a co-\n   operative way.\n\n\n  +---+   +---+   +\n"
                       "  | a |   | b |   |\n\n----------------\n",
                       Markup::plain),
            "One sentence that is wrapped in a co-operative way.\n\n+---+   +---+   +\n| a |   | b |   |\n");
  EXPECT_EQ(plain_text("", Markup::plain), "");
  EXPECT_EQ(plain_text("bad \xff byte", Markup::plain), "bad \xef\xbf\xbd byte\n");
}

TEST(Markup, Markdown) {
  EXPECT_EQ(plain_text("## A.1 _What_ **is** it?\n\n> _\"Quoted\n> words\"_ [ **Title** , p. 3]\n\n"
                       "  * first [item](x.md)\n  * second snake_case\n\n[only](a.md) [links](b.md)\n\n"
                       "---|---\n| cell |\n\n![picture](p.png) after\\_it\n\n```\n  code *here*\n```\nlast\n",
                       Markup::markdown),
            "A.1 What is it?\n\n\"Quoted words\" [Title, p. 3]\n\nfirst item\n\nsecond snake_case\n\nafter_it\n\n"
            "code *here*\n\nlast\n");
}

TEST(Markup, Html) {
  EXPECT_EQ(
      plain_text("<!DOCTYPE html><html><head><title>no</title><script>1<2</script></head><body><div "
                 "class=\"navheader\"><div>menu</div>"
                 "menu</div><h2>Title</h2><p>Some <b>bold</b> &amp; plain&nbsp;text,\n  &#8220;quoted&#x201d; "
                 "&unknown; 1 &lt; 2.</p><!-- <p>gone</p> --><pre>\n  if (a)\n    b;\n</pre><script>x<1</script>"
                 "<ul><li>one<li>two</ul><table><tr><td>a</td><td>b</td></tr></table>tail",
                 Markup::html),
      "Title\n\nSome bold & plain text, “quoted” &unknown; 1 < 2.\n\nif (a)\n  b;\n\none\n\ntwo\n\na b\n\ntail\n");
}

TEST(Markup, Pod) {
  EXPECT_EQ(plain_text(
                "#!/usr/bin/perl\n\n=head1 The B<name>\n\nSee L<perlfunc/open>, L<this|http://x>, C<< a->b >> and\n"
                "E<lt>I<nested B<bold>>E<gt>.X<index>\n\n  my $x = 1;\n  my $y;\n\n=over 4\n\n=item *\n\nbullet\n\n"
                "=back\n\n=begin html\n\n<b>no</b>\n\n=end html\n\n=cut\n\nsub code {}\n",
                Markup::pod),
            "The name\n\nSee perlfunc/open, this, a->b and <nested bold>.\n\nmy $x = 1;\nmy $y;\n\nbullet\n");
}

TEST(Markup, Rst) {
  EXPECT_EQ(
      plain_text("Title\n=====\n\n.. index:: gone\n   also gone\n\nUse :func:`~os.open` and ``x = 1`` from\n"
                 "`the site <http://x>`_, *really*::\n\n    code(here)\n      more\n\n.. note::\n   Mind this.\n\n"
                 ">>> 1 + 1\n2\n\nEnd.\n",
                 Markup::rst),
      "Title\n\nUse os.open and x = 1 from the site, really:\n\ncode(here)\n  more\n\nMind this.\n\n>>> 1 + "
      "1\n2\n\n"
      "End.\n");
}

TEST(Markup, AnythingGoesThrough) {
  const char parts[] = "<>&;[]()*_`\\|=#.:- \n\nabL<C<<>>E1\"'!/{}\xc3\xa9";
  const RandomKey key(4);
  for (uint64_t round = 0; round < 3000; ++round) {
    std::string text;
    for (uint64_t i = 0; i < key.bits(round) % 80; ++i) {
      text += parts[key.with(round).bits(i) % (sizeof parts - 1)];
    }
    for (const Markup markup :
         {Markup::plain, Markup::markdown, Markup::html, Markup::pod, Markup::rst, Markup::dictionary}) {
      ASSERT_TRUE(is_valid_utf8(plain_text(text, markup)) || !is_valid_utf8(text)) << text;
    }
  }
}

std::string paragraphs(int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i) {
    text += "Paragraph number " + std::to_string(i) +
            " speaks of looms, of threads, and of nothing else at any length.\n\n";
  }
  return text;
}

TEST(Corpus, ReadsPackagesAndDropsRepetitions) {
  ScratchFolder root;
  const std::string doc = root / "usr/share/doc/jargon-text/";
  spill_gzipped(doc + "a.txt.gz", paragraphs(0, 400));
  spill(doc + "few.txt", paragraphs(3000, 300) + "\xff\n\n");
  spill(doc + "b.txt", paragraphs(390, 20));
  spill(doc + "broken.txt", paragraphs(900, 20) + "\xff");
  spill(doc + "c.txt", paragraphs(0, 400));         // a second rendering
  spill(doc + "html/a.html", paragraphs(2000, 9));  // not where the corpus looks
  spill(doc + "copyright",
        "Format: x\nFiles: *\nCopyright: y\nLicense: GPL-2\n text\n\nLicense: GPL-2\n\nLicense: CC0\n");
  CorpusOptions options;
  options.roots = {root / "nothing", root.path().string()};
  Corpus corpus(options);
  const std::vector<Document> documents = all(corpus);
  std::string text;
  for (const Document& document : documents) {
    EXPECT_EQ(document.source, "jargon-text");
    EXPECT_LE(document.text.size(), 2 * kLeastDocumentBytes + 200);
    text += document.text + "\n\n";
  }
  EXPECT_GT(documents.size(), 3u);
  EXPECT_TRUE(text == paragraphs(0, 410) + paragraphs(3000, 300) + "\xef\xbf\xbd\n\n") << text.size();
  ASSERT_EQ(corpus.packages().size(), 1u);
  const CorpusPackage& package = corpus.packages()[0];
  EXPECT_EQ(package.licence, "GPL-2, CC0");
  EXPECT_EQ(package.files, 3);
  EXPECT_EQ(package.repeated_paragraphs, 410);
  EXPECT_EQ(package.broken_documents, 1) << "one bad byte in 2 KB, but 1 in 30 KB is mended";
  corpus.rewind();
  EXPECT_EQ(all(corpus).size(), documents.size());

  const uint64_t before = Corpus(options).fingerprint();
  EXPECT_EQ(Corpus(options).fingerprint(), before);
  spill(doc + "d.txt", "more");
  EXPECT_NE(Corpus(options).fingerprint(), before);
}

// An entry of a dictionary, as long as a document.
std::string entries(int first, int count) {
  std::string text = "00-database-info\n   About the dictionary.\n\n";
  for (int i = first; i < first + count; ++i)
    text +=
        "Loom" + std::to_string(i) + " \\Loom\\, n. [OE.]\n   A frame for weaving, of which there are many.\n\n";
  return text;
}

TEST(Corpus, NoPackageGivesMoreThanAThird) {
  ScratchFolder root;
  spill_gzipped(root / "usr/share/dictd/gcide.dict.dz", entries(0, 20000));
  spill_gzipped(root / "usr/share/dictd/foldoc.dict.dz", entries(50000, 20000));
  spill(root / "usr/share/doc/jargon-text/j.txt", paragraphs(100, 1000));
  spill(root / "usr/share/doc/jargon-text/copyright", "This is in the public domain.");
  CorpusOptions options;
  options.roots = {root.path().string()};
  options.enough_bytes = 600'000;
  Corpus corpus(options);
  const std::vector<Document> documents = all(corpus);
  ASSERT_EQ(corpus.packages().size(), 3u);
  for (const CorpusPackage& package : corpus.packages()) EXPECT_LE(package.text_bytes, 200'000) << package.name;
  EXPECT_GT(corpus.packages()[0].text_bytes, 180'000);
  EXPECT_EQ(corpus.packages()[1].licence, "public domain");
  EXPECT_EQ(corpus.packages()[0].licence, "see /usr/share/doc/dict-gcide/copyright");
  EXPECT_NE(documents[0].text.find(", n. A frame"), std::string::npos) << documents[0].text.substr(0, 99);
  const auto last = std::find_if(documents.rbegin(), documents.rend(),
                                 [](const Document& d) { return d.source == "dict-gcide"; });
  ASSERT_NE(last, documents.rend());
  EXPECT_GT(std::stoi(last->text.substr(4)), 18'500) << "not from all over the dictionary";
}

TEST(Corpus, StopsAtEnough) {
  ScratchFolder root;
  for (const char* name : {"gcide", "foldoc"})
    spill(root / ("usr/share/dictd/" + std::string(name) + ".dict.dz"), entries(name[0] * 100'000, 5000));
  for (const char* folder : {"usr/share/doc/jargon-text/a.txt", "usr/share/doc/postgresql-doc-15/html/a.html"})
    spill(root / folder,
          (std::string(folder).ends_with("html") ? "<p>" : "") + paragraphs(folder[14] * 10'000, 3000));
  CorpusOptions options;
  options.roots = {root.path().string()};
  EXPECT_EQ(Corpus(options).packages().size(), 4u);
  options.enough_bytes = 300'000;
  Corpus corpus(options);
  int64_t total = 0;
  for (const CorpusPackage& package : corpus.packages()) total += package.text_bytes;
  EXPECT_LE(total, 300'000);
  EXPECT_GT(total, 250'000);
}

void append_number(std::string& out, uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(number >> shift & 0xff);
}

// A vector of texts in R's serialisation.
std::string r_vector(const std::vector<std::string>& lines, uint32_t type = 16) {
  std::string out = "X\n";
  for (const uint32_t number : {3u, 0x40201u, 0x30500u, 5u}) append_number(out, number);
  out += "UTF-8";
  append_number(out, type);
  append_number(out, static_cast<uint32_t>(lines.size()));
  for (const std::string& line : lines) {
    append_number(out, 0x40009);
    append_number(out, static_cast<uint32_t>(line.size()));
    out += line;
  }
  return out;
}

std::string r_object(const std::string& serialised) {
  std::string out;
  append_number(out, static_cast<uint32_t>(serialised.size()));
  std::string packed(compressBound(serialised.size()), '\0');
  uLongf size = packed.size();
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                     reinterpret_cast<const Bytef*>(serialised.data()), serialised.size()),
            Z_OK);
  return out + packed.substr(0, size);
}

TEST(RTexts, ReadsVectorsOfTexts) {
  const std::string database = r_object(r_vector({"EMMA", "", "by"})) + r_object(r_vector({"x"}, 24)) +
                               r_object("no serialisation") + r_object(r_vector({"end"}));
  EXPECT_EQ(r_texts(database, "f", 1 << 20), (std::vector<std::string>{"EMMA\n\nby\n", "end\n"}));
  EXPECT_TRUE(r_texts("", "f", 1).empty());
  EXPECT_THROW(r_texts(database, "f", 50), ConfigError);
  std::string grown = r_vector({"abc"});
  grown[27] = '\x7f';  // so many texts that there are not
  EXPECT_TRUE(r_texts(r_object(grown), "f", 1 << 20).empty());
  for (size_t cut = 1; cut < database.size(); ++cut) {
    try {
      r_texts(database.substr(0, cut), "f", 1 << 20);
    } catch (const ConfigError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("f: damaged")) << error.what();
    }
  }
}

TEST(Markup, Dictionary) {
  EXPECT_EQ(plain_text("00-database-info\nAbout it.\n\n   More.\n\n"
                       "Davit \\Dav\"it\\ (d[add]), n. [Cf. F. davier [x] forceps.] (Naut.)\n"
                       "   (a) A spar formerly used on board of {ships}, of\n       C[ae]sar's caf['e].\n"
                       "   [1913 Webster]\n\n         A lady writing.    --A. B.\n   [1913 Webster]\n\n   [PJC]\n\n"
                       "GECOM\n\n   <language, history> A language, x <3> y.\n\n   (1996-09-15)\n",
                       Markup::dictionary),
            "Davit, n. (Naut.) (a) A spar formerly used on board of ships, of Caesar's cafe.\n\n"
            "A lady writing. --A. B.\n\nGECOM: A language, x <3> y.\n");
}

TEST(Corpus, SaysWhatToInstall) {
  ScratchFolder root;
  try {
    CorpusOptions options;
    options.roots = {root.path().string()};
    Corpus corpus(options);
    FAIL() << "found text";
  } catch (const ConfigError& error) {
    for (const std::string& name : Corpus::preferred_packages()) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

TEST(Corpus, TheListOfPackagesIsTheSame) {
  std::ifstream list(std::string(HEDDLE_SOURCE_DIR) + "/tools/corpus_packages.txt");
  std::vector<std::string> names;
  for (std::string line; std::getline(list, line);) {
    if (!line.empty() && line[0] != '#') names.push_back(line.substr(0, line.find(' ')));
  }
  EXPECT_EQ(names, Corpus::preferred_packages());
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
