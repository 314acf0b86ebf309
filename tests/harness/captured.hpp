#pragma once

#include <ostream>
#include <sstream>
#include <string>

namespace abh {

// Takes what is written to a standard stream while it lives.
class Captured {
 public:
  explicit Captured(std::ostream& stream) : stream_(stream), old_(stream.rdbuf(text_.rdbuf())) {}
  ~Captured() { stream_.rdbuf(old_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::ostream& stream_;
  std::streambuf* old_;
};

}  // namespace abh
