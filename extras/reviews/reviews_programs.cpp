#include "extras/reviews/reviews.hpp"

namespace abh {

TaskPrograms reviews_programs() {
  return {.train = reviews_training,
          .evaluate =
              [] {
                return answer_evaluation(reviews_again, "texts with labels, of which the last tenth are the test set");
              },
          .draw = reviews_drawing};
}

}  // namespace abh
