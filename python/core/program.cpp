// The program `heddle` of the wheel: the shared library's, which the Python module shares.
#include "python/core/core.h"

int main(int count, char** arguments) { return heddle::core::run_program(count, arguments); }
