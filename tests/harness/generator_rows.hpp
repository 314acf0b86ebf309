#pragma once

#include <string>

#include "tests/harness/rows.hpp"

namespace abh {

// A model that writes text.
struct GeneratorCase {
  std::string mixer, positions = "learned", window = "0";
};

// Tags of rows: models that generate up to their context, models that generate beyond it, models that read a prompt in
// several passes, and models with unlimited memory.
struct WithinContext;
struct FullContext;
struct LongPrompt;
struct EndlessText;

}  // namespace abh
