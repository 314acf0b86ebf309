#pragma once

#include <string>

#include "tests/harness/rows.hpp"

namespace abh {

// A model that writes text.
struct GeneratorCase {
  std::string mixer, positions = "learned", window = "0";
};

// Tags of rows: models that write as far as their context, that go on behind it, that read a prompt in several passes,
// and that forget nothing.
struct WithinContext;
struct FullContext;
struct LongPrompt;
struct EndlessText;

}  // namespace abh
