#include "extras/reviews/reviews.hpp"

namespace abh {

TaskPrograms reviews_programs() {
  return {.train = reviews_training,
          .evaluate =
              [] { return answer_evaluation(reviews_again, "file of labelled texts; the last tenth is the test set"); },
          .draw = reviews_drawing};
}

}  // namespace abh
