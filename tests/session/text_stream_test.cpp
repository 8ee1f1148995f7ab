// A text that comes in pieces: letters are shown whole, stop words end it wherever their bytes are cut.
#include "heddle/session/text/text_stream.h"

#include <gtest/gtest.h>

#include "heddle/base/utf8.h"

namespace heddle::session {
namespace {

struct Shown {
  std::string text;
  std::vector<std::string> pieces;
  bool stopped = false;
};

// `all` in pieces that end at the given places.
Shown shown(const std::string& all, const std::vector<size_t>& cuts, const std::vector<std::string>& stop_words) {
  Shown shown;
  TextStream stream(stop_words, [&](std::string_view piece) { shown.pieces.emplace_back(piece); });
  size_t from = 0;
  for (const size_t cut : cuts) {
    shown.stopped = stream.add(std::string_view(all).substr(from, cut - from));
    from = cut;
  }
  shown.stopped = stream.add(std::string_view(all).substr(from));
  stream.end();
  shown.text = stream.text();
  return shown;
}

std::string joined(const Shown& shown) {
  std::string all;
  for (const std::string& piece : shown.pieces) all += piece;
  return all;
}

// Every way to cut a text in three.
template <class Check>
void for_each_cut(const std::string& all, const Check& check) {
  for (size_t a = 0; a <= all.size(); ++a) {
    for (size_t b = a; b <= all.size(); ++b) check(std::vector<size_t>{a, b});
  }
}

TEST(TextStream, ShowsWholeLetters) {
  const std::string all = "aé€𝄞z";
  for_each_cut(all, [&](const std::vector<size_t>& cuts) {
    const Shown found = shown(all, cuts, {});
    EXPECT_EQ(joined(found), all);
    EXPECT_EQ(found.text, all);
    EXPECT_FALSE(found.stopped);
    for (const std::string& piece : found.pieces) EXPECT_TRUE(is_valid_utf8(piece)) << cuts[0] << ", " << cuts[1];
  });
  EXPECT_EQ(joined(shown("ab\xe2\x82", {1}, {})), "ab\xe2\x82");  // a letter that never ends comes at the end
}

TEST(TextStream, EndsBeforeAStopWordHoweverItIsCut) {
  const std::string all = "one two END three";
  for_each_cut(all, [&](const std::vector<size_t>& cuts) {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"END"}, {"three", "END"}, {" END", "END"}, {"E"}, {"two END t", "END"}}) {
      const Shown found = shown(all, cuts, words);
      EXPECT_TRUE(found.stopped);
      EXPECT_EQ(joined(found), found.text);
      EXPECT_TRUE(found.text == "one two " || found.text == "one two" || found.text == "one ") << found.text;
    }
    EXPECT_EQ(shown(all, cuts, {"END"}).text, "one two ");
  });
}

TEST(TextStream, GivesWhatOnlyBeganAStopWord) {
  const std::string all = "aab aabaac";
  for_each_cut(all, [&](const std::vector<size_t>& cuts) {
    const Shown never = shown(all, cuts, {"aabb", "c!"});
    EXPECT_EQ(joined(never), all);
    EXPECT_FALSE(never.stopped);
    EXPECT_EQ(shown(all, cuts, {"aac"}).text, "aab aab");  // its beginning overlaps what came before
  });
}

TEST(TextStream, ShowsNothingThatMayStillBeAStopWord) {
  std::string seen;
  TextStream stream({"stop"}, [&](std::string_view piece) { seen += piece; });
  EXPECT_FALSE(stream.add("non"));
  EXPECT_EQ(seen, "non");
  EXPECT_FALSE(stream.add("sto"));
  EXPECT_EQ(seen, "non");
  EXPECT_FALSE(stream.add("ck st"));
  EXPECT_EQ(seen, "nonstock ");
  EXPECT_TRUE(stream.add("opped"));
  EXPECT_TRUE(stream.add("more"));
  stream.end();
  EXPECT_EQ(seen, "nonstock ");
}

}  // namespace
}  // namespace heddle::session
