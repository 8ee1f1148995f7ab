#include "advisor/points/release.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

namespace heddle::advisor {

namespace {

// Words of a source, most particular first. A date is the usual one of the release, where the text has none.
struct KnownWord {
  const char* part;
  const char* framework;
  const char* stack;
  const char* name;
  double date;
};
constexpr KnownWord kKnown[] = {
    {"bigscience", "megatron-deepspeed", "deepspeed", "tr11", 22.1},
    {"2104.04473", "megatron-2021", "megatron21", "megatron 2021", 21.3},
    {"calculon", "megatron-2021", "megatron21", "megatron 2022", 22.4},
    {"llm-foundry", "llm-foundry", "fsdp", "llm-foundry", 23.8},
    {"202412", "torchtitan", "titan", "torchtitan 24.12", 24.95},
    {"torchtitan", "torchtitan", "titan", "torchtitan 25.06", 25.45},
    {"automodel", "automodel", "fsdp2", "automodel", 26.3},
    {"nemo-framework-launcher", "nemo", "megatron", "", 24.3},
    {"simumax", "simumax", "megatron", "simumax", 26.0},
    {"modelzoo", "modelzoo", "megatron", "modelzoo", 25.8},
    {"2603.07685", "bridge", "megatron", "mcore report", 26.1},
    {"performance_long_sequence", "nemo", "megatron", "nemo long", 25.2},
    {"verification_cards", "bridge", "megatron", "cards", 26.6},
    {"nemo-mbridge-perf", "bridge", "megatron", "bridge skills", 26.2},
    {"megatron-bridge", "bridge", "megatron", "", 26.2},
    {"nvidia/nemo ", "nemo", "megatron", "", 24.5},
    {"cloud-tpu", "maxtext", "xla", "", 24.4},
    {"maxtext", "maxtext", "xla", "", 24.4},
    {"mlcommons/training_results_v3.1", "mlperf", "mlperf", "mlperf 3.1", 23.8},
    {"mlcommons/training_results_v4.0", "mlperf", "mlperf", "mlperf 4.0", 24.4},
    {"mlcommons/training_results_v4.1", "mlperf", "mlperf", "mlperf 4.1", 24.75},
    {"mlcommons/training_results_v5.0", "mlperf", "mlperf", "mlperf 5.0", 25.3},
    {"mlcommons/training_results_v5.1", "mlperf", "mlperf", "mlperf 5.1", 25.75},
    {"mlcommons", "mlperf", "mlperf", "mlperf", 25.3},
    {"mlperf", "mlperf", "mlperf", "mlperf", 25.3},
    {"mcore r0.8.0", "megatron", "megatron", "mcore 0.8", 24.6},
    {"2412.19437", "deepseek", "deepseek", "deepseek", 24.9},
    {"2407.21783", "meta", "megatron", "meta", 24.5},
    {"llama-3.1 (sc24", "meta", "megatron", "meta", 24.5},
    {"mindspeed", "mindspeed", "megatron", "", 25.5},
    {"modellink", "mindspeed", "megatron", "", 24.5},
    {"mindformers", "mindformers", "mindspore", "", 24.8},
    {"mindspore", "mindformers", "mindspore", "", 24.8},
    {"amd-benchmarks dell-cloud/megatron-lm", "megatron", "megatron", "", 26.4},
    {"amd-benchmarks", "primus", "megatron", "", 26.5},
    {"primus", "primus", "megatron", "", 25.9},
    {"gaudi", "habana", "megatron", "habana", 24.7},
    {"flagperf", "flagperf", "megatron", "flagperf", 24.3},
    {"flagscale", "flagperf", "megatron", "flagperf", 24.3},
    {"xtuner", "xtuner", "fsdp2", "xtuner", 25.8},
    {"ms-swift", "swift", "megatron", "swift", 25.7},
    {"swift", "swift", "megatron", "swift", 25.7},
    {"llama-factory", "llama-factory", "fsdp", "", 24.8},
    {"levanter", "levanter", "xla", "", 24.5},
    {"nanotron", "nanotron", "megatron", "", 24.8},
    {"colossal", "colossal", "megatron", "", 24.3},
    {"veomni", "veomni", "fsdp2", "", 25.8},
    {"verl", "verl", "fsdp2", "", 25.8},
    {"functional_tests", "megatron-ci", "megatron", "mcore ci", 25.8},
    {"megatron-lm", "megatron", "megatron", "mcore", 25.8},
};

// Software by its name alone, as tables have it in a column: longer names before those that they hold.
constexpr KnownWord kNamed[] = {
    {"megatron-deepspeed", "megatron-deepspeed", "deepspeed", "", 23.0},
    {"megatron-2021", "megatron-2021", "megatron21", "", 21.3},
    {"megatron-ci", "megatron-ci", "megatron", "", 25.8},
    {"megatron-swift", "swift", "megatron", "", 25.7},
    {"megatron bridge", "bridge", "megatron", "", 26.2},
    {"mbridge", "bridge", "megatron", "", 26.2},
    {"bridge", "bridge", "megatron", "", 26.2},
    {"megatron", "megatron", "megatron", "", 25.8},
    {"mcore", "megatron", "megatron", "", 25.8},
    {"nemo", "nemo", "megatron", "", 24.5},
    {"heddle", "heddle", "megatron", "", 26.9},
    {"gpt-neox", "neox", "deepspeed", "", 23.0},
    {"openrlhf", "deepspeed", "fsdp2", "", 25.0},
    {"deepspeed", "deepspeed", "fsdp2", "", 24.5},
    {"deepseek", "deepseek", "deepseek", "", 24.9},
    {"meta", "meta", "megatron", "", 24.5},
    {"habana", "habana", "megatron", "", 24.7},
    {"slime", "slime", "megatron", "", 25.8},
    {"paddle", "paddle", "megatron", "", 24.5},
    {"olmo", "olmo", "fsdp2", "", 24.9},
    {"torchtune", "torchtune", "fsdp2", "", 24.9},
    {"fsdp2", "torchtitan", "fsdp2", "", 25.5},
    {"fsdp", "fsdp", "fsdp", "", 24.0},
    {"axolotl", "transformers", "fsdp", "", 25.0},
    {"transformers", "transformers", "fsdp", "", 25.0},
    {"hugging", "transformers", "fsdp", "", 25.0},
    {"accelerate", "transformers", "fsdp", "", 25.0},
    {"litgpt", "litgpt", "fsdp", "", 24.5},
    {"composer", "llm-foundry", "fsdp", "", 23.8},
    {"paxml", "paxml", "xla", "", 23.8},
    {"axlearn", "axlearn", "xla", "", 24.8},
    {"jax", "jax", "xla", "", 24.8},
};

// Usual dates of releases that texts name by a number: MindFormers' and MindSpeed-LLM's branches.
struct Numbered {
  const char* part;
  double date;
};
constexpr Numbered kNumbered[] = {
    {"(r0.", 23.75},         {"(r1.0", 24.1},      {"(r1.1", 24.4},        {"(r1.2", 24.6},
    {"(r1.3", 24.9},         {"(r1.5", 25.4},      {"(r1.6", 25.6},        {"(r1.7", 25.8},
    {"(r1.8", 26.0},         {"(r1.9", 26.2},      {"bk_origin_23", 23.9}, {"branch 1.0", 24.9},
    {"branch 2.0", 25.2},    {"branch 2.1", 25.5}, {"branch 2.2", 25.8},   {"branch 2.3", 26.0},
    {"branch master", 26.4},
};

const KnownWord* first_of(std::span<const KnownWord> rows, std::string_view words) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const KnownWord& k) { return has(words, k.part); });
  return found == rows.end() ? nullptr : &*found;
}

int digit(std::string_view text, size_t i) {
  return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0 ? text[i] - '0' : -1000;
}
int two(std::string_view text, size_t i) { return 10 * digit(text, i) + digit(text, i + 1); }

// "26.04" or "26.04.01" at the start, as years: 26 and 3/12, and half a month for the patch.
double year_and_month(std::string_view text) {
  if (text.size() < 5 || text[2] != '.') return 0;
  const int year = two(text, 0), month = two(text, 3);
  if (year < 15 || year > 60 || month < 1 || month > 12) return 0;
  const bool patch = text.size() > 7 && text[5] == '.' && digit(text, 6) >= 0;
  return year + (month - 1) / 12.0 + (patch ? 0.5 / 12 : 0);
}

// The kind of memory that a framework's own figure counts, unless the source says otherwise.
std::string usual_report(const Release& r) {
  for (const char* driver : {"megatron-deepspeed", "flagperf", "primus"})
    if (r.framework.starts_with(driver)) return "driver";
  if (r.document.starts_with("mit-orcd")) return "driver";
  for (const char* reserved : {"torchtitan", "swift", "xtuner", "llama-factory"})
    if (r.framework == reserved) return "reserved";
  // Megatron's training loop prints memory once, behind the first step; MindSpeed's tests keep that line.
  if (r.framework == "mindspeed") return "first step";
  return "allocated";
}

std::string document_of(std::string_view source) {
  size_t end = source.size();
  for (const std::string_view mark : {" [", "@", " (", " +", " table", " sec"})
    end = std::min(end, source.find(mark));
  std::string document(source.substr(0, end));
  // Results of one round of a benchmark are many files; so are a repository's test cases and cards.
  for (const std::string_view folder :
       {"training_results_v", "functional_tests", "model_verification_cards", "tests/", "research/",
        "docs/model_cards", "examples/", "dell-cloud", "amd-cloud", "configs/tpu"})
    if (const size_t at = document.find(folder); at != std::string::npos) {
      document.resize(std::min(document.size(), at + folder.size() + (folder.starts_with("training") ? 3 : 0)));
      break;
    }
  while (!document.empty() && document.back() == ' ') document.pop_back();
  return document;
}

}  // namespace

double date_in(std::string_view text) {
  for (size_t i = 0; i + 9 < text.size(); ++i) {  // 2024-03-07
    if (text[i] != '2' || text[i + 1] != '0' || text[i + 4] != '-' || text[i + 7] != '-') continue;
    const int year = two(text, i + 2), month = two(text, i + 5), day = two(text, i + 8);
    if (year >= 0 && month >= 1 && month <= 12 && day >= 1 && day <= 31)
      return year + (month - 1) / 12.0 + (day - 1) / 365.0;
  }
  for (const std::string_view mark : {"[", "nemo ", "ngc", "primus v", "rocm/primus:v", "container "})
    for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + 1))
      if (const double date = year_and_month(text.substr(at + mark.size())); date > 0) return date;
  for (size_t i = 0; i + 8 <= text.size(); ++i) {  // 20260813
    if (text[i] != '2' || text[i + 1] != '0' || (i > 0 && digit(text, i - 1) >= 0) || digit(text, i + 8) >= 0)
      continue;
    const int year = two(text, i + 2), month = two(text, i + 4), day = two(text, i + 6);
    if (year >= 15 && year <= 60 && month >= 1 && month <= 12 && day >= 1 && day <= 31)
      return year + (month - 1) / 12.0 + (day - 1) / 365.0;
  }
  return 0;
}

Release read_release(const ReleaseText& text) {
  Release r;
  r.framework = r.stack = "megatron";
  r.document = document_of(text.source);
  const KnownWord* known = first_of(kKnown, text.source);
  if (!text.software.empty()) {
    // The column decides. Words of the source only say which release or document of that software it is.
    const KnownWord* named = first_of(kKnown, text.software);
    if (named == nullptr) named = first_of(kNamed, text.software);
    if (named == nullptr && known == nullptr) r.unknown = text.software.substr(0, 60);
    if (named != nullptr && (known == nullptr || named->framework != std::string_view(known->framework)))
      known = named;
  }
  if (known != nullptr) r.framework = known->framework, r.stack = known->stack, r.name = known->name;
  for (const std::string_view words : {text.released, text.release, text.source})
    if (r.date == 0) r.date = date_in(words);
  for (const std::string_view words : {text.released, text.release})
    if (r.date == 0) r.date = year_and_month(words);
  for (const Numbered& n : kNumbered)
    if (r.date == 0 && has(text.source, n.part)) r.date = n.date;
  if (r.name.empty() && r.date > 0) r.name = fmt::format("{} {:.2f}", r.framework, r.date);
  if (!text.release.empty()) r.name = text.release;
  r.reports = text.reports.empty() ? usual_report(r) : std::string(text.reports);
  if (r.date == 0 && known != nullptr) r.date = known->date;
  return r;
}

}  // namespace heddle::advisor
