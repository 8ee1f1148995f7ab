// heddle replay: operands and results of ops of one step of a run, as safetensors.
#include "heddle/session/audit/replay.h"

#include <nlohmann/json.hpp>

#include "heddle/base/say.h"
#include "heddle/cli/audit/rerun_config.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/line/on_ranks.h"

namespace heddle::cli {

namespace {

using nlohmann::ordered_json;

struct ReplayOptions {
  std::string run;  // folder
  std::string op, out;
  std::vector<std::string> set;
  int64_t step = 0, rank = 0, microbatch = 0;
  bool json = false;
};

int replay(const ReplayOptions& options) {
  std::vector<session::ReplayedOp> ops;
  const auto tell = [&] {
    if (options.json) {
      ordered_json json{{"run", options.run}, {"step", options.step}, {"file", options.out}};
      json["ops"] = ordered_json::array();
      for (const session::ReplayedOp& op : ops)
        json["ops"].push_back({{"op", op.op}, {"microbatch", op.microbatch}, {"tensors", op.tensors}});
      say("{}\n", json.dump(2, ' ', false, ordered_json::error_handler_t::replace));
      return kDone;
    }
    for (const session::ReplayedOp& op : ops) {
      say("{}\n", op.op);
      for (const std::string& tensor : op.tensors) say("  {}\n", tensor);
    }
    say("written to {}\n", options.out);
    return kDone;
  };
  const auto run = [&](const config::RunConfig& config, comm::World* world) {
    std::vector<session::ReplayedOp> own =
        session::replay(session::RunFolder{options.run}, config, options.step, options.op,
                        static_cast<int>(options.rank), static_cast<int>(options.microbatch), options.out, world);
    if (world == nullptr || world->rank() == 0) ops = std::move(own);
  };
  const auto config_of = [&](int ranks) { return rerun_config(options.run, options.set, ranks); };
  return on_ranks(0, config_of, run, tell);
}

}  // namespace

void add_replay(Commands& all) {
  constexpr int64_t kMostSteps = int64_t{1} << 40, kMostRanks = 1 << 20;
  auto [command, options] =
      add_command(all, "replay", "Train a run to a step again and write the operands and results of an op", replay);
  command.option("RUN", options.run, "The run's folder, such as runs/demo").required();
  command.option("--step", options.step, "The step").from(1, kMostSteps).required();
  command
      .option("--op", options.op, "A kind of op (`heddle inspect --program` shows them), or a value that it writes")
      .called("NAME")
      .required();
  command.option("--rank", options.rank, "Of which rank").from(0, kMostRanks);
  command.option("--microbatch", options.microbatch, "Of which microbatch").from(0, kMostSteps);
  command.option("--out", options.out, "Where the tensors go").called("FILE.safetensors").required();
  add_set(command, options.set);
  add_json(command, options.json);
}

}  // namespace heddle::cli
