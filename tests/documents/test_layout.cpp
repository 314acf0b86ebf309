// The layout of the sources: how large its folders and files are, and that the core does without extras/.

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"

namespace abh {
namespace {

namespace fs = std::filesystem;

const fs::path root = ABH_SOURCE_DIR;

// Calls visit(path from the root, lines) for every file in a folder and its subfolders.
template <class Visit>
void for_each_file(const std::string& folder, const Visit& visit) {
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const std::string path = entry.path().lexically_relative(root).generic_string();
    if (!entry.is_regular_file() || path.find("__pycache__") != std::string::npos) continue;
    if (path.ends_with(".trace")) continue;  // recorded by a program
    const std::string text = read_bytes((root / path).string());
    visit(path, std::count(text.begin(), text.end(), '\n'));
  }
}

// The lines that a file of its kind may have; 0: as many as it likes.
long usual_lines(const std::string& path) {
  const auto ends = [&](const char* end) { return path.ends_with(end); };
  const std::string name = path.substr(path.rfind('/') + 1);
  if (path.starts_with("cuda/emulator/")) return 0;
  if (path.starts_with("plain/") || ends("_plain.cpp")) return 100;
  if (path.starts_with("cpu/") || path.starts_with("cuda/") || ends("_cpu.cpp") || ends("_cuda.cu")) return 450;
  if (name.starts_with("test_") && ends(".cpp")) return 350;
  if (path.starts_with("src/layers/")) return 120;
  if (path.starts_with("src/blocks/")) return 250;
  return 0;
}

TEST_CASE("layout: no folder and no file exceeds its budget", "[documents]") {
  std::map<std::string, long> budgets;
  std::istringstream file(read_bytes((root / "tests/size_budget.txt").string()));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string path;
    long lines = 0;
    if (line.empty() || line[0] == '#') continue;
    REQUIRE(words >> path >> lines);
    budgets[path] = lines;
  }
  std::set<std::string> too_small;  // files that no longer need their exception
  for (const auto& [path, lines] : budgets) {
    if (!fs::is_directory(root / path)) too_small.insert(path);
  }
  for (const char* folder : {"src", "plain", "cpu", "cuda", "tests", "docs", "extras", "tools", "findings"}) {
    REQUIRE(budgets.count(folder) == 1);
    long lines_of_folder = 0;
    for_each_file(folder, [&](const std::string& path, long lines) {
      lines_of_folder += lines;
      const long usual = usual_lines(path);
      if (usual == 0 || lines <= usual) return;
      const auto budget = budgets.find(path);
      CAPTURE(path, lines, usual);
      CHECK(budget != budgets.end());
      if (budget != budgets.end()) CHECK(lines <= budget->second);
      too_small.erase(path);
    });
    CAPTURE(folder, lines_of_folder);
    CHECK(lines_of_folder <= budgets[folder]);
  }
  CAPTURE(too_small);
  CHECK(too_small.empty());
}

// The four registries, in which a feature has its lines. Without extras/ they leave these out.
TEST_CASE("layout: the core includes extras only in its registries", "[documents]") {
  const std::set<std::string> registries = {"src/apps/feature_cases.hpp", "src/network/mixers.hpp",
                                            "src/settings/features.hpp", "src/tasks/kinds.cpp"};
  const std::string include = "#include \"extras/";
  for (const char* folder : {"src", "plain", "cpu", "cuda", "tests"}) {
    for_each_file(folder, [&](const std::string& path, long) {
      const std::string text = read_bytes((root / path).string());
      const std::size_t first = text.find(include);
      if (first == std::string::npos || path == "tests/documents/test_layout.cpp") return;
      CAPTURE(path);
      CHECK(registries.count(path) == 1);
      CHECK(text.rfind("#if defined(ABH_EXTRAS)", first) != std::string::npos);
    });
  }
}

}  // namespace
}  // namespace abh
