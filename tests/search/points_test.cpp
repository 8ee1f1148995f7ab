// Tables of points from outside: what is read, what is refused and how, and what becomes of odd rows.
#include "heddle/search/predict/points.h"

#include <gtest/gtest.h>

#include <cmath>

#include "heddle/base/error.h"
#include "heddle/search/predict/prediction.h"

namespace heddle::search {
namespace {

std::string refusal(std::string_view text) {
  try {
    read_points(text, "f.csv");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Points, QuotedFieldsAndBlankLines) {
  const PointTable t = read_points("model,hw,notes\r\n\"a, \"\"b\"\"\nc\", H100 ,\"\"\r\n\nx,y,z", "f.csv");
  ASSERT_EQ(t.rows.size(), 2u);
  EXPECT_EQ(t.field(0, "model"), "a, \"b\"\nc");
  EXPECT_EQ(t.field(0, "hw"), "H100");
  EXPECT_EQ(t.field(1, "notes"), "z");
  EXPECT_EQ(t.field(1, "absent"), "");
  EXPECT_EQ(t.lines[1], 5);
  EXPECT_EQ(csv_field(t.rows[0][0]), "\"a, \"\"b\"\"\nc\"");
}

TEST(Points, MalformedTextIsRefusedWithTheLine) {
  EXPECT_EQ(refusal(""), "f.csv: empty, accepted: a header line with names of columns");
  EXPECT_EQ(refusal("model,hw\na,\"b"), "f.csv:2: a quote is opened and never closed");
  EXPECT_EQ(refusal("model,hw\na,b,c"), "f.csv:2: 3 fields, the header has 2");
  EXPECT_EQ(refusal("model,hw,hw\n"), "f.csv:1: column 'hw' stands twice");
  EXPECT_EQ(refusal("modle,hw\n"), "f.csv:1: no column 'model', did you mean 'modle'?");
  EXPECT_EQ(refusal("model,hw\n\"a\"b,c"),
            "f.csv:2: text after a closing quote, accepted: a comma or the end of the line");
  EXPECT_EQ(refusal(std::string("model,hw\na,\0", 12)), "f.csv: holds a zero byte, accepted: text");
}

PredictedPoint predicted(const std::string& header, const std::string& row) {
  return predict_points(read_points("model,hw," + header + "\n" + row, "f.csv"), Calibration{}).at(0);
}

TEST(Points, OddRowsGetAReason) {
  const std::string header = "gpus,tp,pp,dp,mbs,gbs,seq";
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,1,1,8,1,128,8192").reason, "");
  EXPECT_GT(predicted(header, "LLAMA3_8B,H100,8,1,1,8,1,128,8192").tokens_per_s, 1000);
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,eight,1,1,8,1,128,8192").reason,
            "gpus is 'eight', not a whole number");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,-1,1,8,1,128,8192").reason, "tp is '-1', not a whole number");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,1e30,1,8,1,128,8192").reason, "tp is '1e30', not a whole number");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,nan,1,8,1,128,8192").reason, "tp is 'nan', not a whole number");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,3,1,8,1,128,8192").reason,
            "8 gpus are no multiple of tp x pp x cp = 3");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,toaster,8,1,1,8,1,128,8192").reason, "the device 'toaster' is not known");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,,,8,1,128,8192").reason, "the row lacks tp and pp");
  EXPECT_EQ(predicted(header, "Mystery,H100,8,1,1,8,1,128,8192").reason,
            "the model 'Mystery' is not known and the row lacks its dimensions");
  EXPECT_EQ(predicted(header, ",,,,,,,,").reason, "no model");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,1,1,8,,128,8192").reason, "assumed: microbatch 1");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,999999999,1,1,,1,999999999,1000000000").tokens_per_s, 0);
}

TEST(Points, ARowDescribesItsOwnModel) {
  const PredictedPoint p = predicted("hidden,layers,heads,kv_heads,ffn,vocab,gpus,tp,pp,dp,mbs,gbs,seq",
                                     "Own,H100,4096,32,32,8,14336,128256,8,1,1,8,1,128,8192");
  EXPECT_DOUBLE_EQ(model::total_parameters(p.point.job.shape), 8030261248);
  EXPECT_GT(p.tokens_per_s, 0);
}

CalibrationSample sample(const char* device, cost::Family family, const char* release, double date, double ratio) {
  return {{device, family, "megatron", release, date, cost::Precision::fp8}, std::log(ratio)};
}

TEST(Calibration, OwnGroupThenNeighbours) {
  const Calibration c = Calibration::fit(
      {sample("H100", cost::Family::hopper, "a", 25, 1.4), sample("H100", cost::Family::hopper, "a", 25, 1.4),
       sample("H100", cost::Family::hopper, "b", 26, 1.2), sample("B200", cost::Family::blackwell, "b", 26, 0.8)});
  EXPECT_EQ(c.groups(), 3u);
  CalibrationKey key = sample("H100", cost::Family::hopper, "a", 25, 1).key;
  const double own = c.scale(key);
  EXPECT_NEAR(own, 1.4, 0.1);
  key.release = "new";
  key.date = 25.1;
  EXPECT_NEAR(c.scale(key), own, 0.06);
  key.device = "H200";
  EXPECT_GT(c.scale(key), 1.1);
  EXPECT_EQ(Calibration{}.scale(key), 1);
}

TEST(Calibration, TextComesBackAndIsChecked) {
  const Calibration c = Calibration::fit({sample("H100", cost::Family::hopper, "a", 25, 1.4)});
  EXPECT_EQ(Calibration::read(c.text(), "c.csv").text(), c.text());
  const std::string header = "device,stack,release,date,precision,scale,rows\n";
  EXPECT_THROW(Calibration::read(header + "toaster,m,a,25,fp8,1,1\n", "c.csv"), ConfigError);
  EXPECT_THROW(Calibration::read(header + "H100,m,a,25,fp7,1,1\n", "c.csv"), ConfigError);
  EXPECT_THROW(Calibration::read(header + "H100,m,a,25,fp8,0,1\n", "c.csv"), ConfigError);
  EXPECT_THROW(Calibration::read(header + "H100,m,a,25,fp8,nan,1\n", "c.csv"), ConfigError);
  EXPECT_GT(Calibration::built_in().groups(), 10u);
}

TEST(Prediction, HeldOutRowsAreNotSeen) {
  // Three rows of one group: each is predicted by the other two alone.
  std::string text = "model,hw,gpus,tp,pp,dp,mbs,gbs,seq,tokens_per_s_per_gpu\n";
  for (const char* measured : {"10000", "10000", "10000"})
    text += std::string("LLAMA3_8B,H100,8,1,1,8,1,128,8192,") + measured + "\n";
  const PointTable table = read_points(text, "f.csv");
  std::vector<PredictedPoint> points = predict_points(table, Calibration{});
  const double raw = points[0].tokens_per_s;
  hold_out(points, table, HoldOut::models);  // one model: nothing is left to calibrate with
  EXPECT_DOUBLE_EQ(points[0].tokens_per_s, raw);
  const Calibration fitted = calibrate(points);
  points = predict_points(table, fitted);
  EXPECT_NEAR(points[0].tokens_per_s, 10000, 1);
  EXPECT_LT(time_errors(points).p90, 1e-3);
}

}  // namespace
}  // namespace heddle::search
