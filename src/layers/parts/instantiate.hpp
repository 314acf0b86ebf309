#pragma once

// ABH_INSTANTIATE(Device, f, g, ...) instantiates the layer functions f, g, ... of a device for each of its number
// types. A definition that does not match its declaration does not compile. ABH_FOR_EACH_NUMBER of the device's header
// names the types: cpu/lanes.hpp, plain/view.hpp, cuda/kernel.hpp. ABH_INSTANTIATED_ELSEWHERE(Device, f, g, ...)
// declares that another file does so.
#define ABH_INSTANTIATE(...) ABH_FOR_EACH_NUMBER(ABH_INSTANTIATE_ALL, template, __VA_ARGS__)
#define ABH_INSTANTIATED_ELSEWHERE(...) ABH_FOR_EACH_NUMBER(ABH_INSTANTIATE_ALL, extern template, __VA_ARGS__)

// The preprocessor expands no macro within itself. So the rest of the list is a call whose parentheses come from
// another macro, which the next scan of the text expands: one scan per function.
#define ABH_INSTANTIATE_ALL(...) ABH_SCAN_AGAIN(ABH_INSTANTIATE_FIRST(__VA_ARGS__))
#define ABH_INSTANTIATE_FIRST(T, keywords, Device, f, ...) \
  keywords decltype(f<Device, T>) f<Device, T>;            \
  __VA_OPT__(ABH_INSTANTIATE_REST ABH_PARENTHESES(T, keywords, Device, __VA_ARGS__))
#define ABH_INSTANTIATE_REST() ABH_INSTANTIATE_FIRST
#define ABH_PARENTHESES ()
#define ABH_SCAN_AGAIN(...) ABH_SCAN_THRICE(ABH_SCAN_THRICE(ABH_SCAN_THRICE(__VA_ARGS__)))
#define ABH_SCAN_THRICE(...) ABH_SCAN(ABH_SCAN(ABH_SCAN(__VA_ARGS__)))
#define ABH_SCAN(...) __VA_ARGS__
