#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "extras/answers/answers.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Sequences of symbols in which a marker stands twice: somewhere, and at the end, where the symbol is asked for that
// stands behind the first one (extras/recall/README.md). Tokens 0 to 7 are symbols, 8 is the marker.
inline constexpr Index recall_symbols = 8, recall_vocabulary = recall_symbols + 1;
inline constexpr Token recall_marker = static_cast<Token>(recall_symbols);
inline constexpr Index shortest_recall = 3;  // positions: a marker, its symbol, and a marker

struct RecallSize {
  Index context = 64, reach = 62;  // positions of a sequence; of these the symbol is at most so many back
  // How far back a symbol may be in a sequence of so many positions.
  static Index farthest(Index context) { return context - 2; }
};

// Example number `example`, for training or from first_test_example on for testing: its tokens, the symbol that is
// asked for, and how many positions before the last one it stands.
struct RecallExample {
  std::vector<Token> token_c;
  Token symbol;
  Index distance;
};
RecallExample recall_example(std::uint32_t example, const RecallSize& size);

class RecallTask : public AnswerTask {
 public:
  explicit RecallTask(const RecallSize& size);

  Metadata metadata() const override;
  void shape(ModelConfig& config) const override;
  std::string fingerprint() const override { return "drawn sequences"; }
  std::string summary() const override;
  std::string unit() const override { return "symbol"; }
  void append(Batch& batch, Index example) const override;
  // "the symbol 17 back -> 5", and what was expected, where that is something else.
  std::string shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const override;
  // Distances, in eight bins of the same width, or as many as there are distances.
  std::vector<std::string> kinds() const override;
  std::size_t kind(Index example) const override;

 private:
  Index bins() const;

  RecallSize size_;
};

// Puts a sequence into a batch, behind its last row: at its last position this symbol is asked for.
void append_recall(Batch& batch, const std::vector<Token>& token_c, Token symbol);

// Sequences of which one symbol is to be recalled.
TaskKind recall_kind(const TaskPrograms& programs);

// The sequences of a checkpoint that recall_kind accepts.
RecallSize recall_size_of(const Metadata& metadata, const ModelConfig& config);

// The task's part of the programs.
TaskPrograms recall_programs();
std::unique_ptr<TaskCommand> recall_drawing();

}  // namespace abh
