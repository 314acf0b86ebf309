#include "apps/bench/results.hpp"

#include <algorithm>
#include <cstdio>

#include "base/text.hpp"

namespace abh {
namespace {

// "58.3%", or "-" if the peak was not measured.
std::string percent(double share) {
  if (!(share > 0)) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f%%", 100 * share);
  return text;
}

// Share of the peak that was measured alternately with the call, if there is one; else of the peak of the whole run.
double share_of_peak(const Timing& timing, double flops, const Peaks& peaks) {
  if (timing.share_of_peak > 0) return timing.share_of_peak;
  return peaks.flops_per_s > 0 ? flops / timing.milliseconds * 1e3 / peaks.flops_per_s : 0;
}

double share_of_copy(const Timing& timing, double bytes, const Peaks& peaks) {
  return peaks.copy_bytes_per_s > 0 ? bytes / timing.milliseconds * 1e3 / peaks.copy_bytes_per_s : 0;
}

void print_layers(const Results& r) {
  std::printf("\n%-18s %-9s %10s %10s %8s %10s %8s\n", "layer", "pass", "ms", "GFLOP/s", "of peak", "GB/s", "of copy");
  for (const Row& row : r.layers) {
    std::printf(
        "%-18s %-9s %10.4f %10.1f %8s %10.1f %8s\n", row.layer.c_str(), row.pass.c_str(), row.timing.milliseconds,
        row.flops / row.timing.milliseconds / 1e6, percent(share_of_peak(row.timing, row.flops, r.peaks)).c_str(),
        row.bytes / row.timing.milliseconds / 1e6, percent(share_of_copy(row.timing, row.bytes, r.peaks)).c_str());
  }
}

}  // namespace

void print(const Results& r) {
  if (r.peaks.flops_per_s > 0) {
    std::printf("device: %s; measured peaks: %.1f GFLOP/s %s, %.1f GB/s copy\n\n", r.device.c_str(),
                r.peaks.flops_per_s / 1e9, r.peaks.arithmetic.c_str(), r.peaks.copy_bytes_per_s / 1e9);
  } else {
    std::printf("device: %s; %s\n\n", r.device.c_str(),
                r.device == "plain" ? "loops that are there to be read, not to be fast"
                                    : "an emulator has no peaks, and its times say nothing about a GPU");
  }
  std::printf("%-22s %10s %12s %10s %8s %11s %9s %11s\n", "training step, mixer", "ms", "tokens/s", "GFLOP/s",
              "of peak", "saved B/tok", "peak MiB", "faults/step");
  for (const StepRow& row : r.steps) {
    std::printf("%-22s %10.3f %12lld %10.1f %8s %11.0f %9.1f %11.2f\n", row.mixer.c_str(), row.timing.milliseconds,
                static_cast<long long>(row.tokens_per_s), row.flops / row.timing.milliseconds * 1e3 / 1e9,
                percent(share_of_peak(row.timing, row.flops, r.peaks)).c_str(), row.activation_bytes,
                static_cast<double>(row.peak_bytes) / (1 << 20), row.page_faults_per_step);
  }
  if (!r.layers.empty()) print_layers(r);
  const std::string warning = warning_of(r);
  if (!warning.empty()) std::printf("\n%s\n", warning.c_str());
}

std::string warning_of(const Results& r) {
  constexpr double most = 1.05;  // tolerance, because the peak is a measurement, too
  const auto exceeds = [&](const auto& row) { return share_of_peak(row.timing, row.flops, r.peaks) > most; };
  if (!std::any_of(r.steps.begin(), r.steps.end(), exceeds) && !std::any_of(r.layers.begin(), r.layers.end(), exceeds))
    return "";
  return "warning: more than the peak was measured, so neither the peak nor any share of it is to be believed: other\n"
         "programs took the processors meanwhile. Measure again when the machine is quiet.";
}

std::string json_of(const Results& r) {
  const auto number = [](double measured) { return measured > 0 ? to_text(measured) : "null"; };
  const auto timing = [&](const Timing& t, double flops) {
    return "\"ms\": " + to_text(t.milliseconds) + ", \"flops\": " + to_text(flops) +
           ", \"gflop_per_s\": " + to_text(flops / t.milliseconds / 1e6) +
           ", \"of_peak\": " + number(share_of_peak(t, flops, r.peaks));
  };
  std::string json = "{\n  \"device\": \"" + r.device + "\"";
  if (!r.type.empty()) json += ",\n  \"type\": \"" + r.type + "\"";
  json += ",\n  \"" + r.peaks.key + "\": " + number(r.peaks.flops_per_s) +
          ",\n  \"copy_bytes_per_s\": " + number(r.peaks.copy_bytes_per_s) + ",\n  \"training\": [";
  const char* comma = "";
  for (const StepRow& row : r.steps) {
    json += std::string(comma) + "\n    {\"mixer\": \"" + row.mixer + "\", " + timing(row.timing, row.flops) +
            ", \"tokens_per_s\": " + to_text(row.tokens_per_s) +
            ", \"activation_bytes_per_token\": " + to_text(row.activation_bytes) +
            ", \"peak_bytes\": " + number(static_cast<double>(row.peak_bytes)) +
            ", \"page_faults_per_step\": " + to_text(row.page_faults_per_step) + "}";
    comma = ",";
  }
  json += "\n  ],\n  \"layers\": [";
  comma = "";
  for (const Row& row : r.layers) {
    json += std::string(comma) + "\n    {\"layer\": \"" + row.layer + "\", \"pass\": \"" + row.pass + "\", " +
            timing(row.timing, row.flops) + ", \"bytes\": " + to_text(row.bytes) +
            ", \"gb_per_s\": " + to_text(row.bytes / row.timing.milliseconds / 1e6) +
            ", \"of_copy\": " + number(share_of_copy(row.timing, row.bytes, r.peaks)) + "}";
    comma = ",";
  }
  return json + "\n  ]\n}\n";
}

}  // namespace abh
