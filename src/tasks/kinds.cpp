#include "tasks/task.hpp"
#include "tasks/text/text_kind.hpp"

namespace abh {

TaskKinds task_kinds() {
  static const TaskKind kinds[] = {text_kind(text_programs())};
  return kinds;
}

}  // namespace abh
