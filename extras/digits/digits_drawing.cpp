#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/digits/digits_kind.hpp"
#include "extras/digits/digits_task.hpp"
#include "extras/digits/patches.hpp"
#include "extras/figures/drawing.hpp"

namespace abh {

namespace {

class DrawnPictures : public DrawnTask {
 public:
  void add_flags(Flags& flags) override {
    flags.text("data", data_, "FILE", "pictures, of which the test set is taken, else the last fifth");
  }

  Subject subject(const Trained& trained, const Wanted& wanted, Index, const std::string& source) override {
    if (wanted.text) throw UsageError("--text: expected --example, as " + source + " has learned pictures");
    grid_ = grid_of_task(trained.task, source);
    has_cls_ = trained.config.has_cls();
    const std::unique_ptr<AnswerTask> task = digits_again(trained.task, trained.config, {.path = data_}, source);
    require_example(wanted.example, task->validation_rows(), source);
    Subject subject{.title = "picture " + to_text(wanted.example), .batch = task->test_batch(wanted.example, 1)};
    if (constexpr Index most = 2 * longest_drawn + 1; subject.batch.C > most) {
      throw Error(source + ": expected at most " + to_text(most) + " patches, to be drawn, found " +
                  to_text(subject.batch.C));
    }
    subject.title += ", a " + to_text(Index{subject.batch.target_r.front()});
    if (has_cls_) subject.name_c.push_back("cls");
    for (Index p = 0; p < grid_.patches(); ++p) {
      subject.name_c.push_back(to_text(p / grid_.across()) + "," + to_text(p % grid_.across()));
    }
    for (Index digit = 0; digit < trained.config.classes; ++digit) subject.answer_o.push_back(to_text(digit));
    subject.notes = {"Patches are named row,column, from above and from the left."};
    return subject;
  }

  // Where cls looks, or all patches together where there is none.
  PictureSection section(const Subject& subject, const Observed& seen, const Thinning& thinning) const override {
    const std::string who = has_cls_ ? "cls looks" : "all patches look";
    PictureSection section{"Where " + who, "", {}};
    const auto C = static_cast<std::size_t>(seen.positions()), first = static_cast<std::size_t>(has_cls_ ? 1 : 0);
    std::vector<double> ink_yx(subject.batch.patch_bpi.size());
    for (std::size_t i = 0; i < ink_yx.size(); ++i) {
      const PatchGrid::Place place = grid_.place_of(static_cast<Index>(i));
      ink_yx[static_cast<std::size_t>(place.y * grid_.width + place.x)] =
          (static_cast<double>(subject.batch.patch_bpi[i]) + 1) / 2;
    }
    for (const AttentionMap& map : seen.maps()) {
      if (!thinning.draws(map)) continue;
      const std::vector<double> looks_s(map.weight_cs.begin(), map.weight_cs.begin() + seen.positions());
      const std::vector<double> received = has_cls_ ? looks_s : received_s(map, seen.positions());
      const std::string head = map.heads == 1 ? "" : ", head " + to_text(map.head);
      PatchesPicture picture{
          .text = {"Layer " + to_text(map.layer) + (map.kind.empty() ? "" : ", weights of " + map.kind) + head,
                   "where " + who},
          .height = grid_.height,
          .width = grid_.width,
          .patch = grid_.patch,
          .ink_yx = ink_yx,
          .value_p = {received.begin() + static_cast<std::ptrdiff_t>(first), received.end()},
          .unit = "of its weight"};
      std::size_t most = first;
      for (std::size_t c = first; c < C; ++c) most = received[c] > received[most] ? c : most;
      picture.text.description = "Most weight, " + fixed_text(100 * received[most], 1) + " %, goes to the patch at " +
                                 subject.name_c[most] + "; alike would be " +
                                 fixed_text(100 / static_cast<double>(C), 1) + " % each.";
      section.figures.push_back({"patches-" + to_text(map.layer) + (map.kind.empty() ? "-" : "-" + map.kind + "-") +
                                     to_text(map.head) + ".svg",
                                 patches_svg(picture), picture.text.title + ": " + picture.text.description,
                                 picture.text.description});
    }
    return section;
  }

 private:
  std::string data_;
  PatchGrid grid_{};
  bool has_cls_ = false;
};

}  // namespace

std::unique_ptr<DrawnTask> drawn_digits() { return std::make_unique<DrawnPictures>(); }

std::unique_ptr<TaskCommand> digits_drawing() { return drawing(drawn_digits()); }

}  // namespace abh
