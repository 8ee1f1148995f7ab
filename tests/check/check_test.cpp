// Dumps of Heddle's own programs: right ones are found equal, and faults that are put into them are found and
// named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "check/diagnosis.h"
#include "check/part.h"
#include "check/report.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/random.h"
#include "tests/check/made_dump.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_models.h"

namespace heddle::check {
namespace {

using ir::Axis;
using test::Made;

struct Checked {
  explicit Checked(const Made& made) {
    test::write_dump(folder / "dump", made);
    dump = read_dump(folder / "dump");
    order_ranks(dump);
    diagnosis = std::make_unique<Diagnosis>(dump);
  }
  const Findings& findings() const { return diagnosis->findings(); }
  std::string text() const { return report_text(dump, *diagnosis, {}); }
  /// The names of all faults that were found, and of those that predict the same.
  bool names(const std::string& fault) const {
    for (const Explanation& e : findings().explanations) {
      if (e.name() == fault) return true;
      for (const Fault* other : e.alike) {
        if (other->name == fault) return true;
      }
    }
    return false;
  }
  ScratchFolder folder;
  Dump dump;
  std::unique_ptr<Diagnosis> diagnosis;
};

Made dense(plan::Degrees mesh, Dtype dtype = Dtype::f32) {
  Made made;
  made.model = test::tiny_grouped_model();
  made.model.vocab_size = 48, made.model.hidden_size = 24, made.model.head_dim = 8,
  made.model.first_k_dense_replace = 2;
  made.mesh = mesh;
  made.dtype = dtype;
  return made;
}

Made sparse(plan::Degrees mesh, Dtype dtype = Dtype::f32) {
  Made made = dense(mesh, dtype);
  made.model.first_k_dense_replace = 1;
  made.model.moe_intermediate_size = 12;
  made.model.sequence_aux_loss_alpha = 0.05;
  return made;
}

int layouts() {
  const char* full = std::getenv("HEDDLE_CHECK_LAYOUTS");
  return full != nullptr ? std::atoi(full) : 10;
}

TEST(Check, RightLayoutsAreEqual) {
  for (int number = 0; number < layouts(); ++number) {
    const Made made = test::drawn(static_cast<uint64_t>(number), number % 2 == 0 ? Dtype::f32 : Dtype::bf16);
    const Checked checked(made);
    EXPECT_TRUE(checked.findings().equal()) << "layout " << number << ": " << checked.text();
    EXPECT_GT(checked.findings().worst, 0) << number;
  }
}

// Where two experts' logits are as near as rounding, the trainer may have either: the dump's own logits say which.
TEST(Check, ChoicesOfTheDumpAreTaken) {
  int64_t taken = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Made made = sparse({.tp = 2, .dp = 2, .ep = 2}, Dtype::bf16);
    made.seed = seed, made.sequences = 4;
    const Checked right(made);
    EXPECT_TRUE(right.findings().equal()) << right.text();
    taken += right.diagnosis->reference().taken_choices();
    made.factor = [](const std::string& name, const ir::Coordinates& here, const Part& part) {
      return name.ends_with("mlp.gate.weight") && here.at(Axis::tp) != part.at.at(Axis::tp) ? 0.0 : 1.0;
    };
    const Checked wrong(made);
    EXPECT_FALSE(wrong.findings().equal()) << wrong.text();
    EXPECT_TRUE(wrong.names("not_summed.tp")) << wrong.text();
  }
  EXPECT_GT(taken, 0);
}

// Logits that choose other experts than rounding allows are a difference of their own, and are not followed.
TEST(Check, ChoicesBeyondRoundingAreFound) {
  Made made = sparse({.dp = 2, .ep = 2});
  made.change = [](Record& r, const ir::Coordinates&) {
    if (r.stage == Stage::forward && r.name.ends_with(".mlp.gate"))
      std::swap(r.values[0], *std::min_element(r.values.begin(), r.values.begin() + 4));
  };
  const Checked checked(made);
  ASSERT_FALSE(checked.findings().equal());
  EXPECT_TRUE(checked.findings().first()->name.ends_with(".mlp.gate")) << checked.text();
  EXPECT_EQ(checked.findings().differing.size(), 2U) << checked.text();  // two microbatches
}

struct Planted {
  const char* fault;
  const char* tensor;  // part of the names of tensors that have it
  std::function<double(const ir::Coordinates& here, const Part& part)> factor;
};

Made with(Made made, const Planted& planted) {
  made.factor = [planted](const std::string& name, const ir::Coordinates& here, const Part& part) {
    return name.find(planted.tensor) != std::string::npos ? planted.factor(here, part) : 1.0;
  };
  return made;
}

double same(const ir::Coordinates& here, const Part& part, Axis axis) {
  return here.at(axis) == part.at.at(axis) ? 1 : 0;
}

TEST(Check, FaultsOfReductionsAreNamed) {
  const std::vector<Planted> planted{
      {"not_summed.tp", "layernorm", [](auto& here, auto& part) { return same(here, part, Axis::tp); }},
      {"not_summed.tp", "mlp.gate.weight", [](auto& here, auto& part) { return same(here, part, Axis::tp); }},
      {"not_summed.dp", "q_proj", [](auto& here, auto& part) { return same(here, part, Axis::dp); }},
      {"own_mean.dp", "k_proj", [](auto& here, auto& part) { return 2 * same(here, part, Axis::dp); }},
      {"times.tp", "mlp.gate.weight", [](auto&, auto&) { return 2.0; }},
      {"divided_by.dp", "experts", [](auto&, auto&) { return 0.5; }},
      {"only_last", "o_proj", [](auto&, auto& part) { return part.microbatch == 1 ? 1.0 : 0.0; }},
      {"summed_again", "down_proj", [](auto&, auto& part) { return part.microbatch == 0 ? 2.0 : 1.0; }},
      {"zero", "model.norm.weight", [](auto&, auto&) { return 0.0; }},
  };
  int in_bf16 = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const Planted& one : planted) {
      const Checked checked(with(sparse({.tp = 2, .dp = 2, .ep = 2}, dtype), one));
      EXPECT_FALSE(checked.findings().equal()) << one.fault;
      EXPECT_TRUE(checked.names(one.fault)) << one.fault << " of " << one.tensor << ":\n" << checked.text();
      EXPECT_NE(checked.findings().first()->name.find(one.tensor), std::string::npos) << checked.text();
      for (const size_t i : checked.findings().unexplained())  // a norm of gradients that ranks hold differently
        EXPECT_EQ(checked.findings().all[i].name, "grad_norm") << checked.text();
      if (dtype == Dtype::bf16 && ++in_bf16 == 3) break;
    }
  }
}

TEST(Check, LabelsOfARankAreNotTheMean) {
  Made made = dense({.dp = 2});
  made.masks = true;
  made.change = {};
  ScratchFolder folder;
  test::write_dump(folder / "right", made);
  Dump right = read_dump(folder / "right");
  order_ranks(right);
  const Reference reference(right);
  std::vector<double> of_rank(2, 0.0);
  for (size_t s = 0; s < reference.labels().size(); ++s) of_rank[s % 2] += reference.labels()[s];
  ASSERT_NE(of_rank[0], of_rank[1]);
  made.factor = [&](const std::string&, const ir::Coordinates&, const Part& part) {
    return (of_rank[0] + of_rank[1]) / 2 / of_rank[static_cast<size_t>(part.at.at(Axis::dp))];
  };
  const Checked checked(made);
  EXPECT_TRUE(checked.names("local_count.dp")) << checked.text();
}

TEST(Check, TwoFaultsAtOnceAreNamed) {
  Made made = sparse({.tp = 2, .dp = 2});
  made.factor = [](const std::string& name, const ir::Coordinates& here, const Part& part) {
    double factor = name.find("layernorm") != std::string::npos ? same(here, part, Axis::tp) : 1;
    if (name.find("post_attention") != std::string::npos) factor *= part.microbatch == 1 ? 1 : 0;
    if (name.find("down_proj") != std::string::npos) factor *= 0.5;
    return factor;
  };
  const Checked checked(made);
  EXPECT_TRUE(checked.names("not_summed.tp")) << checked.text();
  EXPECT_TRUE(checked.names("divided_by.dp")) << checked.text();
  EXPECT_TRUE(checked.names("not_summed.tp + only_last")) << checked.text();
}

// Another program: an attribute of an op of layer 1 in the ranks' listings is another.
TEST(Check, MutatedListingsAreFound) {
  struct Edit {
    Made made;
    std::string beside, attribute;
    ir::Attributes::Item value;
    std::string tensor, fault;
  };
  const std::string layer = "model.layers.1.";
  for (const Edit& one :
       {Edit{dense({.tp = 2, .dp = 2}), "causal", "causal", int64_t{0}, layer + "self_attn.core", "not_causal"},
        Edit{dense({.cp = 2}), "causal", "scale", 1.0, layer + "self_attn.core", "scores_not_scaled"},
        Edit{sparse({.dp = 2, .ep = 2}), "normalize", "normalize", int64_t{0}, layer + "mlp",
             "gates_not_normed"}}) {
    Made made = one.made;
    int edited = 0;
    made.edit = [&](plan::Lowered& lowered) {
      for (ir::Listing& listing : lowered.program.listings) {
        for (ir::Op& op : listing.ops) {
          if (op.layer == 1 && op.phase == ir::Phase::F && op.attributes.has(one.beside))
            op.attributes.set(one.attribute, one.value), ++edited;
        }
      }
    };
    const Checked checked(made);
    ASSERT_GT(edited, 0) << one.fault;
    ASSERT_FALSE(checked.findings().equal()) << one.fault;
    EXPECT_TRUE(checked.findings().first()->name.starts_with(one.tensor)) << checked.text();
    EXPECT_TRUE(checked.names(one.fault)) << checked.text();
  }
}

// Queries of layer 0 with the positions that a rank of cp would count from zero.
TEST(Check, RotaryPositionsOfAnotherAreNamed) {
  Made made = dense({.cp = 2});
  const int64_t heads = made.model.num_attention_heads, width = made.model.head_dim, pairs = width / 2;
  made.change = [&](Record& r, const ir::Coordinates&) {
    if (r.stage != Stage::forward || r.name != "model.layers.0.self_attn.q_rotated") return;
    int64_t row = 0;
    for (const Range& range : r.slice.at[1]) {
      for (int64_t p = range.begin; p < range.end; ++p, ++row) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t i = 0; i < pairs; ++i) {
            const double angle =
                static_cast<double>(row - p) *
                std::pow(made.model.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
            double *a = &r.values[static_cast<size_t>((row * heads + h) * width + i)], *b = a + pairs;
            const double first = *a;
            *a = first * std::cos(angle) - *b * std::sin(angle);
            *b = first * std::sin(angle) + *b * std::cos(angle);
          }
        }
      }
    }
  };
  const Checked checked(made);
  ASSERT_FALSE(checked.findings().equal());
  EXPECT_TRUE(checked.names("rope.from_zero.cp")) << checked.text();
}

// AdamW's first step follows from the gradient, so the weight before it is known.
TEST(Check, UpdatesByAnotherRuleAreNamed) {
  for (const std::string fault : {"decays_vectors", "no_bias_correction"}) {
    Made made = dense({.dp = 2});
    made.optimizer = true;
    std::vector<double> gradient;
    double clip = 1;
    made.change = [&](Record& r, const ir::Coordinates&) {
      if (r.stage == Stage::norm && r.name == "grad_norm") clip = std::min(1.0, 0.5 / r.values[0]);
      if (r.name != "model.norm.weight") return;
      if (r.stage == Stage::gradient) gradient = r.values;
      if (r.stage != Stage::weight) return;
      for (size_t i = 0; i < r.values.size(); ++i) {
        const double g = clip * gradient.at(i), before = r.values[i] + 0.01 * g / (std::abs(g) + 1e-8);
        r.values[i] = fault == "decays_vectors" ? r.values[i] - 0.01 * 0.1 * before
                                                : before - 0.01 * 0.1 * g / (std::sqrt(0.001) * std::abs(g) + 1e-8);
      }
    };
    const Checked checked(made);
    ASSERT_FALSE(checked.findings().equal());
    EXPECT_TRUE(checked.names(fault)) << checked.text();
  }
}

TEST(Check, RowsAndColumnsOfAnotherAreNamed) {
  Made made = dense({.dp = 2});
  made.change = [](Record& r, const ir::Coordinates&) {
    if (r.stage != Stage::forward || r.name != "model.layers.1.self_attn.q_proj") return;
    const auto rows = std::ssize(r.values) / 32;
    for (int64_t i = 0; i < rows; ++i)
      std::rotate(r.values.begin() + i * 32, r.values.begin() + i * 32 + 8, r.values.begin() + (i + 1) * 32);
  };
  const Checked heads(made);
  EXPECT_TRUE(heads.names("heads_shifted.1")) << heads.text();
  made = dense({.tp = 2});
  std::map<std::string, std::vector<double>> gate;
  made.change = [&](Record& r, const ir::Coordinates& here) {
    const std::string key = fmt::format("{} {}", r.microbatch, here.at(Axis::tp));
    if (r.stage == Stage::forward && r.name == "model.layers.0.mlp.gate_proj") gate[key] = r.values;
    if (r.stage == Stage::forward && r.name == "model.layers.0.mlp.up_proj") r.values = gate.at(key);
  };
  const Checked halves(made);
  EXPECT_TRUE(halves.names("gate_up_swapped")) << halves.text();
}

// A trainer whose queries and keys are seen behind their norms alone: values tell how the joint product is read.
TEST(Check, JointProductsAreNamedByTheirValues) {
  Made made = dense({.dp = 2});
  const int64_t width = made.model.head_dim, groups = made.model.num_key_value_heads;
  ASSERT_EQ(groups, 2);
  std::map<int, std::vector<double>> keys;
  made.change = [&](Record& r, const ir::Coordinates&) {
    if (r.stage != Stage::forward) return;
    if (r.name == "model.layers.0.self_attn.k_proj") keys[r.microbatch] = r.values;
    if (r.name != "model.layers.0.self_attn.v_proj") return;
    // Blocks q q k v | q q k v: the last two are key and value of the second group.
    const int64_t row = groups * width;
    for (int64_t i = 0; i < std::ssize(r.values); i += row)
      std::copy_n(keys.at(r.microbatch).begin() + i + width, width, r.values.begin() + i);
  };
  made.keeps = [](const Record& r) {
    return r.name.find("q_proj") == std::string::npos && r.name.find("k_proj") == std::string::npos;
  };
  const Checked checked(made);
  ASSERT_FALSE(checked.findings().equal());
  EXPECT_EQ(checked.findings().first()->name, "model.layers.0.self_attn.v_proj") << checked.text();
  EXPECT_TRUE(checked.names("qkv_read_apart")) << checked.text();
}

TEST(Check, NormsOfAllGradients) {
  Made made = sparse({.tp = 2, .dp = 2, .ep = 2});
  made.change = [](Record& r, const ir::Coordinates&) {
    if (r.stage == Stage::norm) r.values[0] *= std::sqrt(2.0);
  };
  const Checked checked(made);
  EXPECT_EQ(checked.findings().differing.size(), 1U) << checked.text();
  EXPECT_TRUE(checked.names("norm.root_times.dp")) << checked.text();
}

TEST(Check, UpdatesFollowFromTheirGradients) {
  Made made = dense({.dp = 2});
  made.optimizer = true;
  made.factor = [](const std::string&, const ir::Coordinates&, const Part&) { return 2.0; };
  const Checked checked(made);
  EXPECT_TRUE(checked.names("times.dp")) << checked.text();
  EXPECT_TRUE(checked.findings().unexplained().empty()) << checked.text();
}

// Clipping by a norm that is far too large leaves steps of AdamW that its eps decides.
TEST(Check, UpdatesFollowFromTheirNorm) {
  Made made = dense({.dp = 2});
  made.optimizer = true;
  const check::Adamw rule{.lr = 0.01, .weight_decay = 0.1, .clip_norm = 0.5};
  std::map<std::string, std::vector<double>> gradients;
  double right = 0;
  made.change = [&](Record& r, const ir::Coordinates&) {
    if (r.stage == Stage::gradient) gradients[r.name] = r.values;
    if (r.stage == Stage::norm) right = r.values[0], r.values[0] *= 1e7;
    if (r.stage != Stage::weight) return;
    for (size_t i = 0; i < r.values.size(); ++i) {
      const double g = gradients.at(r.name)[i], clip = std::min(1.0, 0.5 / right), less = clip * 1e-7 * g;
      r.values[i] += rule.lr * (clip * g / (std::abs(clip * g) + rule.eps) - less / (std::abs(less) + rule.eps));
    }
  };
  const Checked checked(made);
  ASSERT_FALSE(checked.findings().equal());
  EXPECT_EQ(checked.findings().first()->name, "grad_norm") << checked.text();
  EXPECT_FALSE(checked.findings().follows.empty()) << checked.text();
  for (const size_t i : checked.findings().unexplained())
    EXPECT_EQ(checked.findings().all[i].name, "grad_norm") << checked.text();
  EXPECT_NE(checked.text().find("the norm of gradients is"), std::string::npos) << checked.text();
}

TEST(Check, ReportsSayTheSame) {
  Made made = dense({.tp = 2});
  made.factor = [](const std::string& name, const ir::Coordinates&, const Part&) {
    return name == "lm_head.weight" ? 2.0 : 1.0;
  };
  const Checked checked(made);
  const nlohmann::ordered_json json = report_json(checked.dump, *checked.diagnosis);
  EXPECT_FALSE(json["equal"]);
  EXPECT_EQ(json["first"]["name"], "lm_head.weight");
  EXPECT_EQ(json["faults"][0]["name"], "times.tp");
  EXPECT_NE(json["faults"][0]["line"], "");
  const std::string page = report_page(checked.dump, *checked.diagnosis);
  EXPECT_NE(page.find("lm_head.weight"), std::string::npos);
  EXPECT_NE(page.find("<svg"), std::string::npos);
}

TEST(Check, PartsOfTheGap) {
  ScratchFolder folder;
  Made made = dense({}, Dtype::f32);
  test::write_dump(folder / "a", made);
  made.change = [](Record& r, const ir::Coordinates&) {
    if (r.stage != Stage::forward) return;
    const double off = r.name == "model.layers.1.self_attn.o_proj" ? 0.01 : r.name == "lm_head" ? 1e-4 : 0;
    for (size_t i = 0; i < r.values.size(); ++i) r.values[i] *= 1 + off * static_cast<double>(i % 3);
  };
  test::write_dump(folder / "b", made);
  Dump a = read_dump(folder / "a"), b = read_dump(folder / "b");
  const Parting parting = part(a, b);
  double sum = 0;
  std::map<std::string, OpError> ops;
  for (const OpError& op : parting.ops) sum += op.share, ops[op.name] = op;
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_LT(ops.at("model.layers.1.self_attn.o_proj").units[0], 4);
  EXPECT_GT(ops.at("model.layers.1.self_attn.o_proj").units[1], 100);
  EXPECT_GT(ops.at("model.layers.1.self_attn.o_proj").own, 1e-6);
}

// Each line: what stands in a file of the dump, what is put in its place, and a word of the refusal.
TEST(Check, BrokenDumpsAreRefusedByOneLine) {
  struct Broken {
    const char *file, *from, *to, *word;
  };
  const std::vector<Broken> all{
      {"layout.json", "\"fp32\"", "\"fp33\"", "fp32, bf16, fp64"},
      {"layout.json", "\"tp\": 2", "\"tp\": -1", "from 1 to"},
      {"layout.json", "\"tp\": 2", "\"tp\": 3", "No such"},
      {"layout.json", "\"microbatches\"", "\"microbatch\"", "did you mean"},
      {"layout.json", "heddle-check 1", "heddle-check 9", "heddle-check 1"},
      {"layout.json", "[model]", "[modle]", "model"},
      {"rank-00000/index.json", "\"forward\"", "\"forwards\"", "did you mean"},
      {"rank-00000/index.json", "model.embed_tokens", "model.embed_token", "did you mean"},
      {"rank-00000/index.json", "\"tensor\": \"000001\"", "\"tensor\": \"x\"", "tensors.safetensors"},
      {"rank-00001/index.json", "\"tp\": 1", "\"tp\": 0", "no fold"},
      {"rank-00000/index.json", "{", "[", "JSON"},
  };
  for (const Broken& broken : all) {
    ScratchFolder folder;
    test::write_dump(folder / "dump", dense({.tp = 2}));
    const std::string path = folder / (std::string("dump/") + broken.file);
    std::string text = read_file(path, 1 << 24);
    const size_t at = text.find(broken.from);
    ASSERT_NE(at, std::string::npos) << broken.from;
    text.replace(at, std::string(broken.from).size(), broken.to);
    OutputFile file(path);
    file.write(text);
    file.commit();
    try {
      Dump dump = read_dump(folder / "dump");
      order_ranks(dump);
      const Reference reference(dump);
      ADD_FAILURE() << broken.to << " was accepted";
    } catch (const ConfigError& error) {
      const std::string what = error.what();
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
      EXPECT_NE(what.find(broken.word), std::string::npos) << what;
    }
  }
}

// Bytes of any file are changed, or its end is missing: one line says so, or the dump is still one.
TEST(Check, DamagedFilesAreRefusedByOneLine) {
  const ScratchFolder made;
  Made one = dense({.tp = 2});
  one.microbatches = 1;
  test::write_dump(made / "dump", one);
  const std::vector<std::string> files{"layout.json", "start.safetensors", "rank-00000/index.json",
                                       "rank-00001/tensors.safetensors"};
  int refused = 0;
  for (uint64_t number = 0; number < 200; ++number) {
    const RandomKey key = RandomKey(5).with(number);
    const std::string path = made / ("dump/" + files[number % files.size()]);
    const std::string whole = read_file(path, 1 << 26);
    std::string text = whole;
    if (number % 3 == 0) {
      text.resize(key.bits(0) % text.size());
    } else {  // most of what decides lies at the beginning
      for (uint64_t i = 0; i < 1 + key.bits(1) % 4; ++i)
        text[key.bits(2 + 2 * i) % std::min<size_t>(text.size(), 2000)] = static_cast<char>(key.bits(3 + 2 * i));
    }
    const auto put = [&](const std::string& bytes) {
      OutputFile file(path);
      file.write(bytes);
      file.commit();
    };
    put(text);
    try {
      Dump dump = read_dump(made / "dump");
      order_ranks(dump);
      const Reference reference(dump);
    } catch (const ConfigError& error) {
      ++refused;
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    } catch (const SystemError& error) {
      ++refused;
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
    put(whole);
  }
  EXPECT_GT(refused, 100);
}

TEST(Check, SizesAreCheckedBeforeTheyAreUsed) {
  const ScratchFolder made;
  Made one = dense({});
  test::write_dump(made / "dump", one);
  const std::string path = made / "dump/layout.json", text = read_file(path, 1 << 20);
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"vocab_size = 48", "vocab_size = 900000000"},
                                                        {"hidden_size = 24", "hidden_size = 900000"},
                                                        {"num_hidden_layers = 2", "num_hidden_layers = 100000"}}) {
    std::string wide = text;
    const size_t at = wide.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    OutputFile file(path);
    file.write(wide.replace(at, from.size(), to));
    file.commit();
    EXPECT_THROW(
        {
          Dump dump = read_dump(made / "dump");
          const Reference reference(dump);
        },
        ConfigError)
        << to;
  }
}

}  // namespace
}  // namespace heddle::check
