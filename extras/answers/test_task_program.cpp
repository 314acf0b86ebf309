// The common behaviour of the answer tasks, tested through the programs as users run them.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "extras/seq2seq/bleu.hpp"
#include "runs/checkpoint.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/weights_by_name.hpp"

using namespace abh;

namespace {

const std::string of_numbers = "--encoder-layers 1 --decoder-layers 1 ", of_layers = "--layers 1 ";

struct TaskPlace : TestFolder {
  TaskPlace() {
    std::string lines;
    for (Index n = 17; n < 217; ++n) lines += std::to_string(n) + "\t" + std::to_string(n * n) + "\n";
    write_bytes(pairs, lines);
  }
  std::string pairs = *this / "pairs.tsv", run = *this / "run";
  Arguments flags(const std::string& task, const std::string& others = "") const {
    const bool has_source = task == "pairs" || task == "dates";
    Arguments all =
        words("--task " + task + " --channels 16 --heads 2 --batch 8 " + (has_source ? of_numbers : of_layers));
    if (task == "pairs") all = all + Arguments{"--data", pairs, "--context", "40"};
    return with(with(all, {"--out", run}), words(others));
  }
};

// tokens/s counts the seconds of the steps alone, which are fewer than those of the program.
void check_speed(const Outcome& outcome, Index tokens) {
  const std::vector<std::string> speed = matches(last_line(outcome.out), ", ([0-9]+) tokens/s").at(0);
  CHECK((std::stod(speed.at(1)) + 1) * outcome.seconds >= static_cast<double>(tokens));
}

}  // namespace

TEST_CASE("tasks: the last line has loss and accuracy of the last and of the kept weights", "[tasks][programs]") {
  for (const char* task : {"sort", "recall", "dates", "pairs", "reviews", "digits"}) {
    INFO(task);
    const TaskPlace place;
    // A learning rate that rises beyond what is good, so that the weights of an early step are the best.
    // No test set is a multiple of the batch: the rows that fill up the last one must not count.
    const std::string settings = "--steps 12 --batch 9 --eval-every 2 --log-every 1 --learning-rate 20 --warmup 200 ";
    const Outcome outcome = require_success(train(place.flags(task, settings)));
    const std::vector<std::string> found = whole_match(
        last_line(outcome.out), "final: " + std::string(task) +
                                    ", step 12, train [0-9.]+, val ([0-9.]+) nats \\(accuracy ([0-9.]+) %\\), "
                                    "([0-9]+) tokens/s, best ([0-9.]+) at step ([0-9]+) \\(accuracy ([0-9.]+) %\\)");
    REQUIRE(found.size() == 7);
    const std::string last = found[1] + " nats, accuracy " + found[2], best = found[4] + " nats, accuracy " + found[6];
    CHECK(found[5] != "12");
    CHECK(found[5] == std::to_string(model_of(place.run).step));
    check_speed(outcome, 12 * 9 * model_of(place.run).config.context);
    // evaluate says the same of both models.
    const auto judged = [&](const std::string& checkpoint) {
      Arguments flags = {"--checkpoint", checkpoint};
      if (std::string(task) == "pairs") flags = flags + Arguments{"--data", place.pairs};
      const std::string line = last_line(require_success(evaluate(flags)).out);
      return line.substr(line.find("examples, ") + 10);
    };
    CHECK(judged(place.run) == best + " %");
    Checkpoint of_last = model_of(place.run);
    of_last.weights = state_of(place.run).weights;
    if (std::string(task) == "dates") of_last.weights = state_of(place.run).average;
    write_checkpoint(place / "last.safetensors", of_last);
    CHECK(judged(place / "last.safetensors") == last + " %");

    // A resumed run prints the same, even if an older program started it, whose file lacks the accuracy.
    for (const bool is_old : {false, true}) {
      const std::string copy = place / (is_old ? "old" : "new");
      copy_run(place.run, copy);
      if (is_old) {
        OpenedFile file(copy + "/resume.safetensors");
        CHECK(file.metadata.erase("best_accuracy") == 1);
        file.write(copy + "/resume.safetensors");
      }
      CHECK(last_losses(require_success(train({"--resume", copy}))) == last_losses(outcome));
    }
  }
}

TEST_CASE("tasks: a network that predicts tokens must be causal", "[tasks][programs]") {
  for (const char* task : {"sort", "dates", "pairs"}) {
    INFO(task);
    const TaskPlace place;
    require_refusal(train(place.flags(task, "--causal 0")), 2,
                    {"--causal: expected 1, to predict the next token, found 0"});
    CHECK_FALSE(exists(place.run));
    require_success(train(place.flags(task, "--steps 0")));
    for (const char* name : {"/model.safetensors", "/resume.safetensors"}) {
      OpenedFile file(place.run + name);
      file.metadata["causal"] = "0";
      file.write(place.run + name);
    }
    require_refusal(evaluate({"--checkpoint", place.run}), 1, {"metadata causal: expected 1"});
    require_refusal(train({"--resume", place.run}), 1, {"metadata causal: expected 1"});
  }
  require_refusal(train(words("--causal 0 --data missing.txt")), 2, {"--causal: expected 1"});
  for (const char* task : {"recall", "reviews", "digits"}) {
    INFO(task);
    const TaskPlace place;
    require_success(train(place.flags(task, "--causal 0 --mixer dot --steps 1 --eval-tokens 50")));
  }
}

TEST_CASE("tasks: translation of pairs gives the same mean with any number of threads", "[tasks][programs]") {
  const TaskPlace place;
  const std::string network = "--steps 2 --eval-every 1";
  const Outcome one = require_success(train(place.flags("pairs", network)));
  const Outcome three = require_success(
      run_program_of_build("train", with(place.flags("pairs", network), {"--out", place / "three", "--threads", "3"})));
  const auto bleu = [](const Outcome& outcome) {
    const std::vector<std::string> lines = lines_of(outcome.out);
    return lines.at(lines.size() - 2);
  };
  CHECK(bleu(one).starts_with("bleu: "));
  CHECK(bleu(three) == bleu(one));
}

TEST_CASE("tasks: the closing line of pairs has the mean BLEU of the output of generate", "[tasks][pairs][programs]") {
  const TaskPlace place;
  std::string lines, asked;
  std::vector<std::string> targets;
  for (Index n = 0; n < 210; ++n) {
    targets.push_back(n % 3 == 0 ? "yes" : n % 3 == 1 ? "yes no" : "yes no no yes");
    lines += std::to_string(n * n) + "\t" + targets.back() + "\n";
    if (n >= 189) asked += std::to_string(n * n) + "\n";
  }
  write_bytes(place.pairs, lines);
  const Outcome outcome =
      require_success(train(place.flags("pairs", "--steps 40 --learning-rate 0.02 --warmup 5 --eval-every 0")));
  const std::vector<std::string> said = lines_of(outcome.out);
  const std::vector<std::string> answers = lines_of(generated({"--checkpoint", place.run, "--prompt", asked}));
  REQUIRE(answers.size() == 21);
  double mean = 0;
  for (std::size_t i = 0; i < 21; ++i) mean += bleu(answers[i], targets[189 + i]) / 21;
  CHECK((mean > 0.05 && mean < 1));
  CHECK(said.at(said.size() - 2) ==
        "bleu: " + fixed_text(mean, 4) + ", mean of 21 pairs held back, each written by the network itself");
}

TEST_CASE("programs: --init-from with another context keeps the shared positions, for every task",
          "[tasks][programs]") {
  const TestFolder place;
  const std::string pairs = place / "pairs.tsv", reviews = place / "reviews.csv";
  std::string lines, labelled;
  for (Index n = 17; n < 117; ++n) {
    lines += std::to_string(n) + "\t" + std::to_string(n * n) + "\n";
    labelled +=
        std::string(n % 3 ? "more" : "less") + ",the number " + std::to_string(n % 9) + (n % 3 ? " up\n" : "\n");
  }
  write_bytes(pairs, lines);
  write_bytes(reviews, labelled);
  const std::string network = " --channels 16 --heads 2 --batch 8 --steps 12 --learning-rate 0.01 --warmup 0 --task ";
  const std::pair<const char*, Arguments> tasks[] = {
      {"pairs", words(network + "pairs --encoder-layers 1 --decoder-layers 1 --data") + Arguments{pairs}},
      {"reviews", words(network + "reviews --class-pooling cls --data") + Arguments{reviews}},
      {"reviews mean", words(network + "reviews --data") + Arguments{reviews}},
      {"recall", words(network + "recall --eval-tokens 900")}};
  for (const auto& [name, flags] : tasks) {
    INFO(name);
    const std::string task = lines_of(name, ' ').front(), old = place / (name + std::string(" old"));
    require_success(train(flags + words("--context 12") + Arguments{"--out", old}));
    const Checkpoint before = model_of(old);
    Arguments begun = {"--task", task, "--init-from", old, "--steps", "0"};
    begun = begun + words("--batch 1 --eval-tokens 50");
    if (task != "recall") begun = begun + Arguments{"--data", flags.back()};
    const std::string losses = last_losses(require_success(train(begun + Arguments{"--out", place / "same"})));
    for (const char* context : {"12", "10", "30", "400"}) {
      CAPTURE(context);
      const std::string run = place / (name + std::string(context));
      const Outcome outcome = require_success(train(begun + Arguments{"--context", context, "--out", run}));
      const Checkpoint after = model_of(run);
      // No example is longer than ten tokens, so a longer position table changes none of them.
      if (task != "recall") CHECK(last_losses(outcome) == losses);
      CHECK(bool(contains(outcome.out, "positions from 13 on are new")) == (after.config.context > 12));
      for (const auto& [tensor, values] : by_name(after.config, after.weights)) {
        INFO(tensor);
        const std::vector<float> was = by_name(before.config, before.weights).at(tensor);
        const std::size_t both = std::min(was.size(), values.size());
        CHECK(std::equal(was.data(), was.data() + both, values.data()));
      }
    }
  }
  const std::string old = place / "recall old";
  const auto reach_of = [&](const std::string& flags) {
    const Outcome outcome = train(words("--task recall --steps 0 --batch 1 --eval-tokens 50 " + flags) +
                                  Arguments{"--init-from", old, "--out", place / "reach"});
    require_success(outcome);
    const bool said{contains(outcome.out, "note: the symbol is up to ")};
    return model_of(place / "reach").task.at("reach") + (said ? ", said" : "");
  };
  CHECK(reach_of("") == "10");
  CHECK(reach_of("--context 8") == "6, said");
  CHECK(reach_of("--context 30") == "28, said");
  CHECK(reach_of("--context 30 --reach 10") == "10");
  CHECK(reach_of("--context 30 --reach 20") == "20");
  require_refusal(train(words("--task recall --context 8 --reach 7") + Arguments{"--init-from", old}), 2,
                  {"--reach: expected at most 6"});
}

TEST_CASE("tasks: --init-from refuses the model of another task", "[tasks][programs]") {
  const Workplace place;
  const std::string reviews = place / "reviews";
  require_success(train(words("--task reviews --steps 0") + Arguments{"--out", reviews}));
  require_refusal(train({"--init-from", reviews, "--data", place.data, "--out", place.run}), 1,
                  {"--task: expected reviews, as in " + reviews, "found text; give --task reviews"});
  CHECK_FALSE(exists(place.run));
}
