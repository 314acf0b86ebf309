#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace abh {

struct CurvePoint {
  double step, value;
};

// RUN/loss.svg: training loss as a light line, validation loss as a strong one with a point at each evaluation and a
// ring at the best: the lowest, or `best` where the points were not measured alike. Points come in the order of their
// steps, losses in nats per `unit`, which is "character" or "byte". One self-contained document of 720 x 420 that
// follows the reader's light or dark preference; the same points, title and unit give the same bytes. Long runs are
// thinned to about a thousand points, which keep the extremes. Losses that are not finite are left out. `title` may be
// any bytes. accuracy: shares from 0 to 1, a dashed line with an axis of its own on the right; none where it is empty.
std::string loss_curve_svg(std::vector<CurvePoint> train, std::vector<CurvePoint> val, std::string_view title,
                           const std::string& unit, std::optional<CurvePoint> best = std::nullopt,
                           std::vector<CurvePoint> accuracy = {});

}  // namespace abh
