#include "tasks/programs.hpp"

#include "base/text.hpp"
#include "network/transfer.hpp"

namespace abh {

void TaskTraining::Started::begin_with(const Request& request) {
  if (!request.trained) return;
  const Trained& trained = *request.trained;
  ModelConfig config = request.model;
  task->shape(config);
  weights =
      transferred_weights(trained.config, trained.weights, config, request.training.init_std, request.training.seed);
  summary = "step " + to_text(trained.step) + new_positions(trained.config, config);
}

}  // namespace abh
