#pragma once

// Catch2 version 3 where it is installed, else the single header of version 2.
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
