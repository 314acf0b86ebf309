// A few steps of every task with answers, on the emulated GPU and on the CPU.

#if defined(ABH_EMULATOR)

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "extras/digits/digits.hpp"
#include "extras/reviews/reviews.hpp"
#include "extras/sort/sort.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/model_case.hpp"

namespace abh {
namespace {

// The results of four training steps and of an evaluation on the first test examples.
struct Course {
  std::vector<double> losses;
  Score score;
};
Course course_of(const AnswerTask& task, const ModelConfig& config, const DeviceChoice& device,
                 const std::string& type) {
  constexpr Index B = 6;  // two shards of three
  TrainingConfig training{.batch = B, .shards = 2, .steps = 4, .learning_rate = 1e-2, .warmup = 1};
  training.type = type;
  const auto model = new_model(device, config, training, 0.1, 1, type);
  Course course;
  for (Index step = 0; step < training.steps; ++step) {
    course.losses.push_back(model->train_step(task.training_batch(B, 1, step), training, step).loss);
  }
  course.score = model->evaluate(task.test_batch(0, 3));
  return course;
}

std::vector<std::unique_ptr<AnswerTask>> small_tasks(bool has_cls) {
  LabelledPictures pictures{.height = 4, .width = 6};
  for (int i = 0; i < 10; ++i) {
    Picture picture{.pixels = std::vector<std::uint8_t>(24), .label = static_cast<Token>(i % 3), .most = 7};
    for (std::size_t pixel = 0; pixel < 24; ++pixel) {
      picture.pixels[pixel] = static_cast<std::uint8_t>((pixel * static_cast<std::size_t>(i + 1)) % 8);
    }
    pictures.pictures.push_back(std::move(picture));
  }
  pictures.training = 7;
  std::vector<std::unique_ptr<AnswerTask>> tasks;
  tasks.push_back(std::make_unique<ReviewsTask>("meaning", has_cls));
  tasks.push_back(std::make_unique<DigitsTask>(8, has_cls));
  tasks.push_back(std::make_unique<DigitsTask>(std::move(pictures), "pictures", 2, has_cls));
  if (!has_cls) tasks.push_back(std::make_unique<SortTask>(ArraySize{.length = 4, .digits = 3}));
  return tasks;
}

}  // namespace

TEST_CASE("tasks: the emulated GPU learns each task like the CPU, in float and in bf16",
          "[sort][reviews][digits][gpu]") {
  for (const bool has_cls : {false, true}) {
    for (const auto& task : small_tasks(has_cls)) {
      ModelConfig config = {.layers = 1, .channels = 12, .heads = 2, .mixer = "dot"};
      config.causal = task->name() == "sort";
      config.class_pooling = has_cls ? "cls" : "mean";
      task->shape(config);
      const Course expected = course_of(*task, config, {.device = "cpu"}, "float");
      for (const std::string type : {"float", "bf16"}) {
        CAPTURE(task->summary(), has_cls, type);
        const Course course = course_of(*task, config, {.device = "emulated"}, type);
        const double tolerance = type == "float" ? 1e-4 : 0.03;
        for (std::size_t step = 0; step < expected.losses.size(); ++step) {
          CAPTURE(step, expected.losses[step], course.losses[step]);
          CHECK_FALSE(!(std::abs(course.losses[step] - expected.losses[step]) <= tolerance));
        }
        CHECK(course.score.count == expected.score.count);
        CHECK(course.score.asked == expected.score.asked);
        CHECK_FALSE(!(std::abs(course.score.loss_sum - expected.score.loss_sum) <=
                      tolerance * static_cast<double>(expected.score.count)));
        if (type == "float") CHECK(course.score.right == expected.score.right);
      }
    }
  }
}

}  // namespace abh

#endif
