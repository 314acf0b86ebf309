// train: trains a network on a text file or on another task, and writes checkpoints into a run folder.

#include "apps/programs/programs.hpp"
#include "program/run_program.hpp"

int main(int argc, char** argv) {
  return abh::run_program("train", argc, argv,
                          [](int count, char** words) { return abh::train_main(abh::task_kinds(), count, words); });
}
