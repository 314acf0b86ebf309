#include "extras/digits/digits.hpp"

namespace abh {

TaskPrograms digits_programs() {
  return {.train = digits_training,
          .evaluate =
              [] {
                return answer_evaluation(
                    digits_again, "images to evaluate: their test set, or the last fifth if there is no test set");
              },
          .draw = digits_drawing};
}

}  // namespace abh
