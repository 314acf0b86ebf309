#include "tasks/digits/digits_kind.hpp"
#include "tasks/reviews/reviews_kind.hpp"
#include "tasks/sort/sort_kind.hpp"
#include "tasks/task.hpp"
#include "tasks/text/text_kind.hpp"

namespace abh {

TaskKinds task_kinds() {
  static const TaskKind kinds[] = {text_kind(text_programs()), sort_kind(sort_programs()),
                                   reviews_kind(reviews_programs()), digits_kind(digits_programs())};
  return kinds;
}

}  // namespace abh
