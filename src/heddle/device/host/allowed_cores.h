// Processors that this process is allowed to run on.
#pragma once

namespace heddle::device {

int allowed_cores();

}  // namespace heddle::device
