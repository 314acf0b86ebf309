// draw: figures of the computation of a trained network for one sequence.

#include "apps/programs/programs.hpp"
#include "program/run_program.hpp"

int main(int argc, char** argv) {
  return abh::run_program("draw", argc, argv,
                          [](int count, char** words) { return abh::draw_main(abh::task_kinds(), count, words); });
}
