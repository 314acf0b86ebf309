#pragma once

// How every layer and block is proved, as a Case (src/cases/case.hpp). check_layer(case) checks, for unit-scale data
// and a random upstream gradient:
//   - backward in double against Dual numbers (1e-12) and central differences (1e-7), for every element of every input,
//     on the CPU and in the plain loops (plain/), each by itself; and the two against each other (1e-11);
//   - float in plain loops, every instruction set of this machine, width 1, and the GPUs of this build (the emulator, a
//     real one) against double (1e-5 forward, 2e-5 backward);
//   - that 1, 2 and 3 threads give the same bits, and so does a second run.
// check_gpu(layer, cases...) checks the GPUs, in float and in bf16, and the CPU devices in bf16, and adds to the table
// of `make gradcheck`.
//
// Before every pass, arrays to be written hold NaN, arrays to be added to hold numbers, and scratch memory holds NaN.
// So that a case runs on any device, its arrays are Arrays, and all other data that a layer reads is kept().

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "base/types.hpp"
#include "cases/case.hpp"
#include "catch.hpp"
#include "tests/harness/device_array.hpp"
#include "tests/harness/devices.hpp"
#include "tests/harness/dual.hpp"

namespace abh {

template <class T>
using Values = std::vector<Array<T>>;

// Functions that are not templates, or templates of number types only, are compiled once and optimised, in
// tests/harness/layer_case.cpp. The tests themselves are not optimised, so that they compile faster.

// Stores values that a case points to, readable by every device, until the tests end.
template <class Element>
Element* kept(Array<Element> values) {
  static std::deque<Array<Element>> all;
  return all.emplace_back(std::move(values)).data();
}

// "in_bcd (2, 3, 5), weight_d (5)": the sizes of a case, for failure messages.
std::string sizes_of(const std::vector<TensorSpec>& specs);

// Normal random numbers for spec `index` of a case.
Array<double> random_values(const TensorSpec& spec, std::uint64_t seed, std::uint32_t index);
Values<double> random_values(const std::vector<TensorSpec>& specs, std::uint64_t seed);

// From double to any number that tests compute with, and back.
template <class To, class From>
Values<To> converted(const Values<From>& values);

// The comparison rule of the golden files: largest difference over the largest reference value of the tensor, which
// counts as at least 1 % of the largest among all tensors of the kind. NaN fails.
struct Comparison {
  std::string name;
  double error = 0;
};
// The larger of the two, and NaN from the first NaN on.
inline double at_least(double most, double x) { return !(x <= most) && !std::isnan(most) ? x : most; }
double largest(const Array<double>& values);
std::vector<Comparison> compare(const std::vector<TensorSpec>& specs, const Values<double>& got,
                                const Values<double>& reference, bool weights_apart);
void require_close(const std::vector<TensorSpec>& specs, const Values<double>& got, const Values<double>& reference,
                   double tolerance, const std::string& what, bool weights_apart = true);

// The arrays of a case.
template <class T>
struct CaseArrays {
  using Number = T;
  Values<T> in, out, saved, d_out, d_in;
};

// Some of the tensors as tensors of another case, which is a part of this case.
template <class T>
struct PartArrays {
  using Number = T;
  struct Part {
    Array<T>* array;
    auto data() const { return array->data(); }
  };
  std::vector<Part> in, out, saved = {}, d_out, d_in;
};

// The initial value of elements that must be written before they are read.
constexpr double not_written = std::numeric_limits<float>::quiet_NaN();

template <class T>
Array<T> filled(const TensorSpec& spec, double fill);

// The arrays that the forward pass of a case reads and writes.
template <class T>
CaseArrays<T> arrays_of(const std::vector<TensorSpec>& inputs, const std::vector<TensorSpec>& outputs,
                        const std::vector<TensorSpec>& saved, const Values<T>& in);
template <class T, class Case>
CaseArrays<T> arrays_of(const Case& layer, const Values<T>& in) {
  return arrays_of<T>(layer.inputs(), layer.outputs(), saved_slots(layer), in);
}

// The outputs that the forward pass has written.
template <class T>
Values<T> outputs_in(const CaseArrays<T>& a, const std::vector<TensorSpec>& outputs);

// put_d_out() sets the further arrays that the backward pass reads and writes. gradients_in() returns the gradients
// that the pass leaves; it subtracts the earlier contents of gradients that are added to.
template <class T>
void put_d_out(CaseArrays<T>& a, const std::vector<TensorSpec>& inputs, const std::vector<TensorSpec>& outputs,
               const Values<T>& d_out);
template <class T>
Values<double> gradients_in(const CaseArrays<T>& a, const std::vector<TensorSpec>& inputs);

// Overwrites scratch memory with NaN, so that no pass can depend on the results of earlier work.
template <class Device>
void spoil_scratch(Device& device) {
  constexpr std::size_t most = 1024;
  const std::vector<std::byte> nothing(most, std::byte{0xFF});
  typename Device::Scope scratch(device.workspace);
  // Memory beyond the first megabytes belongs to cuBLASLt and takes long to fill.
  for (std::size_t left = std::min(device.workspace.peak(), std::size_t{4} << 20); left > 0;) {
    const auto bytes = static_cast<Index>(std::min(left, most));
    device.copy_from_host_later(scratch.template take<std::byte>(bytes), nothing.data(), bytes);
    left -= static_cast<std::size_t>(bytes);
  }
  wait_for(device);
  typename Device::SideStream branch(device);
  Device& beside = branch.fork();
  if (&beside != &device && beside.scratch_peak() > 0) spoil_scratch(beside);
}

template <class T, class Device, class Case>
Values<T> run_forward(const Case& layer, Device& device, const Values<T>& in) {
  spoil_scratch(device);
  CaseArrays<T> a = arrays_of(layer, in);
  layer.forward(device, a);
  wait_for(device);
  return outputs_in(a, layer.outputs());
}

template <class T, class Device, class Case>
Values<double> run_backward(const Case& layer, Device& device, const Values<T>& in, const Values<T>& d_out) {
  spoil_scratch(device);
  CaseArrays<T> a = arrays_of(layer, in);
  if (!a.saved.empty()) layer.forward(device, a);
  const std::vector<TensorSpec> inputs = layer.inputs();
  put_d_out(a, inputs, layer.outputs(), d_out);
  spoil_scratch(device);
  layer.backward(device, a);
  wait_for(device);
  return gradients_in(a, inputs);
}

double dot(const Values<double>& a, const Values<double>& b);

// The derivative of dot(out, d_out).
double derivative_of_dot(const Values<Dual>& out, const Values<double>& d_out);

// Changes every element of an input alone and compares the outputs. Under the slow address sanitizer, only the first
// and the last element of each input.
inline bool is_tried([[maybe_unused]] std::size_t element, [[maybe_unused]] std::size_t count) {
#if defined(__SANITIZE_ADDRESS__)
  return element == 0 || element + 1 == count;
#else
  return true;
#endif
}

template <class Case, class Device, class DualDevice>
void check_gradients(const Case& layer, std::uint64_t seed, Device& device, DualDevice& dual_device) {
  const std::vector<TensorSpec> specs = layer.inputs();
  const Values<double> in = random_values(specs, seed);
  const Values<double> d_out = random_values(layer.outputs(), seed + 1);
  const Values<double> gradients = run_backward<double>(layer, device, in, d_out);

  Values<double> by_dual, by_difference;
  Values<Dual> dual_in = converted<Dual>(in);
  Values<double> moved = in;
  for (std::size_t s = 0; s < in.size(); ++s) {
    by_dual.emplace_back();
    by_difference.emplace_back();
    for (std::size_t i = 0; i < in[s].size(); ++i) {
      if (specs[s].constant || !is_tried(i, in[s].size())) {
        by_dual[s].push_back(gradients[s][i]);
        by_difference[s].push_back(gradients[s][i]);
        continue;
      }
      dual_in[s][i].derivative = 1;
      by_dual[s].push_back(derivative_of_dot(run_forward<Dual>(layer, dual_device, dual_in), d_out));
      dual_in[s][i].derivative = 0;

      const double h = 1e-5;
      moved[s][i] = in[s][i] + h;
      const Values<double> above = run_forward<double>(layer, device, moved);
      moved[s][i] = in[s][i] - h;
      const Values<double> below = run_forward<double>(layer, device, moved);
      moved[s][i] = in[s][i];
      by_difference[s].push_back((dot(above, d_out) - dot(below, d_out)) / (2 * h));
    }
  }
  require_close(specs, gradients, by_dual, 1e-12, "backward against dual numbers");
  require_close(specs, gradients, by_difference, 1e-7, "backward against central differences");
}

template <class Case>
void check_gradients(const Case& layer, std::uint64_t seed) {
  INFO(sizes_of(layer.inputs()));
  CpuDevice<Isa::baseline> device(1);
  CpuDevice<Isa::scalar> dual_device(1);
  check_gradients(layer, seed, device, dual_device);
}

// Checks the plain loops by themselves, and the CPU in double against them.
template <class Case>
void check_plain(const Case& layer, std::uint64_t seed) {
  INFO(sizes_of(layer.inputs()));
  INFO("plain");
  PlainDevice plain;
  check_gradients(layer, seed, plain, plain);
  const Values<double> in = random_values(layer.inputs(), seed);
  const Values<double> d_out = random_values(layer.outputs(), seed + 1);
  CpuDevice<Isa::baseline> cpu(1);
  require_close(layer.outputs(), run_forward<double>(layer, cpu, in), run_forward<double>(layer, plain, in), 1e-11,
                "cpu against plain, forward");
  require_close(layer.inputs(), run_backward<double>(layer, cpu, in, d_out),
                run_backward<double>(layer, plain, in, d_out), 1e-11, "cpu against plain, backward");
}

// Without `gpus`, runs on the CPU only, for tests with many cases.
template <class Case>
void check_float(const Case& layer, std::uint64_t seed, double forward_tolerance = 1e-5,
                 double backward_tolerance = 2e-5, bool gpus = true) {
  INFO(sizes_of(layer.inputs()));
  // Inputs are rounded to float first, so that both sides have the same numbers.
  const Values<float> in = converted<float>(random_values(layer.inputs(), seed));
  const Values<float> d_out = converted<float>(random_values(layer.outputs(), seed + 1));
  CpuDevice<Isa::baseline> reference(1);
  const Values<double> out = run_forward<double>(layer, reference, converted<double>(in));
  const Values<double> d_in = run_backward<double>(layer, reference, converted<double>(in), converted<double>(d_out));
  const auto check = [&](auto& device, const std::string& name) {
    require_close(layer.outputs(), converted<double>(run_forward<float>(layer, device, in)), out, forward_tolerance,
                  "float forward, " + name);
    require_close(layer.inputs(), run_backward<float>(layer, device, in, d_out), d_in, backward_tolerance,
                  "float backward, " + name);
  };
  for_each_cpu(1, check);
  if (gpus) for_each_gpu(check);
}

// Every SIMD width against width 1, at every odd size up to several of the widest vectors plus a rest. case_of(size) is
// a layer of that size.
template <class CaseOf>
void check_widths(const CaseOf& case_of) {
  CpuDevice<Isa::scalar> one_by_one(1);
  for (Index size = 1; size <= 67; size += 2) {
    INFO("size " << size);
    const auto layer = case_of(size);
    const Values<float> in = converted<float>(random_values(layer.inputs(), 1));
    const Values<float> d_out = converted<float>(random_values(layer.outputs(), 2));
    const Values<double> out = converted<double>(run_forward<float>(layer, one_by_one, in));
    const Values<double> d_in = run_backward<float>(layer, one_by_one, in, d_out);
    for_each_cpu(1, [&](auto& device, const std::string& name) {
      require_close(layer.outputs(), converted<double>(run_forward<float>(layer, device, in)), out, 1e-5,
                    "forward against width 1, " + name);
      require_close(layer.inputs(), run_backward<float>(layer, device, in, d_out), d_in, 2e-5,
                    "backward against width 1, " + name);
    });
  }
}

// The same bits from a second run, and with 2 and 3 threads.
template <class Case>
void check_threads(const Case& layer, std::uint64_t seed) {
  INFO(sizes_of(layer.inputs()));
  const Values<float> in = converted<float>(random_values(layer.inputs(), seed));
  const Values<float> d_out = converted<float>(random_values(layer.outputs(), seed + 1));
  for_each_cpu(1, [&]<class Device>(Device& device, const std::string& name) {
    const Values<float> out = run_forward<float>(layer, device, in);
    const Values<double> d_in = run_backward<float>(layer, device, in, d_out);
    const auto check = [&](Device& another, Index threads) {
      INFO(name << ", " << threads << " threads");
      // Extra parentheses: on failure Catch2 would print both arrays, which takes minutes for a large case.
      CHECK((run_forward<float>(layer, another, in) == out));
      CHECK((run_backward<float>(layer, another, in, d_out) == d_in));
    };
    check(device, 1);
    with_more_threads(device, check);
  });
}

// A row in the table of `make gradcheck`: one tensor of one layer on one device.
struct GradcheckRow {
  std::string layer = {}, what = {}, tensor = {}, pass = {}, device = {}, type = {};
  double error = 0, tolerance = 0;
};
void record_gradcheck(const GradcheckRow& row);
void print_gradcheck_table();  // prints the table of `make gradcheck`

// Order in which the emulator runs threads and blocks; a real GPU has its own order.
void set_thread_order(int number);

// Runs the body three times, in three thread orders, and requires the same bits. Returns the results of the first run.
template <class Run>
auto run_in_three_orders(const Run& run) {
  set_thread_order(0);
  const auto first = run();
  for (int order : {1, 2}) {
    set_thread_order(order);
    INFO("thread order " << order);
    CHECK((run() == first));
  }
  set_thread_order(0);
  return first;
}

// ||got - reference|| / ||reference||, the norms over one tensor; 0 / 0 is 0.
double error_in_norm(const Array<double>& got, const Array<double>& reference, double floor);

// Checks the tensors of one pass of a layer and enters them in that table; `row` has their common columns. float: the
// rule of the golden files. bf16: the norm of the error per tensor, within the tolerance of `row`; a nearly zero tensor
// counts as 1 % of the mean square of its kind.
void record_pass(GradcheckRow row, const std::string& pass, const std::vector<TensorSpec>& specs,
                 const Values<double>& got, const Values<double>& reference, double float_tolerance);

// true: the layer of this case multiplies matrices with `gemm`.
template <class Case>
inline constexpr bool multiplies_matrices = requires {
  Case::multiplies_matrices;
};

// A layer on every GPU of this build, and in bf16 on every CPU device, against the CPU in double with the same rounded
// inputs. On a CPU, 2 and 3 threads must give the same bits.
template <class Case>
void check_gpu(const std::string& name, const std::string& what, const Case& layer, std::uint64_t seed = 1,
               double bf16_tolerance = 2e-2) {
  INFO(sizes_of(layer.inputs()));
  const std::vector<TensorSpec> inputs = layer.inputs(), outputs = layer.outputs();
  CpuDevice<Isa::baseline> reference_device(1);
  const auto check = [&]<class T>(auto& device, const std::string& device_name, T) {
    const bool narrow = !std::is_same_v<T, Accum<T>>;
    const Values<T> in = converted<T>(random_values(inputs, seed));
    const Values<T> d_out = converted<T>(random_values(outputs, seed + 1));
    const Values<double> out_reference = run_forward<double>(layer, reference_device, converted<double>(in));
    const Values<double> d_in_reference =
        run_backward<double>(layer, reference_device, converted<double>(in), converted<double>(d_out));
    const auto run_on = [&](auto& any) {
      return std::pair(converted<double>(run_forward<T>(layer, any, in)), run_backward<T>(layer, any, in, d_out));
    };
    const auto got = run_in_three_orders([&] { return run_on(device); });
    with_more_threads(device, [&](auto& another, Index threads) {
      INFO(device_name << ", " << threads << " threads");
      CHECK((run_on(another) == got));
    });

    const GradcheckRow row{.layer = name,
                           .what = what,
                           .device = device_name,
                           .type = narrow ? "bf16" : "float",
                           .tolerance = bf16_tolerance};
    record_pass(row, "forward", outputs, got.first, out_reference, 1e-5);
    record_pass(row, "backward", inputs, got.second, d_in_reference, 2e-5);
  };
  const auto check_narrow = [&](auto& device, const std::string& device_name) { check(device, device_name, bf16{}); };
  for_each_cpu(1, check_narrow);
  if (multiplies_matrices<Case>) for_each_unit(1, check_narrow);
  for_each_gpu(
      [&](auto& device, const std::string& device_name) {
        check(device, device_name, float{});
        check(device, device_name, bf16{});
      },
      multiplies_matrices<Case>);
}

// Several cases; `what` of each contains its sizes.
template <class First, class... Rest>
requires(!std::is_convertible_v<First, std::string>) void check_gpu(const std::string& name, const First& first,
                                                                    const Rest&... rest) {
  check_gpu(name, sizes_of(first.inputs()), first);
  (check_gpu(name, sizes_of(rest.inputs()), rest), ...);
}

// A GPU reads and writes up to 16 bytes at once if the array and its rows are aligned. Runs body(what) unchanged, with
// an empty `what`, then once per array of the body with this array misaligned.
template <class Body>
void for_each_shifted_array(std::size_t smallest_shift, const Body& body) {
  shift_array();
  body("");
  const Index arrays = shift_array();
  for (Index array = 0; array < arrays; ++array) {
    for (std::size_t bytes = smallest_shift; bytes < 16; bytes *= 2) {
      const std::string what = "array " + std::to_string(array) + " at " + std::to_string(bytes);
      INFO(what);
      shift_array(array, bytes);
      body(what);
    }
  }
  shift_array();
}

// Where its arrays begin changes no more than the order of a layer's sums. For small layers: they run dozens of times.
template <class Case>
void check_alignment(const Case& layer, double tolerance = 2e-5) {
  INFO(sizes_of(layer.inputs()));
  const auto check = [&]<class T>(auto& device, const std::string& name, T) {
    const double most = sizeof(T) == 4 ? tolerance : 500 * tolerance;
    std::pair<Values<double>, Values<double>> expected;
    for_each_shifted_array(sizeof(T), [&](const std::string& what) {
      const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
      const Values<T> d_out = converted<T>(random_values(layer.outputs(), 2));
      const std::pair got{converted<double>(run_forward<T>(layer, device, in)),
                          run_backward<T>(layer, device, in, d_out)};
      if (what.empty()) expected = got;
      require_close(layer.outputs(), got.first, expected.first, most, name + ", " + what);
      require_close(layer.inputs(), got.second, expected.second, most, name + ", " + what);
    });
  };
  for_each_gpu(
      [&](auto& device, const std::string& name) {
        check(device, name, float{});
        check(device, name, bf16{});
      },
      multiplies_matrices<Case>);
}

// A case of no rows: no output, no gradient of an input, and gradients of weights that stay as they are.
template <class Case>
void check_no_rows(const Case& layer) {
  INFO(sizes_of(layer.inputs()));
  const auto check = [&]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    const Values<T> d_out = converted<T>(random_values(layer.outputs(), 2));
    for (const Array<T>& out : run_forward<T>(layer, device, in)) CHECK(out.empty());
    for (const Array<double>& d_in : run_backward<T>(layer, device, in, d_out)) {
      CHECK((d_in == Array<double>(d_in.size(), 0.0)));
    }
  };
  CpuDevice<Isa::baseline> in_double(2);
  check(in_double, "double", double{});
  for_each_cpu(2, [&](auto& device, const std::string& name) { check(device, name, float{}); });
  for_each_gpu([&](auto& device, const std::string& name) {
    check(device, name, float{});
    check(device, name, bf16{});
  });
}

template <class Case>
void check_layer(const Case& layer, std::uint64_t seed = 1) {
  check_gradients(layer, seed);
  check_plain(layer, seed);
  check_float(layer, seed);
  check_threads(layer, seed);
}

}  // namespace abh

// Compiled in tests/harness/layer_case.cpp as well.
extern template class std::vector<double, abh::TestAllocator<double>>;
extern template class std::vector<float, abh::TestAllocator<float>>;
extern template class std::vector<abh::bf16, abh::TestAllocator<abh::bf16>>;
extern template class std::vector<abh::Dual, abh::TestAllocator<abh::Dual>>;
extern template class std::vector<abh::Array<double>>;
extern template class std::vector<abh::Array<float>>;
extern template class std::vector<abh::Array<abh::bf16>>;
extern template class std::vector<abh::Array<abh::Dual>>;
