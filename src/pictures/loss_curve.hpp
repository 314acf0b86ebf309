#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace abh {

struct CurvePoint {
  double step, value;
};

// SVG for RUN/loss.svg: training loss as a thin line, validation loss as a thick line with a point per evaluation and a
// ring at the best loss. `best`: position of the ring if the losses of the points are not comparable, else the lowest
// point. Points are in the order of their steps; losses are in nats per `unit` ("character" or "byte"). Self-contained,
// 720 x 420, for light and dark mode; the bytes depend only on the arguments. Long curves are reduced to about a
// thousand points that keep the extremes. Losses that are not finite are omitted. `title` may be any bytes. accuracy:
// shares from 0 to 1, a dashed line with a separate axis on the right; empty: none.
std::string loss_curve_svg(std::vector<CurvePoint> train, std::vector<CurvePoint> val, std::string_view title,
                           const std::string& unit, std::optional<CurvePoint> best = std::nullopt,
                           std::vector<CurvePoint> accuracy = {});

}  // namespace abh
