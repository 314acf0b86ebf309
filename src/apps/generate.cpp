// generate: has a trained network write.

#include "apps/programs/programs.hpp"
#include "program/run_program.hpp"

int main(int argc, char** argv) {
  return abh::run_program("generate", argc, argv,
                          [](int count, char** words) { return abh::generate_main(abh::task_kinds(), count, words); });
}
