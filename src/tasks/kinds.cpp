#include "tasks/task.hpp"
#include "tasks/text/text.hpp"
#if defined(ABH_EXTRAS)
#include "extras/digits/digits.hpp"
#include "extras/recall/recall.hpp"
#include "extras/reviews/reviews.hpp"
#include "extras/seq2seq/dates.hpp"
#include "extras/seq2seq/pairs.hpp"
#include "extras/sort/sort.hpp"
#endif

namespace abh {

TaskKinds task_kinds() {
  static const TaskKind kinds[] = {
    text_kind(text_programs()),
#if defined(ABH_EXTRAS)
    sort_kind(sort_programs()),
    reviews_kind(reviews_programs()),
    digits_kind(digits_programs()),
    dates_kind(dates_programs()),
    pairs_kind(pairs_programs()),
    recall_kind(recall_programs()),
#endif
  };
  return kinds;
}

}  // namespace abh
