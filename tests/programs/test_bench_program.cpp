// bench from the command line: its measurements, output and errors.

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "device/isa.hpp"
#include "network/mixers.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"

using namespace abh;

TEST_CASE("programs: bench measures time and memory of every mixer and layer", "[programs][bench_program]") {
  const TestFolder folder;
  const std::string json = folder / "bench.json";
  std::vector<std::map<std::string, double>> steps;  // the numbers of each row
  std::set<std::string> layers;
  for (const std::string recompute : {"0", "1"}) {
    const Outcome outcome = require_success(run_program_of_build(
        "bench", {"--layers", "2", "--channels", "32", "--batch", "4", "--threads", "2", "--device", "cpu", "--seconds",
                  "0.01", "--recompute", recompute, "--json", json}));
    for (const char* words : {"device: cpu, ", "GFLOP/s multiply-add", "training step, mixer", "of peak", "saved B/tok",
                              "peak MiB", "faults/step", "pooling"})
      CHECK(contains(outcome.out, words));
    // The column "peak MiB" of the printed table.
    std::vector<double> printed;
    bool in_table = false;
    for (const std::string& line : lines_of(outcome.out)) {
      const Arguments columns = words(line);
      if (in_table && columns.size() < 8) break;
      if (in_table) printed.push_back(std::stod(columns.at(columns.size() - 2)));
      in_table = in_table || contains(line, "peak MiB");
    }
    const std::size_t earlier = steps.size();
    for (const std::string& line : lines_of(read_bytes(json))) {
      if (line.find("\"ms\"") == std::string::npos) continue;
      std::map<std::string, double> row;
      for (const Parts& pair : matches(line, "\"([a-z_]+)\": ([-+.e0-9]+)")) row[pair[1]] = std::stod(pair[2]);
      INFO(line);
      for (const char* key : {"ms", "flops", "gflop_per_s", "of_peak"}) CHECK(row[key] > 0);
      if (line.find("\"layer\"") != std::string::npos) {
        for (const char* key : {"bytes", "gb_per_s", "of_copy"}) CHECK(row[key] > 0);
        const std::size_t name = line.find("\"layer\": \"") + 10;
        layers.insert(line.substr(name, line.find_first_of("\",", name) - name));  // "linear" of "linear, up"
        continue;
      }
      CHECK(row["tokens_per_s"] > 0);
      CHECK(row["peak_bytes"] > 1e6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
      // After the first step only small blocks are allocated, which a sanitizer does not reuse. A few steps may use a
      // page that the system has taken back, but fewer than one in a hundred of the pages in use.
      CHECK(row["page_faults_per_step"] < row["peak_bytes"] / 4096 / 100);
#endif
      steps.push_back(row);
    }
    REQUIRE(printed.size() == steps.size() - earlier);
    for (std::size_t i = 0; i < printed.size(); ++i) {
      CHECK_FALSE(!(std::abs(printed[i] - steps[earlier + i]["peak_bytes"] / (1 << 20)) <= 0.051));
    }
  }
  const std::size_t mixers = Mixers::properties.size();
  REQUIRE(steps.size() == 2 * mixers);
  // Every layer: its plain loops are in plain/NAME.cpp or in extras/FEATURE/NAME_plain.cpp, next to its header.
  const auto check_layers = [&](const std::filesystem::path& headers, const std::string& end) {
    for (const auto& header : std::filesystem::directory_iterator(headers)) {
      const std::string name = header.path().stem().string();
      const std::string loops = end.empty() ? ABH_SOURCE_DIR "/plain" : headers.string();
      if (header.path().extension() != ".hpp" || !std::filesystem::exists(loops + "/" + name + end + ".cpp")) continue;
      INFO(header.path());
      const bool copies_rows = name == "copy_rows" || name == "pooling_chunk";
      CHECK(layers.count(name) == (copies_rows ? 0 : 1));
    }
  };
  check_layers(ABH_SOURCE_DIR "/src/layers", "");
  for (const auto& feature : std::filesystem::directory_iterator(ABH_SOURCE_DIR "/extras")) {
    if (has_extras && feature.is_directory()) check_layers(feature.path(), "_plain");
  }
  for (std::size_t i = 0; i < mixers; ++i) {
    CHECK(steps[mixers + i]["activation_bytes_per_token"] < 0.7 * steps[i]["activation_bytes_per_token"]);
  }
}

TEST_CASE("programs: bench compares bf16 with the peak of its unit", "[programs][bench_program][bf16]") {
  const TestFolder folder;
  const std::string json = folder / "bench.json";
  const Outcome outcome = require_success(run_program_of_build(
      "bench", {"--type",   "bf16", "--layers", "1",   "--channels", "32",   "--batch",      "2", "--threads", "1",
                "--device", "cpu",  "--mixer",  "dot", "--seconds",  "0.01", "--each-layer", "0", "--json",    json}));
  const bool has_unit = isa_available(Isa::avx512_bf16) || isa_available(Isa::amx);
  CHECK(contains(outcome.out, has_unit ? "GFLOP/s bf16 product" : "GFLOP/s multiply-add"));
  CHECK(contains(read_bytes(json), has_unit ? "\"bf16_product_flops_per_s\"" : "\"multiply_add_flops_per_s\""));
}

TEST_CASE("programs: bench reports an unwritable output at once", "[programs][bench_program]") {
  const TestFolder place;
  const auto bench = [&](const Arguments& flags) { return run_program_of_build("bench", flags, {.timeout_s = 10}); };
  require_refusal(bench({"--json", place / "none/b.json"}), 1, {"none/b.json: cannot write"});
  require_refusal(bench({"--json", ""}), 2, {"--json: expected a file"});
  require_refusal(bench({"--json", place / "b.json", "--peer", "python3"}), 2, {"--json", "--peer"});
  for (const Arguments& flags : {words("--seconds 1"), words("--each-layer 0"), words("--seed 1")}) {
    require_refusal(bench(flags + words("--peer python3")), 2, {flags[0] + ": expected without --peer"});
  }
  for (const Arguments& flags : {words("--counted-batch 1"), words("--copy-rate 3")}) {
    require_refusal(bench(flags), 2, {flags[0] + ": expected together with --counts"});
  }
  require_refusal(bench({"--counts", "--batch", "1"}), 2,
                  {"--counts: this build cannot count operations", "preset counts"});
}
