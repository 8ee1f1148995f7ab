// Checkpoints: bit for bit there and back, whole or refused, whatever happens to the disk or to the files.
#include "heddle/train/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "heddle/base/files/output_file.h"
#include "heddle/base/random.h"
#include "tests/support/scratch_folder.h"

namespace heddle::train {
namespace {

namespace fs = std::filesystem;

// A few tensors of every type of master, with values that depend on the step.
struct State {
  explicit State(int64_t step, bool filled = true) {
    add("model.embed_tokens.weight", Dtype::f32, {11, 6}, 1);
    add("m.model.embed_tokens.weight", Dtype::f32, {11, 6}, 2);
    add("layer.experts.gate_up_proj.weight", Dtype::f64, {4, 3, 5}, 4);  // experts on four ranks
    add("layer.bf16", Dtype::bf16, {7}, 1);
    add("gate.e_score_correction_bias", Dtype::f32, {4}, 1);
    add("nothing", Dtype::f32, {0, 3}, 1);
    state.step = step;
    state.consumed_sequences = 32 * step;
    state.seed = 0xfedcba9876543210u;
    state.model.n_routed_experts = 4;
    state.model.num_experts_per_tok = 2;
    state.model.rms_norm_eps = 1.0 / 3.0;
    state.data = {{"tokens", "crc32c \"1234\"\n"}, {"tokenizer", "é"}};
    state.layout = {{"expert ranks", "4"}};
    if (!filled) return;
    const RandomKey key(static_cast<uint64_t>(step));
    uint64_t at = 0;
    for (auto& bytes : memory) {
      for (uint8_t& byte : *bytes) byte = static_cast<uint8_t>(key.bits(at++));
    }
  }

  void add(const std::string& name, Dtype dtype, std::vector<int64_t> shape, size_t pieces) {
    formats::LogicalTensor tensor{name, dtype, std::move(shape), {}};
    const auto size = static_cast<size_t>(tensor.size_bytes());
    memory.push_back(std::make_unique<std::vector<uint8_t>>(size));
    for (size_t p = 0; p < pieces; ++p) {
      tensor.pieces.emplace_back(memory.back()->data() + p * (size / pieces), size / pieces);
    }
    tensors.push_back(std::move(tensor));
  }

  bool same_bytes(const State& other) const {
    for (size_t i = 0; i < memory.size(); ++i) {
      if (*memory[i] != *other.memory[i]) return false;
    }
    return true;
  }

  std::string save(const ScratchFolder& folder, int keep = 3) const {
    return save_checkpoint(folder.path().string(), state, tensors, keep);
  }

  CheckpointState state;
  std::vector<formats::LogicalTensor> tensors;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> memory;
};

std::string refusal_checkpoint(const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  return "";
}

std::string bytes_of(const std::string& path) { return read_file(path, 1 << 24); }

void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

void expect_whole(const Checkpoint& checkpoint, const State& expected) {
  CheckpointState state = checkpoint.state();
  EXPECT_FALSE(state.weights_digest.empty() || state.moments_digest.empty());
  state.weights_digest = state.moments_digest = "";  // which saving adds
  EXPECT_EQ(state, expected.state);
  State found(expected.state.step, false);
  checkpoint.load_into(found.state.model, found.tensors);
  EXPECT_TRUE(found.same_bytes(expected));
}

TEST(Checkpoint, ComesBackBitForBit) {
  const ScratchFolder folder;
  const State state(7);
  const std::string path = state.save(folder);
  EXPECT_EQ(fs::path(path).filename(), "step-000007");
  expect_whole(Checkpoint(path), state);
  expect_whole(open_checkpoint(path + "/"), state);
  expect_whole(open_checkpoint(folder.path().string()), state);
}

TEST(Checkpoint, LaterOfTheSameStepReplacesIt) {
  const ScratchFolder folder;
  State state(7);
  state.save(folder);
  (*state.memory[0])[3] ^= 1;
  expect_whole(Checkpoint(state.save(folder)), state);
}

TEST(Checkpoint, KeepsTheNewestAndLeavesNothingElse) {
  const ScratchFolder folder;
  State(30).save(folder);  // of a run that went further: not the business of one that goes on from step 3
  fs::create_directory(temporary_beside(folder / "step-000001"));
  fs::create_directory(folder.path() / "step-7");
  for (int64_t step = 1; step <= 5; ++step) State(step).save(folder, 2);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"latest", "step-000004", "step-000005", "step-000030", "step-7"}));
}

TEST(Checkpoint, CutAnywhereIsRefusedAndTheOneBeforeIsTaken) {
  const ScratchFolder folder;
  const State before(1), after(2);
  before.save(folder);
  const std::string path = after.save(folder);
  for (const char* name : {"model.safetensors", "state.json"}) {
    const std::string file = path + "/" + name, whole = bytes_of(file);
    const size_t last =
        whole.back() == '\n' ? whole.size() - 1 : whole.size();  // the last line break is no content
    for (size_t size = 0; size < last; size += size < 64 || size + 64 > last ? 3 : 31) {
      overwrite(file, whole.substr(0, size));
      const std::string reason = refusal_checkpoint([&] { Checkpoint{path}; });
      ASSERT_NE(reason, "") << name << " cut at " << size;
      EXPECT_NE(reason.find(name), std::string::npos) << reason;
    }
    std::vector<std::string> refused;
    expect_whole(open_checkpoint(folder.path().string(), &refused), before);
    ASSERT_EQ(refused.size(), 1u);
    EXPECT_NE(refused[0].find("step-000002"), std::string::npos) << refused[0];
    const std::string asked = refusal_checkpoint([&] { open_checkpoint(path); });
    EXPECT_NE(asked.find("step-000001 is whole"), std::string::npos) << asked;
    fs::remove(file);
    EXPECT_NE(refusal_checkpoint([&] { Checkpoint{path}; }), "");
    overwrite(file, whole + "x");
    EXPECT_NE(refusal_checkpoint([&] { Checkpoint{path}; }), "");
    overwrite(file, whole);
    expect_whole(open_checkpoint(folder.path().string(), &refused), after);
  }
  overwrite(path + "/state.json", "");
  overwrite(folder / "step-000001/state.json", "");
  EXPECT_NE(refusal_checkpoint([&] { open_checkpoint(folder.path().string()); }).find("none of 2"),
            std::string::npos);
}

TEST(Checkpoint, FlippedBitsNeverLoadAsSomethingElse) {
  const ScratchFolder folder;
  const State state(3);
  const std::string path = state.save(folder);
  const RandomKey key(5);
  int64_t refused = 0, harmless = 0;
  for (const char* name : {"model.safetensors", "state.json"}) {
    const std::string file = path + "/" + name, whole = bytes_of(file);
    for (uint64_t trial = 0; trial < 300; ++trial) {
      std::string damaged = whole;
      const uint64_t flips = 1 + key.bits(2 * trial) % 3;
      for (uint64_t f = 0; f < flips; ++f) {
        const uint64_t at = key.with(std::to_string(f)).bits(2 * trial + 1) % (8 * whole.size());
        damaged[at / 8] = static_cast<char>(damaged[at / 8] ^ (1 << (at % 8)));
      }
      if (damaged == whole) continue;
      overwrite(file, damaged);
      try {
        expect_whole(Checkpoint(path), state);  // a flipped space of state.json says nothing else
        ++harmless;
      } catch (const ConfigError&) {
        ++refused;
      }
    }
    EXPECT_TRUE(harmless == 0 || name == std::string("state.json"));
    overwrite(file, whole);
  }
  EXPECT_GT(refused, 20 * harmless);
  expect_whole(Checkpoint(path), state);
}

TEST(Checkpoint, OtherModelsAreRefusedBeforeAnythingIsWritten) {
  const ScratchFolder folder;
  const State state(3);
  const Checkpoint checkpoint(state.save(folder));
  const auto loads = [&](const std::function<void(State&)>& change) {
    State into(3, false);
    change(into);
    const std::string reason = refusal_checkpoint([&] { checkpoint.load_into(into.state.model, into.tensors); });
    for (const auto& bytes : into.memory) {
      EXPECT_EQ(std::count(bytes->begin(), bytes->end(), 0), std::ssize(*bytes)) << reason;
    }
    return reason;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(loads([](State& s) { s.state.model.hidden_size = 999; }), "hidden_size is 256, 999 is expected"));
  EXPECT_TRUE(has(loads([](State& s) { s.state.model.topk_bias = false; }), "topk_bias"));
  EXPECT_TRUE(has(loads([](State& s) { s.tensors.pop_back(); }), "'nothing' belongs nowhere"));
  EXPECT_TRUE(has(loads([](State& s) { s.tensors[0].name = "other"; }), "no tensor 'other'"));
  EXPECT_TRUE(has(loads([](State& s) { s.tensors[0].shape = {6, 11}; }), "F32 [11, 6], F32 [6, 11] is expected"));
  EXPECT_TRUE(has(loads([](State& s) { s.tensors[0].dtype = Dtype::i32; }), "I32 [11, 6] is expected"));
  EXPECT_EQ(refusal_checkpoint([&] {
              State into(3, false);
              into.state.model.z_loss_weight = 0.5;  // a choice of the training, not of the parameters
              checkpoint.load_into(into.state.model, into.tensors);
            }),
            "");
}

// Files may grow to no more than `bytes` while this lives: the disk is full, as far as this process can tell.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(Checkpoint, FullDiskLeavesWhatWasThere) {
  const ScratchFolder folder;
  const State state(3);
  const auto size = static_cast<rlim_t>(fs::file_size(state.save(folder) + "/model.safetensors"));
  for (rlim_t limit = 0; limit < size; limit += 197) {
    const FullDisk full(limit);
    EXPECT_THROW(State(4).save(folder, 1), SystemError);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2);  // and the hint
  expect_whole(open_checkpoint(folder.path().string()), state);
}

TEST(Checkpoint, ReadersSeeOnlyWholeOnes) {
  const ScratchFolder folder;
  State(0).save(folder, 1);
  std::atomic<bool> done{false};
  int64_t seen = 0, last = 0;
  std::string failure;
  std::thread reader([&] {
    try {
      while (!done) {
        const auto checkpoint = latest_checkpoint(folder.path().string());
        if (!checkpoint || checkpoint->state().step < last) throw std::runtime_error("none, or an older one");
        last = checkpoint->state().step;
        State found(last, false);
        checkpoint->load_into(found.state.model, found.tensors);
        if (!found.same_bytes(State(last))) throw std::runtime_error("other bytes");
        ++seen;
      }
    } catch (const std::exception& error) {
      failure = error.what();
    }
  });
  for (int64_t step = 1; step <= 20; ++step) {
    State(step).save(folder, 1);
    if (step % 5 == 0) State(step).save(folder, 1);
  }
  done = true;
  reader.join();
  EXPECT_EQ(failure, "");
  EXPECT_GT(seen, 0);
}

TEST(Checkpoint, KeepsItsNameAndItsBytes) {
  const ScratchFolder folder;
  const State state(2);
  const std::string path = state.save(folder), other = folder / "step-000004";
  fs::rename(path, other);
  EXPECT_NE(refusal_checkpoint([&] { Checkpoint{other}; }).find("named as of step 4, it holds step 2"),
            std::string::npos);
  EXPECT_NE(refusal_checkpoint([&] { Checkpoint{other + "/"}; }).find("named as of step 4"), std::string::npos);
  fs::rename(other, path);
  for (const char* name : {"/state.json", "/model.safetensors"}) {
    const std::string whole = bytes_of(path + name);
    for (const std::string& more :
         {std::string(1, '\0'), std::string(" "), std::string("\n"), std::string("\0{}", 3)}) {
      overwrite(path + name, whole + more);
      EXPECT_NE(refusal_checkpoint([&] { Checkpoint{path}; }), "") << name << " and " << more.size() << " bytes";
    }
    overwrite(path + name, whole);
  }
  expect_whole(Checkpoint(path), state);
}

TEST(Checkpoint, IsItsOwnersAndNoLink) {
  const ScratchFolder folder, elsewhere;
  const std::string path = State(1).save(folder);
  for (const auto& entry : fs::directory_iterator(path)) {
    EXPECT_EQ(entry.status().permissions(), fs::perms::owner_read | fs::perms::owner_write) << entry.path();
  }
  fs::create_directory_symlink(State(2).save(elsewhere), folder / "step-000002");
  std::vector<std::string> refused;
  EXPECT_EQ(latest_checkpoint(folder.path().string(), &refused)->state().step, 1);
  EXPECT_EQ(refused.size(), 1u);
  fs::create_directory_symlink(elsewhere.path(), folder / "link");
  EXPECT_NE(refusal_checkpoint([&] { latest_checkpoint(folder / "link"); }), "");
  const State later(3);
  EXPECT_NE(refusal_checkpoint([&] { save_checkpoint(folder / "link", later.state, later.tensors); }), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(elsewhere.path()), fs::directory_iterator()), 2);  // and the hint
}

TEST(Checkpoint, AFolderThatCannotBeReadIsNotEmpty) {
  const ScratchFolder folder;
  overwrite(folder / "checkpoints", "");
  EXPECT_THROW(latest_checkpoint(folder / "checkpoints"), SystemError);
}

TEST(Checkpoint, EmptyFolderHasNone) {
  const ScratchFolder folder;
  EXPECT_FALSE(latest_checkpoint(folder.path().string()).has_value());
  EXPECT_FALSE(latest_checkpoint(folder / "missing").has_value());
  EXPECT_NE(refusal_checkpoint([&] { open_checkpoint(folder / "step-000005"); }), "");
  EXPECT_NE(refusal_checkpoint([&] { open_checkpoint(folder.path().string()); }), "");
}

}  // namespace
}  // namespace heddle::train
