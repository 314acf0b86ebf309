#pragma once

#include <vector>

#include "extras/figures/drawing.hpp"
#include "extras/figures/observed.hpp"
#include "extras/figures/picture_page.hpp"

namespace abh {

// The figures of every network: its answer, its tokens and positions, and then layer by layer.
std::vector<PictureSection> gallery(const Observed& seen, const FigureExample& subject, const Thinning& thinning);

// Describes in words how much the loss depends on the position of most attention weight, and on that of least.
std::string worth_of(const AttentionMap& map, const Observed& seen, const std::vector<std::string>& name_c);

}  // namespace abh
