// The program `heddle`.
#include "heddle/cli/program.h"

int main(int count, char** arguments) { return heddle::cli::run_program(count, arguments); }
