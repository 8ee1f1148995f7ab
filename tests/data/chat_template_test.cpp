// Templates of conversations: what Jinja makes of them (tests/fixtures/chat, by tools/make_chat_fixtures.py), where
// answers stand, and what is refused.
#include "heddle/data/chat/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
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
  const SpannedText whole = of_file(name).conversation(
      {.messages = cases()["conversations"][conversation], .arguments = {}, .silent = {}});
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
  EXPECT_EQ(answers("qwen3", 2), (Texts{"A<|im_end|>\n", "<think>\nso\n</think>\n\nB<|im_end|>\n"}));
  EXPECT_EQ(answers("chatml", 3), Texts{});
  EXPECT_EQ(of_file("chatml").marks().end, "<|im_end|>");
}

std::vector<std::string> targets_of(const ChatTemplate& chat, const ChatTemplate::Talk& talk) {
  const SpannedText whole = chat.conversation(talk);
  EXPECT_EQ(whole.left_out, 0);
  std::vector<std::string> found;
  for (const auto& [begin, end] : whole.targets) found.push_back(whole.text.substr(begin, end - begin));
  return found;
}

Json said(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

Json a_call(const char* content = "") {
  Json call = said("assistant", content);
  call["tool_calls"] =
      Json::parse(R"([{"type": "function", "function": {"name": "rain", "arguments": {"in": "Ulm"}}}])");
  return call;
}

ChatTemplate::Talk talk(std::initializer_list<Json> messages) {
  return {.messages = Json(std::vector<Json>(messages)), .arguments = {}, .silent = {}};
}

const std::string kToolCall =
    "<tool_call>\n{\"name\": \"rain\", \"arguments\": {\"in\": \"Ulm\"}}\n</tool_call><|im_end|>\n";

TEST(ChatTemplate, ToolCallsAndEarlierTurnsAreAnswers) {
  using Texts = std::vector<std::string>;
  const auto tools = talk({said("user", "Rain?"), a_call(), said("tool", "no"), said("assistant", "No."),
                           said("user", "Sure?"), said("assistant", "Yes.")});
  EXPECT_EQ(targets_of(of_file("qwen3"), tools),
            (Texts{kToolCall, "No.<|im_end|>\n", "<think>\n\n</think>\n\nYes.<|im_end|>\n"}));
  // The conversation may end with a call, and an answer begin with the same letter as the thoughts of a prompt.
  const std::string call = "<think>\n\n</think>\n\n" + kToolCall;
  EXPECT_EQ(targets_of(of_file("qwen3"), talk({said("user", "Rain?"), a_call()})), Texts{call});
  const ChatTemplate thinks = of_text(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}");
  EXPECT_EQ(targets_of(thinks, talk({said("user", "a"), said("assistant", "<tool>b"), said("user", "c"),
                                     said("assistant", "<think>\nd")})),
            (Texts{"<tool>b<|im_end|>\n", "d<|im_end|>\n"}));
  auto last = tools;
  last.last_only = true;
  EXPECT_EQ(targets_of(of_file("qwen3"), last), Texts{"<think>\n\n</think>\n\nYes.<|im_end|>\n"});
  auto silent = tools;
  silent.silent = {false, true, false, false, false, false};
  EXPECT_EQ(targets_of(of_file("qwen3"), silent),
            (Texts{"No.<|im_end|>\n", "<think>\n\n</think>\n\nYes.<|im_end|>\n"}));
}

TEST(ChatTemplate, MessagesMayBeTakenByNumber) {
  using Texts = std::vector<std::string>;
  const auto both =
      talk({said("user", "a"), said("assistant", "<t>x</t>b"), said("user", "c"), said("assistant", "d")});
  // Thoughts are left out of all but the last answer, so that no beginning of the text is the text of a beginning.
  const std::string body =
      "<{{ m.role }}>{{ m.content if loop.last else m.content.split('</t>')[-1] }}</s>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(targets_of(of_text("{% for i in range(messages|length) %}{% set m = messages[i] %}" + body), both),
            (Texts{"b</s>", "d</s>"}));
  EXPECT_EQ(targets_of(of_text("{% for m in messages[:1] + messages[1:] %}" + body), both),
            (Texts{"b</s>", "d</s>"}));
}

TEST(ChatTemplate, AnOpenTurnEndsByTheNextMark) {
  using Texts = std::vector<std::string>;
  const ChatTemplate open = of_text(
      "<start>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>\n{% endif %}");
  EXPECT_FALSE(open.marks().closes_turns);
  EXPECT_EQ(open.marks().end, "<|user|>");
  const auto both = talk(
      {said("user", "a"), said("assistant", "b"), said("system", "s"), said("user", "c"), said("assistant", "d")});
  EXPECT_EQ(targets_of(open, both), (Texts{"b<|system|>", "d<|user|>"}));
  EXPECT_TRUE(open.conversation(both).text.ends_with("d<|user|>"));
  // Of the content behind the mark nothing is learnt, nor is a mark of an answer one.
  const ChatTemplate tight = of_text("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}");
  EXPECT_EQ(targets_of(tight, talk({said("user", "a"), said("assistant", "b"), said("assistant", "c"),
                                    said("user", "d"), said("assistant", "e")})),
            (Texts{"[assistant]b", "[assistant]c[user]", "[assistant]e[user]"}));
  const auto tools = talk({said("user", "Rain?"), a_call(), said("tool", "no"), said("assistant", "No.")});
  const Texts glm = targets_of(of_file("glm4"), tools);
  ASSERT_EQ(glm.size(), 2U);
  EXPECT_TRUE(glm[0].ends_with("</tool_call>\n<|observation|>") || glm[0].ends_with("</tool_call><|observation|>"))
      << glm[0];
  EXPECT_TRUE(glm[1].ends_with("No.<|user|>")) << glm[1];
  EXPECT_EQ(of_file("glm4").marks().end_of_calls.substr(of_file("glm4").marks().end_of_calls.find('<')),
            "<|observation|>");
  EXPECT_TRUE(targets_of(of_file("glm4"), talk({said("user", "Rain?"), a_call()}))[0].ends_with("<|observation|>"));
  const ChatTemplate lines = of_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  EXPECT_EQ(targets_of(lines, talk({said("user", "a"), said("assistant", "b"), said("user", "c"),
                                    said("assistant", "d")})),
            (Texts{"assistant: b\nuser:", "assistant: d\nuser:"}));
  // What ends the text alone ends the last answer.
  const ChatTemplate once =
      of_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ eos_token }}");
  EXPECT_EQ(targets_of(
                once, talk({said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d")})),
            (Texts{"assistant: b\nuser:", "assistant: d\n</s>"}));
  // Where only blanks stand between turns, nothing of the next turn is learnt, and no mark is made up.
  const ChatTemplate bare = of_text("{% for m in messages %}{{ m.content }}\n\n{% endfor %}");
  const auto four = talk({said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d")});
  EXPECT_EQ(targets_of(bare, four), (Texts{"b\n\n", "d\n\n"}));
  EXPECT_EQ(bare.conversation(four).text, "a\n\nb\n\nc\n\nd\n\n");
  EXPECT_EQ(bare.marks().end, "");
  for (const char* name : {"chatml", "llama3", "mixtral", "deepseek_v3", "kimi", "qwen3"})
    EXPECT_TRUE(of_file(name).marks().closes_turns && of_file(name).marks().closes_last) << name;
}

TEST(ChatTemplate, ABeginningMayStandBehindOtherText) {
  using Texts = std::vector<std::string>;
  const std::string turn = "<|{{ m.role }}|>\n{{ m.content }}<end>\n";
  const auto begun = talk({said("assistant", "a"), said("user", "b"), said("assistant", "c")});
  // The first turn has what the template writes ahead of all turns; a prompt is only there behind a message.
  const ChatTemplate ahead =
      of_text("{% for m in messages %}{% if loop.first %}<s><|system|>\nHelp.<end>\n{% endif %}" + turn +
              "{% if loop.last and add_generation_prompt %}<|assistant|>\n{% endif %}{% endfor %}");
  EXPECT_EQ(targets_of(ahead, begun), (Texts{"a<end>\n", "c<end>\n"}));
  // Blanks around it differ between a prompt and a turn.
  const ChatTemplate blanks = of_text("{% for m in messages %}\n  " + turn +
                                      "{% endfor %}{% if add_generation_prompt %} <|assistant|>\n\n{% endif %}");
  EXPECT_EQ(targets_of(blanks, begun), (Texts{"a<end>\n", "c<end>\n"}));
  // A prompt is written in any case.
  const auto both = talk({said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d")});
  EXPECT_EQ(targets_of(of_text("{% for m in messages %}" + turn + "{% endfor %}{{ '<|assistant|>\n' }}"), both),
            (Texts{"b<end>\n", "d<end>\n"}));
  // An answer that begins with the same letters as a prompt's end has only begun there.
  const ChatTemplate plain = of_text(
      "{% for m in messages %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}Answer: {% endif %}");
  EXPECT_EQ(targets_of(plain, talk({said("user", "a"), said("assistant", "An apple")})), Texts{"An apple\n"});
}

TEST(ChatTemplate, ResultsWithinAnAnswersTurnAreNotLearnt) {
  const ChatTemplate scans = of_text(
      "{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>{{ m.content }}"
      "{% if m.tool_calls %}<call>{{ m.tool_calls[0].function.name }}</call>"
      "{% for k in range(loop.index, messages|length) %}{% if messages[k].role == 'tool' %}"
      "<result>{{ messages[k].content }}</result>{% endif %}{% endfor %}{% endif %}</end>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  Json numbers = said("tool", "");
  numbers["content"] = Json::parse(R"({"rain": 3})");
  EXPECT_EQ(targets_of(scans, talk({said("user", "Rain?"), a_call("So"), said("tool", "no"), numbers,
                                    said("assistant", "No.")})),
            (std::vector<std::string>{"So<call>rain</call>", "</end>", "No.</end>"}));
}

TEST(ChatTemplate, MarksWithinAMacroAreNotNeeded) {
  const ChatTemplate chat = of_text(
      "{% macro turn(m) %}{% generation %}{{ m.content }}</s>{% endgeneration %}{% endmacro %}"
      "{% for m in messages %}<{{ m.role }}>{{ turn(m) }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  EXPECT_EQ(targets_of(chat, talk({said("user", "a"), said("assistant", "b")})), std::vector<std::string>{"b</s>"});
}

TEST(ChatTemplate, MessagesAreThoseOfTransformers) {
  const ChatTemplate chat = of_text(
      "{% for m in messages %}{{ m.content is defined }} {{ m.keys()|list }} {{ m.reasoning_content }}|{% endfor "
      "%}");
  Json null = said("assistant", "");
  null["content"] = nullptr;
  null["reasoning"] = "so";
  EXPECT_EQ(chat.render({said("user", "a"), null}, false),
            "True ['role', 'content'] |False ['thinking', 'role', 'reasoning', 'reasoning_content'] so|");
}

TEST(ChatTemplate, WritesWhatJinjaWrites) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{% macro m(x) %}[{{ caller() }}{{ x }}]{% endmacro %}{% for i in [1, 2] %}{% call m('a') %}{{ i }}"
       "{% endcall %}{% endfor %}",
       "[1a][2a]"},
      {"{% macro m() %}{{ caller(7) }}{{ caller(8) }}{% endmacro %}{% call(n) m() %}<{{ n }}>{% endcall %}",
       "<7><8>"},
      {"{% macro m(x) %}{% if x %}{% call m(x - 1) %}{{ x }}{{ caller is defined }}{% endcall %}{% else %}"
       "{{ caller() }}{% endif %}{% endmacro %}{% call m(2) %}z{% endcall %}",
       "1False"},
      {"{% macro m(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(1, **{'b': 5, 'c': 6}) }}",
       "123156"},
      {"{{ {'a': [1, 2]} | tojson(separators=(',', ':')) }}", "{\"a\":[1,2]}"},
      {"{{ {'a': 1} | tojson(indent=1, separators=(';', '=')) }}", "{\n \"a\"=1\n}"},
      {"{{ '\x7f' | tojson(ensure_ascii=true) }}", "\"\\u007f\""},
      {"{{ '<'|safe + '<\"&' }}{{ '<' + '<'|safe }}{{ '<'|safe ~ '<' }}", "<&lt;&#34;&amp;&lt;<<<"},
      {"{{ 'yes' if [] | select else 'no' }}{{ 'yes' if [] | select | list else 'no' }}", "yesno"},
      {"{{ (['a'] | map('upper'))[0] }}{{ (['a'] | map('upper') | list)[0] }}", "A"},
      {"{{ 'abcabc'.find('c', 3) }}{{ 'aéca'.find('a', -1) }}{{ 'abab'.count('b', 2, 3) }}"
       "{{ 'abc'.startswith(('b', 'x'), 1) }}{{ 'abc'.endswith('b', 0, 2) }}{{ 'abc'.find('', 4) }}",
       "530TrueTrue-1"},
      {"{{ 1 is sameas true }}{{ true is sameas true }}{{ 1 is sameas 1 }}", "FalseTrueTrue"},
      {"{{ -0.0 }} {{ dict([('a', 1)], b=2) }} {{ 'ß' | upper }}", "-0.0 {'a': 1, 'b': 2} ß"},
      {"{% for i in [1, 2] %}{% macro m(x) %}{{ i }}{{ x }}{% endmacro %}{{ m('a') }}{% endfor %}", "1a2a"},
      {"{{ none | selectattr('a') | list }}{{ none | map('upper') | list }}", "[][]"},
  };
  for (const auto& [text, made] : kCases) EXPECT_EQ(rendered(text, Json::array(), false, {}), made) << text;
  const Json large = Json::parse(R"([{"role": "user", "content": 18446744073709551615}])");
  EXPECT_EQ(rendered("{{ messages[0].content }} {{ messages | tojson }}", large, false, {}),
            R"(18446744073709551615 [{"role": "user", "content": 18446744073709551615}])");
  for (const char* wrong : {"{% macro m() %}{% endmacro %}{% call m %}{% endcall %}", "{{ '0x1f' | int(0, 16) }}",
                            "{{ 'a' | upper(1) }}", "{{ 'a'.upper(1) }}", "{{ range(1, 2, 3, 4) }}"})
    EXPECT_FALSE(rendered(wrong, Json::array(), false, {})) << wrong;
}

TEST(ChatTemplate, AnotherOneWritesConversationsWithTools) {
  ScratchFolder folder;
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"extra_special_tokens": {"boi": "<i>"}, "think_token": "<t>", "chat_template": [)"
      << R"({"name": "tool_use", "template": "{{ boi }}{{ think_token }}{{ sep_token }}"},)"
      << R"({"name": "default", "template": "plain"}]})";
  std::ofstream(folder / "special_tokens_map.json") << R"({"sep_token": "<sep>"})";
  const ChatTemplate chat = load_chat_template(chat_template_beside(folder.path()));
  const Json tools = cases()["tools"];
  EXPECT_EQ(chat.render(Json::array(), false), "plain");
  EXPECT_EQ(chat.render(Json::array(), false, tools), "<i><t><sep>");
  ScratchFolder kept;
  keep_chat_template(chat, kept.path());
  const ChatTemplate again = load_chat_template(chat_template_beside(kept.path()));
  EXPECT_EQ(again.render(Json::array(), false, tools), "<i><t><sep>");
  EXPECT_EQ(again.hash(), chat.hash());
  ScratchFolder files;
  std::filesystem::create_directory(files / "additional_chat_templates");
  std::ofstream(files / "chat_template.jinja") << "plain";
  std::ofstream(files / "additional_chat_templates/tool_use.jinja") << "tools";
  EXPECT_EQ(load_chat_template(files / "chat_template.jinja").render(Json::array(), false, tools), "tools");
}

TEST(ChatTemplate, TheDayIsFixed) {
  const std::string unasked = "{{ strftime_now('%d %B %Y, %A %j %H:%M') }}";
  const std::string asks = "{% if strftime_now is defined %}{{ strftime_now('%Y-%m-%d') }}{% else %}own{% endif %}";
  EXPECT_EQ(of_text(unasked).render(Json::array(), false), "01 January 2025, Wednesday 001 00:00");
  EXPECT_EQ(of_text(asks).render(Json::array(), false), "own");
  const auto told = [](std::string text, std::string day) {
    return ChatTemplate({.text = std::move(text), .tokens = {}, .arguments = {}, .day = std::move(day)},
                        "template");
  };
  EXPECT_EQ(told(unasked, "2024-12-31 14:30").render(Json::array(), false), "31 December 2024, Tuesday 366 14:30");
  EXPECT_EQ(told(asks, "2025-06-28").render(Json::array(), false), "2025-06-28");
  EXPECT_NE(told(asks, "2025-06-28").hash(), told(asks, "").hash());
  for (const char* day : {"2025-6-28", "2025-02-29", "28.06.2025", "2025-06-28 25:00", "today", "2025-06-281"})
    EXPECT_THROW(told(asks, day), ConfigError) << day;
}

TEST(ChatTemplate, ArgumentsAreTold) {
  const std::string text = "{{ enable_thinking }} {{ effort }} {{ n + 1 }} {{ messages|length }}";
  const Json told = parse_chat_arguments("enable_thinking=false, effort=high n=2", "here");
  EXPECT_EQ(told, Json::parse(R"({"enable_thinking": false, "effort": "high", "n": 2})"));
  EXPECT_EQ(parse_chat_arguments(R"({"enable_thinking": false, "effort": "high", "n": 2})", "here"), told);
  const ChatTemplate chat({.text = text, .tokens = {}, .arguments = told, .day = "2025-06-28"}, "template");
  EXPECT_EQ(chat.render(Json::array(), false), "False high 3 0");
  for (const char* wrong : {"effort", "=high", "{", "[1]", "messages=1", "{\"tools\": 1}"})
    EXPECT_THROW(parse_chat_arguments(wrong, "here"), ConfigError) << wrong;
  ScratchFolder folder;
  keep_chat_template(chat, folder.path());
  const ChatTemplate kept = load_chat_template(chat_template_beside(folder.path()));
  EXPECT_EQ(kept.render(Json::array(), false), "False high 3 0");
  EXPECT_EQ(kept.hash(), chat.hash());
}

TEST(ChatTemplate, SaysWhoseContentMayBeParts) {
  const std::vector<std::string> glm = of_file("glm4").marks().takes_parts;
  EXPECT_NE(std::find(glm.begin(), glm.end(), "user"), glm.end());
  EXPECT_TRUE(of_file("qwen3").marks().takes_parts.empty());
  const auto parts = talk({{{"role", "user"}, {"content", Json::parse(R"([{"type": "text", "text": "Hello"}])")}},
                           said("assistant", "Hi")});
  EXPECT_EQ(of_file("qwen3").conversation(parts).unwritten, 1);
  EXPECT_EQ(of_file("glm4").conversation(parts).unwritten, 0);
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
  // A file of this name that others wrote holds no tokens.
  std::ofstream(folder / "chat_template.json") << R"({"chat_template": "{{ bos_token }}!"})";
  EXPECT_EQ(load_chat_template(chat_template_beside(folder.path())).render(Json::array(), false), "<b>!");
}

}  // namespace
}  // namespace heddle::data
