#include "extras/digits/digits.hpp"

namespace abh {

TaskPrograms digits_programs() {
  return {.train = digits_training,
          .evaluate =
              [] {
                return answer_evaluation(digits_again, "pictures, of which the test set is taken, else the last fifth");
              },
          .draw = digits_drawing};
}

}  // namespace abh
