#pragma once

// draw: figures of the computation of a network for one sequence. This file and gallery.hpp have the figures of all
// networks; a task selects the sequence and may add its own figures.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "extras/figures/observed.hpp"
#include "extras/figures/picture_page.hpp"
#include "network/batch.hpp"
#include "tasks/programs.hpp"

namespace abh {

inline constexpr Index longest_drawn = 128;              // positions; figures of longer sequences are not readable
inline constexpr std::size_t largest_drawing = 2000000;  // bytes of the page and its figures

// Draws every `heads`-th head of every `layers`-th layer: a large network has too many maps for a page.
struct Thinning {
  Index heads = 1, layers = 1;
  bool draws(const AttentionMap& map) const { return map.head % heads == 0 && map.layer % layers == 0; }
};

// One sequence, the input of the network.
struct FigureExample {
  std::string title{};                  // "the array 3 1 2 1 3 2"
  Batch batch{};                        // without padding; without targets that count if the answer is unknown
  std::vector<std::string> name_c{};    // names of the positions, as text
  std::vector<std::string> answer_o{};  // meaning of each logit
  std::vector<std::string> notes{};     // notes for the reader
};

// Interface of a task for draw. Its own flags are stored in members.
class TaskFigures : public TaskFlags {
 public:
  // Values of --text or --example.
  struct FigureRequest {
    std::optional<std::string> text;
    Index example = 0;
  };
  void add_flags(Flags&) override {}
  // The sequence, truncated to `longest` positions with a note. Throws Error for an input that does not fit the network
  // of the file `source`.
  virtual FigureExample subject(const Trained& trained, const FigureRequest& request, Index longest,
                                const std::string& source) = 0;
  // A section of this task alone; omitted if it has no figures.
  virtual PictureSection section(const FigureExample&, const Observed&, const Thinning&) const { return {}; }
};

// The draw command of a task.
std::unique_ptr<TaskCommand> drawing(std::unique_ptr<TaskFigures> task);
// Figures of texts, also used by other programs.
std::unique_ptr<TaskFigures> drawn_text();
std::unique_ptr<TaskFigures> drawn_sort();
std::unique_ptr<TaskFigures> drawn_reviews();
std::unique_ptr<TaskFigures> drawn_digits();

}  // namespace abh
