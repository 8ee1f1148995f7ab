// Templates of conversations: what Jinja makes of them (tests/fixtures/chat, by tools/make_chat_fixtures.py), where
// answers stand, and what is refused.
#include "heddle/data/chat/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "tests/support/scratch_folder.h"

namespace heddle::data {
namespace {

using Json = ChatTemplate::Json;

const std::string kFolder = std::string(HEDDLE_SOURCE_DIR) + "/tests/fixtures/chat/";

const Json& cases() {
  static const Json all = Json::parse(read_file(kFolder + "cases.json", 64 << 20));
  return all;
}

ChatTemplate of_text(std::string text) {
  ChatTemplate::Files files{.text = std::move(text), .tokens = {}};
  for (const auto& [name, token] : cases()["tokens"].items()) files.tokens.emplace_back(name, token);
  return {std::move(files), "template"};
}

ChatTemplate of_file(const std::string& name) { return of_text(read_file(kFolder + name + ".jinja", 1 << 20)); }

// The text, or nothing where the template is refused, by one line that names its place.
std::optional<std::string> rendered(const std::string& text, const Json& messages, bool prompt, const Json& tools) {
  try {
    return of_text(text).render(messages, prompt, tools);
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    EXPECT_TRUE(std::string_view(error.what()).starts_with("template:")) << error.what();
    return std::nullopt;
  }
}

TEST(ChatTemplate, PublishedOnesAreWrittenAsJinjaWritesThem) {
  for (const Json& c : cases()["published"]) {
    const std::string text = read_file(kFolder + c["template"].get<std::string>() + ".jinja", 1 << 20);
    const auto found = rendered(text, cases()["conversations"][c["conversation"].get<size_t>()], c["prompt"],
                                c["tools"].get<bool>() ? cases()["tools"] : Json());
    EXPECT_EQ(found.has_value(), c["text"].is_string()) << c.dump();
    if (found && c["text"].is_string()) {
      EXPECT_EQ(*found, c["text"].get<std::string>()) << c["template"] << c["conversation"];
    }
  }
}

TEST(ChatTemplate, DrawnOnesAreWrittenAsJinjaWritesThem) {
  for (const Json& c : cases()["drawn"]) {
    const auto found = rendered(c["template"], cases()["conversations"][1], false, cases()["tools"]);
    EXPECT_EQ(found.has_value(), c["text"].is_string()) << c.dump();
    if (found && c["text"].is_string()) {
      EXPECT_EQ(*found, c["text"].get<std::string>()) << c["template"].get<std::string>();
    }
  }
}

std::vector<std::string> answers(const std::string& name, size_t conversation, int64_t left_out = 0) {
  const SpannedText whole = of_file(name).conversation(cases()["conversations"][conversation]);
  EXPECT_EQ(whole.left_out, left_out) << name;
  std::vector<std::string> found;
  for (const auto& [begin, end] : whole.targets) found.push_back(whole.text.substr(begin, end - begin));
  return found;
}

TEST(ChatTemplate, AnswersAreFound) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(answers("chatml", 0), (Texts{"Hi there<|im_end|>\n", "Fine, 谢谢 🙂<|im_end|>\n"}));
  EXPECT_EQ(answers("llama3", 0), (Texts{"Hi there<|eot_id|>", "Fine, 谢谢 🙂<|eot_id|>"}));
  EXPECT_EQ(answers("mixtral", 0), (Texts{" Hi there</s>", " Fine, 谢谢 🙂</s>"}));
  EXPECT_EQ(answers("deepseek_v3", 0),
            (Texts{"Hi there<｜end▁of▁sentence｜>", "Fine, 谢谢 🙂<｜end▁of▁sentence｜>"}));
  EXPECT_EQ(answers("kimi", 0), (Texts{"Hi there<|im_end|>", "Fine, 谢谢 🙂<|im_end|>"}));
  EXPECT_EQ(answers("generation", 0), (Texts{"Hi there<|end|>\n", "Fine, 谢谢 🙂<|end|>\n"}));
  // An earlier turn loses its thoughts, which it has where it stands last.
  EXPECT_EQ(answers("qwen3", 2, 1), Texts{"<think>\nso\n</think>\n\nB<|im_end|>\n"});
  EXPECT_EQ(answers("chatml", 3), Texts{});
  EXPECT_EQ(of_file("chatml").between_turns(), "<|im_end|>\n<|im_start|>user\n");
}

TEST(ChatTemplate, HostileOnesEnd) {
  const std::pair<const char*, const char*> kHostile[] = {
      {"{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}", "more than"},
      {"{% set ns = namespace(t='abcdefgh') %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
       "bytes"},
      {"{% set ns = namespace(t=[1]) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.t }}",
       "parts"},
      {"{% set ns = namespace(t=[1]) %}{% for i in range(9999) %}{% set ns.t = [ns.t] %}{% endfor %}{{ ns.t }}",
       "deep"},
      {"{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a }}", "cannot be written"},
      {"{% macro m(a) %}{{ m(a) }}{% endmacro %}{{ m(1) }}", "deep"},
      {"{{ 'abc' * 10 ** 18 }}", "bytes"},
      {"{{ range(10 ** 18) }}", "100000"},
      {"{{ 2 ** 63 }}", "too large"},
      {"{{ 1 // 0 }}", "zero"},
      {"\n\n{{ missing.content }}", "template:3: 'missing' is undefined"},
      {"a\n{% fro x in y %}", "template:2: no statement 'fro'"},
      {"{{ 'x'|trimm }}", "did you mean 'trim'"},
      {"{% if x %}\n", "endif"},
      {"{{ 'x", "no end"},
      {"{{ raise_exception('not\nso') }}", "refuses: not\\nso"},
      {"{% include 'file' %}", "no statement 'include'"},
      {"{{ messages.__class__.__mro__[1] }}", "undefined"},
  };
  for (const auto& [text, part] : kHostile) {
    try {
      of_text(text).render(cases()["conversations"][0], false);
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << text << ": " << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  }
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "(";
  EXPECT_FALSE(rendered("{{ " + nested + "1", {}, false, {}));
  std::string blocks;
  for (int i = 0; i < 100000; ++i) blocks += "{% if 1 %}";
  EXPECT_FALSE(rendered(blocks, {}, false, {}));
  std::string sums = "1";
  for (int i = 0; i < 100000; ++i) sums += "-1";
  EXPECT_FALSE(rendered("{{ " + sums + " }}", {}, false, {}));
}

TEST(ChatTemplate, IsFoundBesideATokenizer) {
  ScratchFolder folder;
  EXPECT_EQ(chat_template_beside(folder / "tokenizer.json"), "");
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"bos_token": {"content": "<b>"}, "chat_template": [{"name": "default", "template": "{{ bos_token }}{{ messages|length }}"}]})";
  const std::string path = chat_template_beside(folder / "tokenizer.json");
  EXPECT_EQ(path, folder / "tokenizer_config.json");
  EXPECT_EQ(load_chat_template(path).render(Json::array({1, 2}), false), "<b>2");
  keep_chat_template(load_chat_template(path), folder.path());
  EXPECT_EQ(load_chat_template(chat_template_beside(folder.path())).render(Json::array(), false), "<b>0");
}

}  // namespace
}  // namespace heddle::data
