#include "apps/golden/golden.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/golden/golden_networks.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "network/networks.hpp"
#include "program/flags.hpp"
#include "program/run_program.hpp"

namespace abh {

// Defined in golden_networks.cpp.
extern template class Network<PlainDevice, double>;
extern template class Network<CpuDevice<Isa::baseline>, double>;

template class GoldenCases<CpuDevice<Isa::baseline>, double>;

namespace {

constexpr double default_tolerance = 1e-10;       // for double
constexpr double default_tolerance_float = 2e-5;  // unless the metadata has tolerance_float

// Kinds of tensors: prefixes of names.
const char* const compared_kinds[] = {"activation.", "output.", "grad_input.", "grad_weight."};
const char* const given_kinds[] = {"input.", "weight.", "grad_output."};

// Kind among `kinds` with the prefix of `name`, or null.
template <std::size_t count>
const char* kind_of(const std::string& name, const char* const (&kinds)[count]) {
  for (const char* kind : kinds) {
    if (name.starts_with(kind)) return kind;
  }
  return nullptr;
}

// Largest absolute value; NaN if a value is NaN.
double largest(const std::vector<double>& values) {
  double most = 0;
  for (double value : values) {
    if (std::isnan(value)) return value;
    most = std::max(most, std::abs(value));
  }
  return most;
}

// Largest difference, divided by scale; NaN if a difference is NaN.
double relative_error(const std::vector<double>& got, const std::vector<double>& reference, double scale) {
  double error = 0;
  for (std::size_t i = 0; i < got.size() && !std::isnan(error); ++i) {
    const double difference = std::abs(got[i] - reference[i]);
    const double here = difference == 0 ? 0 : difference / scale;
    if (!(here <= error)) error = here;
  }
  return error;
}

std::vector<double> reference_values(const GoldenFile& file, const SafetensorsTensor& tensor) {
  if (tensor.dtype != Dtype::F64) {
    file.fail("tensor \"" + tensor.name + "\" is " + dtype_name(tensor.dtype) + ", expected F64");
  }
  const double* values = reinterpret_cast<const double*>(tensor.data);
  return {values, values + tensor.count()};
}

std::string error_text(double error) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", error);
  return text;
}

// Devices of this build.
const std::vector<std::string> devices = {
    "plain",
    "cpu",
#if defined(ABH_CUDA)
    "cuda",
#endif
#if defined(ABH_EMULATOR)
    "emulated",
#endif
};

struct GoldenSettings {
  std::string device = "cpu", type = "double";
  std::optional<double> tolerance;  // from the command line
};

// One thread, because files are small and results do not depend on the number of threads.
GoldenResults results_of(const GoldenSettings& settings, GoldenFile& file) {
  const auto run = [&]<class Device, class T>() {
    if constexpr (std::is_default_constructible_v<Device>) {
      Device device;
      return GoldenCases<Device, T>(device, file).run();
    } else {
      Device device(1);
      return GoldenCases<Device, T>(device, file).run();
    }
  };
  if (settings.type == "float") return with_device_type<false>({.device = settings.device}, settings.type, run);
  if (settings.device == "plain") return run.template operator()<PlainDevice, double>();
  return run.template operator()<CpuDevice<Isa::baseline>, double>();
}

double tolerance_for(const GoldenSettings& settings, const GoldenFile& file) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double in_float = file.real_setting("tolerance_float", default_tolerance_float, 0, infinity);
  if (settings.tolerance) return *settings.tolerance;
  return settings.type == "float" ? in_float : default_tolerance;
}

// Compares one file, prints a line per tensor and a summary. Returns true if all tensors are within tolerance.
bool check_file(const std::string& path, const GoldenSettings& settings) {
  GoldenFile file(path);
  const double tolerance = tolerance_for(settings, file);
  const std::vector<GoldenComparison> comparisons = compare_with(file, results_of(settings, file));
  std::size_t name_width = 0, shape_width = 0, failed = 0;
  double worst = 0;
  std::string first;  // first tensor outside its tolerance
  for (const GoldenComparison& comparison : comparisons) {
    name_width = std::max(name_width, comparison.name.size());
    shape_width = std::max(shape_width, shape_text(comparison.shape).size());
    if (!(comparison.error <= worst) && !std::isnan(worst)) worst = comparison.error;
  }
  for (const GoldenComparison& comparison : comparisons) {
    const bool fails = !(comparison.error <= tolerance);
    std::string name = comparison.name, shape = shape_text(comparison.shape);
    name.resize(name_width, ' ');
    shape.resize(shape_width, ' ');
    std::cout << one_line(name) << "  " << shape << "  " << error_text(comparison.error) << "  "
              << (fails ? "FAIL" : "ok") << '\n';
    if (fails && failed == 0) first = comparison.name;
    failed += fails;
  }
  std::cout << one_line(path) << ": " << file.setting("case") << ", " << settings.device << ", " << settings.type
            << ": " << comparisons.size() - failed << " of " << comparisons.size() << " tensors within "
            << to_text(tolerance) << ", worst " << error_text(worst)
            << (failed && first.starts_with("activation.") ? ", the first " + one_line(first) : "")
            << (failed ? ": FAIL" : ": ok") << '\n';
  return failed == 0;
}

}  // namespace

bool GoldenFile::compares_gradients() const {
  return std::any_of(tensors().begin(), tensors().end(), [](const SafetensorsTensor& tensor) {
    return tensor.name.starts_with("grad_input.") || tensor.name.starts_with("grad_weight.");
  });
}

const std::string& GoldenFile::setting(const std::string& key) const {
  const auto entry = metadata().find(key);
  if (entry == metadata().end()) fail("metadata " + key + " is missing");
  return entry->second;
}

double GoldenFile::real_setting(const std::string& key, double otherwise, double low, double high) const {
  if (!has_setting(key)) return otherwise;
  const std::optional<double> value = from_text<double>(setting(key));
  if (value && std::isfinite(*value) && *value >= low && *value <= high) return *value;
  fail("metadata " + key + ": expected a number, at least " + to_text(low) +
       (std::isfinite(high) ? " and at most " + to_text(high) : "") + ", found \"" + setting(key) + "\"");
}

Index GoldenFile::integer_setting(const std::string& key, Index otherwise, Index low, Index high) const {
  if (!has_setting(key)) return otherwise;
  const std::optional<Index> value = from_text<Index>(setting(key));
  if (value && *value >= low && *value <= high) return *value;
  fail("metadata " + key + ": expected a whole number from " + to_text(low) + " to " + to_text(high) + ", found \"" +
       setting(key) + "\"");
}

std::vector<Index> GoldenFile::shape(const std::string& tensor, std::size_t rank) const {
  const std::vector<Index>& shape = file_.tensor(tensor).shape;
  if (shape.size() != rank || std::count(shape.begin(), shape.end(), 0) != 0) {
    fail("tensor \"" + tensor + "\" has the shape " + shape_text(shape) + ", expected " + std::to_string(rank) +
         " dimensions, none of them 0");
  }
  return shape;
}

std::vector<double> GoldenFile::reals(const std::string& tensor, const std::vector<Index>& shape) {
  const double* values = file_.data<double>(tensor, shape);
  taken_.insert(tensor);
  return {values, values + element_count(shape)};
}

std::vector<Token> GoldenFile::tokens(const std::string& tensor, const std::vector<Index>& shape, Token low, Token high,
                                      Token also) {
  const Token* values = file_.data<Token>(tensor, shape);
  taken_.insert(tensor);
  for (Index i = 0; i < element_count(shape); ++i) {
    if ((values[i] >= low && values[i] <= high) || values[i] == also) continue;
    const bool beyond = also < low || also > high;
    fail("tensor \"" + tensor + "\": element " + std::to_string(i) + " is " + std::to_string(values[i]) +
         ", expected " + std::to_string(low) + " to " + std::to_string(high) +
         (beyond ? " or " + std::to_string(also) : ""));
  }
  return {values, values + element_count(shape)};
}

void GoldenFile::require_all_taken() const {
  for (const SafetensorsTensor& tensor : tensors()) {
    if (taken_.count(tensor.name) || kind_of(tensor.name, compared_kinds)) continue;
    const char* what = kind_of(tensor.name, given_kinds) ? "\": the case, with these settings, has no use for it"
                                                         : "\": expected input., weight., grad_output., "
                                                           "activation., output., grad_input. or grad_weight. "
                                                           "before the name";
    fail("tensor \"" + tensor.name + what);
  }
}

void GoldenFile::fail(const std::string& what) const { throw Error(path() + ": " + what, 2); }

std::vector<GoldenComparison> compare_with(const GoldenFile& file, const GoldenResults& results) {
  std::map<std::string, double> largest_of_kind;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    const char* kind = kind_of(tensor.name, compared_kinds);
    if (!kind) continue;
    const auto result = results.find(tensor.name);
    if (result == results.end()) {
      file.fail("tensor \"" + tensor.name + "\": the case, with these settings, does not produce it");
    }
    if (result->second.shape != tensor.shape) {
      file.fail("tensor \"" + tensor.name + "\" has the shape " + shape_text(tensor.shape) + ", expected " +
                shape_text(result->second.shape));
    }
    double& most = largest_of_kind[kind];
    most = std::max(most, largest(reference_values(file, tensor)));
  }
  if (largest_of_kind.empty())
    file.fail("no activation., output., grad_input. or grad_weight. tensor: nothing to compare");

  // Tensors without a number follow, in the order of the file.
  const auto before = [](const GoldenComparison& a, const GoldenComparison& b) {
    return a.number != 0 && (b.number == 0 || a.number < b.number);
  };
  std::vector<GoldenComparison> comparisons;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    const char* kind = kind_of(tensor.name, compared_kinds);
    if (!kind) continue;
    const std::vector<double> reference = reference_values(file, tensor);
    const GoldenResult& result = results.at(tensor.name);
    const double least = result.number > 0 ? 0 : 0.01 * largest_of_kind[kind];
    const double scale = std::max(largest(reference), least);
    const GoldenComparison comparison{tensor.name, tensor.shape, relative_error(result.values, reference, scale),
                                      result.number};
    comparisons.insert(std::upper_bound(comparisons.begin(), comparisons.end(), comparison, before), comparison);
  }
  return comparisons;
}

int golden_main(int argc, char** argv) {
  GoldenSettings settings;
  double tolerance = default_tolerance;
  Flags flags("golden", "Compares the results of this code with numbers from other programs (docs/golden.md).",
              "FILE...");
  flags.choice("device", settings.device, {"plain", "cpu", "emulated", "cuda"}, "device that computes");
  flags.choice("type", settings.type, {"double", "float"}, "data type; emulated and cuda compute in float");
  flags.real(
      "tolerance", tolerance, "X",
      "largest accepted error, relative to the largest number of a tensor; float: 2e-5, or the tolerance in the file",
      {.low = 0});
  if (const std::optional<int> status = flags.parse(argc, argv)) return *status;
  if (flags.positionals().empty()) throw UsageError("expected FILE..., found no file; see --help");
  if (settings.device != "cpu" && settings.device != "plain") {
    if (flags.given("type") && settings.type == "double") {
      throw UsageError("--type: expected float, which is what --device " + settings.device +
                       " computes in, found double");
    }
    settings.type = "float";
  }
  if (std::find(devices.begin(), devices.end(), settings.device) == devices.end()) {
    throw UsageError(
        "--device: this build has no " + settings.device + " device, expected " +
        std::accumulate(devices.begin() + 1, devices.end(), devices.front(),
                        [](std::string list, const std::string& name) { return std::move(list) + " or " + name; }));
  }
  if (flags.given("tolerance")) settings.tolerance = tolerance;

  int status = 0;
  for (const std::string& path : flags.positionals()) {
    try {
      status = std::max(status, check_file(path, settings) ? 0 : 1);
    } catch (const std::exception& error) {
      // Errors about settings do not contain the path of the file.
      std::string message = error.what();
      if (!message.starts_with(path + ": ")) message = path + ": " + message;
      std::cerr << "golden: " << one_line(message) << '\n';
      status = 2;
    }
    try {
      flush_standard_output();
    } catch (const Error& error) {
      throw Error(error.what(), 2);  // status 1 means that a number is wrong
    }
  }
  return status;
}

}  // namespace abh
