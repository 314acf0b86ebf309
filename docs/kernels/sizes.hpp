#pragma once

// Sizes that kernels of the ladders have at compile time.

namespace abh {

inline constexpr int pooling_chunk = 16;       // positions of a chunk at level 5 of pooling
inline constexpr int attention_channels = 16;  // channels of a head

}  // namespace abh
