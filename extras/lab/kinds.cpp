// Replaces src/tasks/kinds.cpp: the tasks that the page can train.

#include "extras/digits/digits.hpp"
#include "extras/reviews/reviews.hpp"
#include "extras/sort/sort.hpp"
#include "tasks/task.hpp"
#include "tasks/text/text.hpp"

namespace abh {

TaskKinds task_kinds() {
  static const TaskKind kinds[] = {text_kind({.train = text_training}), sort_kind({.train = sort_training}),
                                   reviews_kind({.train = reviews_training}), digits_kind({.train = digits_training})};
  return kinds;
}

}  // namespace abh
