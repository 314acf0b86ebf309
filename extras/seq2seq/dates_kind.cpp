#include "extras/seq2seq/dates_kind.hpp"

#include <string>

#include "extras/seq2seq/dates_task.hpp"

namespace abh {

namespace {

void check_dates(const Metadata&, const ModelConfig& config, const std::string& source) {
  require_sizes(DatesTask::words_of_dates(), config, source);
}

}  // namespace

TaskKind dates_kind(const TaskPrograms& programs) {
  return {.name = "dates",
          .summary = "a date as people write it, for machines",
          .check = check_dates,
          .keys = {},
          .complete = [](Metadata&) {},
          .programs = programs};
}

}  // namespace abh
