// kernels: runs the ladders of docs/kernels and compares every level with the plain loops. It also prints the counts of
// the emulator, and records traces.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/error.hpp"
#include "docs/kernels/cases.hpp"
#include "files/atomic_file.hpp"
#include "program/flags.hpp"
#include "program/run_program.hpp"
#if defined(EMULATOR_RECORDS)
#include "cuda/emulator/counts.hpp"
#include "cuda/emulator/emulator.hpp"
#include "cuda/emulator/record.hpp"
#endif

namespace abh::kernels {

namespace {

constexpr const char* operations[] = {"layernorm", "pooling", "product", "attention", "embedding_gradient"};

// Number of blocks of a launch in a trace. All blocks of some operations do the same.
int blocks_shown(const std::string& operation) {
  return operation == "pooling" || operation == "product" ? 1 : operation == "attention" ? 2 : 9;
}

bool narrow(const Level& level) {
  return (level.operation == "product" && level.number == 6) || (level.operation == "attention" && level.number == 4);
}

// Largest error of a level's results, relative to the largest number of the array; NaN if one is NaN.
double error_of(const Level& level, const std::vector<int>& sizes) {
  Case given = case_of(level.operation, sizes, narrow(level));
  const auto right = expected(level.operation, given);
  level.run(given, false);
  double worst = 0;
  for (const auto& [name, numbers] : right) {
    double largest = 0, error = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double off = std::abs(double{given[name].x.at(i)} - numbers[i]);
      largest = std::max(largest, std::abs(numbers[i]));
      if (!(off <= error)) error = off;
    }
    if (!(error / std::max(largest, 1e-3) <= worst)) worst = error / std::max(largest, 1e-3);
  }
  return worst;
}

bool check(const Level& level, bool emulated) {
  double worst = 0;
  const auto look = [&] {
    for (const auto& sizes : odd_sizes(level)) {
      const double error = error_of(level, sizes);
      if (!(error <= worst)) worst = error;
    }
  };
#if defined(EMULATOR_RECORDS)
  using emulator::Order;
  const std::vector<Order> orders = {Order{}, Order{Order::reverse, 0}, Order{Order::shuffled, 1}};
  for (std::size_t i = 0; emulated && i < orders.size(); ++i) {
    emulator::set_order(orders[i]);
    look();
  }
  emulator::set_order({});
#endif
  if (!emulated) look();
  const bool right = worst <= level.tolerance;
  std::printf("%s level %d, %s: largest error %.1e, at most %.0e%s\n", level.operation.c_str(), level.number,
              level.idea.c_str(), worst, level.tolerance, right ? "" : ": WRONG");
  return right;
}

#if defined(EMULATOR_RECORDS)
// A row of the table in the chapter: the counts of all launches of the level, at the sizes of its trace.
void print_counts(const Level& level) {
  Case given = case_of(level.operation, shown_sizes(level.operation), narrow(level));
  emulator::take_counts();
  level.run(given, false);
  emulator::Counts all;
  for (const emulator::Counts& one : emulator::take_counts()) {
    if (one.kernel == "copy") continue;
    all.launches += one.launches;
    for (const auto& [to, from] : {std::pair{&all.read, &one.read}, std::pair{&all.written, &one.written}}) {
      to->requests += from->requests;
      to->bytes += from->bytes;
      to->sectors += from->sectors;
    }
    all.shared_requests += one.shared_requests;
    all.shared_conflicts += one.shared_conflicts;
    all.barriers += one.barriers;
    all.shuffles += one.shuffles;
    all.products += one.products;
  }
  const auto n = [](std::uint64_t count) { return static_cast<unsigned long long>(count); };
  std::printf("| %d | %s | %llu | %llu | %llu | %llu | %llu | %llu | %llu | %llu | %llu |\n", level.number,
              level.idea.c_str(), n(all.launches), n(all.read.requests + all.written.requests),
              n(all.read.bytes + all.written.bytes), n(all.read.sectors + all.written.sectors), n(all.shared_requests),
              n(all.shared_conflicts), n(all.barriers), n(all.shuffles), n(all.products));
}
#endif

int body(int argc, char** argv) {
#if defined(ABH_EMULATOR)
  std::string device = "emulated", folder;
#else
  std::string device = "cuda", folder;
#endif
  Index number = 0;
  bool counts = false;
  Flags flags("kernels", "Runs the ladders of kernels in docs/kernels and compares them with the plain loops.",
              "[OPERATION]");
  flags.integer("level", number, "N", "this level alone; 0: all of them", 0, 9);
  flags.choice("device", device, {"emulated", "cuda"}, "where the kernels run");
  flags.bare("counts", counts, "print the tables of the chapters: what each level asks for, counted by the emulator");
  flags.text("record", folder, "FOLDER", "write a trace of each level and of layers of cuda/ into this folder");
  if (const auto status = flags.parse(argc, argv)) return *status;
  if (flags.positionals().size() > 1) throw UsageError("expected one operation, found " + flags.positionals()[1]);
  const std::string operation = flags.positionals().empty() ? "" : flags.positionals()[0];

  std::vector<Level> levels;
#if defined(ABH_CUDA)
  if (device == "cuda") levels = ladder<Backend::cuda>();
#endif
#if defined(ABH_EMULATOR)
  if (device == "emulated") levels = ladder<Backend::emulated>();
  if (device == "emulated" && !folder.empty()) {
    for (const auto& more : {basics<Backend::emulated>(), production<Backend::emulated>()}) {
      levels.insert(levels.end(), more.begin(), more.end());
    }
  }
#endif
  if (levels.empty()) throw UsageError("--device " + device + ": this build does not have it");
  std::erase_if(levels, [&](const Level& level) {
    return (!operation.empty() && level.operation != operation) || (number > 0 && level.number != number);
  });
  if (levels.empty())
    throw UsageError("no such level: expected layernorm, pooling, product, attention, embedding_gradient");
  const bool emulated = device == "emulated";
#if defined(EMULATOR_RECORDS)
  if (emulated && !folder.empty()) {
    for (const Level& level : levels) {
      const bool is_named = level.operation == "production" || level.operation == "basics";
      Case given;
      if (!is_named) given = case_of(level.operation, shown_sizes(level.operation), narrow(level));
      emulator::record::begin(blocks_shown(level.operation));
      level.run(given, true);
      const std::filesystem::path to = std::filesystem::path(folder) / level.operation;
      std::filesystem::create_directories(to);
      const std::string name = is_named ? level.idea : "level_" + std::to_string(level.number);
      write_file_atomically((to / (name + ".trace")).string(), emulator::record::end());
    }
    return 0;
  }
  if (emulated && counts) {
    for (const char* one : operations) {
      std::string title = std::string(one) + ":\n";
      for (const Level& level : levels) {
        if (level.operation != one) continue;
        std::fputs(title.c_str(), stdout);
        title.clear();
        print_counts(level);
      }
    }
    return 0;
  }
#endif
  if (counts || !folder.empty()) throw UsageError("--counts and --record need the emulator, built with g++");
  bool right = true;
  for (const Level& level : levels) right = check(level, emulated) && right;
  return right ? 0 : 1;
}

}  // namespace

}  // namespace abh::kernels

int main(int argc, char** argv) { return abh::run_program("kernels", argc, argv, abh::kernels::body); }
