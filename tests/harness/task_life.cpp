#include "tests/harness/task_life.hpp"

#include <algorithm>
#include <vector>

#include "tests/harness/catch.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/pattern.hpp"

namespace abh {

Outcome check_life_of_task(const TaskPlace& place, const TaskLife& life) {
  const std::string name = life.keys.at("task"), other = place / "other", sharded = place / "sharded",
                    half = place / "half", tuned = place / "tuned";
  const std::string steps = *(std::find(place.small.begin(), place.small.end(), "--steps") + 1);
  const std::string half_of_steps = std::to_string(std::stoi(steps) / 2);
  const std::string percent = " \\(accuracy [0-9.]+ %\\)";
  const Outcome outcome = require_success(train(place.flags()));
  CHECK_FALSE(matches(outcome.out, "\nfinal: " + name + ", step " + steps + ", train [0-9.]+, val [0-9.]+ nats" +
                                       percent + ", [0-9]+ tokens/s, best [0-9.]+ at step [1-9][0-9]*" + percent +
                                       "\n$")
                  .empty());
  CHECK(contains(outcome.out, life.data));
  const std::vector<std::string> samples = lines_of(read_bytes(place.run + "/sample.txt"));
  // Rows of pictures are indented or empty.
  CHECK(std::count_if(samples.begin(), samples.end(),
                      [](const std::string& line) { return !line.empty() && line[0] != ' '; }) == 10);
  CHECK_FALSE(whole_match(samples.at(0), life.sample).empty());
  const Checkpoint model = model_of(place.run);
  CHECK((model.task == life.keys));

  require_success(train(with(place.flags("--threads 2"), {"--out", other})));
  CHECK(same_model(other, place.run));
  CHECK(log_without_speed(other) == log_without_speed(place.run));
  CHECK((read_bytes(other + "/resume.safetensors") == read_bytes(place.run + "/resume.safetensors")));
  const bool has_data = std::find(life.task.begin(), life.task.end(), "--data") != life.task.end();
  CHECK(exists(other + "/data.txt") == has_data);

  // Shards sum in another order, which does not depend on the number of threads.
  const Arguments interrupted = place.flags("--shards 2 " + life.interrupted);
  require_success(train(with(interrupted, {"--out", sharded})));
  require_success(train(with(interrupted, {"--out", half, "--steps", half_of_steps})));
  const Outcome resumed = require_success(train({"--resume", half, "--steps", steps, "--threads", "2"}));
  CHECK(contains(resumed.out,
                 "\nresume: continues from step " + half_of_steps + " of " + steps + (has_data ? ", on " : "\n")));
  CHECK(last_line(resumed.out).starts_with("final: " + name + ", step " + steps + ", "));
  CHECK((state_of(half).weights == state_of(sharded).weights));
  CHECK((state_of(half).task == state_of(sharded).task));
  const Arguments fixed = words(life.fixed);
  require_refusal(train(Arguments{"--resume", half} + fixed), 2, {fixed[0] + ": cannot change in a resumed run"});

  const Outcome begun =
      require_success(train(life.task + Arguments{"--steps", "0", "--init-from", place.run, "--out", tuned}));
  CHECK(contains(begun.out, "\ninit: from " + place.run + "/model.safetensors, step " + std::to_string(model.step)));
  CHECK((model_of(tuned).weights == model.weights));
  return outcome;
}

void require_refused_metadata(const std::string& run, const std::string& key, const std::string& value,
                              const std::string& message) {
  CAPTURE(key, value);
  const TestFolder folder;
  OpenedFile file(run + "/model.safetensors");
  file.metadata[key] = value;
  file.write(folder / "bad.safetensors");
  require_refusal(evaluate({"--checkpoint", folder / "bad.safetensors"}), 1, {"metadata " + key + ": " + message});
}

}  // namespace abh
