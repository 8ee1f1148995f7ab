// gather_matrices and scatter_matrices: matrices dealt out to the ranks of a group, matrix j to rank j mod G, and
// back. Nothing is added up: bytes move.
#include <algorithm>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/comm/collectives.h"
#include "heddle/comm/communicator.h"
#include "heddle/device/row_work.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

// The pieces of one deal, in bytes: on the side of the parts and on the side of the stack.
class Deal {
 public:
  Deal(const KernelCall& call, std::span<const TensorView> parts, const TensorView& stack)
      : parts_(parts), stack_(stack), communicator_(*call.communicator) {
    const ir::Attributes& at = call.op->attributes;
    ranks_ = at.integer("ranks");
    HEDDLE_CHECK(communicator_.size() == ranks_, "'{}' over {} ranks on a communicator of {}", call.op->kind(),
                 ranks_, communicator_.size());
    count_ = at.integer("count");
    elements_ = at.integer("elements");
    size_ = size_of(stack.dtype);
    blocks_ = at.word("cut") == "blocks";
    run_ = (count_ * elements_ + ranks_ - 1) / ranks_;
    const int64_t all = std::ssize(parts) * count_, own = communicator_.rank();
    for (int64_t j = 0; j < all; ++j) {
      const int64_t owner = j % ranks_;
      on_parts(j, owner, own);
      if (owner == own) on_stack(j);
    }
    used_ = (all + ranks_ - 1 - own) / ranks_;  // slots that hold a matrix
  }

  const std::vector<Piece>& of_parts() const { return of_parts_; }
  const std::vector<Piece>& of_stack() const { return of_stack_; }
  /// Clears the slots of the stack that hold no matrix.
  void clear_rest(const KernelCall& call) const {
    const int64_t from = used_ * width() * size_, all = stack_.elements() * size_;
    if (from < all) call.row_work->fill(bytes_of(stack_) + from, 0, all - from, call.stream);
  }
  /// Clears the ends of the last runs that lie beyond their tensors.
  void clear_ends(const KernelCall& call) const {
    if (blocks_) return;
    const int64_t held = std::clamp<int64_t>(count_ * elements_ - communicator_.rank() * run_, 0, run_);
    for (const TensorView& part : parts_) {
      if (held < run_) call.row_work->fill(bytes_of(part) + held * size_, 0, (run_ - held) * size_, call.stream);
    }
  }

 private:
  int64_t width() const { return blocks_ ? ranks_ * elements_ : elements_; }

  /// The run of matrix j that a rank has, from its first element of the tensor on.
  struct Run {
    int64_t first, last;
  };
  Run run_of(int64_t j, int64_t rank) const {
    const int64_t begin = j % count_ * elements_, end = begin + elements_;
    if (blocks_) return {begin, end};
    return {std::clamp(begin, rank * run_, (rank + 1) * run_), std::clamp(end, rank * run_, (rank + 1) * run_)};
  }

  void on_parts(int64_t j, int64_t owner, int64_t own) {
    const Run run = run_of(j, own);
    const int64_t base = bytes_of(parts_[j / count_]) - bytes_of(parts_[0]);
    const int64_t at = run.first - (blocks_ ? 0 : own * run_);
    of_parts_.push_back({static_cast<int>(owner), base + at * size_, (run.last - run.first) * size_});
  }

  void on_stack(int64_t j) {
    for (int64_t r = 0; r < ranks_; ++r) {
      const Run run = run_of(j, r);
      const int64_t within = blocks_ ? r * elements_ : run.first - j % count_ * elements_;
      of_stack_.push_back(
          {static_cast<int>(r), (j / ranks_ * width() + within) * size_, (run.last - run.first) * size_});
    }
  }

  std::span<const TensorView> parts_;
  TensorView stack_;
  Communicator& communicator_;
  int64_t ranks_ = 0, count_ = 0, elements_ = 0, size_ = 0, run_ = 0, used_ = 0;
  bool blocks_ = false;
  std::vector<Piece> of_parts_, of_stack_;
};

void gather_matrices(const KernelCall& call) {
  const Deal deal(call, call.in, call.out[0]);
  call.communicator->exchange(call.in[0].data, deal.of_parts(), call.out[0].data, deal.of_stack());
  deal.clear_rest(call);
}

void scatter_matrices(const KernelCall& call) {
  const Deal deal(call, call.out, call.in[0]);
  call.communicator->exchange(call.in[0].data, deal.of_stack(), call.out[0].data, deal.of_parts());
  deal.clear_ends(call);
}

}  // namespace

const std::vector<Collective>& matrix_collectives() {
  static const std::vector<Collective> list{{"gather_matrices", gather_matrices},
                                            {"scatter_matrices", scatter_matrices}};
  return list;
}

}  // namespace heddle::comm
