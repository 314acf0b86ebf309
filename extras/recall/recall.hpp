#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "extras/answers/answers.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Sequences of symbols with a marker at two positions: a random one and the last. The target at the last position is
// the symbol after the first marker (extras/recall/README.md). Tokens 0 to 7 are symbols, 8 is the marker.
inline constexpr Index recall_symbols = 8, recall_vocabulary = recall_symbols + 1;
inline constexpr Token recall_marker = static_cast<Token>(recall_symbols);
inline constexpr Index shortest_recall = 3;  // positions: marker, symbol, marker

struct RecallSize {
  Index context = 64, reach = 62;  // positions of a sequence; largest distance of the symbol from the end
  // Largest possible distance of a symbol in a sequence of this length.
  static Index farthest(Index context) { return context - 2; }
};

// Training example `example`, or a test example from first_test_example on: its tokens, the target symbol, and the
// distance of this symbol from the last position.
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
  // "the symbol 17 back -> 5", followed by the expected symbol if it differs.
  std::string shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const override;
  // Distances, in eight bins of equal width, or fewer if there are fewer distances.
  std::vector<std::string> kinds() const override;
  std::size_t kind(Index example) const override;

 private:
  Index bins() const;

  RecallSize size_;
};

// Appends a sequence to a batch; the target at its last position is `symbol`.
void append_recall(Batch& batch, const std::vector<Token>& token_c, Token symbol);

// Task kind: recall of one symbol of a sequence.
TaskKind recall_kind(const TaskPrograms& programs);

// Sizes in a checkpoint of recall_kind.
RecallSize recall_size_of(const Metadata& metadata, const ModelConfig& config);

// The task's part of the programs.
TaskPrograms recall_programs();
std::unique_ptr<TaskCommand> recall_drawing();

}  // namespace abh
