#pragma once

#include "settings/feature.hpp"

// Features that add settings to a network.
#if defined(ABH_EXTRAS)
#include "extras/adaptive_span/span_settings.hpp"
#include "extras/lsh/lsh_settings.hpp"
#include "extras/sparse/pattern_settings.hpp"
#include "extras/transformer_xl/segment_settings.hpp"
#endif

namespace abh {

#if defined(ABH_EXTRAS)
using FeatureSettings = FeatureList<SegmentSettings, LshSettings, SpanSettings, PatternSettings>;
#else
using FeatureSettings = FeatureList<>;
#endif

}  // namespace abh
