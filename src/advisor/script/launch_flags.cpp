#include "advisor/script/launch_flags.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "advisor/script/launch_flag_row.h"
#include "advisor/shell/state.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/real_text.h"

namespace heddle::advisor {

bool gradients_sayable(const Software& s) {
  return s.gradient_bytes == s.reduce_bytes && (s.gradient_bytes == 2 || s.gradient_bytes == 4);
}

bool states_sayable(const Software& s, Dialect dialect) {
  if (s.state_bytes == 12) return true;
  if (dialect == Dialect::mindspeed) return s.state_bytes == 10;
  return s.state_bytes == 8 || s.state_bytes == 7 || s.state_bytes == 6;
}

bool capture_sayable(double captured) { return captured == 0 || captured == 0.5 || captured == 0.95; }

bool deepep_sayable(const cost::Accelerator& device) {
  using enum cost::Family;
  return device.family == ampere || device.family == hopper || device.family == blackwell;
}

std::vector<Flag> flags_of(const Launch& launch, Dialect dialect) {
  std::vector<Flag> flags;
  for (const auto* rows : {&model_rows(), &run_rows()})
    for (const Row& row : *rows) row.write({launch, dialect, flags, row.group});
  return flags;
}

void read_flags(const GivenFlags& flags, Dialect dialect, int devices, Launch& launch,
                std::vector<std::string>& notes) {
  for (const auto* rows : {&model_rows(), &run_rows()})
    for (const Row& row : *rows) row.read({flags, dialect, devices, launch, notes});
}

namespace {

// Names that trainers have given up, and what stands for them: MindSpeed-LLM's, Megatron-LM's of before its core.
struct OldName {
  std::string_view name, old;
};
constexpr OldName kOldNames[] = {
    {"--moe-ffn-hidden-size", "--moe-intermediate-size"},
    {"--moe-router-num-groups", "--n-group"},
    {"--moe-router-group-topk", "--topk-group"},
    {"--moe-router-topk-scaling-factor", "--routed-scaling-factor"},
    {"--multi-latent-attention", "--multi-head-latent-attention"},
    {"--qk-head-dim", "--qk-nope-head-dim"},
    {"--qk-pos-emb-head-dim", "--qk-rope-head-dim"},
    {"--beta-fast", "--rope-scaling-beta-fast"},
    {"--beta-slow", "--rope-scaling-beta-slow"},
    {"--tensor-model-parallel-size", "--model-parallel-size"},
    {"--micro-batch-size", "--batch-size"},
    {"--mtp-num-layers", "--num-nextn-predict-layers"},
    {"--lr-warmup-fraction", "--warmup"},
    {"--recompute-method", "--activations-checkpoint-method"},
    {"--recompute-num-layers", "--activations-checkpoint-num-layers"},
};

}  // namespace

const std::string& GivenFlags::spelt(const std::string& name) const {
  read_.insert(name);
  if (flags_.contains(name)) return name;
  for (const OldName& each : kOldNames) {
    if (each.name != name) continue;
    const auto it = flags_.find(std::string(each.old));
    if (it == flags_.end()) continue;
    read_.insert(it->first);
    return it->first;
  }
  return name;
}

GivenFlags::GivenFlags(std::map<std::string, std::vector<std::string>> flags, std::string place,
                       std::function<std::string(const std::string&)> why)
    : flags_(std::move(flags)), place_(std::move(place)), why_(std::move(why)) {}

bool GivenFlags::has(const std::string& name) const { return flags_.contains(spelt(name)); }

bool GivenFlags::any(std::initializer_list<const char*> names) const {
  bool found = false;
  for (const char* name : names) found |= has(name);
  return found;
}

const std::vector<std::string>& GivenFlags::all(const std::string& name) const {
  static const std::vector<std::string> none;
  const auto it = flags_.find(spelt(name));
  if (it == flags_.end()) return none;
  for (const std::string& value : it->second) {
    if (shell::is_known(value)) continue;
    const std::string why = why_ ? why_(value) : "";
    config_error("{}: {} is not known{}", place_, it->first, why.empty() ? "" : ": " + why);
  }
  return it->second;
}

std::string GivenFlags::text(const std::string& name) const {
  const std::vector<std::string>& values = all(name);
  return values.empty() ? "" : values.front();
}

bool GivenFlags::is_known(const std::string& name) const {
  const auto it = flags_.find(spelt(name));
  return it != flags_.end() && std::all_of(it->second.begin(), it->second.end(),
                                           [](const std::string& value) { return shell::is_known(value); });
}

std::string GivenFlags::known_text(const std::string& name) const { return is_known(name) ? text(name) : ""; }

void GivenFlags::refuse(const std::string& name, const std::string& accepted) const {
  config_error("{}: {} {}, accepted: {}", place_, spelt(name), shown(text(name)), accepted);
}

namespace {

// As Python reads numbers: "6_348_800", "+1".
std::string plain_number(std::string text) {
  for (size_t i = 1; i + 1 < text.size(); ++i)
    if (text[i] == '_' && std::isdigit(static_cast<unsigned char>(text[i - 1])) != 0 &&
        std::isdigit(static_cast<unsigned char>(text[i + 1])) != 0)
      text.erase(i, 1);
  return text.starts_with('+') && text.size() > 1 && text[1] != '-' && text[1] != '+' ? text.substr(1) : text;
}

}  // namespace

int64_t GivenFlags::whole(const std::string& name, int64_t otherwise, int64_t least, int64_t most) const {
  if (!has(name)) return otherwise;
  const std::string value = plain_number(text(name));
  if (value.empty()) config_error("{}: {} is given without a value", place_, spelt(name));
  int64_t n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc() || end != value.data() + value.size() || n < least || n > most)
    refuse(name, fmt::format("a whole number from {} to {}", least, most));
  return n;
}

double GivenFlags::real(const std::string& name, double otherwise) const {
  if (!has(name)) return otherwise;
  const std::string value = plain_number(text(name));
  if (value.empty()) config_error("{}: {} is given without a value", place_, spelt(name));
  double n = 0;
  const auto [end, error] = read_real(value.data(), value.data() + value.size(), n);
  if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(n)) refuse(name, "a number");
  return n;
}

int64_t GivenFlags::needed(const std::string& name, int64_t least, int64_t most) const {
  if (!has(name)) config_error("{}: {} is not given", place_, name);
  return whole(name, 0, least, most);
}

namespace {

using Given = std::map<std::string, std::vector<std::string>>;

bool says(const std::vector<Flag>& flags, const std::string& name) {
  return std::any_of(flags.begin(), flags.end(), [&](const Flag& flag) { return flag.name == name; });
}

// Rows whose flags differ between two launches: those of the second are added, those of the script that say the
// same go.
bool add_changes(const Launch& from, const Launch& to, Dialect dialect, const Given& given, FlagChanges& changes) {
  bool any = false;
  for (const auto* rows : {&model_rows(), &run_rows()})
    for (const Row& row : *rows) {
      std::vector<Flag> before, after;
      row.write({from, dialect, before, row.group});
      row.write({to, dialect, after, row.group});
      if (before == after) continue;
      any = true;
      const auto remove = [&](const std::string& name) {
        if (std::find(changes.removed.begin(), changes.removed.end(), name) == changes.removed.end())
          changes.removed.push_back(name);
      };
      std::vector<std::string> gone;  // said of the first, and not of the second
      for (const Flag& flag : before)
        if (given.contains(flag.name) && !says(after, flag.name)) gone.push_back(flag.name);
      for (Flag& flag : after)
        if (std::find(changes.added.begin(), changes.added.end(), flag) == changes.added.end())
          changes.added.push_back(std::move(flag));
      const GivenFlags asked(given, "");
      Launch read = from;
      std::vector<std::string> notes;
      row.read({asked, dialect, from.job.mesh.ranks(), read, notes});
      for (const std::string& name : asked.asked_for()) remove(name);
      for (const std::string& name : gone) remove(name);
    }
  return any;
}

// Flags, or values that rows take for theirs, which a trainer takes only with what another flag says: where that
// one changes, they go, or become what the rows write.
struct Leaning {
  std::string_view flag, of;
  std::string_view value = "";  // the one that leans; "": whatever it is
};
constexpr Leaning kLeaning[] = {
    {"--tp-2d", "--tensor-model-parallel-size"},
    {"--tp-x", "--tensor-model-parallel-size"},
    {"--tp-y", "--tensor-model-parallel-size"},
    {"--moe-token-dispatcher-type", "--tensor-model-parallel-size", "alltoall_seq"},
    {"--moe-token-dispatcher-type", "--expert-tensor-parallel-size", "alltoall_seq"},
    {"--context-parallel-kv-cache-policy", "--context-parallel-size"},
    {"--context-parallel-cache-interval", "--context-parallel-size"},
    {"--use-ulysses-allgather-kv", "--context-parallel-size"},
    {"--recompute-in-bubble", "--num-layers-per-virtual-pipeline-stage"},
    {"--recompute-in-advance", "--num-layers-per-virtual-pipeline-stage"},
    {"--account-for-embedding-in-pipeline-split", "--pipeline-model-parallel-size"},
    {"--account-for-loss-in-pipeline-split", "--pipeline-model-parallel-size"},
    {"--decoder-first-pipeline-num-layers", "--pipeline-model-parallel-size"},
    {"--decoder-last-pipeline-num-layers", "--pipeline-model-parallel-size"},
    {"--num-layer-list", "--pipeline-model-parallel-size"},
    {"--num-layer-list", "--num-layers-per-virtual-pipeline-stage"},
    {"--pipeline-num-transformer-layers", "--pipeline-model-parallel-size"},
    {"--pipeline-num-transformer-layers", "--num-layers-per-virtual-pipeline-stage"},
};

}  // namespace

FlagChanges flag_changes(const Launch& from, const Launch& to, Dialect dialect, const Given& given) {
  FlagChanges changes;
  Launch now = from;
  constexpr int kRounds = 4;  // a default follows a flag, which follows another
  for (int round = 0; round < kRounds && add_changes(now, to, dialect, given, changes); ++round) {
    Given changed = given;
    for (const std::string& name : changes.removed) changed.erase(name);
    for (const Flag& flag : changes.added) changed[flag.name] = flag.values;
    Launch read;
    read.job.device = to.job.device;
    read.job.imbalance = to.job.imbalance;
    std::vector<std::string> notes;
    try {
      read_flags(GivenFlags(changed, ""), dialect, to.job.mesh.ranks(), read, notes);
    } catch (const ConfigError&) {
      break;  // the next reader of the script says what is wrong
    }
    now = normalized(read);
  }
  // A row that changes may have asked for a flag of one that doesn't.
  const std::vector<Flag> said = flags_of(to, dialect);
  std::erase_if(changes.removed,
                [&](const std::string& name) { return says(said, name) && !says(changes.added, name); });
  for (const Leaning& each : kLeaning) {
    std::string name(each.flag), of(each.of);
    const auto goes = [&](const std::string& flag) {
      return std::find(changes.removed.begin(), changes.removed.end(), flag) != changes.removed.end();
    };
    if (!given.contains(name) || goes(name) || !(goes(of) || says(changes.added, of))) continue;
    if (!each.value.empty() && given.at(name) != std::vector<std::string>{std::string(each.value)}) continue;
    const auto written =
        std::find_if(said.begin(), said.end(), [&](const Flag& flag) { return flag.name == name; });
    if (written != said.end()) changes.added.push_back(*written);
    changes.removed.push_back(std::move(name));
  }
  return changes;
}

std::vector<std::string> GivenFlags::asked_for() const {
  std::vector<std::string> names;
  for (const auto& [name, values] : flags_)
    if (read_.contains(name)) names.push_back(name);
  return names;
}

std::vector<std::string> GivenFlags::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, values] : flags_)
    if (!read_.contains(name)) names.push_back(name);
  return names;
}

}  // namespace heddle::advisor
