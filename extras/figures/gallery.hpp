#pragma once

#include <vector>

#include "extras/figures/drawing.hpp"
#include "extras/figures/observed.hpp"
#include "extras/figures/picture_page.hpp"

namespace abh {

// Figures of every network: the prediction, tokens and positions, then layer by layer.
std::vector<PictureSection> gallery(const Observed& seen, const FigureExample& subject, const Thinning& thinning);

// Text on how the loss depends on the position with the most attention weight, and on that with the least.
std::string worth_of(const AttentionMap& map, const Observed& seen, const std::vector<std::string>& name_c);

}  // namespace abh
