#pragma once

#include <vector>

#include "extras/figures/drawing.hpp"
#include "extras/figures/observed.hpp"
#include "extras/figures/picture_page.hpp"

namespace abh {

// The figures of every network: its answer, its tokens and positions, and then layer by layer.
std::vector<PictureSection> gallery(const Observed& seen, const Subject& subject, const Thinning& thinning);

// What the most looked at position of a map is worth to the loss, beside one that is hardly looked at: in words.
std::string worth_of(const AttentionMap& map, const Observed& seen, const std::vector<std::string>& name_c);

}  // namespace abh
