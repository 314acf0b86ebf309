#pragma once

#include <string>

#include "extras/digits/picture.hpp"

namespace abh {

// The pictures that a user has at a path:
// - an IDX file of images, or a folder with one that is to be trained on, such as train-images-idx3-ubyte or
//   emnist-digits-train-images-idx3-ubyte. The labels lie beside it, under the name with labels for images and idx1 for
//   idx3; and so does the test set, with t10k or test for train.
// - lines of 64 numbers and a digit, scikit-learn's digits.csv (labelled_pictures.hpp);
// - a folder of PGM pictures: in folders that are named by their digit, 0 to 9, or with names of which the first
//   character is the digit and the second is none, 7_0001.pgm; or two folders of such, train and test.
// Where no test set lies beside them the last fifth is held back, rounded up; of PGM pictures, which lie digit by
// digit, every fifth in the order of their paths. With `all` the test set is every picture there, and none is to be
// trained on. Error, in one line, for whatever is not so.
LabelledPictures read_pictures(const std::string& path, bool all = false);

// The fingerprint of the pictures, wherever they lie: their number, their size, and a check value of all of it.
std::string fingerprint_of(const LabelledPictures& pictures);

// Error if the pictures to train on show one digit alone, or none of those of the test set.
void require_teaching(const LabelledPictures& pictures, const std::string& path);

}  // namespace abh
