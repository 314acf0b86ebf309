// generate: generates text or answers with a trained network.

#include "apps/programs/programs.hpp"
#include "program/run_program.hpp"

int main(int argc, char** argv) {
  return abh::run_program("generate", argc, argv,
                          [](int count, char** words) { return abh::generate_main(abh::task_kinds(), count, words); });
}
