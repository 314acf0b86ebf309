#include "extras/digits/digits.hpp"

namespace abh {

TaskPrograms digits_programs() {
  return {.train = digits_training,
          .evaluate =
              [] {
                return answer_evaluation(
                    digits_again, "pictures to evaluate on: their test set, or the last fifth where they have none");
              },
          .draw = digits_drawing};
}

}  // namespace abh
