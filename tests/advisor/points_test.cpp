// Tables of points from outside: what is read, what is refused and how, and what becomes of odd rows.
#include "advisor/points/points.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "advisor/points/baselines.h"
#include "advisor/points/prediction.h"
#include "heddle/base/error.h"
#include "heddle/cost/device_time.h"

namespace heddle::advisor {
namespace {

std::string refusal_points(std::string_view text) {
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
  EXPECT_EQ(refusal_points(""), "f.csv: empty, accepted: a header line with names of columns");
  EXPECT_EQ(refusal_points("model,hw\na,\"b"), "f.csv:2: a quote is opened and never closed");
  EXPECT_EQ(refusal_points("model,hw\na,b,c"), "f.csv:2: 3 fields, the header has 2");
  EXPECT_EQ(refusal_points("model,hw,hw\n"), "f.csv:1: column 'hw' is there twice");
  EXPECT_EQ(refusal_points("modle,hw\n"), "f.csv:1: no column 'model' ('modle'?)");
  EXPECT_EQ(refusal_points("modle,hv\n"), "f.csv:1: no columns 'model' ('modle'?), 'hw' ('hv'?)");
  EXPECT_EQ(refusal_points("model,hw\n\"a\"b,c"),
            "f.csv:2: text after a closing quote, accepted: a comma or the end of the line");
  EXPECT_EQ(refusal_points(std::string("model,hw\na,\0", 12)), "f.csv: holds a zero byte, accepted: text");
}

PredictedPoint predicted(const std::string& header, const std::string& row) {
  return predict_points(read_points("model,hw," + header + "\n" + row, "f.csv"), Calibrations{}).at(0);
}

TEST(Points, OddRowsGetAReason) {
  const std::string header = "gpus,tp,pp,dp,mbs,gbs,seq";
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,1,1,8,1,128,8192").reason, "");
  EXPECT_GT(predicted(header, "LLAMA3_8B,H100,8,1,1,8,1,128,8192").tokens_per_s.value, 1000);
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,eight,1,1,8,1,128,8192").reason,
            "gpus is 'eight', not a whole number");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,-1,1,8,1,128,8192").reason, "tp is '-1', not a whole number");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,1e30,1,8,1,128,8192").reason, "tp is '1e30', not a whole number");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,nan,1,8,1,128,8192").reason, "tp is 'nan', not a whole number");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,3,1,8,1,128,8192").reason,
            "8 gpus are no multiple of tp x pp x cp = 3");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,toaster,8,1,1,8,1,128,8192").reason, "the device 'toaster' is not known");
  EXPECT_EQ(predicted(header, "Mystery,H100,8,1,1,8,1,128,8192").reason,
            "the model 'Mystery' is not known and the row lacks its dimensions");
  EXPECT_EQ(predicted(header, ",,,,,,,,").reason, "no model");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,8,1,1,8,,128,8192").reason, "assumed: microbatch 1");
  EXPECT_EQ(predicted(header, "LLAMA3_8B,H100,999999999,1,1,,1,999999999,1000000000").tokens_per_s.value, 0);
}

TEST(Points, ABlankLayoutIsChosenAndSaid) {
  const PredictedPoint p = predicted("gpus,gbs,seq", "Llama-3-70B,H100,64,128,8192");
  EXPECT_TRUE(p.point.layout_assumed);
  EXPECT_NE(p.reason.find("assumed: "), std::string::npos);
  EXPECT_NE(p.reason.find("tp "), std::string::npos);
  EXPECT_GT(p.tokens_per_s.value, 0);
  // Weights, gradients and states of 70 billion parameters need more than one device's share.
  EXPECT_GT(p.point.job.mesh.tp * p.point.job.mesh.pp, 1);
}

TEST(Points, APipelineWithoutABatchHasABound) {
  const std::string header = "gpus,tp,pp,mbs,gbs,seq", row = "Llama-3-8B,H100,32,1,4,1,";
  const PredictedPoint blank = predicted(header, row + ",8192"), endless = predicted(header, row + "65536,8192");
  EXPECT_NE(blank.reason.find("global batch"), std::string::npos);
  EXPECT_GT(blank.tokens_per_s.value, 0);
  // No bubble is the upper end.
  EXPECT_NEAR(blank.tokens_per_s.high / endless.tokens_per_s.value, 1, 0.03);
  EXPECT_LT(blank.tokens_per_s.low, blank.tokens_per_s.value);
}

TEST(Points, ARowDescribesItsOwnModel) {
  const PredictedPoint p = predicted("hidden,layers,heads,kv_heads,ffn,vocab,gpus,tp,pp,dp,mbs,gbs,seq",
                                     "Own,H100,4096,32,32,8,14336,128256,8,1,1,8,1,128,8192");
  EXPECT_DOUBLE_EQ(model::total_parameters(p.point.job.shape), 8030261248);
  EXPECT_GT(p.tokens_per_s.value, 0);
}

TEST(Points, EveryDeviceIsPredicted) {
  for (const cost::Accelerator& a : cost::accelerators()) {
    EXPECT_EQ(cost::find_accelerator(a.name).name, a.name);
    const PredictedPoint p = predict_points(
        read_points("model,hw,gpus,tp,pp,mbs,gbs,seq\nLlama-3-8B," + a.name + ",32,4,2,1,256,4096", "f.csv"),
        Calibrations::built_in())[0];
    EXPECT_GT(p.tokens_per_s.low, 0) << a.name;
    EXPECT_LE(p.tokens_per_s.low, p.tokens_per_s.value) << a.name;
    EXPECT_LE(p.tokens_per_s.value, p.tokens_per_s.high) << a.name;
    // 4,096 tokens of eight billion parameters take 52 GFLOP each.
    EXPECT_LT(p.tokens_per_s.value * 52e9, a.bf16_flops) << a.name;
    EXPECT_GT(p.tokens_per_s.value * 52e9, 0.05 * a.bf16_flops) << a.name;
  }
}

// Of one row: its model, software and layout.
Job job_of(const std::string& header, const std::string& row) {
  return predicted(header + ",gpus,pp,mbs,gbs,seq", row + ",8,1,1,64,4096").point.job;
}

TEST(Points, ACountInTheNameTellsGatedBlocks) {
  const std::string header = "hidden,layers,heads,kv_heads,ffn,tp";
  EXPECT_TRUE(job_of(header, "GPT 15.6B,MI355X,6144,40,48,8,16384,1").shape.has_gated_mlp());
  EXPECT_FALSE(job_of(header, "GPT 11.7B,MI355X,6144,40,48,8,16384,1").shape.has_gated_mlp());
  EXPECT_FALSE(job_of(header, "GPT3-175B,H100,12288,96,96,96,49152,8").shape.has_gated_mlp());
  EXPECT_FALSE(job_of(header, "GPT,H100,6144,40,48,8,16384,1").shape.has_gated_mlp());
}

TEST(Points, TensorRanksShareExpertsByDefaultOfTheFramework) {
  EXPECT_EQ(job_of("software,tp,ep,etp", "Mixtral-8x7B,Ascend 910B,mindspeed,4,2,").mesh.etp, 4);
  EXPECT_EQ(job_of("software,tp,ep,etp", "Mixtral-8x7B,Ascend 910B,mindspeed,4,2,1").mesh.etp, 1);
  EXPECT_EQ(job_of("software,tp,ep,etp", "Mixtral-8x7B,Ascend 910B,mindspeed,4,8,").mesh.etp, 1);  // no ranks left
  EXPECT_EQ(job_of("software,tp,ep,etp", "Mixtral-8x7B,H100,megatron-bridge,4,2,").mesh.etp, 1);
}

TEST(Points, AttentionIsAsFastAsItsKernels) {
  const auto speed = [](const std::string& device, const std::string& software, const std::string& extra) {
    return job_of("software,extra,tp", "LLAMA3_8B," + device + "," + software + "," + extra + ",1")
        .software.attention_speed;
  };
  EXPECT_EQ(speed("MI355X", "primus", "turbo attention"), 1);
  EXPECT_EQ(speed("MI355X", "primus", ""), 0.65);
  EXPECT_EQ(speed("H100", "megatron", ""), 1);
  EXPECT_LT(speed("MI355X running gfx942 kernels (not native)", "megatron", ""), 0.1);
  // Kernels of before FlashAttention-3 gain nothing beyond 8,192 positions.
  const auto long_speed = [](int sequence) {
    const Job job = predicted("software,gpus,tp,pp,mbs,gbs,seq",
                              fmt::format("LLAMA3_8B,H100,torchtitan,8,1,1,1,8,{}", sequence))
                        .point.job;
    return job.software.attention_speed * cost::attention_s(job.device, 1e12, 8192, 128) /
           cost::attention_s(job.device, 1e12, sequence, 128);
  };
  EXPECT_NEAR(long_speed(131072) / long_speed(8192), 1, 1e-9);
}

TEST(Points, SoftwareThatNobodyKnowsIsNamed) {
  const auto reason = [](const std::string& software) {
    return predicted("software,gpus,tp,pp,mbs,gbs,seq", "LLAMA3_8B,H100," + software + ",8,1,1,1,64,8192").reason;
  };
  EXPECT_EQ(reason("trainomatic 3"), "assumed: software 'trainomatic 3' as a current Megatron-LM");
  for (const char* known :
       {"bridge", "Megatron-Bridge", "mcore 0.12", "NeMo", "DeepSpeed", "fsdp2", "verl", "MaxText"})
    EXPECT_EQ(reason(known), "") << known;
}

TEST(Points, FiguresThatContradictTheModelCountAsNotPrinted) {
  const auto row = [](int tflops) {
    return predicted("gpus,tp,pp,mbs,gbs,seq,tokens_per_s_per_gpu,tflops_per_gpu",
                     fmt::format("LLAMA3_8B,H100,8,1,1,1,64,8192,10000,{}", tflops));
  };
  EXPECT_TRUE(row(500).point.tells_time());
  EXPECT_FALSE(row(200).point.tells_time());
  EXPECT_EQ(row(200).reason, "assumed: the model's 51 GFLOP a token, the row's figures give 20");
}

TEST(Points, PackedWindowsHoldSamples) {
  const auto job = [](const std::string& notes) {
    return predicted("gpus,tp,pp,mbs,gbs,seq,notes", "LLAMA3_8B,H100,8,1,1,1,8,65536," + notes).point.job;
  };
  EXPECT_EQ(job("").sequence, 65536);
  const Job packed = job("packed: attention within samples only");
  EXPECT_EQ(packed.sequence, 4096);
  EXPECT_EQ(packed.sequence * packed.microbatch, 65536);
  EXPECT_EQ(packed.sequence * packed.global_batch, 8 * 65536);
}

// Peak bytes of one row.
double peak_of(const std::string& device, const std::string& software, const std::string& reports, int mbs,
               const std::string& precision = "BF16") {
  return predicted("software,reports,precision,gpus,tp,pp,mbs,gbs,seq",
                   fmt::format("LLAMA3_8B,{},{},{},{},8,4,1,{},64,4096", device, software, reports, precision, mbs))
      .peak_bytes.value;
}

TEST(Memory, AFigureOfTheFirstStepHasMomentsOrActivations) {
  const double whole = peak_of("Ascend-910B", "mindspeed", "allocated", 1),
               first = peak_of("Ascend-910B", "mindspeed", "first step", 1);
  // Both moments of a tensor rank's parameters, over two data ranks.
  EXPECT_NEAR(whole - first, 8 * 8.03e9 / 4 / 2, 0.2e9);
  EXPECT_EQ(peak_of("Ascend-910B", "mindspeed", "", 1), first);
  // Without activations to speak of, the update is the peak: weights, gradients and all states.
  const double update =
      predicted("software,gpus,tp,pp,mbs,gbs,seq", "LLAMA3_8B,Ascend-910B,mindspeed,8,4,1,1,64,64")
          .peak_bytes.value;
  EXPECT_NEAR(update, (6 + 12 / 2.0) * 8.03e9 / 4, 0.05e9);
}

TEST(Memory, NoRunNeedsMoreThanItsDeviceHas) {
  const double most = cost::accelerator_named("H100")->memory_bytes;
  EXPECT_LT(peak_of("H100", "megatron", "", 1), most);
  const PredictedPoint large = predicted("gpus,tp,pp,mbs,gbs,seq", "LLAMA3_8B,H100,8,4,1,32,64,4096");
  EXPECT_EQ(large.estimate.peak_bytes, most);  // what calibration sees
  EXPECT_EQ(large.peak_bytes.value, most);
  const PredictedPoint beyond =
      predicted("gpus,tp,pp,mbs,gbs,seq,peak_mem_gb", "LLAMA3_8B,H100,8,1,1,1,64,8192,99");
  EXPECT_EQ(beyond.measured_peak_bytes, 0);
  EXPECT_NE(beyond.reason.find("a peak of 99.0 GiB on a device with 80.0 is not measured"), std::string::npos);
}

TEST(Memory, WhatAFrameworkKeepsBeside) {
  // 8-bit copies of the linear weights, both ways; Megatron-Bridge's recipes keep these in place of 16 bits.
  const double linear = 6.98e9 / 4;
  const auto more = [](const char* software) {
    return peak_of("MI355X", software, "allocated", 1, "FP8") - peak_of("MI355X", software, "allocated", 1);
  };
  EXPECT_NEAR(more("megatron") - more("bridge"), 2 * linear, 0.02e9);
  // One gradient of each weight's shape, of one layer.
  EXPECT_NEAR(peak_of("H100", "megatron", "allocated", 1) - peak_of("MI355X", "megatron", "allocated", 1),
              2 * 218.1e6 / 4, 0.01e9);
}

TEST(Release, ColumnsThenWords) {
  const auto read = [](const char* source, const char* software = "", const char* released = "") {
    return read_release({source, software, "", released, ""});
  };
  EXPECT_EQ(read("nvidia-nemo/megatron-bridge docs/performance-summary.md [26.08 nemo container]").framework,
            "bridge");
  EXPECT_NEAR(read("nvidia-nemo/megatron-bridge docs/performance-summary.md [26.08 nemo container]").date, 26.58,
              0.01);
  // A model's name in a file's path names no software.
  EXPECT_EQ(read("flagopen/flagperf training/nvidia/llama2_7b-megatron/readme.md").framework, "flagperf");
  EXPECT_EQ(read("somebody's llama notes").framework, "megatron");
  EXPECT_EQ(read("somebody's llama notes").date, 0);
  EXPECT_EQ(read("ascend/mindspeed-llm readme.md @46bc1b9dba (2024-03-07) + a.sh").framework, "mindspeed");
  EXPECT_NEAR(read("ascend/mindspeed-llm readme.md @46bc1b9dba (2024-03-07) + a.sh").date, 24.18, 0.01);
  EXPECT_EQ(read("somewhere", "torchtitan", "2025-06-01").stack, "titan");
  EXPECT_NEAR(read("somewhere", "torchtitan", "2025-06-01").date, 25.42, 0.01);
  EXPECT_EQ(read("bigscience-workshop/bigscience").reports, "driver");
  EXPECT_EQ(read("somewhere", "bridge").framework, "bridge");
  EXPECT_EQ(read("a table", "torchtitan").unknown, "");
  // The column decides; words of the source say which release of that software.
  EXPECT_EQ(read("nvidia-nemo/megatron-bridge docs [26.08 nemo container]", "mindspeed").framework, "mindspeed");
  EXPECT_EQ(read("bigscience-workshop/bigscience", "megatron-deepspeed").name, "tr11");
}

// Values of one line through three points, one of them repeated.
TEST(GaussianProcess, InterpolatesAndHoldsOut) {
  const auto near = [](double a, double b) { return std::exp(-(a - b) * (a - b) / 2); };
  const std::vector<double> at{0, 1, 1, 5}, values{1, 2, 2, -1};
  std::vector<double> covariances;
  for (const double a : at)
    for (const double b : at) covariances.push_back(near(a, b));
  const GaussianProcess process(covariances, std::vector<double>(4, 1e-4), values);
  const auto expected = [&](double x) {
    std::vector<double> with;
    for (const double a : at) with.push_back(near(a, x));
    return process.at(with, 1, 1e-4);
  };
  EXPECT_NEAR(expected(1).mean, 2, 1e-3);
  EXPECT_LT(expected(1).deviation, 0.05);
  EXPECT_NEAR(expected(50).mean, 0, 1e-9);  // nothing is near: the trend, which is none
  EXPECT_NEAR(expected(50).deviation, 1, 1e-3);
  // Held out in closed form as by a process that never had them.
  const std::vector<Expected> held = process.held_out({0, 1, 1, 2}, std::vector<double>(4, 1e-4));
  const GaussianProcess others({1, near(0, 5), near(5, 0), 1}, {1e-4, 1e-4}, {1, -1});
  const Expected direct = others.at({near(0, 1), near(5, 1)}, 1, 1e-4);
  EXPECT_NEAR(held[1].mean, direct.mean, 1e-9);
  EXPECT_NEAR(held[1].deviation, direct.deviation, 1e-9);
  // A value that disagrees with its neighbours counts as noisier.
  std::vector<double> alike(36, 0.9);
  for (size_t i = 0; i < 6; ++i) alike[i * 6 + i] = 1;
  const std::vector<double> noise =
      GaussianProcess::noise_of(alike, std::vector<double>(6, 0.01), {0, 0.1, 0, -0.1, 0, 3});
  EXPECT_GT(noise[5], 10 * noise[0]);
}

// Rows of a table like those of the tests above; `speeds` of one job on several devices.
PointTable measured(const std::vector<std::pair<std::string, double>>& speeds) {
  std::string text = "model,hw,gpus,tp,pp,dp,mbs,gbs,seq,tokens_per_s_per_gpu\n";
  for (const auto& [device, speed] : speeds)
    text += fmt::format("LLAMA3_8B,{},8,1,1,8,1,128,8192,{}\n", device, speed);
  return read_points(text, "f.csv");
}

TEST(Calibration, LeansOnRowsThatAreNear) {
  const PointTable table = measured({{"H100", 10000}, {"H100", 10000}, {"H100", 10000}});
  std::vector<PredictedPoint> points = predict_points(table, Calibrations{});
  const double raw = points[0].tokens_per_s.value;
  const Calibrations fitted = calibrate(points);
  hold_out(points, fitted, HoldOut::models);  // one model: nothing is left to calibrate with
  EXPECT_NEAR(points[0].tokens_per_s.value / raw, 1, 1e-12);
  points = predict_points(table, fitted);
  EXPECT_NEAR(points[0].tokens_per_s.value, 10000, 250);
  const PredictedPoint other = predict_points(measured({{"H200", 1}}), fitted)[0],
                       alone = predict_points(measured({{"H200", 1}}), Calibrations{})[0],
                       far = predict_points(measured({{"MI300X", 1}}), fitted)[0],
                       far_alone = predict_points(measured({{"MI300X", 1}}), Calibrations{})[0];
  // A device of the same generation takes part of the correction, another maker's next to none of it.
  const auto part = [&](const PredictedPoint& with, const PredictedPoint& without) {
    return std::log(with.tokens_per_s.value / without.tokens_per_s.value) / std::log(10000 / raw);
  };
  EXPECT_GT(part(other, alone), 0.3);
  EXPECT_LT(part(other, alone), 1);
  EXPECT_LT(part(far, far_alone), part(other, alone) / 2);
  EXPECT_GT(far.tokens_per_s.high / far.tokens_per_s.low, other.tokens_per_s.high / other.tokens_per_s.low);
}

TEST(Calibration, RowsWithoutALayoutPullLess) {
  const auto after = [](const std::string& tp) {
    const PointTable table = read_points("model,hw,gpus,tp,pp,mbs,gbs,seq,tokens_per_s_per_gpu\nLLAMA3_8B,H100,8," +
                                             tp + "," + tp + ",1,128,8192,5000\n",
                                         "f.csv");
    const Calibrations fitted = calibrate(predict_points(table, Calibrations{}));
    return predict_points(measured({{"H100", 1}}), fitted)[0].tokens_per_s.value;
  };
  const double alone = predict_points(measured({{"H100", 1}}), Calibrations{})[0].tokens_per_s.value;
  EXPECT_GT(std::log(alone / after("1")), 1.3 * std::log(alone / after("")));
}

TEST(Calibration, IsTheSameInAnyOrderOfRows) {
  std::vector<std::pair<std::string, double>> rows = {{"H100", 9000},  {"H100", 9100},   {"H200", 11000},
                                                      {"B200", 20000}, {"MI300X", 9000}, {"H20", 2000},
                                                      {"GB200", 22000}};
  const auto speeds = [&] {
    const Calibrations c = calibrate(predict_points(measured(rows), Calibrations{}));
    std::vector<double> all;
    for (const PredictedPoint& p : predict_points(measured({{"H100", 1}, {"GB300", 1}, {"MI355X", 1}}), c))
      for (const double n : {p.tokens_per_s.low, p.tokens_per_s.value, p.tokens_per_s.high}) all.push_back(n);
    return all;
  };
  const std::vector<double> once = speeds(), again = speeds();
  EXPECT_EQ(once, again);
  std::reverse(rows.begin(), rows.end());
  const std::vector<double> reversed = speeds();
  for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(reversed[i] / once[i], 1, 1e-9);
}

TEST(Calibration, KeepsRowsEvenlySpread) {
  EXPECT_EQ(Calibration::kept_rows(0).size(), 0u);
  EXPECT_EQ(Calibration::kept_rows(3), (std::vector<size_t>{0, 1, 2}));
  const std::vector<size_t> kept = Calibration::kept_rows(3 * Calibration::kMostRows);
  ASSERT_EQ(kept.size(), Calibration::kMostRows);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i], 3 * i);
}

TEST(Calibration, TextComesBackAndIsChecked) {
  const std::vector<PredictedPoint> points =
      predict_points(measured({{"H100", 9000}, {"B200", 20000}, {"MI300X", 9000}}), Calibrations{});
  const Calibration c = calibrate(points).time;
  const std::string text = c.text();
  EXPECT_EQ(Calibration::read(text, "c.csv", Figure::time).text(), text);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return other;
  };
  EXPECT_THROW(Calibration::read(changed("H100", "toaster"), "c.csv", Figure::time), ConfigError);
  EXPECT_THROW(Calibration::read(changed("bf16", "bf17"), "c.csv", Figure::time), ConfigError);
  EXPECT_THROW(Calibration::read(changed("\nH100,bf16,megatron,", "\nH100,bf16,megatron"), "c.csv", Figure::time),
               ConfigError);
  EXPECT_THROW(Calibration::read("device\nH100\n", "c.csv", Figure::time), ConfigError);
  EXPECT_GT(Calibration::built_in().rows(), 100u);
  EXPECT_GT(Calibration::built_in_memory().rows(), 50u);
}

TEST(Calibration, KernelsForAnotherDeviceAreStillTheirFrameworks) {
  Traits native, foreign, other;
  native.device = foreign.device = other.device = "MI355X";
  native.family = foreign.family = other.family = cost::Family::cdna3;
  native.framework = "megatron", foreign.framework = "megatron, foreign kernels", other.framework = "primus";
  EXPECT_GT(covariance(native, foreign, Figure::time), covariance(native, other, Figure::time));
  EXPECT_LT(covariance(native, foreign, Figure::time), covariance(native, native, Figure::time));
}

TEST(Calibration, IntervalsWidenWithDistance) {
  const Calibration& c = Calibration::built_in();
  const search::ScaleInterval near = c.interval(*cost::accelerator_named("H100"), cost::Precision::fp8),
                              far = c.interval(*cost::accelerator_named("Gaudi3"), cost::Precision::nvfp4);
  for (const search::ScaleInterval& i : {near, far}) {
    EXPECT_LT(i.low, i.scale);
    EXPECT_GT(i.high, i.scale);
    EXPECT_FALSE(i.from.empty());
  }
  EXPECT_GT(far.high / far.low, near.high / near.low);
}

// The measured rows that the built-in calibrations are made of.
TEST(Prediction, HoldsOnMeasuredRowsThatItHasNotSeen) {
  std::ifstream file(HEDDLE_SOURCE_DIR "/src/advisor/points/measured.csv");
  std::stringstream text;
  text << file.rdbuf();
  const PointTable table = read_points(text.str(), "measured.csv");
  ASSERT_GT(table.rows.size(), 700u);
  const std::vector<PredictedPoint> points = predict_points(table, Calibrations::built_in());
  const Calibrations fitted = calibrate(points);
  struct Limit {
    HoldOut by;
    double median, p90;
  };
  for (const Limit& limit : {Limit{HoldOut::rows, 0.045, 0.24}, Limit{HoldOut::models, 0.08, 0.26},
                             Limit{HoldOut::sources, 0.075, 0.29}}) {
    std::vector<PredictedPoint> held = points;
    hold_out(held, fitted, limit.by);
    const ErrorSummary e = time_errors(held);
    EXPECT_GT(e.rows, 700u);
    EXPECT_LT(e.median, limit.median) << name_of(limit.by);
    EXPECT_LT(e.p90, limit.p90) << name_of(limit.by);
    EXPECT_GT(e.covered, 0.72) << name_of(limit.by);
    EXPECT_LT(e.covered, 0.88) << name_of(limit.by);
    for (const Baseline baseline : kBaselines) {
      std::vector<std::pair<Prediction, double>> pairs;
      const std::vector<double> tokens = predict_held_out(points, baseline, limit.by);
      for (size_t i = 0; i < points.size(); ++i)
        if (points[i].has_time()) pairs.push_back({{tokens[i], 0, 0}, points[i].measured_tokens_per_s});
      EXPECT_LT(e.median, errors_of(pairs).median) << name_of(limit.by) << ", " << name_of(baseline);
      EXPECT_LT(e.p90, errors_of(pairs).p90) << name_of(limit.by) << ", " << name_of(baseline);
    }
    std::erase_if(held, [](const PredictedPoint& p) { return !p.point.tells_memory(); });
    const ErrorSummary m = memory_errors(held);
    EXPECT_GT(m.rows, 130u);
    EXPECT_LT(m.median, 0.04) << name_of(limit.by);
    EXPECT_LT(m.p90, 0.19) << name_of(limit.by);
    EXPECT_GT(m.covered, 0.70) << name_of(limit.by);
  }
}

}  // namespace
}  // namespace heddle::advisor
