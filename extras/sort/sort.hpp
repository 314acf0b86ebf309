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

// Sorting task: the network reads an array and then writes its digits in ascending order (extras/sort/README.md). Digit
// 1 is token 0, and so on.
struct ArraySize {
  Index length = 6;  // L, number of digits in an array
  Index digits = 3;  // number of different digits

  // Positions of an array followed by its sorted digits; the last sorted digit is only a target.
  Index context() const { return 2 * length - 1; }
  // Number of arrays if it is at most `most`; otherwise any larger number.
  Index arrays(Index most) const;
};
inline constexpr Index shortest_array = 2, longest_array = 1000, fewest_digits = 2, most_digits = 1000;
inline constexpr Index most_test_arrays = 1000;
// Largest number of arrays that is enumerated.
inline constexpr Index most_listed_arrays = Index{1} << 16;

// Throws UsageError if no array of this size, or every array, would be a test array.
void require_both_kinds(const ArraySize& size);

// True for test arrays, which are no training examples.
bool is_test_array(std::span<const Token> array_l, const ArraySize& size);

class SortTask : public AnswerTask {
 public:
  // Evaluated arrays: the test arrays, or all arrays if they can be enumerated.
  enum class Arrays { test, all };
  explicit SortTask(const ArraySize& size, Arrays evaluated = Arrays::test);

  // Array of an example: a training array, or, from first_test_example on, the evaluated array with index example -
  // first_test_example.
  std::vector<Token> array(Index example) const;

  Metadata metadata() const override;
  void shape(ModelConfig& config) const override;
  // Checksum of the evaluated arrays, as text.
  std::string fingerprint() const override;
  std::size_t bytes() const override { return evaluated_el_.size() * sizeof(Token); }
  std::string summary() const override;
  std::string unit() const override { return "digit"; }
  void append(Batch& batch, Index example) const override;
  // "3 1 2 1 3 2 -> 1 1 2 2 3 3", followed by the expected digits if they differ.
  std::string shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const override;

 private:
  SortTask(const ArraySize& size, std::vector<Token> evaluated_el);

  ArraySize size_;
  std::vector<Token> evaluated_el_;
};

// Appends an array to a batch, with its sorted digits as targets.
void append_array(Batch& batch, const std::vector<Token>& array_l);

// Text of the digits: "3 1 2".
std::string array_text(std::span<const Token> array_l);

// Task kind: sorting of arrays.
TaskKind sort_kind(const TaskPrograms& programs);

// Size of the arrays in a checkpoint of sort_kind.
ArraySize array_size_of(const Metadata& metadata);

// Checks an array length for a network of the file `source`. Throws Error, which names `what`, if it differs from that
// of training and the network has a table of learned positions.
void require_length(const Trained& trained, Index length, const std::string& what, const std::string& source);
// Sets the array length of a network.
void set_length(Trained& trained, Index length);

// Digits of a line, separated by spaces; their number may differ from `size`. Throws Error, which names `what`.
std::vector<Token> array_of_line(const std::string& line, const ArraySize& size, const std::string& what);

// The task's part of the programs.
TaskPrograms sort_programs();
std::unique_ptr<TaskTraining> sort_training();
std::unique_ptr<TaskCommand> sort_evaluation();
std::unique_ptr<TaskCommand> sort_generation();
std::unique_ptr<TaskCommand> sort_drawing();

}  // namespace abh
