#pragma once

// ABH_INSTANTIATE(Device, f, g, ...) instantiates the layer functions f, g, ... of a device for each of its data types.
// A definition that does not match its declaration does not compile. The header of the device lists the types in
// ABH_FOR_EACH_NUMBER: cpu/lanes.hpp, plain/view.hpp, cuda/kernel.hpp. ABH_INSTANTIATED_ELSEWHERE(Device, f, g, ...)
// declares instantiations in another file.
#define ABH_INSTANTIATE(...) ABH_FOR_EACH_NUMBER(ABH_INSTANTIATE_ALL, template, __VA_ARGS__)
#define ABH_INSTANTIATED_ELSEWHERE(...) ABH_FOR_EACH_NUMBER(ABH_INSTANTIATE_ALL, extern template, __VA_ARGS__)

// The preprocessor does not expand a macro within itself. Therefore the rest of the list is a call with parentheses
// from another macro. The next scan of the text expands this call: one scan per function.
#define ABH_INSTANTIATE_ALL(...) ABH_SCAN_AGAIN(ABH_INSTANTIATE_FIRST(__VA_ARGS__))
#define ABH_INSTANTIATE_FIRST(T, keywords, Device, f, ...) \
  keywords decltype(f<Device, T>) f<Device, T>;            \
  __VA_OPT__(ABH_INSTANTIATE_REST ABH_PARENTHESES(T, keywords, Device, __VA_ARGS__))
#define ABH_INSTANTIATE_REST() ABH_INSTANTIATE_FIRST
#define ABH_PARENTHESES ()
#define ABH_SCAN_AGAIN(...) ABH_SCAN_THRICE(ABH_SCAN_THRICE(ABH_SCAN_THRICE(__VA_ARGS__)))
#define ABH_SCAN_THRICE(...) ABH_SCAN(ABH_SCAN(ABH_SCAN(__VA_ARGS__)))
#define ABH_SCAN(...) __VA_ARGS__
