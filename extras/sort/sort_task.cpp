#include "extras/sort/sort_task.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"

namespace abh {

namespace {

// All runs see the same arrays, whatever their own seed.
constexpr std::uint64_t data_seed = 0;
// The step under which the arrays themselves are looked up; examples are smaller numbers.
constexpr std::uint32_t step_of_choice = 0xFFFFFFFF;
// A quarter of all words is below it.
constexpr std::uint32_t test_bound = std::uint32_t{1} << 30;

// An array's digits as a number, the first one highest, modulo 2^64 where arrays are longer than that.
std::uint64_t number_of(std::span<const Token> array_l, const ArraySize& size) {
  std::uint64_t number = 0;
  for (const Token digit : array_l) {
    number = number * static_cast<std::uint64_t>(size.digits) + static_cast<std::uint64_t>(digit);
  }
  return number;
}

std::vector<Token> array_of(Index number, const ArraySize& size) {
  std::vector<Token> array_l(static_cast<std::size_t>(size.length));
  for (std::size_t l = array_l.size(); l-- > 0; number /= size.digits) {
    array_l[l] = static_cast<Token>(number % size.digits);
  }
  return array_l;
}

// The first array that an example's words draw which is, or is not, a test array.
std::vector<Token> drawn(std::uint32_t example, bool test, const ArraySize& size) {
  std::vector<Token> array_l(static_cast<std::size_t>(size.length));
  std::uint64_t word = 0;
  do {
    for (Token& digit : array_l) {
      const std::uint64_t random = philox_word(data_seed, word++, example, sites::sort);
      digit = static_cast<Token>((random * static_cast<std::uint64_t>(size.digits)) >> 32);
    }
  } while (is_test_array(array_l, size) != test);
  return array_l;
}

// The arrays that are listed, in ascending order, all or those for testing.
std::vector<std::vector<Token>> listed_arrays(const ArraySize& size, bool all) {
  std::vector<std::vector<Token>> found;
  for (Index number = 0; number < size.arrays(most_listed_arrays); ++number) {
    std::vector<Token> array_l = array_of(number, size);
    if (all || is_test_array(array_l, size)) found.push_back(std::move(array_l));
  }
  return found;
}

// The arrays of an evaluation, one after the other.
std::vector<Token> evaluated(const ArraySize& size, SortTask::Arrays wanted) {
  require_both_kinds(size);
  const bool all = wanted == SortTask::Arrays::all, few = size.arrays(most_listed_arrays) <= most_listed_arrays;
  if (all && !few) {
    throw UsageError("--all: expected at most " + to_text(most_listed_arrays) +
                     " arrays in all, found more of length " + to_text(size.length) + " out of " +
                     to_text(size.digits) + " digits");
  }
  std::vector<std::vector<Token>> arrays;
  if (few) arrays = listed_arrays(size, all);
  if (!few || (!all && static_cast<Index>(arrays.size()) > most_test_arrays)) {
    // A test array that was drawn before is passed over.
    std::set<std::vector<Token>> known;
    arrays.clear();
    for (std::uint32_t example = first_test_example; static_cast<Index>(arrays.size()) < most_test_arrays; ++example) {
      std::vector<Token> array_l = drawn(example, true, size);
      if (known.insert(array_l).second) arrays.push_back(std::move(array_l));
    }
  }
  std::vector<Token> together;
  for (const std::vector<Token>& array_l : arrays) together.insert(together.end(), array_l.begin(), array_l.end());
  return together;
}

}  // namespace

Index ArraySize::arrays(Index most) const {
  Index count = 1;
  for (Index l = 0; l < length && count <= most; ++l) count *= digits;
  return count;
}

bool is_test_array(std::span<const Token> array_l, const ArraySize& size) {
  return philox_word(data_seed, number_of(array_l, size), step_of_choice, sites::sort) < test_bound;
}

void require_both_kinds(const ArraySize& size) {
  const Index arrays = size.arrays(most_listed_arrays);
  if (arrays > most_listed_arrays) return;
  const Index tests = static_cast<Index>(listed_arrays(size, false).size());
  if (tests > 0 && tests < arrays) return;
  throw UsageError("--length " + to_text(size.length) + " --digits " + to_text(size.digits) + ": " +
                   (tests ? "all" : "none") + " of the " + to_text(arrays) +
                   " arrays are kept for testing; expected longer arrays, or more digits");
}

SortTask::SortTask(const ArraySize& size, Arrays wanted) : SortTask(size, evaluated(size, wanted)) {}

SortTask::SortTask(const ArraySize& size, std::vector<Token> evaluated_el)
    : AnswerTask("sort", size.context(), size.length, 0, static_cast<Index>(evaluated_el.size()) / size.length),
      size_(size),
      evaluated_el_(std::move(evaluated_el)) {}

Metadata SortTask::metadata() const {
  return {{"task", "sort"}, {"length", to_text(size_.length)}, {"digits", to_text(size_.digits)}};
}

void SortTask::shape(ModelConfig& config) const {
  config.vocabulary = size_.digits;
  config.context = size_.context();
}

std::string SortTask::fingerprint() const {
  std::string text;
  const auto length = static_cast<std::size_t>(size_.length);
  for (std::size_t first = 0; first < evaluated_el_.size(); first += length) {
    text += array_text(std::span(evaluated_el_).subspan(first, length)) + "\n";
  }
  return to_text(validation_rows()) + " arrays, " + crc32_text(text);
}

std::string SortTask::summary() const {
  const Index arrays = size_.arrays(most_listed_arrays);
  return "arrays of " + to_text(size_.length) + " digits from 1 to " + to_text(size_.digits) + ", " +
         to_text(validation_rows()) + (arrays > most_listed_arrays ? "" : " of " + to_text(arrays)) + " for validation";
}

std::vector<Token> SortTask::array(Index example) const {
  const Index e = example - static_cast<Index>(first_test_example);
  if (e < 0) return drawn(static_cast<std::uint32_t>(example), false, size_);
  const auto begin = evaluated_el_.begin() + e * size_.length;
  return {begin, begin + size_.length};
}

void SortTask::append(Batch& batch, Index example) const { append_array(batch, array(example)); }

void append_array(Batch& batch, const std::vector<Token>& array_l) {
  std::vector<Token> sorted_l = array_l;
  std::sort(sorted_l.begin(), sorted_l.end());
  // The last digit of the array asks for the first one of the answer, and what the answer was for what comes next.
  batch.token_bc.insert(batch.token_bc.end(), array_l.begin(), array_l.end());
  batch.token_bc.insert(batch.token_bc.end(), sorted_l.begin(), sorted_l.end() - 1);
  batch.target_r.insert(batch.target_r.end(), array_l.size() - 1, ignored_target);
  batch.target_r.insert(batch.target_r.end(), sorted_l.begin(), sorted_l.end());
  ++batch.B;
}

std::string SortTask::shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const {
  const auto length = static_cast<std::size_t>(size_.length);
  const std::size_t row = static_cast<std::size_t>(b * batch.C), answer = row + length - 1;
  const std::string said = array_text(std::span(best_r).subspan(answer, length));
  const std::string expected = array_text(std::span(batch.target_r).subspan(answer, length));
  return array_text(std::span(batch.token_bc).subspan(row, length)) + " -> " + said +
         (said == expected ? "" : ", expected " + expected);
}

std::string array_text(std::span<const Token> array_l) {
  std::string text;
  for (const Token digit : array_l) text += (text.empty() ? "" : " ") + to_text(digit + 1);
  return text;
}

}  // namespace abh
