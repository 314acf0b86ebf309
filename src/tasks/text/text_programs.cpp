#include "tasks/text/text_kind.hpp"

namespace abh {

TaskPrograms text_programs() { return {text_training, text_evaluation, text_generation, text_drawing}; }

}  // namespace abh
