#pragma once

#include "plain/plain.hpp"

namespace abh {

// The one device of a page (../touch.py), with all the memory that its calls take.
PlainDevice& page_device();

}  // namespace abh
