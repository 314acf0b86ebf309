#include "apps/golden/golden.hpp"

#include "program/run_program.hpp"

int main(int argc, char** argv) { return abh::run_program("golden", argc, argv, abh::golden_main); }
