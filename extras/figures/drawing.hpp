#pragma once

// draw: pictures of what a network computes of one sequence. What is drawn of every network stands here and in
// gallery.hpp; a task says what is shown to it, and adds what only it can draw.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "extras/figures/observed.hpp"
#include "extras/figures/picture_page.hpp"
#include "network/batch.hpp"
#include "tasks/programs.hpp"

namespace abh {

inline constexpr Index longest_drawn = 128;              // positions; of more no picture can be read
inline constexpr std::size_t largest_drawing = 2000000;  // bytes of the page and its pictures

// Draws every `heads`-th head of every `layers`-th layer: a large network has more maps than a page holds.
struct Thinning {
  Index heads = 1, layers = 1;
  bool draws(const AttentionMap& map) const { return map.head % heads == 0 && map.layer % layers == 0; }
};

// One sequence that is shown to a network.
struct FigureExample {
  std::string title{};                  // "the array 3 1 2 1 3 2"
  Batch batch{};                        // without padding; without a target that counts where the answer is not known
  std::vector<std::string> name_c{};    // of the positions, for people
  std::vector<std::string> answer_o{};  // what each logit stands for
  std::vector<std::string> notes{};     // that whoever looks must know
};

// The interface of a task for draw. Flags of its own, if it has any, are read into members.
class TaskFigures : public TaskFlags {
 public:
  // From --text, else --example.
  struct FigureRequest {
    std::optional<std::string> text;
    Index example = 0;
  };
  void add_flags(Flags&) override {}
  // The sequence, of at most `longest` positions, which says in a note that it was cut. Error for what a network of the
  // file `source` cannot be shown.
  virtual FigureExample subject(const Trained& trained, const FigureRequest& request, Index longest,
                                const std::string& source) = 0;
  // A section for this task alone; one without pictures is left out.
  virtual PictureSection section(const FigureExample&, const Observed&, const Thinning&) const { return {}; }
};

// The command of such a task.
std::unique_ptr<TaskCommand> drawing(std::unique_ptr<TaskFigures> task);
// Some of them, for whoever shows a network in another way.
std::unique_ptr<TaskFigures> drawn_text();
std::unique_ptr<TaskFigures> drawn_sort();
std::unique_ptr<TaskFigures> drawn_reviews();
std::unique_ptr<TaskFigures> drawn_digits();

}  // namespace abh
