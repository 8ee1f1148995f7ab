// Runs of launches that a device may keep as a graph: what makes two of them the same.
#include "heddle/device/launch_run.h"

#include <gtest/gtest.h>

#include "heddle/ops/ops.h"

namespace heddle::device {
namespace {

std::vector<float*> ran;
void note(const KernelCall& call) { ran.push_back(call.in[0].as<float>()); }

class LaunchRunTest : public testing::Test {
 protected:
  void SetUp() override {
    add_.def = &ops::find("add");
    load_.def = &ops::find("load");
    view_.data = numbers_;
    view_.rank = 1;
    view_.dims[0] = 4;
    ran.clear();
  }
  Launch launch() const {
    Launch l;
    l.run = note;
    l.call.op = &add_;
    l.call.in = {&view_, 1};
    return l;
  }
  LaunchRun::Key key_of(const std::vector<Launch>& launches) const {
    LaunchRun run;
    for (const Launch& l : launches) run.add(l);
    return run.key();
  }
  float numbers_[8] = {};
  ir::Op add_, load_;
  TensorView view_;
};

TEST_F(LaunchRunTest, SameLaunchesHaveTheSameKey) {
  Launch traced = launch();  // what only the trace reads makes no difference
  traced.live_bytes = 7;
  traced.call.microbatch = 3;
  EXPECT_EQ(key_of({launch(), launch()}), key_of({launch(), traced}));
}

TEST_F(LaunchRunTest, AnythingThatAnEntrySeesMakesAnotherKey) {
  std::vector<LaunchRun::Key> keys{key_of({}), key_of({launch()}), key_of({launch(), launch()})};
  const auto changed = [&](auto change) {
    Launch l = launch();
    TensorView view = view_;
    l.call.in = {&view, 1};
    change(l, view);
    keys.push_back(key_of({l}));
    keys.push_back(key_of({l, launch()}));
    keys.push_back(key_of({launch(), l}));
  };
  changed([&](Launch&, TensorView& v) { v.data = numbers_ + 1; });
  changed([](Launch&, TensorView& v) { v.dims[0] = 3; });
  changed([](Launch&, TensorView& v) { v.dtype = Dtype::bf16; });
  changed([](Launch& l, TensorView&) { l.call.overwrite = true; });
  changed([&](Launch& l, TensorView&) { l.call.op = &load_; });
  changed([](Launch& l, TensorView&) { l.run = [](const KernelCall&) {}; });
  changed([&](Launch& l, TensorView&) { l.call.scratch = reinterpret_cast<std::byte*>(numbers_); });
  changed([](Launch& l, TensorView&) { std::swap(l.call.in, l.call.out); });
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(keys[i], keys[j]) << i << " and " << j;
  }
}

TEST_F(LaunchRunTest, ViewsAreItsOwn) {
  LaunchRun run;
  TensorView view = view_;
  Launch l = launch();
  l.call.in = {&view, 1};
  run.add(l);
  view.data = numbers_ + 4;  // the executor binds the same views to other places
  run.add(l);
  run.enqueue(nullptr);
  EXPECT_EQ(ran, (std::vector<float*>{numbers_, numbers_ + 4}));
  run.clear();
  EXPECT_TRUE(run.empty());
  EXPECT_EQ(run.key(), LaunchRun().key());
}

TEST_F(LaunchRunTest, WhatLoadsOrCallsTheHostIsNotRepeatable) {
  Launch l = launch();
  EXPECT_TRUE(repeatable(l));
  for (const char* kind :
       {"load", "place_copies", "recall_copies", "place_rows", "place_experts", "snapshot", "snapshot_out"}) {
    ir::Op op;
    op.def = &ops::find(kind);
    l.call.op = &op;
    EXPECT_FALSE(repeatable(l)) << kind;
  }
}

// The key of a run doesn't take in the bytes that an op loads, so a run that holds such an op would keep those of
// the step in which it was captured.
TEST_F(LaunchRunTest, ARunNeverHoldsAnInput) {
  const std::byte first{1}, second{2};
  Launch a = launch(), b = launch();
  a.call.op = b.call.op = &load_;
  a.call.input = &first;
  b.call.input = &second;
  EXPECT_EQ(key_of({a}), key_of({b}));
  EXPECT_FALSE(repeatable(a));
  int loading = 0;
  for (const ir::OpDef* def : ops::all()) loading += def->loads;
  EXPECT_EQ(loading, 1) << "inputs are read by `load` alone";
}

}  // namespace
}  // namespace heddle::device
