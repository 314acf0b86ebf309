#pragma once

// Macros of Catch2 use __COUNTER__. clang++ 22 warns about it at each expansion in our files.
#if defined(__clang__) && defined(__has_warning)
#if __has_warning("-Wc2y-extensions")
#pragma clang diagnostic ignored "-Wc2y-extensions"
#endif
#endif

// Uses Catch2 version 3 if it is installed, else the single header of version 2.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <ostream>
#include <string>

namespace abh {

// Whether a text holds a part; a CHECK that fails prints both.
struct Contained {
  std::string text, part;

  explicit operator bool() const { return text.find(part) != text.npos; }
  friend std::ostream& operator<<(std::ostream& out, const Contained& contained) {
    return out << '"' << contained.part << "\" in:\n" << contained.text;
  }
};

inline Contained contains(const std::string& text, const std::string& part) { return {text, part}; }

}  // namespace abh
