// What a text can say beyond ops on whole values: parts, copies that update what persists, conditions, channels.
// Read, printed and read again; and what the verifier must not let through.
#include <gtest/gtest.h>

#include <string>

#include "heddle/ir/print.h"
#include "heddle/ir/uses.h"
#include "heddle/ir/verify/verify.h"
#include "tests/ir/changed_texts.h"
#include "tests/support/hand_made_text.h"

namespace heddle::ir {
namespace {

// Empty where the text is right.
std::string fault(const std::string& text) {
  try {
    verify(test::text_listing(text));
  } catch (const std::exception& error) {  // the reader asks the definitions, too
    return error.what();
  }
  return "";
}

void expect_right(const std::string& text) { EXPECT_EQ(fault(text), "") << text; }
void expect_wrong(const std::string& text, const std::string& what) {
  EXPECT_NE(fault(text).find(what), std::string::npos) << text << "gives: " << fault(text);
}

// All of them.
const std::string kText = R"(s
  activation  y                                            f32[8, 4]
  weight      w                                            f32[4, 4]
  optimizer   m                                            f32[16]
  optimizer   kept                                         f32[16] host
  optimizer   saved                                        f32[16] shared
s, F
    x = source {columns 4, rows 8}  compute
    n = counted  copy_out  stall
    y.rows[0:4] = linear x.rows[0:4], w  compute
    y.rows[4:8] = linear x.rows[4:8], w if n > 6  compute
    y.rows[4:8] = linear x.rows[4:8], w if n <= 6  on compute
    z = joined y  on comm.quiet over tp
    a = fused_join y  compute over tp
s, end
    copy_out m.elements[0:8] -> kept.elements[0:8]  copy_out
    copy_in kept.elements[8:16] -> m.elements[8:16]  copy_in
    copy_out m -> saved  copy_out
)";

TEST(Words, ArePrintedAsTheyAreRead) {
  const Listing listing = test::text_listing(kText);
  verify(listing);
  const std::string printed = text_of(listing);
  EXPECT_EQ(text_of(test::text_listing(printed)), printed);
  EXPECT_EQ(test::squeezed(printed), test::squeezed(kText));
}

TEST(Words, ChangedTexts) { test::expect_refused_or_read(kText, 20'000, test::text_op); }

TEST(Words, AreRefusedWithLineAndReason) {
  const auto refusal = [](const std::string& line) -> std::string {
    try {
      test::text_listing(test::kHead + line + "\n");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const auto expect = [&](const std::string& line, const std::string& what) {
    EXPECT_NE(refusal(line).find(what), std::string::npos) << line << ": " << refusal(line);
  };
  expect("    y = linear x.rows[4:12], w", "has no rows 4 to 12");
  expect("    y = linear x.rows[4:4], w", "has no rows");
  expect("    y = linear x.rows[0:281474976710656], w", "has no rows");
  expect("    e = source {columns 0, rows 8}\n    y = linear e.rows[0:4], w", "has no rows");
  expect("    y = linear x.rows[4:, w", "'x.rows[4:'");
  expect("    y = linear x.columns[0:2], w", "'x.columns[0:2]'");
  expect("    y = linear u.rows[0:2], w", "'u'");
  expect("    y = linear x, w if n", "expected '>' or '<='");
  expect("    y = linear x, w if 4 > n", "'4'");
  expect("    y = linear x, w if n > -1", "a number of rows");
  expect("    x = linear x, w", "a name that no value above has, or a condition");
  expect("    y = joined x", "which communicates");
  expect("    y = joined x  on comm.a", "which communicates");
  expect("    y = linear x, w  compute over tp", "no group");
}

TEST(Parts, MustBeThereWhenTheyAreRead) {
  const std::string table =
      "s\n  activation  y  f32[8, 4]\n  weight  w  f32[4, 4]\ns, F\n  no layer\n"
      "    x = source {columns 4, rows 8}\n";
  expect_right(
      table +
      "    y.rows[0:3] = linear x.rows[0:3], w\n    y.rows[3:8] = linear x.rows[3:8], w\n    u = linear y, w\n");
  expect_right(table + "    y.rows[0:3] = linear x.rows[0:3], w\n    u = linear y.rows[0:2], w\n");
  expect_right(table +
               "    y.rows[3:8] = linear x.rows[3:8], w\n    y.rows[0:3] = linear x.rows[0:3], w\n    u = linear "
               "y.rows[2:4], w\n");
  expect_wrong(table + "    y.rows[0:3] = linear x.rows[0:3], w\n    u = linear y, w\n", "before it is written");
  expect_wrong(table + "    y.rows[0:3] = linear x.rows[0:3], w\n    u = linear y.rows[2:4], w\n",
               "before it is written");
  expect_wrong(table + "    u = linear y.rows[2:4], w\n    y.rows[0:8] = linear x, w\n", "before it is written");
  expect_wrong(table + "    y.rows[0:3] = linear x.rows[0:3], w\n    y.rows[2:5] = linear x.rows[2:5], w\n",
               "written twice");
  expect_wrong(table + "    y.rows[0:3] = linear x.rows[0:2], w\n", "inferred");
}

TEST(Parts, OfEveryRunOfRows) {
  const std::string table =
      "s\n  activation  y  f32[8, 4]\n  weight  w  f32[4, 4]\ns, F\n  no layer\n"
      "    x = source {columns 4, rows 8}\n";
  const std::string halves =
      "    y.rows[0:1/4] = linear x.rows[0:1/4], w  compute\n    y.rows[1:4/4] = linear x.rows[1:4/4], w  "
      "compute\n";
  expect_right(table + halves + "    u = linear y, w\n");
  expect_right(table + halves + "    u = linear y.rows[2:6], w\n");
  expect_right(table +
               "    y.rows[0:1/4] = linear x.rows[0:1/4], w\n    u = linear y.rows[0:1/4], w\n"
               "    v = linear y.rows[4:5], w\n");
  expect_wrong(table + "    y.rows[0:1/4] = linear x.rows[0:1/4], w\n    u = linear y.rows[0:2], w\n",
               "before it is written");
  expect_wrong(table + halves + "    y.rows[5:6] = linear x.rows[5:6], w\n", "written twice");
  expect_wrong(table + "    y.rows[0:1/4] = linear x.rows[0:2/4], w\n", "inferred");
  expect_wrong(table + "    u = scaled x.rows[0:1/4]\n", "does not take rows");
  const Listing listing = test::text_listing(table + halves + "    u = linear y.rows[0:4/4], w\n");
  EXPECT_NE(text_of(listing).find("y.rows[1:4/4]"), std::string::npos);
  EXPECT_EQ(text_of(test::text_listing(text_of(listing))), text_of(listing));
  const auto overlap = [&](const char* a, const char* b) {
    return listing.overlap(listing.find(a), listing.find(b));
  };
  EXPECT_FALSE(overlap("y.rows[0:1/4]", "y.rows[1:4/4]"));
  EXPECT_TRUE(overlap("y.rows[0:1/4]", "y"));
  EXPECT_TRUE(overlap("y.rows[1:4/4]", "y.rows[0:8]"));
}

TEST(Parts, OfAValueThatAPhaseBehindMakes) {
  expect_wrong(
      "s\n  activation  y  f32[8, 4]\n  weight  w  f32[4, 4]\ns, F\n  no layer\n    x = source {columns 4, rows "
      "8}\n"
      "s, W\n  no layer\n    y.rows[0:8] = linear x, w\ns, I\n  no layer\n    u = linear y.rows[0:2], w\n",
      "of phase W");
}

TEST(Parts, CountForTheirBase) {
  const Listing listing = test::text_listing(
      "s\n  activation  y  f32[8, 4]\n  weight  w  f32[4, 4]\ns, F\n  no layer\n"
      "    x = source {columns 4, rows 8}\n    y.rows[0:3] = linear x.rows[0:3], w\n"
      "    y.rows[3:8] = linear x.rows[3:8], w\n    u = linear y.rows[2:4], w\n"
      "    z = linear y.rows[6:8], w\n");
  const Uses uses(listing);
  const auto readers = [&](const char* name) {
    const auto of = uses.readers(listing.find(name));
    return std::vector<int>(of.begin(), of.end());
  };
  EXPECT_EQ(readers("y"), (std::vector{3, 4}));
  EXPECT_EQ(readers("y.rows[0:3]"), (std::vector{3}));
  EXPECT_EQ(readers("y.rows[3:8]"), (std::vector{3, 4}));
  EXPECT_EQ(readers("x"), (std::vector{1, 2}));
  EXPECT_EQ(uses.writer_index(listing.find("y")), 2);
  EXPECT_EQ(uses.writer_index(listing.find("y.rows[0:3]")), 1);
}

TEST(Parts, OfAnAccumulatorHaveOneWriterEach) {
  const std::string table =
      "s\n  weight  w  f32[4, 4]\n  accumulator  grad.w  f32[4, 4]\ns, F\n  no layer\n"
      "    x = source {columns 4, rows 8}\ns, W\n  no layer\n";
  expect_right(table + "    summed x -> grad.w.rows[0:2]\n    summed x -> grad.w.rows[2:4]\n");
  expect_wrong(table + "    summed x -> grad.w.rows[0:3]\n    summed x -> grad.w.rows[2:4]\n", "two writers");
}

TEST(Copies, UpdateWhatPersistsWhereItLies) {
  const std::string table =
      "s\n  optimizer  m  f32[16]\n  optimizer  kept  f32[16] host\n  optimizer  short  f32[8] host\n"
      "  optimizer  saved  f32[16] shared\ns, end\n  no layer\n";
  expect_right(table +
               "    copy_out m -> kept\n    copy_in kept -> m\n    copy_out m -> saved\n    copy_in saved -> m\n");
  const auto refused = [&](const std::string& line) {
    EXPECT_THROW(verify(test::text_listing(table + line)), ConfigError) << line;
  };
  refused("    copy_out m -> short\n");
  refused("    copy_out kept -> m\n");
  refused("    copy_in m -> kept\n");
  refused("    copy_out m -> m\n");
  expect_wrong(table + "    adamw_like kept\n", "lies on the host");
  expect_wrong(
      "s\n  activation  y  f32[8] shared\n  optimizer  m  f32[8]\ns, F\n  no layer\n"
      "    copy_out m -> y\n",
      "in shared memory for a while");
}

const std::string kCounted = "    n = counted  copy_out  stall\n";

TEST(Conditions, EveryReadFindsWhatItReadsInEveryOutcome) {
  const std::string head = test::kHead;
  // Kept where rows are few, else dropped and made again.
  expect_right(head +
               "    y = linear x, w\n    u = linear y, w\n    drop y if n > 4\ns, I\n  no layer\n"
               "    y = linear x, w again if n > 4\n    du = linear y, w\n");
  expect_wrong(head +
                   "    y = linear x, w\n    u = linear y, w\n    drop y if n > 4\ns, I\n  no layer\n"
                   "    y = linear x, w again if n > 5\n    du = linear y, w\n",
               "before it is written, at 5 rows of 'n'");
  expect_wrong(head +
                   "    y = linear x, w\n    u = linear y, w\n    drop y if n > 4\ns, I\n  no layer\n"
                   "    y = linear x, w again if n <= 4\n    du = linear y, w\n",
               "'y' is written twice, at 4 rows of 'n'");
  expect_wrong(head + "    y = linear x, w\n    drop y if n > 4\n    u = linear y, w\n",
               "before it is written, at 5");
  expect_right(head + "    y = linear x, w\n    drop y if n > 4\n    u = linear y, w if n <= 4\n");
  expect_wrong(head + "    y = linear x, w if n > 4\n    drop y\n", "drops 'y', which is not there, at 4 rows");
  // One of two ops makes it.
  expect_right(head + "    y = linear x, w if n > 4\n    y = scaled x if n <= 4\n    u = linear y, w\n");
  expect_wrong(head + "    y = linear x, w if n > 4\n    y = scaled x if n <= 3\n    u = linear y, w\n",
               "at 4 rows of 'n'");
  expect_wrong(head + "    y = linear x, w if n > 4\n    u = linear y, w\n", "at 4 rows of 'n'");
  expect_right(head + "    y = linear x, w if n > 4\n    u = linear y, w if n > 6\n");
  // Several decisions.
  const std::string two = "    k = counted  copy_out  stall\n";
  expect_right(head + two +
               "    y = linear x, w if n > 4\n    y = scaled x if n <= 4\n    drop y if k > 1\n    u = linear y, w "
               "if k <= 1\n");
  expect_wrong(head + two + "    y = linear x, w if n > 4\n    y = scaled x if k > 1\n",
               "written twice, at 5 rows of 'n' and 2 rows of 'k'");
}

TEST(Flips, AreOfWhatIsAlike) {
  const auto flipped = [](const std::string& other) {
    return "s\n  activation  y  f32[16]\n  optimizer  m  f32[16] host\n  optimizer  other  " + other +
           "\ns, end\n  no layer\n    flip -> m, other\n";
  };
  expect_right(flipped("f32[16] host"));
  expect_wrong(flipped("f32[16]"), "'m' lies on the host, 'other' on the device");
  expect_wrong(flipped("f64[16] host"), "what it flips is alike");
  expect_wrong(flipped("f32[32] host"), "what it flips is alike");
  std::string part = flipped("f32[32] host");
  part.replace(part.rfind("other"), 5, "other.elements[0:16]");
  expect_wrong(part, "is a part or does not persist");
}

TEST(Conditions, AskForRowsThatTheHostHasRead) {
  const std::string head = test::kHead;
  expect_wrong(head + "    y = linear x, w\n    u = linear y, w if y > 4\n", "which the host doesn't read always");
  expect_wrong(head + "    k = counted if n > 2  copy_out  stall\n", "counts rows under a condition");
  expect_wrong(head + "s, end\n  no layer\n    adamw_like m if n > 2\n", "in phase end reads 'n' of phase F");
  Listing late = test::text_listing(head + "    y = linear x, w if n > 4\n");
  std::swap(late.ops[1], late.ops[2]);
  EXPECT_THROW(verify(late), InternalError);
}

TEST(Conditions, SumsAndMessagesHaveNone) {
  const std::string head = test::kHead;
  expect_wrong(
      "s\n  weight  w  f32[4, 4]\n  accumulator  grad.w  f32[4, 4]\ns, F\n  no layer\n    x = source {columns 4, "
      "rows 8}\n" +
          kCounted + "s, W\n  no layer\n    summed x -> grad.w if n > 2\n",
      "nobody might begin the sum");
  expect_wrong(head + "    send x {step 1} if n > 2  comm.pp.forward.send\n", "its peer would wait");
}

TEST(Conditions, OfAGroupComeFromWhatAllOfItHold) {
  const std::string head = test::kHead;
  expect_wrong(head + "    y = joined x if n > 2  comm.tp\n",
               "run by all of 'tp', of which each counts its own 'n'");
  // `same` is a collective that leaves the same on all of its group.
  const std::string agreed =
      head + "    s = agreed x  comm.tp\n    t = scaled s\n    k = counted t  copy_out  stall\n";
  expect_right(agreed + "    y = joined x if k > 2  comm.tp\n");
  expect_right(agreed + "    y = linear x, w if k > 2\n");
  expect_wrong(agreed + "    y = joined x if k > 2  comm.dp\n", "run by all of 'dp'");
  expect_wrong(head +
                   "    s = agreed x  comm.tp\n    t = linear s, w\n    k = counted t  copy_out  stall\n"
                   "    y = joined x if k > 2  comm.tp\n",
               "run by all of 'tp'");  // the weight may be another on each
}

}  // namespace
}  // namespace heddle::ir
