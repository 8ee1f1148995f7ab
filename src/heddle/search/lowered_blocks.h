// Costs of Heddle's own layers: a layer of each kind is lowered, as the job cuts and recomputes it, and its ops are
// priced one by one. A new op, fusion or group of recomputation is priced without a word here.
//
// Closed forms (block_work.h) stay for software that can't be lowered. Both give the same form, so that estimates,
// stages and schedules are put together alike.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "heddle/model/model_config.h"
#include "heddle/plan/plan.h"
#include "heddle/search/block_work.h"

namespace heddle::search {

/// Words of memory.recompute for layers first to last of `layers`; no numbers where these are all.
std::vector<std::string> recompute_words_of(const Recompute& recompute, int64_t first, int64_t last,
                                            int64_t layers);

class LoweredBlocks {
 public:
  /// Seconds of an op that computes or communicates, without what launching it takes.
  using OpSeconds = std::function<double(const Job& job, const Behaviour& behaviour, const ir::Listing& listing,
                                         const ir::Op& op, const ir::RowCounts& rows)>;
  /// `plan` says all that a job doesn't: type, fusions, dispatcher. Without `seconds` ops take what the job's
  /// accelerator is described to need.
  LoweredBlocks(const model::ModelConfig& model, const plan::Plan& plan, OpSeconds seconds = {});

  /// Blocks of the job, with what it computes again. A layer counts as one block: its attention is part of it.
  /// Each is worked out once; any number of threads may ask. ConfigError where Heddle can't lower it.
  const Prices& prices(const Job& job, const Behaviour& behaviour) const;
  /// Costs on the job's accelerator of each home of the state, form of masters, and weights and sums of gradients
  /// on the device and the host. They come from the cost table of a program with a layer of each kind on one rank.
  const std::vector<PricedResidency>& residencies(const Job& job) const;
  /// Returns why Heddle can't cut the model so; "" when it can.
  const std::string& refusal(const Job& job) const;

 private:
  std::vector<PricedResidency> residencies_on(const cost::Accelerator& device, cost::Precision precision) const;
  Prices priced(const Job& job, const Behaviour& behaviour) const;
  Prices priced_alike(const Job& job, const Behaviour& behaviour) const;

  model::ModelConfig model_;
  plan::Plan plan_;
  OpSeconds seconds_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<const Prices>> prices_;
  mutable std::map<std::string, std::string> refusals_;
  mutable std::map<std::string, std::vector<PricedResidency>> residencies_;
};

/// Rates that passes assume of a described accelerator: a part of its rated figures.
plan::DeviceRates rates_on(const cost::Accelerator& device, cost::Precision precision);

/// The ranks of a group of the mesh (plan/mesh.h).
cost::Group group_of(const std::string& name, const plan::Degrees& mesh);

/// Seconds on the job's accelerator.
double accelerator_seconds(const Job& job, const Behaviour& behaviour, const ir::Listing& listing, const ir::Op& op,
                           const ir::RowCounts& rows);

}  // namespace heddle::search
