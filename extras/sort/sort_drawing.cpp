#include <cmath>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/figures/drawing.hpp"
#include "extras/sort/sort_kind.hpp"
#include "extras/sort/sort_task.hpp"
#include "extras/sort/ways.hpp"

namespace abh {

namespace {

std::string percent(double part) { return fixed_text(100 * part, 1) + " %"; }

std::string agreement(const std::string& what, const std::vector<double>& x, const std::vector<double>& y) {
  const double rho = rank_correlation(x, y);
  return what + " agree to " + (std::isnan(rho) ? "no degree" : fixed_text(rho, 2)) + " (rank correlation).";
}

class DrawnSort : public DrawnTask {
 public:
  Subject subject(const Trained& trained, const Wanted& wanted, Index, const std::string& source) override {
    const ArraySize size = array_size_of(trained.task);
    std::vector<Token> array_l;
    if (wanted.text) {
      array_l = array_of_line(*wanted.text, size, "--text");
    } else {
      const SortTask task(size);
      require_example(wanted.example, task.validation_rows(), source);
      array_l = task.array(task.test_example(wanted.example));
    }
    length_ = static_cast<Index>(array_l.size());
    require_length(trained, length_, "--text", source);
    if (constexpr Index most = (longest_drawn + 1) / 2; length_ > most) {
      throw Error(source + ": expected arrays of at most " + to_text(most) + " digits, to be drawn, found " +
                  to_text(length_));
    }
    Subject subject{.title = "the array " + array_text(array_l), .batch = {.B = 0, .C = 2 * length_ - 1}};
    append_array(subject.batch, array_l);
    for (Index digit = 1; digit <= size.digits; ++digit) subject.answer_o.push_back(to_text(digit));
    for (Index c = 0; c < subject.batch.C; ++c) {
      const std::string& name =
          subject.answer_o[static_cast<std::size_t>(subject.batch.token_bc[static_cast<std::size_t>(c)])];
      subject.name_c.push_back(c < length_ ? name : "=" + name);
    }
    subject.notes = {
        "The array stands first, and behind it its sorted digits, as =1, of which each asks for the next."};
    return subject;
  }

  // The way from the array to its answer: where those look, digit by digit of the array, that say the answer.
  PictureSection section(const Subject& subject, const Observed& seen, const Thinning& thinning) const override {
    const auto L = static_cast<std::size_t>(length_), C = static_cast<std::size_t>(seen.positions());
    PictureSection section{"From the array to its answer",
                           "Above the array, below its answer: every digit of that is joined with those of the array "
                           "that it looks at where it is said.",
                           {}};
    for (const AttentionMap& map : seen.maps()) {
      if (!thinning.draws(map)) continue;
      const std::string head = map.heads == 1 ? "" : ", head " + to_text(map.head);
      WaysPicture ways{
          .text = {"Layer " + to_text(map.layer) + (map.kind.empty() ? "" : ", weights of " + map.kind) + head,
                   "above the array, below its answer"}};
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
      ways.text.description = "Of what the answer gives to the array, " + percent(given > 0 ? to_equals / given : 0) +
                              " goes to digits that equal the one said; were all digits alike, it would be " +
                              percent(equals / static_cast<double>(L * L)) + ". " +
                              agreement("The digit looked at, in the mean, and the one said", said, looked_at);
      if (const std::vector<double> square_cs = squares_by_metric(seen, map.layer, map.head); !square_cs.empty()) {
        std::vector<double> square, apart;
        for (std::size_t i = 0; i < L; ++i) {
          for (std::size_t j = 0; j < i; ++j) {
            square.push_back(square_cs[i * C + j]);
            apart.push_back(std::abs(subject.batch.token_bc[i] - subject.batch.token_bc[j]));
          }
        }
        ways.text.description += " " + agreement("Distances by M and how far digits are apart", square, apart);
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

std::unique_ptr<DrawnTask> drawn_sort() { return std::make_unique<DrawnSort>(); }

std::unique_ptr<TaskCommand> sort_drawing() { return drawing(drawn_sort()); }

}  // namespace abh
