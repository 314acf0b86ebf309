#pragma once

#include <string>

#include "extras/digits/picture.hpp"

namespace abh {

// Reads the pictures at a user's path:
// - an IDX file of images, or a folder with one for training, such as train-images-idx3-ubyte or
//   emnist-digits-train-images-idx3-ubyte. The labels are next to it, in a file with labels instead of images and idx1
//   instead of idx3 in its name; the test set is there too, with t10k or test instead of train.
// - lines of 64 numbers and a digit, scikit-learn's digits.csv (labelled_pictures.hpp);
// - a folder of PGM pictures: in subfolders named by their digit, 0 to 9, or with names that begin with the digit, such
//   as 7_0001.pgm; or two such folders, train and test.
// Without test files, the last fifth is held out, rounded up; of PGM pictures, which are sorted by digit, every fifth
// in the order of paths. With `all`, the test set has every picture and the training set is empty. Throws a one-line
// Error for other contents.
LabelledPictures read_pictures(const std::string& path, bool all = false);

// Fingerprint of the pictures, independent of their path: number, size, and a checksum of all pixels.
std::string fingerprint_of(const LabelledPictures& pictures);

// Throws Error if the training pictures show one digit only, or no digit of the test set.
void require_teaching(const LabelledPictures& pictures, const std::string& path);

}  // namespace abh
