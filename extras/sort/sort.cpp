#include "extras/sort/sort.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "extras/figures/drawing.hpp"
#include "extras/sort/ways.hpp"

namespace abh {

namespace {

// All runs use the same arrays, for any seed of the run.
constexpr std::uint64_t data_seed = 0;
// Philox step that classifies arrays; examples are smaller numbers.
constexpr std::uint32_t step_of_choice = 0xFFFFFFFF;
// A quarter of all words is below it.
constexpr std::uint32_t test_bound = std::uint32_t{1} << 30;

// Digits of an array as a number, most significant digit first, modulo 2^64.
std::uint64_t number_of(std::span<const Token> array_l, const ArraySize& size) {
  std::uint64_t number = 0;
  for (const Token digit : array_l) {
    number = number * static_cast<std::uint64_t>(size.digits) + static_cast<std::uint64_t>(digit);
  }
  return number;
}

std::vector<Token> array_of(Index number, const ArraySize& size) {
  std::vector<Token> array_l(static_cast<std::size_t>(size.length));
  for (std::size_t l = array_l.size(); l-- > 0; number /= size.digits) {
    array_l[l] = static_cast<Token>(number % size.digits);
  }
  return array_l;
}

// The first array drawn for an example that is (test) or is not a test array.
std::vector<Token> drawn(std::uint32_t example, bool test, const ArraySize& size) {
  std::vector<Token> array_l(static_cast<std::size_t>(size.length));
  std::uint64_t word = 0;
  do {
    for (Token& digit : array_l) {
      const std::uint64_t random = philox_word(data_seed, word++, example, sites::sort);
      digit = static_cast<Token>((random * static_cast<std::uint64_t>(size.digits)) >> 32);
    }
  } while (is_test_array(array_l, size) != test);
  return array_l;
}

// All enumerated arrays, or the test arrays among them, in ascending order.
std::vector<std::vector<Token>> listed_arrays(const ArraySize& size, bool all) {
  std::vector<std::vector<Token>> found;
  for (Index number = 0; number < size.arrays(most_listed_arrays); ++number) {
    std::vector<Token> array_l = array_of(number, size);
    if (all || is_test_array(array_l, size)) found.push_back(std::move(array_l));
  }
  return found;
}

// Arrays of an evaluation, concatenated.
std::vector<Token> evaluated(const ArraySize& size, SortTask::Arrays wanted) {
  require_both_kinds(size);
  const bool all = wanted == SortTask::Arrays::all, few = size.arrays(most_listed_arrays) <= most_listed_arrays;
  if (all && !few) {
    throw UsageError("--all: expected at most " + to_text(most_listed_arrays) +
                     " arrays in all, found more of length " + to_text(size.length) + " out of " +
                     to_text(size.digits) + " digits");
  }
  std::vector<std::vector<Token>> arrays;
  if (few) arrays = listed_arrays(size, all);
  if (!few || (!all && static_cast<Index>(arrays.size()) > most_test_arrays)) {
    // Repeated test arrays are skipped.
    std::set<std::vector<Token>> known;
    arrays.clear();
    for (std::uint32_t example = first_test_example; static_cast<Index>(arrays.size()) < most_test_arrays; ++example) {
      std::vector<Token> array_l = drawn(example, true, size);
      if (known.insert(array_l).second) arrays.push_back(std::move(array_l));
    }
  }
  std::vector<Token> together;
  for (const std::vector<Token>& array_l : arrays) together.insert(together.end(), array_l.begin(), array_l.end());
  return together;
}

}  // namespace

Index ArraySize::arrays(Index most) const {
  Index count = 1;
  for (Index l = 0; l < length && count <= most; ++l) count *= digits;
  return count;
}

bool is_test_array(std::span<const Token> array_l, const ArraySize& size) {
  return philox_word(data_seed, number_of(array_l, size), step_of_choice, sites::sort) < test_bound;
}

void require_both_kinds(const ArraySize& size) {
  const Index arrays = size.arrays(most_listed_arrays);
  if (arrays > most_listed_arrays) return;
  const Index tests = static_cast<Index>(listed_arrays(size, false).size());
  if (tests > 0 && tests < arrays) return;
  throw UsageError("--length " + to_text(size.length) + " --digits " + to_text(size.digits) + ": " +
                   (tests ? "all" : "none") + " of the " + to_text(arrays) +
                   " arrays are kept for testing; expected longer arrays, or more digits");
}

SortTask::SortTask(const ArraySize& size, Arrays wanted) : SortTask(size, evaluated(size, wanted)) {}

SortTask::SortTask(const ArraySize& size, std::vector<Token> evaluated_el)
    : AnswerTask("sort", size.context(), size.length, 0, static_cast<Index>(evaluated_el.size()) / size.length),
      size_(size),
      evaluated_el_(std::move(evaluated_el)) {}

Metadata SortTask::metadata() const {
  return {{"task", "sort"}, {"length", to_text(size_.length)}, {"digits", to_text(size_.digits)}};
}

void SortTask::shape(ModelConfig& config) const {
  config.vocabulary = size_.digits;
  config.context = size_.context();
}

std::string SortTask::fingerprint() const {
  std::string text;
  const auto length = static_cast<std::size_t>(size_.length);
  for (std::size_t first = 0; first < evaluated_el_.size(); first += length) {
    text += array_text(std::span(evaluated_el_).subspan(first, length)) + "\n";
  }
  return to_text(validation_rows()) + " arrays, " + crc32_text(text);
}

std::string SortTask::summary() const {
  const Index arrays = size_.arrays(most_listed_arrays);
  return "arrays of " + to_text(size_.length) + " digits from 1 to " + to_text(size_.digits) + ", " +
         to_text(validation_rows()) + (arrays > most_listed_arrays ? "" : " of " + to_text(arrays)) + " for validation";
}

std::vector<Token> SortTask::array(Index example) const {
  const Index e = example - static_cast<Index>(first_test_example);
  if (e < 0) return drawn(static_cast<std::uint32_t>(example), false, size_);
  const auto begin = evaluated_el_.begin() + e * size_.length;
  return {begin, begin + size_.length};
}

void SortTask::append(Batch& batch, Index example) const { append_array(batch, array(example)); }

void append_array(Batch& batch, const std::vector<Token>& array_l) {
  std::vector<Token> sorted_l = array_l;
  std::sort(sorted_l.begin(), sorted_l.end());
  // The target at the last digit of the array is the first digit of the answer; each answer digit predicts the next.
  batch.token_bc.insert(batch.token_bc.end(), array_l.begin(), array_l.end());
  batch.token_bc.insert(batch.token_bc.end(), sorted_l.begin(), sorted_l.end() - 1);
  batch.target_r.insert(batch.target_r.end(), array_l.size() - 1, ignored_target);
  batch.target_r.insert(batch.target_r.end(), sorted_l.begin(), sorted_l.end());
  ++batch.B;
}

std::string SortTask::shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const {
  const auto length = static_cast<std::size_t>(size_.length);
  const std::size_t row = static_cast<std::size_t>(b * batch.C), answer = row + length - 1;
  const std::string said = array_text(std::span(best_r).subspan(answer, length));
  const std::string expected = array_text(std::span(batch.target_r).subspan(answer, length));
  return array_text(std::span(batch.token_bc).subspan(row, length)) + " -> " + said +
         (said == expected ? "" : ", expected " + expected);
}

std::string array_text(std::span<const Token> array_l) {
  std::string text;
  for (const Token digit : array_l) text += (text.empty() ? "" : " ") + to_text(digit + 1);
  return text;
}

namespace {

void check_sort(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  const ArraySize size{.length = number_in(metadata, "length", shortest_array, longest_array, source),
                       .digits = number_in(metadata, "digits", fewest_digits, most_digits, source)};
  const auto require = [&](const char* key, Index expected, Index found) {
    if (found == expected) return;
    throw Error(source + ": metadata " + key + ": expected " + to_text(expected) + " for arrays of " +
                to_text(size.length) + " digits from 1 to " + to_text(size.digits) + ", found " + to_text(found));
  };
  require("vocabulary_size", size.digits, config.vocabulary);
  require("context", size.context(), config.context);
  require("classes", 0, config.classes);
  require("causal", 1, config.causal ? 1 : 0);  // otherwise it would attend to the answer
  try {
    require_both_kinds(size);
  } catch (const UsageError& error) {
    throw Error(source + ": metadata: " + error.what());
  }
}

}  // namespace

TaskKind sort_kind(const TaskPrograms& programs) {
  return {.name = "sort",
          .summary = "sort an array of digits",
          .check = check_sort,
          .keys = {"length", "digits"},
          .complete = [](Metadata&) {},
          .programs = programs};
}

ArraySize array_size_of(const Metadata& metadata) {
  const auto number = [&](const char* key) { return *from_text<Index>(metadata.at(key)); };
  return {.length = number("length"), .digits = number("digits")};
}

std::vector<Token> array_of_line(const std::string& line, const ArraySize& size, const std::string& what) {
  const auto refuse = [&](const std::string& found) {
    throw Error(what + ": expected " + to_text(size.length) + " digits from 1 to " + to_text(size.digits) +
                ", with spaces between them, found " + found);
  };
  std::vector<Token> array_l;
  for (const std::string& word : words_in(line)) {
    const std::optional<Index> digit = from_text<Index>(word);
    if (!digit || *digit < 1 || *digit > size.digits) refuse(in_quotes(word));
    array_l.push_back(static_cast<Token>(*digit - 1));
  }
  const Index count = static_cast<Index>(array_l.size());
  if (count < shortest_array || count > longest_array) refuse(count == 0 ? "none" : to_text(count));
  return array_l;
}

void require_length(const Trained& trained, Index length, const std::string& what, const std::string& source) {
  const Index known = array_size_of(trained.task).length;
  if (length == known || !trained.config.has_position_table()) return;
  throw Error(what + ": expected " + to_text(known) + " digits as " + source +
              " was trained on, since its positions are learned, found " + to_text(length));
}

void set_length(Trained& trained, Index length) {
  trained.task["length"] = to_text(length);
  trained.config.context = array_size_of(trained.task).context();
}

namespace {

class SortTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override {
    flags.integer("length", size_.length, "N", "task sort: digits per array; the context is 2 N - 1", shortest_array,
                  longest_array);
    flags.integer("digits", size_.digits, "N", "task sort: number of different digits", fewest_digits, most_digits);
  }

  void check(const Flags& flags) const override {
    require_both_kinds(size_);
    // With --init-from the size is that of the file, which is not read yet.
    if (flags.given("context") && !flags.given("init-from")) {
      require_context(*from_text<Index>(flags.value("context")));
    }
  }

  void take(const Metadata& task, const std::string&) override { size_ = array_size_of(task); }

  bool predicts() const override { return true; }
  void shape(ModelConfig& model) const override { model.context = size_.context(); }

  // As small as minGPT's network for this task; extras/sort/README.md explains the other values.
  void recipe(const std::string&, ModelConfig& model, TrainingConfig& training) const override {
    model = {.layers = 3, .channels = 48, .heads = 3, .context = size_.context(), .mixer = "dot"};
    training = {.batch = 64,
                .steps = 500,
                .learning_rate = 5e-4,
                .warmup = 0,
                .beta2 = 0.95,
                .dropout = 0.1,
                .init_std = 0.1,
                .eval_every = 50};
  }

  Started start(Request request) const override {
    if (request.trained) require_context(request.model.context);
    Started started;
    started.task = std::make_unique<SortTask>(size_);
    started.begin_with(request);
    return started;
  }

 private:
  void require_context(Index found) const {
    if (found == size_.context()) return;
    throw UsageError("--context: expected " + to_text(size_.context()) + ", an array of " + to_text(size_.length) +
                     " digits and the sorted digits except the last, found " + to_text(found));
  }

  ArraySize size_;
};

}  // namespace

std::unique_ptr<TaskTraining> sort_training() { return std::make_unique<SortTraining>(); }

namespace {

std::string percent(double part) { return fixed_text(100 * part, 1) + " %"; }

std::string agreement(const std::string& what, const std::vector<double>& x, const std::vector<double>& y) {
  const double rho = rank_correlation(x, y);
  return what + " have a rank correlation of " + (std::isnan(rho) ? "NaN" : fixed_text(rho, 2)) + ".";
}

class DrawnSort : public TaskFigures {
 public:
  FigureExample subject(const Trained& trained, const FigureRequest& request, Index,
                        const std::string& source) override {
    const ArraySize size = array_size_of(trained.task);
    std::vector<Token> array_l;
    if (request.text) {
      array_l = array_of_line(*request.text, size, "--text");
    } else {
      const SortTask task(size);
      require_example(request.example, task.validation_rows(), source);
      array_l = task.array(task.test_example(request.example));
    }
    length_ = static_cast<Index>(array_l.size());
    require_length(trained, length_, "--text", source);
    if (constexpr Index most = (longest_drawn + 1) / 2; length_ > most) {
      throw Error(source + ": expected arrays of at most " + to_text(most) + " digits for a drawing, found " +
                  to_text(length_));
    }
    FigureExample subject{.title = "the array " + array_text(array_l), .batch = {.B = 0, .C = 2 * length_ - 1}};
    append_array(subject.batch, array_l);
    for (Index digit = 1; digit <= size.digits; ++digit) subject.answer_o.push_back(to_text(digit));
    for (Index c = 0; c < subject.batch.C; ++c) {
      const std::string& name =
          subject.answer_o[static_cast<std::size_t>(subject.batch.token_bc[static_cast<std::size_t>(c)])];
      subject.name_c.push_back(c < length_ ? name : "=" + name);
    }
    subject.notes = {
        "The array comes first, then its sorted digits, written as =1. Each position predicts the next digit."};
    return subject;
  }

  // Attention from the positions that predict the answer to the digits of the array.
  PictureSection section(const FigureExample& subject, const Observed& seen, const Thinning& thinning) const override {
    const auto L = static_cast<std::size_t>(length_), C = static_cast<std::size_t>(seen.positions());
    PictureSection section{
        "Attention from the answer to the array",
        "Above: the array; below: the answer. Lines join a digit of the answer to the digits of the array "
        "to which the position that predicts it attends.",
        {}};
    for (const AttentionMap& map : seen.maps()) {
      if (!thinning.draws(map)) continue;
      const std::string head = map.heads == 1 ? "" : ", head " + to_text(map.head);
      WaysPicture ways{
          .text = {"Layer " + to_text(map.layer) + (map.kind.empty() ? "" : ", weights of " + map.kind) + head,
                   "above: array, below: answer"}};
      double given = 0, to_equals = 0, equals = 0;
      std::vector<double> said, looked_at;
      for (std::size_t l = 0; l < L; ++l) {
        const Token answer = subject.batch.target_r[L - 1 + l];
        ways.above.push_back(subject.name_c[l]);
        ways.below.push_back(subject.answer_o[static_cast<std::size_t>(answer)]);
        double of_row = 0, digit = 0;
        for (std::size_t s = 0; s < L; ++s) {
          const double weight = map.weight_cs[(L - 1 + l) * C + s];
          const Token other = subject.batch.token_bc[s];
          ways.weight_ba.push_back(weight);
          of_row += weight;
          digit += weight * other;
          to_equals += other == answer ? weight : 0;
          equals += other == answer ? 1 : 0;
        }
        given += of_row;
        said.push_back(answer);
        looked_at.push_back(of_row > 0 ? digit / of_row : 0);
      }
      ways.text.description = "Of the attention from the answer to the array, " +
                              percent(given > 0 ? to_equals / given : 0) +
                              " goes to digits equal to the predicted one; with uniform weights it would be " +
                              percent(equals / static_cast<double>(L * L)) + ". " +
                              agreement("The mean digit attended to and the predicted digit", said, looked_at);
      if (const std::vector<double> square_cs = squares_by_metric(seen, map.layer, map.head); !square_cs.empty()) {
        std::vector<double> square, apart;
        for (std::size_t i = 0; i < L; ++i) {
          for (std::size_t j = 0; j < i; ++j) {
            square.push_back(square_cs[i * C + j]);
            apart.push_back(std::abs(subject.batch.token_bc[i] - subject.batch.token_bc[j]));
          }
        }
        ways.text.description += " " + agreement("Squared distances by M and differences of digits", square, apart);
      }
      section.figures.push_back(
          {"way-" + to_text(map.layer) + (map.kind.empty() ? "-" : "-" + map.kind + "-") + to_text(map.head) + ".svg",
           ways_svg(ways), ways.text.title + ": " + ways.text.description, ways.text.description});
    }
    return section;
  }

 private:
  Index length_ = 0;
};

}  // namespace

std::unique_ptr<TaskFigures> drawn_sort() { return std::make_unique<DrawnSort>(); }

std::unique_ptr<TaskCommand> sort_drawing() { return drawing(drawn_sort()); }

}  // namespace abh
