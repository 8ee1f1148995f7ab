#include "heddle/session/run/prepare.h"

#include <array>
#include <filesystem>
#include <utility>

#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/config/hardly_meant.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/ir/print.h"
#include "heddle/runtime/predict.h"
#include "heddle/session/agent/room.h"
#include "heddle/session/agent/run_memory.h"
#include "heddle/session/notes/data_notes.h"
#include "heddle/session/notes/start_notes.h"
#include "heddle/session/rank_run.h"
#include "heddle/session/ranks/rank_watch.h"
#include "heddle/session/run/calls.h"
#include "heddle/session/run/restore.h"
#include "heddle/session/run_checkpoint.h"
#include "heddle/session/run_data.h"
#include "heddle/session/slow/alarms.h"
#include "heddle/session/text/companions.h"
#include "heddle/train/adapters/start_adapters.h"
#include "heddle/train/agreement.h"
#include "heddle/train/run_config_plan.h"
#include "heddle/train/start_weights.h"

namespace heddle::session {

namespace {

int rank_of(const RunContext& run) { return run.place.world != nullptr ? run.place.world->rank() : 0; }

// If one rank has no room for its part, rank 0 says so, and what would help.
train::TrainerOptions options_that_fit(const RunContext& run) {
  train::TrainerOptions options;
  std::string unfit;
  const train::Sharing sharing = sharing_of(run.place.world);
  try {
    options = train::trainer_options_of(run.config, rank_of(run), sharing);
  } catch (const train::DoesNotFit& error) {
    unfit = error.what();
  }
  train::RankExchange ranks(run.place.world);
  for (const std::string& why : ranks.share(unfit)) {
    if (why.empty()) continue;
    if (ranks.leads())
      throw train::DoesNotFit(run.place.remedy ? fmt::format("{}\n{}", why, run.place.remedy()) : why);
    ranks.from_first_rank("");  // rank 0 ends all
  }
  return options;
}

// All that can be inputs of the weights to start from before the text is read; rank 0 says it.
void check_start(const RunContext& run) {
  const config::RunConfig::Train& train = run.config.train;
  if (run.resumes || !run.leads()) return;
  if (!train.start.empty()) train::check_start(train.start, train.start_moments, run.config.plan.lora);
  if (!train.start_adapter.empty()) train::check_start_adapters(train.start_adapter, run.config.plan.lora);
}

void open_data(RunContext& run) {
  if (const std::string own = tokenizer_of_start(run.config); !own.empty()) run.config.data.tokenizer = own;
  run.data = std::make_unique<RunData>(open_run_data(run.config));
  if (!run.data->tokenizer.empty())
    run.tokenizer = std::make_unique<data::Tokenizer>(run.data->tokenizer_files.spec, run.data->tokenizer);
  run.data_identity = identity_of(*run.data, run.config);
}

void open_folder(RunContext& run) {
  std::optional<FolderLock> lock;
  NewFolder made;
  if (run.leads()) {
    HeldFolder held = run.resumes ? existing_run_folder(run.config) : new_run_folder(run.config);
    run.folder = std::move(held.folder);
    lock.emplace(std::move(held.lock));
    made = std::move(held.made);
    run.terminal.warn(held.warnings);
  }
  run.folder.path = train::RankExchange(run.place.world).from_first_rank(run.folder.path);
  if (!lock) lock.emplace(FolderLock::held_for_us(run.folder.path));
  run.folder_watch.emplace(run.folder.path, std::move(*lock), std::move(made));
}

bool prepares_in_run_folder(const config::RunConfig& config) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::string existing = path_of_existing_run(config);
  return fs::weakly_canonical(config.data.folder, ignored) ==
         fs::weakly_canonical(existing.empty() ? config.folder() : existing, ignored);
}

// Opens the folder of all ranks, and the text of rank 0. A rank that prepares a text holds its folder: before it
// holds the run's, where that is the same.
void open_folder_and_data(RunContext& run) {
  const bool data_first = run.leads() && prepares_in_run_folder(run.config);
  if (data_first) open_data(run);
  open_folder(run);
  if (run.leads() && !data_first) open_data(run);
}

// Sets as many steps as the data makes of the epochs, which rank 0 knows.
void settle_epochs(RunContext& run) {
  const std::string steps =
      run.leads() ? fmt::format("{}", run.config.steps_of_epochs(run.data->dataset->train_sequences())) : "";
  run.config.train.steps = std::stoll(train::RankExchange(run.place.world).from_first_rank(steps));
  if (!run.leads()) return;
  for (const config::Remark& remark : config::hardly_meant(run.config)) {
    if (remark.key == "train.warmup_steps" || remark.key == "train.decay_steps") run.warn(remark.text);
  }
}

// Copies of the state in memory are a redundancy: without room for them the run goes on without them.
void find_room_for_copies(RunContext& run, train::TrainerOptions& options) {
  if (run.config.plan.snapshot_every == 0) return;
  options.snapshots = place_of_snapshots(run.place.world, run.resumes ? run.folder.path : "");
  const std::string why = no_room_for_copies(options, run.place.world);
  if (why.empty()) return;
  release_place(options.snapshots);
  run.config.plan.snapshot_every = 0;
  options = options_that_fit(run);
  if (run.leads()) run.warn(fmt::format("no snapshots of the state in memory: {}; checkpoints go to disk", why));
}

std::unique_ptr<train::Trainer> make_trainer(const RunContext& run, const train::TrainerOptions& options) {
  try {
    return std::make_unique<train::Trainer>(options, run.place.world);
  } catch (...) {
    release_place(options.snapshots);
    throw;
  }
}

// The order in which the blocks of a program run their ops: its text says nothing of how weaving has arranged them.
std::string order_of_ops(const ir::StepProgram& program) {
  std::string order;
  for (const ir::Block& block : program.blocks) {
    for (const ir::Step& step : block.steps) order += fmt::format("{} {}\n", step.slot, step.op);
    order += '\n';
  }
  return order;
}

// The text of the program too: ranks whose processors or builds differ may have written another.
void agree(RunContext& run) {
  if (run.trainer->ranks().size() == 1) return;
  const ir::StepProgram& program = run.trainer->lowered().program;
  train::NamedInputs inputs{
      {"the step's program", fmt::format("{:016x}", hash_bytes(ir::text_of(program)))},
      {"the order of the program's ops", fmt::format("{:016x}", hash_bytes(order_of_ops(program)))}};
  for (const auto& [name, value] : run.data_identity) inputs.emplace_back("data: " + name, value);
  train::agree(run.trainer->ranks(), inputs);
}

// From here on the folder holds a run.
void settle_in_folder(RunContext& run) {
  if (!run.leads()) return;
  const RunData& data = *run.data;
  run.terminal.warn(data.warnings);
  run.terminal.warn(data_notes(run.config, *data.dataset));
  write_file(run.folder.config(), config::toml_of(run.config));
  run.folder_watch->keep();
  keep_companions(run.config.train.start, data.tokenizer, run.folder.path);
  if (!data.tokenizer.empty()) data::keep_tokenizer(data.tokenizer_files, run.folder.path);
  if (data.chat_template) data::keep_chat_template(*data.chat_template, run.folder.path);
}

}  // namespace

void prepare_run(RunContext& run, const ServiceRows& rows) {
  train::TrainerOptions options = options_that_fit(run);
  for (const ServiceRow& row : rows) {
    if (row.wanted(run)) run.services.push_back(row.make(run));
  }
  check_start(run);
  open_folder_and_data(run);
  if (run.config.train.epochs > 0) {
    settle_epochs(run);
    options = options_that_fit(run);
  }
  std::optional<std::optional<SavedState>> looked_up;  // before memory is taken
  if (run.resumes && run.leads()) {
    std::vector<std::string> passed_over;
    looked_up = newest_state(run.folder, run.config, run.data_identity, passed_over, {});
    run.terminal.warn(passed_over);
  }
  find_room_for_copies(run, options);
  run.trainer = make_trainer(run, options);
  const runtime::MemoryPrediction predicted =
      runtime::predict_memory(run.trainer->lowered().program, rank_of(run), run.config.device.backend,
                              options.memory_bytes, 1, options.memory_limit_bytes);
  std::array<double, 1> all_ready{0};
  run.trainer->ranks().sum(all_ready);
  if (!run.leads()) open_data(run);  // rank 0 has prepared it
  agree(run);
  if (run.resumes) {
    restore(run, std::move(looked_up));
  } else {
    begin_anew(run);
  }
  publish_calls(run);  // not before it is known that there is something to do
  settle_in_folder(run);
  run.ranks = std::make_unique<RankWatch>(*run.trainer, run.place.world, sharing_of(run.place.world),
                                          run.config.train.op_times_steps, run.place.calls);
  if (run.leads())
    run.alarms = std::make_unique<Alarms>(run.config.name, run.folder, run.config.train.alarm_command,
                                          [&run](const std::string& line) { run.warn(line); });
  run.summary.folder = run.folder.path;
  run.summary.first_step = run.trainer->steps_done();
  run.peak = highest_peak(predicted, *run.trainer, run.config.device.backend);
}

}  // namespace heddle::session
