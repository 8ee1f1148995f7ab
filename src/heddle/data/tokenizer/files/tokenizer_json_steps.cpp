#include "heddle/data/tokenizer/files/tokenizer_json_steps.h"

#include <array>
#include <functional>
#include <utility>

#include "heddle/data/tokenizer/split_pattern.h"

namespace heddle::data {
namespace {

constexpr size_t kMostSteps = 16;
constexpr int kMostDepth = 4;
constexpr const char* kPunctuation = R"([\p{P}$+<=>^`|~])";  // Unicode's, and all that ASCII calls so

// Gives each member of a Sequence to `read`, or the node itself. `list` is the key of its members.
void for_each_of(const JsonNode& node, const char* list, int depth,
                 const std::function<void(const JsonNode&, const std::string& type)>& read) {
  const JsonNode type = node.at("type");
  if (type.string() != "Sequence") return read(node, type.string());
  if (depth >= kMostDepth) type.refuse("Sequences are nested more than {} deep", kMostDepth);
  const JsonNode members = node.at(list);
  if (members.array_size() > kMostSteps) members.refuse("more than {} steps", kMostSteps);
  for (size_t i = 0; i < members.array_size(); ++i) for_each_of(members.at(i), list, depth + 1, read);
}

[[noreturn]] void refuse_type(const JsonNode& node, const std::vector<std::string>& accepted) {
  const std::string& name = node.at("type").string();
  node.at("type").refuse("'{}' is not accepted{}; accepted are {}", name, did_you_mean(name, accepted),
                         fmt::join(accepted, ", "));
}

// The regular expression that a node's "pattern" is, which may be given as a plain string.
std::string pattern_of(const JsonNode& node, std::string& place) {
  const JsonNode pattern = node.at("pattern");
  const JsonNode regex = pattern.at("Regex"), literal = pattern.at("String");
  if (regex.is_null() == literal.is_null()) pattern.refuse("one of 'Regex' and 'String' is expected");
  place = (regex.is_null() ? literal : regex).place();
  if (regex.is_null()) {
    if (literal.string().empty()) literal.refuse("the string to find is empty");
    return SplitPattern::literally(literal.string());
  }
  std::string text = SplitPattern::translated(regex.string());
  const std::string reason = SplitPattern::differs_from_oniguruma(text);
  if (!reason.empty()) regex.refuse("the pattern is not accepted: {}", reason);
  return text;
}

SplitStep::Behavior behavior_of(const JsonNode& node) {
  using Behavior = SplitStep::Behavior;
  static const std::array<std::pair<const char*, Behavior>, 5> kBehaviors{
      {{"Isolated", Behavior::isolated},
       {"Removed", Behavior::removed},
       {"MergedWithPrevious", Behavior::merged_with_previous},
       {"MergedWithNext", Behavior::merged_with_next},
       {"Contiguous", Behavior::contiguous}}};
  std::vector<std::string> names;
  for (const auto& [name, behavior] : kBehaviors) {
    if (node.string() == name) return behavior;
    names.emplace_back(name);
  }
  node.refuse("'{}' is not accepted{}; accepted are {}", node.string(), did_you_mean(node.string(), names),
              fmt::join(names, ", "));
}

MetaspaceStep metaspace_of(const JsonNode& node) {
  MetaspaceStep step;
  const JsonNode mark = node.at("replacement"), scheme = node.at("prepend_scheme");
  if (!mark.is_null()) step.mark = mark.string();
  if (step.mark != kSpaceMark) mark.refuse("'{}' is not accepted, only '{}'", step.mark, kSpaceMark);
  if (scheme.is_null()) {
    step.prepend =
        node.at("add_prefix_space").boolean(true) ? MetaspaceStep::Prepend::always : MetaspaceStep::Prepend::never;
  } else if (scheme.string() == "always") {
    step.prepend = MetaspaceStep::Prepend::always;
  } else if (scheme.string() == "first") {
    step.prepend = MetaspaceStep::Prepend::first;
  } else if (scheme.string() == "never") {
    step.prepend = MetaspaceStep::Prepend::never;
  } else {
    scheme.refuse("'{}' is not accepted; accepted are always, first, never", scheme.string());
  }
  step.split = node.at("split").boolean(true);
  return step;
}

void read_normalizer_step(const JsonNode& node, const std::string& name, TokenizerSpec& spec) {
  static const std::array<std::pair<const char*, UnicodeForm>, 4> kForms{{{"NFC", UnicodeForm::nfc},
                                                                          {"NFD", UnicodeForm::nfd},
                                                                          {"NFKC", UnicodeForm::nfkc},
                                                                          {"NFKD", UnicodeForm::nfkd}}};
  for (const auto& [form, value] : kForms) {
    if (name == form) return void(spec.normalizer.emplace_back(value));
  }
  if (name == "Replace") {
    ReplaceStep step;
    step.pattern = pattern_of(node, step.place);
    step.content = node.at("content").string();
    spec.normalizer.emplace_back(std::move(step));
  } else if (name == "Prepend") {
    spec.normalizer.emplace_back(PrependStep{node.at("prepend").string()});
  } else {
    refuse_type(node, {"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Replace", "Prepend"});
  }
}

}  // namespace

void read_normalizer(const JsonNode& node, TokenizerSpec& spec) {
  if (node.is_null()) return;
  for_each_of(node, "normalizers", 0,
              [&](const JsonNode& step, const std::string& name) { read_normalizer_step(step, name, spec); });
}

void read_pre_tokenizer(const JsonNode& node, TokenizerSpec& spec) {
  spec.of_bytes = false;
  bool spelt = false;
  if (node.is_null()) return;
  for_each_of(node, "pretokenizers", 0, [&](const JsonNode& step, const std::string& name) {
    if (spec.of_bytes && !spelt) {  // what follows sees bytes as letters
      spec.steps.emplace_back(AlphabetStep{});
      spelt = true;
    }
    if (name == "Split") {
      SplitStep split;
      split.pattern = pattern_of(step, split.place);
      split.behavior = behavior_of(step.at("behavior"));
      split.invert = step.at("invert").boolean(false);
      spec.steps.emplace_back(std::move(split));
    } else if (name == "Digits") {
      spec.steps.push_back(
          split_at(step.at("individual_digits").boolean(false) ? "\\p{N}" : "\\p{N}+", step.place()));
    } else if (name == "Punctuation") {
      const JsonNode behavior = step.at("behavior");
      spec.steps.emplace_back(SplitStep{kPunctuation,
                                        behavior.is_null() ? SplitStep::Behavior::isolated : behavior_of(behavior),
                                        false, step.place()});
    } else if (name == "Metaspace") {
      if (spec.of_bytes) step.refuse("Metaspace after ByteLevel is not accepted");
      spec.steps.emplace_back(metaspace_of(step));
    } else if (name == "ByteLevel") {
      if (spec.of_bytes) step.refuse("a second ByteLevel is not accepted");
      spec.of_bytes = true;
      if (step.at("add_prefix_space").boolean(true)) spec.steps.emplace_back(PrefixSpaceStep{});
      if (step.at("use_regex").boolean(true)) spec.steps.push_back(split_at(kSplitWordsGpt2, step.place()));
    } else {
      refuse_type(step, {"Sequence", "Split", "Digits", "Punctuation", "Metaspace", "ByteLevel"});
    }
  });
}

void read_decoder(const JsonNode& node, TokenizerSpec& spec) {
  if (node.is_null()) return;
  for_each_of(node, "decoders", 0, [&](const JsonNode& step, const std::string& name) {
    if (spec.of_bytes) {
      if (name != "ByteLevel") step.at("type").refuse("'{}' is not accepted, only 'ByteLevel'", name);
    } else if (name == "Metaspace") {
      spec.marks_spaces = true;
    } else if (name == "Replace") {
      std::string place;
      const bool spaces =
          pattern_of(step, place) == SplitPattern::literally(kSpaceMark) && step.at("content").string() == " ";
      if (!spaces) step.refuse("only a Replace of '{}' by a space is accepted", kSpaceMark);
      spec.marks_spaces = true;
    } else if (name != "ByteFallback" && name != "Fuse" && name != "Strip") {
      refuse_type(step, {"Sequence", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"});
    }
  });
}

void read_post_processor(const JsonNode& node, TokenizerSpec& spec) {
  if (node.is_null()) return;
  for_each_of(node, "processors", 0, [&](const JsonNode& step, const std::string& name) {
    if (name == "ByteLevel") return;                                // moves offsets alone
    if (name == "RobertaProcessing" || name == "BertProcessing") {  // a token and its id
      for (const char* key : {"cls", "sep"}) {
        const JsonNode pair = step.at(key);
        if (pair.array_size() != 2) pair.refuse("a token and its id are expected");
        (key[0] == 'c' ? spec.before : spec.after).push_back(pair.at(1).token_id());
      }
      return;
    }
    if (name != "TemplateProcessing") {
      refuse_type(step, {"Sequence", "ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing"});
    }
    const JsonNode single = step.at("single"), special = step.at("special_tokens");
    bool behind = false;
    for (size_t i = 0; i < single.array_size(); ++i) {
      const JsonNode item = single.at(i);
      if (!item.at("Sequence").is_null()) {
        if (behind) item.refuse("the text may stand there once");
        behind = true;
        continue;
      }
      const std::string& token = item.at("SpecialToken").at("id").string();
      const JsonNode ids = special.at(token.c_str()).at("ids");
      if (ids.array_size() > kMostSteps) ids.refuse("more than {} ids", kMostSteps);
      for (size_t j = 0; j < ids.array_size(); ++j) {
        (behind ? spec.after : spec.before).push_back(ids.at(j).token_id());
      }
    }
    if (!behind) single.refuse("the text's place is not there");
  });
}

}  // namespace heddle::data
