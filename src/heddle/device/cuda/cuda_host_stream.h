// The stream of the host's processor among those of a CUDA device. Its entries run in the stream's order as
// functions of the host, with as many threads as it was given. Copies and kernels of other streams wait for them,
// and they for these, by events.
//
// An exception of an entry is kept, for nothing may be asked of CUDA where it runs. The stream ends when the host
// next puts something on it or waits for it.
#pragma once

#include <atomic>

#include "heddle/device/cuda/cuda_stream.h"

namespace heddle::device {

class CudaHostStream : public CudaStream {
 public:
  CudaHostStream(int ordinal, std::string name, int threads);
  ~CudaHostStream() override;
  void launch(const Launch& launch) override;
  void synchronize(uint64_t count) override;

 protected:
  void put(const Launch& launch) override;

 private:
  struct Work;
  static void run(void* work);
  void end_if_failed();

  int threads_;
  std::atomic<bool> failed_{false};  // what an entry threw is in `thrown_`; nothing runs after it
  std::exception_ptr thrown_;
  Span thrown_at_;
  bool told_ = false;
};

}  // namespace heddle::device
