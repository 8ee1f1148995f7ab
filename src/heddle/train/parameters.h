// The values of a listing that last from step to step. It has their names whatever the layout of ranks, the
// elements of the whole tensor that a rank holds, and their first values.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/model/model_config.h"
#include "heddle/model/parameter_layout.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"
#include "heddle/train/step/expert_placements.h"

namespace heddle::train {

/// A tensor of the model's state under its layout-free name: "NAME" is the master (fp32 or wider) of a parameter,
/// or a frozen one as kernels read it; "m.NAME" and "v.NAME" its moments (a first moment of u8 is of
/// ops/moment_byte.h); "average.NAME" the average of the master that is kept, where one is.
struct StateTensor {
  std::string name;
  /// This rank's elements, in the arena; only to be touched between steps. No data on ranks that hold none, and of
  /// what is split. On one rank it is the whole tensor.
  device::TensorView view;
  /// The parts of a split master and a sign of the second moment: base/numbers/split_float.h.
  struct Split {
    device::TensorView nearest, low, second_moment;
  };
  std::optional<Split> split;
  const model::Parameter* parameter = nullptr;
  bool is_master = false;
  bool is_frozen() const { return parameter->frozen; }
  bool is_average() const { return name.size() > parameter->name.size() && name.starts_with("average."); }
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;  // shape of the whole tensor

  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
  bool is_here() const { return view.data != nullptr || split; }
};

/// The elements of such a tensor that a rank holds, as the host reads and writes them between steps. They are in
/// place or, where they are split, put together for the occasion.
class StateElements {
 public:
  /// The tensor, which must outlive it, must be here.
  explicit StateElements(const StateTensor& tensor);
  const device::TensorView& view() const { return view_; }
  /// Call it when they have been written.
  void put() const;

 private:
  const StateTensor& tensor_;
  device::TensorView view_;
  std::vector<std::byte> joined_;
};

/// Returns the view of a listing's value that a rank holds.
using StateView = std::function<device::TensorView(int listing, ir::ValueId id)>;

/// The state of the whole model, pipeline rank by pipeline rank, in the order of the parameters, each once; views
/// are those of `rank`. The rotary table is not part of it.
std::vector<StateTensor> state_tensors(const plan::Lowered& lowered, runtime::Executor& executor,
                                       const plan::Mesh& mesh = plan::Mesh({}), int rank = 0);

/// The state with views from elsewhere.
std::vector<StateTensor> state_tensors(const plan::Lowered& lowered, const plan::Mesh& mesh, int rank,
                                       const StateView& view);

/// The state where nothing runs: names, types and shapes, without views. `mesh` is that of the plan that was
/// lowered: the listings have a rank's shapes, and the mesh says what they are shares of.
std::vector<StateTensor> state_tensors(const plan::Lowered& lowered, const plan::Mesh& mesh);

/// The places in the whole, in increasing order, of the elements that `rank` holds of a tensor, with experts at
/// these homes.
std::vector<model::Extent> held_extents(const StateTensor& tensor, const plan::Lowered& lowered,
                                        const plan::Mesh& mesh, int rank, const ExpertPlacements& placements = {});

/// Those extents without what a rank before it in the mesh group holds as well: every element has one owner.
std::vector<model::Extent> owned_extents(const StateTensor& tensor, const plan::Lowered& lowered,
                                         const plan::Mesh& mesh, int rank, const ExpertPlacements& placements = {});

/// Copies masters into the averages that are kept of them, or the other way.
enum class Average : uint8_t { begins_as_master, becomes_master };
void copy_averages(const std::vector<StateTensor>& state, Average how);

/// Starts every parameter from the seed (each element a function of seed, name and its index in the whole tensor
/// alone), moments at zero, and makes the weights.
void initialise(const model::ModelConfig& config, const plan::Lowered& lowered, runtime::Executor& executor,
                uint64_t seed, const plan::Mesh& mesh = plan::Mesh({}), int rank = 0);

/// Fills the rotary table of a rank, for the positions that it holds; the rest is up to the caller.
void fill_rope_table(const model::ModelConfig& config, const plan::Lowered& lowered, runtime::Executor& executor,
                     const plan::Mesh& mesh = plan::Mesh({}), int rank = 0);

}  // namespace heddle::train
