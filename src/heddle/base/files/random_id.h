// Numbers that nobody guesses: names of what others must not find by chance, tokens of a job.
#pragma once

#include <string>

namespace heddle {

/// 128 bits of the system's, as 32 hexadecimal digits.
std::string random_id();

}  // namespace heddle
