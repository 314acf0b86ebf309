// evaluate: tells how well a trained network does what it has learned.

#include "apps/programs/programs.hpp"
#include "program/run_program.hpp"

int main(int argc, char** argv) {
  return abh::run_program("evaluate", argc, argv,
                          [](int count, char** words) { return abh::evaluate_main(abh::task_kinds(), count, words); });
}
