#include "extras/sort/sort_kind.hpp"

namespace abh {

TaskPrograms sort_programs() { return {sort_training, sort_evaluation, sort_generation, sort_drawing}; }

}  // namespace abh
