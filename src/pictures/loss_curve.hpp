#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace abh {

struct LossPoint {
  double step, loss;
};

// RUN/loss.svg: training loss as a light line, validation loss as a strong one with a point at each evaluation and a
// ring at the best: the lowest, or `best` where the points were not measured alike. Points come in the order of their
// steps, losses in nats per `unit`, which is "character" or "byte". One self-contained document of 720 x 420 that
// follows the reader's light or dark preference; the same points, title and unit give the same bytes. Long runs are
// thinned to about a thousand points, which keep the extremes. Losses that are not finite are left out. `title` may be
// any bytes.
std::string loss_curve_svg(std::vector<LossPoint> train, std::vector<LossPoint> val, std::string_view title,
                           const std::string& unit, std::optional<LossPoint> best = std::nullopt);

}  // namespace abh
