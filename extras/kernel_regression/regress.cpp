// regress: fits fifty points by kernel regression, and compares widths.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "extras/kernel_regression/kernel_regression.hpp"
#include "extras/kernel_regression/regression.hpp"
#include "files/atomic_file.hpp"
#include "plain/plain.hpp"
#include "program/flags.hpp"
#include "program/run_program.hpp"
#include "runs/progress.hpp"

namespace abh {
namespace {

using Numbers = std::vector<double>;

// ---- Data: 50 noisy training points, and test points between them ----

constexpr Index point_count = 50;

double truth(double x) { return 2 * std::sin(x) + std::pow(x, 0.8); }

struct Points {
  Numbers x, y;
};

// x uniform on [0, 5] and sorted, y with noise of standard deviation 0.5. One Philox site, one step per use: 0 for x,
// one word per point; 1 for the noise, two words per point, after sorting.
Points drawn_points(std::uint64_t seed) {
  Points points;
  for (std::uint64_t i = 0; i < point_count; ++i) {
    points.x.push_back(5 * uniform_of(philox_word(seed, i, 0, sites::regression)));
  }
  std::sort(points.x.begin(), points.x.end());
  for (std::uint64_t i = 0; i < point_count; ++i) {
    points.y.push_back(truth(points.x[i]) + 0.5 * normal_number(seed, i, 1, sites::regression));
  }
  return points;
}

// 0, 0.1, ..., 4.9, without noise.
Points test_points() {
  Points points;
  for (int i = 0; i < 50; ++i) {
    points.x.push_back(i / 10.0);
    points.y.push_back(truth(points.x.back()));
  }
  return points;
}

// ---- The layer ----

// Outputs of the regression at `at`, with the gradient of the width and the weights for a figure.
class Answers {
 public:
  Answers(const Points& points, const Numbers& at, double width, bool leave_one_out = false)
      : out_c(at.size()), width_(width), near_c_(at.size()), share_c_(at.size()) {
    in_ = {.query_c = at.data(),
           .key_s = points.x.data(),
           .value_s = points.y.data(),
           .width = &width_,
           .leave_one_out = leave_one_out,
           .C = static_cast<Index>(at.size()),
           .S = static_cast<Index>(points.x.size())};
    kernel_regression_forward<PlainDevice, double>(
        plain_, {.out_c = out_c.data(), .near_c = near_c_.data(), .share_c = share_c_.data(), .in = in_});
  }
  Answers(const Answers&) = delete;

  // Gradient of the width, from that of the outputs.
  double d_width(const Numbers& d_out_c) {
    Numbers d_query_c(out_c.size()), d_key_s(static_cast<std::size_t>(in_.S)), d_value_s(d_key_s.size());
    double d_width = 0;
    kernel_regression_backward<PlainDevice, double>(plain_, {.d_query_c = d_query_c.data(),
                                                             .d_key_s = d_key_s.data(),
                                                             .d_value_s = d_value_s.data(),
                                                             .d_width = &d_width,
                                                             .d_out_c = d_out_c.data(),
                                                             .out_c = out_c.data(),
                                                             .near_c = near_c_.data(),
                                                             .share_c = share_c_.data(),
                                                             .in = in_});
    return d_width;
  }

  // Weight of each point in each output: (C, S).
  Numbers weights() {
    Numbers weight_cs(static_cast<std::size_t>(in_.C * in_.S));
    kernel_regression_weights<PlainDevice, double>(plain_, weight_cs.data(), near_c_.data(), share_c_.data(), in_);
    return weight_cs;
  }

  Numbers out_c;

 private:
  PlainDevice plain_;
  double width_;
  Numbers near_c_, share_c_;
  KernelRegressionInputs<double> in_{};
};

double mean_square(const Numbers& got, const Numbers& wanted) {
  double sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i) sum += (got[i] - wanted[i]) * (got[i] - wanted[i]);
  return sum / static_cast<double>(got.size());
}

// ---- The widths ----

// Gradient descent on leave-one-out squared errors, each with weight `share`.
double descended(const Points& points, double width, int steps, double share) {
  for (int step = 0; step < steps; ++step) {
    Answers answers(points, points.x, width, true);
    Numbers d_out_c = answers.out_c;
    for (std::size_t c = 0; c < d_out_c.size(); ++c) d_out_c[c] = 2 * share * (d_out_c[c] - points.y[c]);
    width -= 0.5 * answers.d_width(d_out_c);
  }
  return width;
}

// The width with the smallest error among 0.05, 0.051, ..., each 2 % larger than the last, up to 50.
double best_of_many(const std::function<double(double)>& error_of) {
  double best = 0, least = std::numeric_limits<double>::infinity();
  for (double width = 0.05; width <= 50; width *= 1.02) {
    const double error = error_of(width);
    if (error < least) {
      least = error;
      best = width;
    }
  }
  return best;
}

struct Estimate {
  std::string name;
  double width, error;  // error: at the test points
};

std::vector<Estimate> estimates(std::uint64_t seed) {
  const Points points = drawn_points(seed), test = test_points();
  const double start = uniform_of(philox_word(seed, 0, 2, sites::regression));
  const auto test_error = [&](double width) { return mean_square(Answers(points, test.x, width).out_c, test.y); };
  const auto left_out_error = [&](double width) {
    return mean_square(Answers(points, points.x, width, true).out_c, points.y);
  };
  std::vector<Estimate> table = {{"average, width 0", 0, 0},
                                 {"Gaussian kernel, width 1", 1, 0},
                                 {"5 steps on half the sum of squares", descended(points, start, 5, 0.5), 0},
                                 {"200 steps on the mean of squares, from 1",
                                  descended(points, 1, 200, 1.0 / static_cast<double>(point_count)), 0},
                                 {"least error with each point left out", best_of_many(left_out_error), 0},
                                 {"best for the test points", best_of_many(test_error), 0}};
  for (Estimate& estimate : table) estimate.error = test_error(estimate.width);
  return table;
}

// ---- Output and figures ----

std::string padded(std::string text, std::size_t width, bool right = true) {
  if (text.size() < width) text.insert(right ? 0 : text.size(), width - text.size(), ' ');
  return text;
}

void print_table(const std::vector<Estimate>& table) {
  std::cout << padded("", 42, false) << padded("width", 8) << padded("test error", 12) << '\n';
  for (const Estimate& row : table) {
    std::cout << padded(row.name, 42, false) << padded(fixed_text(std::abs(row.width), 2), 8)
              << padded(fixed_text(row.error, 4), 12) << '\n';
  }
}

// Quantile `part` of sorted numbers, linearly interpolated.
double quantile(const Numbers& sorted, double part) {
  const double at = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

void print_draws(std::uint64_t seed, Index draws) {
  std::vector<std::string> names;
  std::vector<Numbers> errors, widths;
  WorkProgress progress("draws", draws);
  for (Index draw = 0; draw < draws; ++draw) {
    progress.done(draw);
    const std::vector<Estimate> table = estimates(seed + static_cast<std::uint64_t>(draw));
    if (draw == 0) {
      for (const Estimate& row : table) names.push_back(row.name);
      errors.resize(table.size());
      widths.resize(table.size());
    }
    for (std::size_t i = 0; i < table.size(); ++i) {
      errors[i].push_back(table[i].error);
      widths[i].push_back(std::abs(table[i].width));
    }
  }
  progress.finish(padded("test error", 42, false) + "  mean (standard error)  median  5 to 95 %         median width");
  const auto count = static_cast<double>(draws);
  for (std::size_t i = 0; i < names.size(); ++i) {
    Numbers& error = errors[i];
    const double mean = std::accumulate(error.begin(), error.end(), 0.0) / count;
    double squares = 0;
    for (double each : error) squares += (each - mean) * (each - mean);
    const double deviation_of_mean = draws > 1 ? std::sqrt(squares / (count - 1) / count) : 0;
    std::sort(error.begin(), error.end());
    std::sort(widths[i].begin(), widths[i].end());
    std::cout << padded(names[i], 42, false) << "  "
              << padded(fixed_text(mean, 4) + " (" + fixed_text(deviation_of_mean, 4) + ")", 21) << "  "
              << fixed_text(quantile(error, 0.5), 4) << "  " << fixed_text(quantile(error, 0.05), 4) << " to "
              << fixed_text(quantile(error, 0.95), 4) << "  " << padded(fixed_text(quantile(widths[i], 0.5), 2), 12)
              << '\n';
  }
}

// Draws the curves of three widths, and the weights of two of them.
std::string picture_of(std::uint64_t seed, const std::vector<Estimate>& table) {
  const Points points = drawn_points(seed), test = test_points();
  const double width = table[4].width;
  RegressionPicture picture{.title = "Kernel regression, seed " + to_text(seed),
                            .point_x = points.x,
                            .point_y = points.y,
                            .at = test.x,
                            .curves = {{"truth", test.y}},
                            .matrices = {}};
  const auto add = [&](const std::string& name, double of_width, bool with_weights) {
    Answers answers(points, test.x, of_width);
    picture.curves.push_back({name, answers.out_c});
    if (with_weights) picture.matrices.push_back({name, answers.weights()});
  };
  add("average", 0, false);
  add("width 1", 1, true);
  add("width " + fixed_text(width, 2), width, true);
  return regression_svg(picture);
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder)) {
    throw Error(folder + ": cannot make this folder" + (error ? ": " + error.message() : ""));
  }
}

int body(int argc, char** argv) {
  std::uint64_t seed = 1;
  Index draws = 1;
  std::string out;
  Flags flags("regress", "Kernel regression on 50 points, and estimates of the bandwidth.");
  flags.seed("seed", seed, "seed of the points, the noise and the initial bandwidth");
  flags.integer("draws", draws, "N", "repeat for N seeds, starting with --seed, and print the spread of the errors", 1,
                1'000'000);
  flags.text("out", out, "FOLDER", "folder for the figure regress.svg of the first seed");
  if (const std::optional<int> status = flags.parse(argc, argv)) return *status;
  if (flags.given("out")) {
    if (out.empty()) throw UsageError("--out: expected a folder, found an empty name");
    make_folder(out);
  }

  const std::vector<Estimate> table = estimates(seed);
  std::cout << "regress: " << point_count << " points, seed " << seed;
  if (draws > 1) {
    std::cout << " and the next " << draws - 1 << "\n\n";
    print_draws(seed, draws);
  } else {
    std::cout << "\n\n";
    print_table(table);
  }
  if (flags.given("out")) {
    const std::string path = (std::filesystem::path(out) / "regress.svg").string();
    write_file_atomically(path, picture_of(seed, table));
    std::cout << "\npicture: " << one_line(path) << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("regress", argc, argv, abh::body); }
