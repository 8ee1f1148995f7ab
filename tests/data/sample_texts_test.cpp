// Samples in the forms in which TRL and public data sets have them: what is learnt of each, and what is refused.
#include "heddle/data/samples/sample_texts.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"

namespace heddle::data {
namespace {

using Texts = std::vector<std::string>;

// Text and targets in one: targets stand between braces.
std::string marked(const SampleText& sample) {
  std::string made;
  size_t at = 0;
  for (const auto& [begin, end] : sample.targets) {
    made += sample.text.substr(at, begin - at) + "{" + sample.text.substr(begin, end - begin) + "}";
    at = end;
  }
  return made + sample.text.substr(at);
}

ChatTemplate plain() {
  return ChatTemplate({.text = "{% if tools %}{% for t in tools %}{{ t.function.name }};{% endfor %}{% endif %}"
                               "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
                               "{% for c in m.tool_calls or [] %}!{{ c.function.name }}{{ "
                               "c.function.arguments.items()|list|length }}{% endfor %}"
                               "</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
                       .tokens = {},
                       .arguments = {},
                       .day = ""},
                      "chat");
}

struct Read {
  Texts samples;
  std::string refused;
  std::set<std::string> unread;
};

Read read(const std::string& line, SampleKeys keys = {}, bool chat = true) {
  Read made;
  SampleNotes notes;
  std::optional<ChatTemplate> with;
  if (chat) with.emplace(plain());
  const SampleTexts texts(std::move(keys), std::move(with));
  try {
    for (const SampleText& sample : texts.of({line, "f", 7}, &notes)) made.samples.push_back(marked(sample));
  } catch (const ConfigError& error) {
    made.refused = error.what();
    EXPECT_TRUE(made.refused.starts_with("f:7: ")) << made.refused;
    EXPECT_EQ(made.refused.find('\n'), std::string::npos) << made.refused;
  }
  made.unread = std::move(notes.fields);
  return made;
}

Read pair(const std::string& line, bool chat = true) { return read(line, {.pairs = true}, chat); }

void refuses(const Read& found, const std::string& part) {
  EXPECT_TRUE(found.samples.empty());
  EXPECT_NE(found.refused.find(part), std::string::npos) << found.refused << " lacks: " << part;
}

const std::string kAsked = "<user>Rain?</s><assistant>";

TEST(Samples, PromptsWithTheirAnswers) {
  EXPECT_EQ(read(R"({"prompt": "Rain? ", "completion": "No."})").samples, Texts{"Rain? {No.}"});
  EXPECT_EQ(read(R"({"text": "All of it."})").samples, Texts{"{All of it.}"});
  const std::string whole = kAsked + "{No.</s>}";
  EXPECT_EQ(
      read(
          R"({"prompt": [{"role": "user", "content": "Rain?"}], "completion": [{"role": "assistant", "content": "No."}]})")
          .samples,
      Texts{whole});
  EXPECT_EQ(read(R"({"prompt": [{"role": "user", "content": "Rain?"}], "completion": "No."})").samples,
            Texts{whole});
  EXPECT_EQ(read(R"({"prompt": "Rain?", "completion": [{"role": "assistant", "content": "No."}]})").samples,
            Texts{whole});
  refuses(read(R"({"prompt": "a", "completion": "b", "label": true})"), "\"label\" is true");
  refuses(read(R"({"prompt": "a", "completion": "b", "label": 0})"), "\"label\" is 0");
  EXPECT_EQ(read(R"({"prompt": "a", "completion": "b", "label": "maths"})").unread, std::set<std::string>{"label"});
  refuses(read(R"({"chosen": "a", "rejected": "b"})"), "--pairs");
  refuses(read(R"({"question": "a"})"), "there are \"question\"");
  refuses(read(R"([1])"), "not a JSON object");
}

TEST(Samples, ConversationsOfShareGptAndOpenAi) {
  const std::string whole = kAsked + "{No.</s>}";
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "No."}]})")
                .samples,
            Texts{whole});
  EXPECT_EQ(
      read(R"({"conversations": [{"from": "human", "value": "Rain?"}, {"from": "gpt", "value": "No."}]})").samples,
      Texts{whole});
  EXPECT_EQ(
      read(
          R"({"conversations": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "No."}], "id": 3})")
          .unread,
      std::set<std::string>{"id"});
  EXPECT_EQ(
      read(
          R"({"system": "Be brief.", "conversations": [{"from": "human", "value": "Rain?"}, {"from": "gpt", "value": "No."}]})")
          .samples,
      Texts{"<system>Be brief.</s>" + whole});
  const Read tools = read(
      R"({"tools": "[{\"name\": \"rain\"}]", "conversations": [{"from": "human", "value": "Rain?"}, {"from": "function_call", "value": "{\"name\": \"rain\", \"arguments\": {\"in\": \"Ulm\"}}"}, {"from": "observation", "value": "no"}, {"from": "gpt", "value": "No."}]})");
  EXPECT_EQ(tools.refused.substr(0, 4), "f:7:");  // its tools have no "function", as this template wants them
  const Read called = read(
      R"({"functions": [{"name": "rain"}], "conversations": [{"from": "human", "value": "Rain?"}, {"from": "function_call", "value": "{\"name\": \"rain\", \"arguments\": {\"in\": \"Ulm\"}}"}, {"from": "observation", "value": "no"}, {"from": "gpt", "value": "No."}]})");
  EXPECT_EQ(called.samples, Texts{"rain;<user>Rain?</s><assistant>{!rain1</s>}<tool>no</s><assistant>{No.</s>}"})
      << called.refused;
  // OpenAI's arguments are JSON text, which a template may want as an object.
  const Read text = read(
      R"({"messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "rain", "arguments": "{\"in\": \"Ulm\"}"}}]}]})");
  EXPECT_EQ(text.samples, Texts{kAsked + "{!rain1</s>}"}) << text.refused;
  refuses(read(R"({"conversations": [{"from": "alien", "value": "Rain?"}]})"),
          "conversations[0]: \"from\" is 'alien'");
  refuses(read(R"({"conversations": [{"from": "function_call", "value": "rain"}]})"),
          "conversations[0]: a text that is no JSON");
}

TEST(Samples, ToolsMayBeJsonText) {
  const std::string talk =
      R"("messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "No."}])";
  for (const char* tools : {R"("[{\"type\": \"function\", \"function\": {\"name\": \"rain\"}}]")",
                            R"([{"type": "function", "function": {"name": "rain"}}])",
                            R"(["{\"type\": \"function\", \"function\": {\"name\": \"rain\"}}"])"})
    EXPECT_EQ(read("{" + talk + ", \"tools\": " + tools + "}").samples, Texts{"rain;" + kAsked + "{No.</s>}"})
        << tools;
  for (const char* none : {"null", "[]", "\"\"", "\"[]\""})
    EXPECT_EQ(read("{" + talk + ", \"tools\": " + none + "}").samples, Texts{kAsked + "{No.</s>}"}) << none;
  refuses(read("{" + talk + ", \"tools\": \"rain\"}"), "\"tools\": a text that is no JSON");
  refuses(read("{" + talk + ", \"tools\": [1]}"), "\"tools\": a tool is 1");
}

TEST(Samples, MessagesSayWhetherTheyAreLearnt) {
  const auto talk = [](const std::string& first, const std::string& second) {
    return read(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b")" + first +
                R"(}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d")" + second + "}]}");
  };
  const Texts last{"<user>a</s><assistant>b</s><user>c</s><assistant>{d</s>}"};
  EXPECT_EQ(talk(R"(, "weight": 0)", R"(, "weight": 1)").samples, last);
  EXPECT_EQ(talk(R"(, "train": false)", R"(, "train": true)").samples, last);
  EXPECT_EQ(talk(R"(, "loss": false)", "").samples, last);
  refuses(talk(R"(, "weight": 0.5)", ""), "messages[1]: \"weight\" is 0.5");
  refuses(talk(R"(, "train_detail": [])", ""), "train_detail");
  refuses(read(R"({"messages": [{"role": "user", "content": "a", "train": true}]})"), "only answers");
  EXPECT_EQ(talk(R"(, "mood": "good")", "").unread, std::set<std::string>{"messages[].mood"});
  EXPECT_EQ(
      read(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})",
          {.last_answer_only = true})
          .samples,
      last);
}

TEST(Samples, ContentInPartsIsJoined) {
  const std::string whole = kAsked + "{No.</s>}";
  EXPECT_EQ(
      read(
          R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "Ra"}, {"type": "text", "text": "in?"}]}, {"role": "assistant", "content": "No."}]})")
          .samples,
      Texts{whole});
  refuses(
      read(
          R"({"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "in?"}]}, {"role": "assistant", "content": "No."}]})"),
      "messages[0]: a part of the content is of type \"image\"");
  refuses(read(R"({"messages": [{"role": "user", "content": {"a": 1}}]})"),
          "messages[0]: the content is {\"a\":1}");
}

TEST(Samples, InstructionsOfAlpaca) {
  EXPECT_EQ(read(R"({"instruction": "Rain?", "input": "", "output": "No."})").samples, Texts{kAsked + "{No.</s>}"});
  EXPECT_EQ(
      read(R"({"instruction": "Say", "input": "no", "output": "No.", "system": "S", "history": [["a", "b"]]})")
          .samples,
      Texts{"<system>S</s><user>a</s><assistant>{b</s>}<user>Say\nno</s><assistant>{No.</s>}"});
  EXPECT_EQ(read(R"({"instruction": "Say", "context": "no", "response": "No."})").samples,
            Texts{"<user>Say\nno</s><assistant>{No.</s>}"});
  const std::string without =
      "Below is an instruction that describes a task. Write a response that appropriately completes the "
      "request.\n\n";
  EXPECT_EQ(read(R"({"instruction": "Rain?", "output": "No."})", {}, false).samples,
            Texts{without + "### Instruction:\nRain?\n\n### Response:\n{No.}"});
  EXPECT_NE(read(R"({"instruction": "Say", "input": "no", "output": "No."})", {}, false)
                .samples.at(0)
                .find("### Instruction:\nSay\n\n### Input:\nno\n\n### Response:\n{No.}"),
            std::string::npos);
  refuses(read(R"({"instruction": "a", "output": "b", "system": "S"})", {}, false), "need a chat template");
}

TEST(Samples, ArgumentsOfOneSample) {
  ChatTemplate chat({.text = "{{ effort }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}",
                     .tokens = {},
                     .arguments = {{"effort", "low"}},
                     .day = ""},
                    "chat");
  const SampleTexts texts({}, std::move(chat));
  const std::string talk =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  EXPECT_EQ(texts.of({talk + "}", "f", 1})[0].text, "low<user>a</s><assistant>b</s>");
  EXPECT_EQ(texts.of({talk + R"(, "chat_template_kwargs": {"effort": "high"}})", "f", 1})[0].text,
            "high<user>a</s><assistant>b</s>");
}

TEST(Samples, PairsOfTexts) {
  EXPECT_EQ(pair(R"({"prompt": "Rain? ", "chosen": "No.", "rejected": "Why?"})").samples,
            (Texts{"Rain? {No.}", "Rain? {Why?}"}));
  EXPECT_EQ(
      pair(
          R"({"chosen": "\n\nHuman: Rain?\n\nAssistant: No rain.", "rejected": "\n\nHuman: Rain?\n\nAssistant: No idea."})",
          false)
          .samples,
      (Texts{"\n\nHuman: Rain?\n\nAssistant:{ No rain.}", "\n\nHuman: Rain?\n\nAssistant:{ No idea.}"}));
  EXPECT_EQ(pair(R"({"chosen": "Rain? No.", "rejected": "Rain? Nay."})").samples,
            (Texts{"Rain?{ No.}", "Rain?{ Nay.}"}));
  EXPECT_EQ(pair(R"({"chosen": "Rain? No.", "rejected": "Rain?"})").samples, (Texts{"Rain?{ No.}", "Rain?"}));
  EXPECT_EQ(
      pair(R"({"prompt": [{"role": "user", "content": "Rain?"}], "chosen": "No.", "rejected": "Why?"})").samples,
      (Texts{kAsked + "{No.</s>}", kAsked + "{Why?</s>}"}));
  EXPECT_EQ(pair(R"({"instruction": "Rain?", "input": "", "chosen": "No.", "rejected": "Why?"})").samples,
            (Texts{kAsked + "{No.</s>}", kAsked + "{Why?</s>}"}));
  EXPECT_EQ(pair(R"({"prompt": "a", "chosen": "b", "rejected": "b"})").samples[0], "ab");
  const Read more = pair(R"({"prompt": "a", "chosen": "b", "rejected": "c", "score_chosen": 8.5, "margin": 2})");
  EXPECT_EQ(more.unread, (std::set<std::string>{"margin", "score_chosen"}));
  refuses(pair(R"({"prompt": "a", "chosen": "b", "rejected": "c", "label": false})"), "\"label\" is false");
  refuses(pair(R"({"prompt": 1, "chosen": "b", "rejected": "c"})"), "\"prompt\" is neither");
}

TEST(Samples, PairsOfConversations) {
  const Texts both{kAsked + "{No rain today.</s>}", kAsked + "{Why?</s>}"};
  const std::string chosen =
      R"("chosen": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "No rain today."}])";
  const std::string rejected =
      R"("rejected": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "Why?"}])";
  const std::string answers = chosen + ", " + rejected;
  EXPECT_EQ(pair("{" + answers + "}").samples, both);
  // UltraFeedback's prompt is a text beside conversations that begin with it.
  const Read text = pair(R"({"prompt": "Rain?", )" + answers + "}");
  EXPECT_EQ(text.samples, both);
  EXPECT_TRUE(text.unread.empty());
  EXPECT_EQ(pair(R"({"prompt": "Snow?", )" + answers + "}").unread, std::set<std::string>{"prompt"});
  EXPECT_EQ(pair(R"({"prompt": [{"role": "user", "content": "Rain?"}], )" + answers + "}").samples, both);
  const std::string alone =
      R"("chosen": [{"role": "assistant", "content": "No rain today."}], "rejected": [{"role": "assistant", "content": "Why?"}]})";
  EXPECT_EQ(pair(R"({"prompt": [{"role": "user", "content": "Rain?"}], )" + alone).samples, both);
  EXPECT_EQ(pair(R"({"prompt": "Rain?", )" + alone).samples, both);
  EXPECT_EQ(
      pair(
          R"({"conversations": [{"from": "human", "value": "Rain?"}], "chosen": {"from": "gpt", "value": "No rain today."}, "rejected": {"from": "gpt", "value": "Why?"}})")
          .samples,
      both);
  refuses(pair(R"({"chosen": "a", "rejected": [{"role": "assistant", "content": "b"}]})"), "no pair");
}

TEST(Samples, FormsOfOtherTrainers) {
  EXPECT_EQ(read(R"({"query": "Rain?", "response": "No.", "history": [["a", "b"]]})").samples,
            Texts{"<user>a</s><assistant>{b</s>}" + kAsked + "{No.</s>}"});
  // LLaMA-Factory's parts hold values, thoughts and calls among them.
  EXPECT_EQ(
      read(R"({"messages": [{"role": "user", "loss_weight": 0.0, "content": [{"type": "text", "value": "Rain?"}]},)"
           R"({"role": "assistant", "loss_weight": 1.0, "content": [{"type": "reasoning", "value": "so"},)"
           R"({"type": "text", "value": "Look."}, {"type": "tool_call", "value": "{\"name\": \"f\", )"
           R"(\"arguments\": {\"a\": 1}}"}]},)"
           R"({"role": "assistant", "loss_weight": 0.0, "content": [{"type": "text", "value": "No."}]}]})")
          .samples,
      Texts{kAsked + "{Look.!f1</s>}<assistant>No.</s>"});
  refuses(read(R"({"messages": [{"role": "user", "content": [{"type": "image_url", "value": "x"}]}]})"),
          "messages[0]: a part of the content is of type \"image_url\"");
  const Texts both{kAsked + "{No.</s>}", kAsked + "{Yes.</s>}"};
  const std::string asked = R"({"role": "user", "content": "Rain?"})";
  const std::string no = R"({"role": "assistant", "content": "No."})";
  const std::string yes = R"({"role": "assistant", "content": "Yes."})";
  EXPECT_EQ(
      pair(R"({"input": {"messages": [)" + asked + R"(], "parallel_tool_calls": true}, "preferred_output": [)" +
           no + R"(], "non_preferred_output": [)" + yes + "]}")
          .samples,
      both);
  EXPECT_EQ(pair(R"({"messages": [)" + asked + ", " + no + R"(], "rejected_response": "Yes."})").samples, both);
  EXPECT_EQ(pair(R"({"query": "Rain?", "response": "No.", "rejected_response": "Yes."})").samples, both);
  refuses(pair(R"({"messages": [)" + asked + R"(], "rejected_response": "Yes."})"), "end with no answer");
  refuses(pair(R"({"input": {}, "preferred_output": [], "non_preferred_output": []})"), "\"input\" has no");
  refuses(pair(R"({"rejected_response": "Yes."})"), "needs messages");
}

TEST(Samples, ConversationsMayBeJsonText) {
  EXPECT_EQ(read(R"({"messages": "[{\"role\": \"user\", \"content\": \"Rain?\"}, )"
                 R"({\"role\": \"assistant\", \"content\": \"No.\"}]"})")
                .samples,
            Texts{kAsked + "{No.</s>}"});
  refuses(read(R"({"messages": "Rain?"})"), "no sample");
  refuses(read(R"({"messages": [{"role": "user", "content": 5}]})"), "messages[0]: the content is 5");
}

TEST(Samples, ThoughtsAreWrittenUnderAnyOfTheirNames) {
  ChatTemplate chat({.text = "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{% endfor %}",
                     .tokens = {},
                     .arguments = {},
                     .day = ""},
                    "chat");
  SampleNotes notes;
  const auto made =
      SampleTexts({}, std::move(chat))
          .of({R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "reasoning": "b", "content": "c"}]})",
               "f", 1},
              &notes);
  EXPECT_EQ(made[0].text, "abc");
  EXPECT_TRUE(notes.fields.empty());
}

}  // namespace
}  // namespace heddle::data
