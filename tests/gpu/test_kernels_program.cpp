// The ladders of docs/kernels: compares every level with the plain loops, the tables of the chapters with the counts of
// the emulator, and the traces with new recordings.

#include <filesystem>
#include <map>
#include <string>

#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/program.hpp"

namespace abh {
namespace {

namespace fs = std::filesystem;

const fs::path kernels = fs::path(ABH_SOURCE_DIR) / "docs/kernels";

TEST_CASE("kernels: every level of the ladders agrees with the plain loops", "[kernels]") {
  const Outcome all = require_success(run_program_of_build("kernels", {}));
  CHECK(lines_of(all.out).size() >= 20);
  CHECK(all.out.find("WRONG") == std::string::npos);
}

TEST_CASE("kernels: the tables of the chapters equal the emulator's counts", "[kernels]") {
  const Outcome all = require_success(run_program_of_build("kernels", {"--counts"}));
  std::string chapter, operation;
  std::size_t rows = 0;
  for (const std::string& line : lines_of(all.out)) {
    if (line.ends_with(':')) {
      operation = line.substr(0, line.size() - 1);
      chapter = read_bytes((kernels / (operation + ".md")).string());
    } else if (line.starts_with('|')) {
      CAPTURE(operation, line);
      CHECK(contains(chapter, line + "\n"));
      ++rows;
    }
  }
  CHECK(rows >= 20);
}

// Another compiler may order accesses differently; then nothing is compared.
TEST_CASE("kernels: newly recorded traces equal those of the repository", "[kernels]") {
#if defined(__x86_64__) && __GNUC__ == 12 && !defined(__clang__)
  const TestFolder folder;
  require_success(run_program_of_build("kernels", {"--record", folder.path()}));
  std::map<std::string, std::string> again;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.is_regular_file()) {
      again[fs::relative(entry.path(), folder.path()).generic_string()] = read_bytes(entry.path().string());
    }
  }
  CHECK(again.size() >= 30);
  for (const auto& [name, text] : again) {
    CAPTURE(name);
    REQUIRE(fs::exists(kernels / name));
    CHECK(text == read_bytes((kernels / name).string()));
  }
  for (const auto& entry : fs::recursive_directory_iterator(kernels)) {
    const std::string name = fs::relative(entry.path(), kernels).generic_string();
    CAPTURE(name);
    if (name.ends_with(".trace")) CHECK(again.count(name) == 1);
  }
#endif
}

TEST_CASE("kernels: unknown levels and operations are refused", "[kernels]") {
  require_refusal(run_program_of_build("kernels", {"softmax"}), 2, {"layernorm", "attention"});
  require_refusal(run_program_of_build("kernels", {"layernorm", "--level", "9"}), 2, {"no such level"});
  require_refusal(run_program_of_build("kernels", {"--levels", "1"}), 2, {"--level"});
}

}  // namespace
}  // namespace abh
