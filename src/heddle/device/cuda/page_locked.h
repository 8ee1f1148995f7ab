// Page-locked memory of the host for what streams need beside the arenas: rings of uploads, what the host works out
// between ops. To lock pages may wait for the device, which may wait for a message of a rank that waits for this
// host. So most of it is there before the first message.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::device {

/// Memory that lasts as long as the process, aligned to 256 bytes. Out of what was prepared as far as that goes,
/// else new. SystemError where the driver refuses.
std::byte* take_page_locked(int64_t bytes);
/// Makes room for the streams of so many ranks, as far as there is none.
void prepare_page_locked(int ranks);

}  // namespace heddle::device
