#include "apps/golden/golden.hpp"

#include "program/flags.hpp"

int main(int argc, char** argv) { return abh::run_program("golden", argc, argv, abh::golden_main); }
