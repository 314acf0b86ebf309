#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/text.hpp"

namespace abh {

// Values as JSON.
inline std::string json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr std::string_view digits = "0123456789abcdef";
      out += "\\u00";
      out += digits[static_cast<unsigned char>(c) / 16];
      out += digits[static_cast<unsigned char>(c) % 16];
    } else {
      out += c;
    }
  }
  return out + "\"";
}
inline std::string json(const std::string& text) { return json(std::string_view(text)); }
inline std::string json(const char* text) { return json(std::string_view(text)); }
inline std::string json(bool value) { return value ? "true" : "false"; }
template <class Number>
requires std::is_arithmetic_v<Number> std::string json(Number value) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (!(value - value == 0)) return "null";
  }
  return to_text(value);
}
template <class Value>
std::string json(const std::vector<Value>& values) {
  std::string out = "[";
  for (const Value& value : values) out += (out.size() > 1 ? "," : "") + json(value);
  return out + "]";
}

// An object or array, filled in order.
class JsonObject {
 public:
  template <class Value>
  JsonObject& add(std::string_view key, const Value& value) {
    return add_json(key, json(value));
  }
  JsonObject& add_json(std::string_view key, const std::string& value) {
    text_ += (text_.empty() ? "" : ",") + json(key) + ":" + value;
    return *this;
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};
class JsonArray {
 public:
  void add_json(const std::string& value) { text_ += (text_.empty() ? "" : ",") + value; }
  std::string text() const { return "[" + text_ + "]"; }

 private:
  std::string text_;
};

}  // namespace abh
