#pragma once

// How every layer and block is proved, as a Case (src/cases/case.hpp). check_layer(case) checks, for unit-scale data
// and a random upstream gradient:
//   - backward in double against Dual numbers (1e-12) and central differences (1e-7), for every element of every input,
//     on the CPU and in the plain loops (plain/), each by itself; and the two against each other (1e-11);
//   - float in plain loops, every instruction set of this machine, width 1, and the GPUs of this build (the emulator, a
//     real one) against double (1e-5 forward, 2e-5 backward);
//   - that 1, 2 and 3 threads give the same bits, and so does a second run.
// check_gpu(layer, what, case) checks the GPUs alone, in float and in bf16, and adds to the table of `make gradcheck`.
//
// What must be written is handed over as NaN, what must be added to as a number. So that a case runs on any device, its
// arrays are Arrays, and whatever else a layer reads is kept().

#include <algorithm>
#include <cmath>
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
#include "tests/device_array.hpp"
#include "tests/devices.hpp"
#include "tests/dual.hpp"
#if defined(ABH_EMULATOR)
#include "cuda/emulator/emulator.hpp"
#endif

namespace abh {

template <class T>
using Values = std::vector<Array<T>>;

// Where every device finds values that a case points to, until the tests end.
template <class Element>
Element* kept(Array<Element> values) {
  static std::deque<Array<Element>> all;
  return all.emplace_back(std::move(values)).data();
}

// Normal random numbers for slot `index` of a case.
inline Array<double> random_values(const Slot& slot, std::uint64_t seed, std::uint32_t index) {
  Array<double> values(static_cast<std::size_t>(slot.count()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = slot.offset + slot.scale * normal_number(seed, i, index, 1000);
  return values;
}
inline Values<double> random_values(const std::vector<Slot>& slots, std::uint64_t seed) {
  Values<double> values;
  for (const Slot& slot : slots) values.push_back(random_values(slot, seed, static_cast<std::uint32_t>(values.size())));
  return values;
}

template <class To, class From>
Values<To> converted(const Values<From>& values) {
  Values<To> result;
  for (const Array<From>& v : values) {
    Array<To>& to = result.emplace_back();
    to.reserve(v.size());
    if constexpr (std::is_same_v<From, bf16>) {
      for (double x : v.numbers()) to.push_back(static_cast<To>(x));
    } else {
      for (const From& x : v) to.push_back(static_cast<To>(x));
    }
  }
  return result;
}

// The comparison rule of the golden files: largest difference over the largest reference value of the tensor, which
// counts as at least 1 % of the largest among all tensors of the kind. NaN fails.
struct Comparison {
  std::string name;
  double error = 0;
};
// The larger of the two, and NaN from the first NaN on.
inline double at_least(double most, double x) { return !(x <= most) && !std::isnan(most) ? x : most; }
inline double largest(const Array<double>& values) {
  double most = 0;
  for (double x : values) most = at_least(most, std::abs(x));
  return most;
}
inline std::vector<Comparison> compare(const std::vector<Slot>& slots, const Values<double>& got,
                                       const Values<double>& reference, bool weights_apart) {
  std::vector<Comparison> result;
  for (std::size_t s = 0; s < slots.size(); ++s) {
    double scale = largest(reference[s]);
    for (std::size_t other = 0; other < slots.size(); ++other) {
      if (weights_apart && slots[other].weight != slots[s].weight) continue;
      scale = std::max(scale, 0.01 * largest(reference[other]));
    }
    Comparison comparison{slots[s].name};
    for (std::size_t i = 0; i < got[s].size(); ++i) {
      const double difference = std::abs(got[s][i] - reference[s][i]);
      const double error = difference == 0 ? 0 : difference / scale;
      comparison.error = at_least(comparison.error, error);
    }
    result.push_back(comparison);
  }
  return result;
}
inline void require_close(const std::vector<Slot>& slots, const Values<double>& got, const Values<double>& reference,
                          double tolerance, const std::string& what, bool weights_apart = true) {
  REQUIRE(got.size() == reference.size());
  for (const Comparison& comparison : compare(slots, got, reference, weights_apart)) {
    INFO(what << ", " << comparison.name << ": error " << comparison.error << ", tolerance " << tolerance);
    CHECK_FALSE(!(comparison.error <= tolerance));
  }
}

// The arrays of a case.
template <class T>
struct CaseArrays {
  using Number = T;
  Values<T> in, out, saved, d_out, d_in;
};

// Some of them as those of another case, which is a part of this one.
template <class T>
struct PartArrays {
  using Number = T;
  struct Part {
    Array<T>* array;
    auto data() const { return array->data(); }
  };
  std::vector<Part> in, out, saved = {}, d_out, d_in;
};

// The rows of a slot with `gap` elements of `fill` behind each, and back again.
template <class T>
Array<T> with_gaps(const Array<T>& rows, const Slot& slot, Index gap, double fill) {
  if (gap == 0) return rows;
  const Index width = slot.shape.back(), stride = width + gap;
  Array<T> spread_rows(static_cast<std::size_t>(slot.count() / width * stride), static_cast<T>(fill));
  for (Index i = 0; i < slot.count(); ++i) {
    spread_rows[static_cast<std::size_t>(i / width * stride + i % width)] = rows[static_cast<std::size_t>(i)];
  }
  return spread_rows;
}
template <class T>
Array<T> without_gaps(const Array<T>& spread_rows, const Slot& slot, Index gap, double fill) {
  if (gap == 0) return spread_rows;
  const Index width = slot.shape.back(), stride = width + gap;
  Array<T> rows;
  Index touched = 0;  // of the elements between the rows
  for (Index i = 0; i < static_cast<Index>(spread_rows.size()); ++i) {
    const T& x = spread_rows[static_cast<std::size_t>(i)];
    if (i % stride < width) {
      rows.push_back(x);
    } else {
      touched += !(static_cast<double>(x) == fill);
    }
  }
  INFO("between rows of " << slot.name);
  CHECK(touched == 0);
  return rows;
}

constexpr double not_written = std::numeric_limits<float>::quiet_NaN(), between_rows = 5;

template <class T>
Array<T> filled(const Slot& slot, double fill) {
  return Array<T>(static_cast<std::size_t>(slot.count()), static_cast<T>(fill));
}

// What a case's forward pass reads and writes.
template <class T, class Case>
CaseArrays<T> arrays_of(const Case& layer, const Values<T>& in) {
  CaseArrays<T> a;
  const std::vector<Slot> inputs = layer.inputs();
  for (std::size_t s = 0; s < in.size(); ++s) a.in.push_back(with_gaps(in[s], inputs[s], inputs[s].gap, not_written));
  for (const Slot& slot : layer.outputs()) {
    a.out.push_back(with_gaps(filled<T>(slot, not_written), slot, slot.gap, between_rows));
  }
  for (const Slot& slot : saved_slots(layer)) a.saved.push_back(filled<T>(slot, not_written));
  a.d_out.resize(a.out.size());
  a.d_in.resize(inputs.size());
  return a;
}

template <class T, class Device, class Case>
Values<T> run_forward(const Case& layer, Device& device, const Values<T>& in) {
  CaseArrays<T> a = arrays_of(layer, in);
  layer.forward(device, a);
  wait_for(device);
  Values<T> out;
  for (const Slot& slot : layer.outputs()) {
    out.push_back(without_gaps(a.out[out.size()], slot, slot.gap, between_rows));
  }
  return out;
}

// Gradients as the layer leaves them, less what those that are added to held before.
template <class T, class Device, class Case>
Values<double> run_backward(const Case& layer, Device& device, const Values<T>& in, const Values<T>& d_out) {
  const double before = 0.25;
  CaseArrays<T> a = arrays_of(layer, in);
  if (!a.saved.empty()) layer.forward(device, a);
  const std::vector<Slot> inputs = layer.inputs(), outputs = layer.outputs();
  for (std::size_t s = 0; s < outputs.size(); ++s) {
    a.d_out[s] = with_gaps(d_out[s], outputs[s], outputs[s].gap, not_written);
  }
  for (std::size_t s = 0; s < inputs.size(); ++s) {
    const Array<T> rows = filled<T>(inputs[s], inputs[s].adds ? before : not_written);
    a.d_in[s] = with_gaps(rows, inputs[s], inputs[s].d_gap, between_rows);
  }
  layer.backward(device, a);
  wait_for(device);
  Values<T> d_in;
  for (const Slot& slot : inputs) d_in.push_back(without_gaps(a.d_in[d_in.size()], slot, slot.d_gap, between_rows));
  Values<double> result = converted<double>(d_in);
  for (std::size_t s = 0; s < inputs.size(); ++s) {
    if (!inputs[s].adds) continue;
    for (double& x : result[s]) x -= before;
  }
  return result;
}

inline double dot(const Values<double>& a, const Values<double>& b) {
  double sum = 0;
  for (std::size_t s = 0; s < a.size(); ++s) {
    for (std::size_t i = 0; i < a[s].size(); ++i) sum += a[s][i] * b[s][i];
  }
  return sum;
}

// The derivative of dot(outputs, d_out) along one direction of the inputs, by Dual numbers.
template <class Case, class Device>
double dual_derivative(const Case& layer, Device& device, const Values<Dual>& in, const Values<double>& d_out) {
  const Values<Dual> out = run_forward<Dual>(layer, device, in);
  double sum = 0;
  for (std::size_t s = 0; s < out.size(); ++s) {
    for (std::size_t i = 0; i < out[s].size(); ++i) sum += out[s][i].derivative * d_out[s][i];
  }
  return sum;
}

// Every element of an input moves the outputs alone. Under the address sanitizer, which is slow and looks for other
// things, the first and the last of each.
inline bool is_tried([[maybe_unused]] std::size_t element, [[maybe_unused]] std::size_t count) {
#if defined(__SANITIZE_ADDRESS__)
  return element == 0 || element + 1 == count;
#else
  return true;
#endif
}

template <class Case, class Device, class DualDevice>
void check_gradients(const Case& layer, std::uint64_t seed, Device& device, DualDevice& dual_device) {
  const std::vector<Slot> slots = layer.inputs();
  const Values<double> in = random_values(slots, seed);
  const Values<double> d_out = random_values(layer.outputs(), seed + 1);
  const Values<double> gradients = run_backward<double>(layer, device, in, d_out);

  Values<double> by_dual, by_difference;
  Values<Dual> dual_in = converted<Dual>(in);
  Values<double> moved = in;
  for (std::size_t s = 0; s < in.size(); ++s) {
    by_dual.emplace_back();
    by_difference.emplace_back();
    for (std::size_t i = 0; i < in[s].size(); ++i) {
      if (slots[s].constant || !is_tried(i, in[s].size())) {
        by_dual[s].push_back(gradients[s][i]);
        by_difference[s].push_back(gradients[s][i]);
        continue;
      }
      dual_in[s][i].derivative = 1;
      by_dual[s].push_back(dual_derivative(layer, dual_device, dual_in, d_out));
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
  require_close(slots, gradients, by_dual, 1e-12, "backward against dual numbers");
  require_close(slots, gradients, by_difference, 1e-7, "backward against central differences");
}

template <class Case>
void check_gradients(const Case& layer, std::uint64_t seed) {
  CpuDevice<Isa::baseline> device(1);
  CpuDevice<Isa::scalar> dual_device(1);
  check_gradients(layer, seed, device, dual_device);
}

// The plain loops prove themselves, and the CPU in double computes what they do.
template <class Case>
void check_plain(const Case& layer, std::uint64_t seed) {
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

// Without `gpus`, on the CPU alone: where cases are many.
template <class Case>
void check_float(const Case& layer, std::uint64_t seed, double forward_tolerance = 1e-5,
                 double backward_tolerance = 2e-5, bool gpus = true) {
  // Rounded to float first: both sides see the same numbers.
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

// Every lane width against width 1, at every odd size: some vectors of the widest kind, and every odd rest.
// case_of(size) is a layer of that size.
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
  const Values<float> in = converted<float>(random_values(layer.inputs(), seed));
  const Values<float> d_out = converted<float>(random_values(layer.outputs(), seed + 1));
  for_each_cpu(1, [&]<class Device>(Device& device, const std::string& name) {
    const Values<float> out = run_forward<float>(layer, device, in);
    const Values<double> d_in = run_backward<float>(layer, device, in, d_out);
    const auto check = [&](Device& another, Index threads) {
      INFO(name << ", " << threads << " threads");
      // In parentheses of their own: what differs would be printed in full, which takes minutes for a large case.
      CHECK((run_forward<float>(layer, another, in) == out));
      CHECK((run_backward<float>(layer, another, in, d_out) == d_in));
    };
    check(device, 1);
    with_more_threads(device, check);
  });
}

// A row of the table of `make gradcheck`: one tensor of one layer on one device.
struct GradcheckRow {
  std::string layer, what, tensor, pass, device, type;
  double error, tolerance;
};
inline std::vector<GradcheckRow>& gradcheck_table() {
  static std::vector<GradcheckRow> table;
  return table;
}

inline void record_gradcheck(const GradcheckRow& row) {
  gradcheck_table().push_back(row);
  INFO(row.layer << ", " << row.what << ", " << row.pass << " " << row.tensor << ", " << row.device << ", " << row.type
                 << ": error " << row.error << ", tolerance " << row.tolerance);
  CHECK_FALSE(!(row.error <= row.tolerance));
}

// The order in which the emulator runs threads and blocks; a real GPU has its own.
inline void set_thread_order([[maybe_unused]] int number) {
#if defined(ABH_EMULATOR)
  using emulator::Order;
  emulator::set_order(number == 0   ? emulator::Order{Order::forward, 0}
                      : number == 1 ? emulator::Order{Order::reverse, 0}
                                    : emulator::Order{Order::shuffled, static_cast<unsigned>(number)});
#endif
}

// Runs something three times, in three orders of threads: the same bits every time. Gives the results of the first.
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
inline double error_in_norm(const Array<double>& got, const Array<double>& reference, double floor) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - reference[i]) * (got[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / std::max(norm, floor));
}

// A layer on every GPU of this build against the CPU in double, which sees the same rounded inputs. float: the rule of
// the golden files. bf16: in norm, per tensor; a tensor that is all but zero beside the others of its kind counts as
// 1 % of their mean square.
template <class Case>
void check_gpu(const std::string& name, const std::string& what, const Case& layer, std::uint64_t seed = 1,
               double bf16_tolerance = 2e-2) {
  const std::vector<Slot> inputs = layer.inputs(), outputs = layer.outputs();
  CpuDevice<Isa::baseline> reference_device(1);
  const auto check = [&]<class T>(auto& device, const std::string& device_name, T) {
    const bool narrow = !std::is_same_v<T, Accum<T>>;
    const Values<T> in = converted<T>(random_values(inputs, seed));
    const Values<T> d_out = converted<T>(random_values(outputs, seed + 1));
    const Values<double> out_reference = run_forward<double>(layer, reference_device, converted<double>(in));
    const Values<double> d_in_reference =
        run_backward<double>(layer, reference_device, converted<double>(in), converted<double>(d_out));
    const auto [out, d_in] = run_in_three_orders([&] {
      return std::pair(converted<double>(run_forward<T>(layer, device, in)), run_backward<T>(layer, device, in, d_out));
    });

    const auto record = [&](const std::vector<Slot>& slots, const Values<double>& got, const Values<double>& reference,
                            const std::string& pass, double float_tolerance) {
      REQUIRE(got.size() == reference.size());
      const std::vector<Comparison> comparisons = compare(slots, got, reference, true);
      double largest_mean_square = 0;
      for (const Array<double>& values : reference) {
        double sum = 0;
        for (double x : values) sum += x * x;
        if (!values.empty()) largest_mean_square = std::max(largest_mean_square, sum / double(values.size()));
      }
      for (std::size_t s = 0; s < slots.size(); ++s) {
        const double floor = 1e-4 * largest_mean_square * double(reference[s].size());
        const double error = narrow ? error_in_norm(got[s], reference[s], floor) : comparisons[s].error;
        const double tolerance = narrow ? bf16_tolerance : float_tolerance;
        record_gradcheck({name, what, slots[s].name, pass, device_name, narrow ? "bf16" : "float", error, tolerance});
      }
    };
    record(outputs, out, out_reference, "forward", 1e-5);
    record(inputs, d_in, d_in_reference, "backward", 2e-5);
  };
  for_each_gpu([&](auto& device, const std::string& device_name) {
    check(device, device_name, float{});
    check(device, device_name, bf16{});
  });
}

// A GPU reads and writes up to 16 bytes at once where an array and its rows allow it. Runs body(what) as it is, then
// with each of the arrays that it makes at other places, alone; the first time `what` is empty.
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
