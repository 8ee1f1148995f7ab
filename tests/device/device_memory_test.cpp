// What stands on the host's side of a device whose memory the host can't read.
#include <gtest/gtest.h>

#include "heddle/device/device.h"
#include "heddle/device/event_ring.h"
#include "heddle/device/host_copies.h"

namespace heddle::device {
namespace {

TEST(EventRing, never_stands_for_an_earlier_launch) {
  constexpr uint64_t kRing = 4;
  for (uint64_t launched = 1; launched < 20; ++launched) {
    for (uint64_t count = 1; count <= launched; ++count) {
      const uint64_t event = event_for(count, launched, kRing);
      uint64_t last = 0;  // launch that has recorded this event
      for (uint64_t n = 1; n <= launched; ++n) {
        if ((n - 1) % kRing == event) last = n;
      }
      EXPECT_GE(last, count);
      EXPECT_TRUE(count + kRing <= launched || last == count) << count << " of " << launched;
    }
  }
}

TEST(HostCopies, stand_for_what_lies_on_the_device) {
  int32_t on_device = 0;  // never read
  const ir::OpDef def{.kind = "dispatch"};
  const ir::Op op{.def = &def};
  TensorView view{.data = &on_device, .dtype = Dtype::i32, .rank = 1, .dims = {2, 1, 1, 1}};
  KernelCall call;
  call.op = &op;
  EXPECT_EQ(HostCopies::on_host(call, view).data, view.data) << "the host reads the device's memory";
  HostCopies copies;
  call.host_copies = &copies;
  EXPECT_THROW(HostCopies::on_host(call, view), InternalError) << "nothing was copied";
  copies.of(&on_device).assign(8, std::byte{1});
  EXPECT_EQ(HostCopies::on_host(call, view).as<const int32_t>()[1], 0x01010101);
  view.dims[0] = 3;
  EXPECT_THROW(HostCopies::on_host(call, view), InternalError) << "less was copied";
}

TEST(CudaDevice, says_in_one_line_that_there_is_no_gpu) {
  if (cuda_available()) GTEST_SKIP() << "there is one";
  try {
    cuda_device({});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("cuda"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(host_device()->shares_memory());
}

}  // namespace
}  // namespace heddle::device
