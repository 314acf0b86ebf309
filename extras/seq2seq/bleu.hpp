#pragma once

#include <string_view>

namespace abh {

// Similarity of a translation and a reference, from 0 to 1, as defined by Zhang et al., "Dive into deep learning",
// chapter 10.7, after Papineni et al., 2002. Words are separated by spaces. N-grams have up to two words, or fewer in a
// one-word translation,
//
//   bleu = exp(min(0, 1 - reference words / translated words)) product_n p_n^(1/2^n),
//
// p_n: fraction of the translation's n-grams that also occur in the reference, with multiplicity. A translation without
// words has score 0, or 1 if the reference has no words either.
double bleu(std::string_view translation, std::string_view reference);

}  // namespace abh
