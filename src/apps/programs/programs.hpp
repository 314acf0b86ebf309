#pragma once

#include "tasks/task.hpp"

namespace abh {

// Bodies of the programs (see their --help), for these kinds of tasks. run_program calls them.
int train_main(TaskKinds kinds, int argc, char** argv);
int evaluate_main(TaskKinds kinds, int argc, char** argv);
int generate_main(TaskKinds kinds, int argc, char** argv);
int draw_main(TaskKinds kinds, int argc, char** argv);

}  // namespace abh
