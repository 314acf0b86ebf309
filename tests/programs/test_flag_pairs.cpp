// Random pairs of flags, and whole runs that must be equal.

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/catch.hpp"
#include "tests/harness/flag_pairs.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/program.hpp"

using namespace abh;

namespace {

std::vector<PairedFlags> all_flags() {
  return Rows<PairedFlags>::all({{"--mixer dot"},
                                 {"--mixer metric,additive --layers 2"},
                                 {"--mixer quadratic"},
                                 {"--additive-values own --additive-projection 1"},
                                 {"--conv-kernel 0"},
                                 {"--positions none"},
                                 {"--embedding-norm 1 --final-norm 0"},
                                 {"--logit-bias 1 --ffn-bias 1"},
                                 {"--dropout 0.2"},
                                 {"--label-smoothing 0.1"},
                                 {"--weight-average 2"},
                                 {"--optimizer muon"},
                                 {"--recompute 1"},
                                 {"--clip 0.01"},
                                 {"--keep-checkpoints 2 --checkpoint-every 2"},
                                 {"--order shuffled"},
                                 {"--type bf16"},
                                 {"--device plain"},
                                 {"--tokenizer byte"}});
}

// The files of a run as bytes; the log without the speed.
std::map<std::string, std::string> files_of(const std::string& run) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    if (name == "data.txt") continue;
    files[name] = name == "log.csv" ? log_without_speed(run) : read_bytes(entry.path().string());
  }
  return files;
}

void require_equal_files(const std::string& run, const std::string& expected) {
  const auto found = files_of(run), wanted = files_of(expected);
  CHECK(found.size() == wanted.size());
  for (const auto& [name, bytes] : wanted) {
    INFO(name);
    CHECK((found.contains(name) && found.at(name) == bytes));
  }
}

// The column train_loss of the log.
std::vector<double> losses_of(const std::string& run) {
  std::vector<double> losses;
  for (const std::string& row : lines_of(read_bytes(run + "/log.csv"))) {
    if (row.find("step") == row.npos) losses.push_back(std::stod(lines_of(row, ',').at(1)));
  }
  return losses;
}

}  // namespace

// Trains half of the steps with two threads and resumes with the default: the files are the same. With shards and with
// chunks the losses are the same up to rounding. `train` refuses some pairs; these are skipped.
TEST_CASE("programs: random pairs of settings give the same run with threads, parts and shards", "[programs]") {
  const std::vector<PairedFlags> flags = all_flags();
  std::mt19937 random(59);
  const int wanted = 6;
  for (int tried = 0, done = 0; done < wanted; ++tried) {
    REQUIRE(tried < 4 * wanted);
    const std::size_t first = random() % flags.size(), second = random() % flags.size();
    const std::string pair = flags[first].flags + " " + flags[second].flags;
    CAPTURE(pair);
    const Workplace place;
    const Arguments all =
        with(with(place.flags(words("--steps 6 --batch 4 --eval-every 3 --log-every 1 --schedule inverse-sqrt")),
                  words(flags[first].flags)),
             words(flags[second].flags));
    const Outcome outcome = train(all);
    if (outcome.status == 2) continue;
    require_success(outcome);
    ++done;
    const std::string half = place / "half";
    require_success(train(with(all, {"--steps", "3", "--threads", "2", "--out", half})));
    // A run does not store its device, and devices round differently.
    const Arguments device = words(pair.find("--device plain") == pair.npos ? "" : "--device plain");
    require_success(train(with({"--resume", half, "--data", place.data, "--steps", "6"}, device)));
    require_equal_files(half, place.run);

    const std::vector<double> expected = losses_of(place.run);
    REQUIRE(expected.size() == 6);
    for (const Arguments& cut : {words("--shards 4"), words("--chunk 3")}) {
      CAPTURE(cut);
      const std::string parts = place / cut[0].substr(2);
      const Outcome in_parts = train(with(with(all, cut), {"--out", parts}));
      if (in_parts.status == 2) continue;
      require_success(in_parts);
      const std::vector<double> losses = losses_of(parts);
      const double tolerance = pair.find("bf16") == pair.npos ? 2e-4 : 2e-2;
      for (std::size_t i = 0; i < 6; ++i)
        CHECK_FALSE(!(std::abs(losses.at(i) - expected[i]) <= tolerance * expected[i]));
    }
  }
}
