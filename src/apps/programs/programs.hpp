#pragma once

#include "tasks/task.hpp"

namespace abh {

// The programs (see their --help), for these kinds of tasks: what each does between run_program's beginning and end.
int train_main(TaskKinds kinds, int argc, char** argv);
int evaluate_main(TaskKinds kinds, int argc, char** argv);
int generate_main(TaskKinds kinds, int argc, char** argv);
int draw_main(TaskKinds kinds, int argc, char** argv);

}  // namespace abh
