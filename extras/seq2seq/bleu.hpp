#pragma once

#include <string_view>

namespace abh {

// How much of a translation stands in a reference, from 0 to 1, as Zhang et al., "Dive into deep learning", chapter
// 10.7, define it after Papineni et al., 2002: words are what spaces part, and of n-grams up to two words, or as many
// as the translation has,
//
//   bleu = exp(min(0, 1 - reference words / translated words)) product_n p_n^(1/2^n),
//
// p_n the share of the translation's n-grams that the reference has as often. A translation without a word has 0, but
// for a reference without one, 1.
double bleu(std::string_view translation, std::string_view reference);

}  // namespace abh
