#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "extras/answers/answers.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Arrays that are to be sorted: a network reads one, and then writes its digits in ascending order
// (extras/sort/README.md). Digit 1 is token 0, and so on.
struct ArraySize {
  Index length = 6;  // L, digits of an array
  Index digits = 3;  // that there are

  // Positions of an array with its sorted digits behind it, of which the last one is asked for alone.
  Index context() const { return 2 * length - 1; }
  // How many arrays there are, where that is at most `most`; more than that otherwise.
  Index arrays(Index most) const;
};
inline constexpr Index shortest_array = 2, longest_array = 1000, fewest_digits = 2, most_digits = 1000;
inline constexpr Index most_test_arrays = 1000;
// So many arrays are looked at one by one.
inline constexpr Index most_listed_arrays = Index{1} << 16;

// UsageError where no array of this size, or every one, would be a test array.
void require_both_kinds(const ArraySize& size);

// Whether an array is kept for testing: no training example is one of these.
bool is_test_array(std::span<const Token> array_l, const ArraySize& size);

class SortTask : public AnswerTask {
 public:
  // The arrays that are evaluated: the test arrays, or every array, where they can be listed.
  enum class Arrays { test, all };
  explicit SortTask(const ArraySize& size, Arrays evaluated = Arrays::test);

  // The array of an example: a training array, or, from first_test_example on, the evaluated array number
  // example - first_test_example.
  std::vector<Token> array(Index example) const;

  Metadata metadata() const override;
  void shape(ModelConfig& config) const override;
  // The check value of the arrays that are evaluated, as lines for people.
  std::string fingerprint() const override;
  std::size_t bytes() const override { return evaluated_el_.size() * sizeof(Token); }
  std::string summary() const override;
  std::string unit() const override { return "digit"; }
  void append(Batch& batch, Index example) const override;
  // "3 1 2 1 3 2 -> 1 1 2 2 3 3", and what was expected, where that is something else.
  std::string shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const override;

 private:
  SortTask(const ArraySize& size, std::vector<Token> evaluated_el);

  ArraySize size_;
  std::vector<Token> evaluated_el_;
};

// Puts an array into a batch, behind its last row, with the targets that sort it.
void append_array(Batch& batch, const std::vector<Token>& array_l);

// Digits for people: "3 1 2".
std::string array_text(std::span<const Token> array_l);

// Arrays: their digits in ascending order are asked for.
TaskKind sort_kind(const TaskPrograms& programs);

// The arrays of a checkpoint that sort_kind accepts.
ArraySize array_size_of(const Metadata& metadata);

// A network of the file `source` is given arrays of this length. Error, which names `what` asks for it, if it is
// another than it was trained on and its positions are a table, which ends.
void require_length(const Trained& trained, Index length, const std::string& what, const std::string& source);
// Makes it one of such arrays.
void set_length(Trained& trained, Index length);

// The digits of a line with spaces between them; they may be more or fewer than `size` says. Error, which names `what`.
std::vector<Token> array_of_line(const std::string& line, const ArraySize& size, const std::string& what);

// The task's part of the programs.
TaskPrograms sort_programs();
std::unique_ptr<TaskTraining> sort_training();
std::unique_ptr<TaskCommand> sort_evaluation();
std::unique_ptr<TaskCommand> sort_generation();
std::unique_ptr<TaskCommand> sort_drawing();

}  // namespace abh
