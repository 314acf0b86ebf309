#include "extras/seq2seq/dates.hpp"

#include <string>

#include "base/text.hpp"
#include "extras/seq2seq/drawn_dates.hpp"

namespace abh {

namespace {

constexpr Index training_dates = 20000, test_dates = 1000;

}  // namespace

DatesTask::DatesTask()
    : Seq2SeqTask("dates", words_of_dates(), longest_written_date, date_length + 1, training_dates, test_dates) {}

SequenceWords DatesTask::words_of_dates() {
  const auto tokenizer = [](const char* characters) { return Tokenizer::of_characters(characters, "dates"); };
  return {tokenizer(characters_of_written_dates), tokenizer(characters_of_dates), false, true};
}

Seq2SeqTask::Pair DatesTask::pair(Index example) const {
  const DrawnDate date = drawn_date(static_cast<std::uint32_t>(example));
  return {.source = words().source_tokens(date.written, "dates"), .target = words().target_tokens(date.date, "dates")};
}

std::string DatesTask::summary() const {
  return "drawn dates, " + to_text(training_dates) + " for training, " + to_text(test_dates) +
         " for testing, on other days";
}

namespace {

void check_dates(const Metadata&, const ModelConfig& config, const std::string& source) {
  require_sizes(DatesTask::words_of_dates(), config, source);
}

}  // namespace

TaskKind dates_kind(const TaskPrograms& programs) {
  return {.name = "dates",
          .summary = "convert a date to the form 1999-09-22",
          .check = check_dates,
          .keys = {},
          .complete = [](Metadata&) {},
          .programs = programs};
}

}  // namespace abh
