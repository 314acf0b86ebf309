// evaluate: evaluates a trained network on a text or on the test set of another task.

#include "apps/programs/programs.hpp"
#include "program/run_program.hpp"

int main(int argc, char** argv) {
  return abh::run_program("evaluate", argc, argv,
                          [](int count, char** words) { return abh::evaluate_main(abh::task_kinds(), count, words); });
}
