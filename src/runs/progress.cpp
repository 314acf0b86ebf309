#include "runs/progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <utility>

#include "base/text.hpp"
#include "program/terminal.hpp"

namespace abh {
namespace {

// Time as "1:02:03", "4:05" or "0:07"; "-" if unknown.
std::string duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "-";
  const auto total = static_cast<Index>(std::ceil(seconds));
  const auto two_digits = [](Index value) { return std::string(value < 10 ? 1 : 0, '0') + to_text(value); };
  if (total < 3600) return to_text(total / 60) + ':' + two_digits(total % 60);
  return to_text(total / 3600) + ':' + two_digits(total / 60 % 60) + ':' + two_digits(total % 60);
}

}  // namespace

Progress::Progress(Index steps, bool terminal, std::ostream& out)
    : steps_(steps), terminal_(terminal), colour_(terminal && colour_wanted()), out_(out) {}

void Progress::update(Index step, double train_loss, std::optional<double> val_loss, Index tokens_per_s,
                      double seconds_left, std::optional<double> accuracy) {
  if (val_loss || !terminal_) {
    last_val_loss_ = val_loss;
    last_accuracy_ = accuracy;
  }
  std::vector<Part> parts{step_part(step), {"train " + fixed_text(train_loss, 4), "34", 1}};
  if (last_val_loss_) parts.push_back({"val " + fixed_text(*last_val_loss_, 4), "33", 2});
  if (last_accuracy_) parts.push_back({"accuracy " + fixed_text(100 * *last_accuracy_, 1) + " %", "33", 2});
  parts.push_back({to_text(tokens_per_s) + " tokens/s", "2", 4});
  parts.push_back({duration(seconds_left) + " left", "2", 3});
  show(std::move(parts));
}

void Progress::working(std::optional<Index> step, std::string_view work, Index done, Index all, double seconds_left) {
  std::vector<Part> parts{{std::string(work) + " " + to_text(100 * done / all) + " % of " + to_text(all), "33", 1},
                          {duration(seconds_left) + " left", "2", 3}};
  if (step) parts.insert(parts.begin(), step_part(*step));
  show(std::move(parts));
}

Progress::Part Progress::step_part(Index step) const {
  return {"step " + to_text(step) + "/" + to_text(steps_), "1", 0};
}

void Progress::show(std::vector<Part> parts) {
  const std::string separator = terminal_ ? "  " : ", ";
  const auto length = [&] {
    std::size_t sum = 0;
    for (const Part& part : parts) sum += (sum == 0 ? 0 : separator.size()) + part.text.size();
    return sum;
  };
  while (length() > 79 && parts.size() > 1) {
    parts.erase(std::max_element(parts.begin(), parts.end(), [](auto& a, auto& b) { return a.rank < b.rank; }));
  }
  std::string line;
  for (const Part& part : parts) {
    if (!line.empty()) line += separator;
    line += colour_ ? "\x1b[" + std::string(part.colour) + "m" + part.text + "\x1b[0m" : part.text;
  }
  if (terminal_) {
    // Automatic wrapping is off while the line is written. A narrower window then cuts the line, and the next update
    // starts at its beginning.
    live_ = "\r\x1b[?7l" + line + "\x1b[K\x1b[?7h";
    out_ << live_ << std::flush;
  } else {
    out_ << line << '\n' << std::flush;
  }
}

WorkProgress::WorkProgress(std::string work, Index all)
    : work_(std::move(work)), all_(all), progress_(0, on_terminal()) {}

void WorkProgress::done(Index count) {
  const Clock::time_point now = Clock::now();
  if (now - shown_ < progress_.pause()) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count() / static_cast<double>(count);
  progress_.working(std::nullopt, work_, count, all_, seconds * static_cast<double>(all_ - count));
}

void Progress::line(std::string_view text) {
  if (!live_.empty()) out_ << "\r\x1b[K";
  out_ << text << '\n' << live_ << std::flush;
}

void Progress::finish() {
  if (!live_.empty()) out_ << '\n' << std::flush;
  live_.clear();
}

void Progress::finish(std::string_view text) {
  const bool live = !live_.empty();
  live_.clear();
  out_ << (live ? "\r\x1b[K" : "") << text << '\n' << std::flush;
}

}  // namespace abh
