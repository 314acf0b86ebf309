#include "tests/harness/layer_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include "base/random.hpp"
#if defined(ABH_EMULATOR)
#include "cuda/emulator/emulator.hpp"
#endif

namespace abh {

namespace {

constexpr double between_rows = 5;

// Inserts `gap` elements of `fill` after each row of a spec, and removes them again.
template <class T>
Array<T> with_gaps(const Array<T>& rows, const TensorSpec& spec, Index gap, double fill) {
  if (gap == 0) return rows;
  const Index width = spec.shape.back(), stride = width + gap;
  Array<T> spread_rows(static_cast<std::size_t>(spec.count() / width * stride), static_cast<T>(fill));
  for (Index i = 0; i < spec.count(); ++i) {
    spread_rows[static_cast<std::size_t>(i / width * stride + i % width)] = rows[static_cast<std::size_t>(i)];
  }
  return spread_rows;
}
template <class T>
Array<T> without_gaps(const Array<T>& spread_rows, const TensorSpec& spec, Index gap, double fill) {
  if (gap == 0) return spread_rows;
  const Index width = spec.shape.back(), stride = width + gap;
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
  INFO("between rows of " << spec.name);
  CHECK(touched == 0);
  return rows;
}

constexpr double before = 0.25;  // initial value of gradients that are added to

std::vector<GradcheckRow> gradcheck_table;

}  // namespace

std::string sizes_of(const std::vector<TensorSpec>& specs) {
  std::string text;
  for (const TensorSpec& spec : specs) {
    std::string shape;
    for (const Index extent : spec.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    text += (text.empty() ? "" : ", ") + spec.name + " (" + shape + ")";
  }
  return text;
}

Array<double> random_values(const TensorSpec& spec, std::uint64_t seed, std::uint32_t index) {
  Array<double> values(static_cast<std::size_t>(spec.count()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = spec.offset + spec.scale * normal_number(seed, i, index, 1000);
  return values;
}
Values<double> random_values(const std::vector<TensorSpec>& specs, std::uint64_t seed) {
  Values<double> values;
  for (const TensorSpec& spec : specs)
    values.push_back(random_values(spec, seed, static_cast<std::uint32_t>(values.size())));
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
template Values<double> converted(const Values<double>&);
template Values<double> converted(const Values<float>&);
template Values<double> converted(const Values<bf16>&);
template Values<float> converted(const Values<double>&);
template Values<bf16> converted(const Values<double>&);
template Values<Dual> converted(const Values<double>&);

double largest(const Array<double>& values) {
  double most = 0;
  for (double x : values) most = at_least(most, std::abs(x));
  return most;
}
std::vector<Comparison> compare(const std::vector<TensorSpec>& specs, const Values<double>& got,
                                const Values<double>& reference, bool weights_apart) {
  std::vector<Comparison> result;
  for (std::size_t s = 0; s < specs.size(); ++s) {
    double scale = largest(reference[s]);
    for (std::size_t other = 0; other < specs.size(); ++other) {
      if (weights_apart && specs[other].weight != specs[s].weight) continue;
      scale = std::max(scale, 0.01 * largest(reference[other]));
    }
    Comparison comparison{specs[s].name};
    for (std::size_t i = 0; i < got[s].size(); ++i) {
      const double difference = std::abs(got[s][i] - reference[s][i]);
      const double error = difference == 0 ? 0 : difference / scale;
      comparison.error = at_least(comparison.error, error);
    }
    result.push_back(comparison);
  }
  return result;
}
void require_close(const std::vector<TensorSpec>& specs, const Values<double>& got, const Values<double>& reference,
                   double tolerance, const std::string& what, bool weights_apart) {
  REQUIRE(got.size() == reference.size());
  for (const Comparison& comparison : compare(specs, got, reference, weights_apart)) {
    INFO(what << ", " << comparison.name << ": error " << comparison.error << ", tolerance " << tolerance);
    CHECK_FALSE(!(comparison.error <= tolerance));
  }
}

template <class T>
Array<T> filled(const TensorSpec& spec, double fill) {
  return Array<T>(static_cast<std::size_t>(spec.count()), static_cast<T>(fill));
}

template <class T>
CaseArrays<T> arrays_of(const std::vector<TensorSpec>& inputs, const std::vector<TensorSpec>& outputs,
                        const std::vector<TensorSpec>& saved, const Values<T>& in) {
  CaseArrays<T> a;
  for (std::size_t s = 0; s < in.size(); ++s) a.in.push_back(with_gaps(in[s], inputs[s], inputs[s].gap, not_written));
  for (const TensorSpec& spec : outputs) {
    a.out.push_back(with_gaps(filled<T>(spec, not_written), spec, spec.gap, between_rows));
  }
  for (const TensorSpec& spec : saved) a.saved.push_back(filled<T>(spec, not_written));
  a.d_out.resize(a.out.size());
  a.d_in.resize(inputs.size());
  return a;
}

template <class T>
Values<T> outputs_in(const CaseArrays<T>& a, const std::vector<TensorSpec>& outputs) {
  Values<T> out;
  for (const TensorSpec& spec : outputs) out.push_back(without_gaps(a.out[out.size()], spec, spec.gap, between_rows));
  return out;
}

template <class T>
void put_d_out(CaseArrays<T>& a, const std::vector<TensorSpec>& inputs, const std::vector<TensorSpec>& outputs,
               const Values<T>& d_out) {
  for (std::size_t s = 0; s < outputs.size(); ++s) {
    a.d_out[s] = with_gaps(d_out[s], outputs[s], outputs[s].gap, not_written);
  }
  for (std::size_t s = 0; s < inputs.size(); ++s) {
    const Array<T> rows = filled<T>(inputs[s], inputs[s].adds ? before : not_written);
    a.d_in[s] = with_gaps(rows, inputs[s], inputs[s].d_gap, between_rows);
  }
}

template <class T>
Values<double> gradients_in(const CaseArrays<T>& a, const std::vector<TensorSpec>& inputs) {
  Values<T> d_in;
  for (const TensorSpec& spec : inputs)
    d_in.push_back(without_gaps(a.d_in[d_in.size()], spec, spec.d_gap, between_rows));
  Values<double> result = converted<double>(d_in);
  for (std::size_t s = 0; s < inputs.size(); ++s) {
    if (!inputs[s].adds) continue;
    for (double& x : result[s]) x -= before;
  }
  return result;
}

#define ABH_FOR_NUMBER(T)                                                                                 \
  template Array<T> filled(const TensorSpec&, double);                                                    \
  template CaseArrays<T> arrays_of(const std::vector<TensorSpec>&, const std::vector<TensorSpec>&,        \
                                   const std::vector<TensorSpec>&, const Values<T>&);                     \
  template Values<T> outputs_in(const CaseArrays<T>&, const std::vector<TensorSpec>&);                    \
  template void put_d_out(CaseArrays<T>&, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&, \
                          const Values<T>&);
ABH_FOR_NUMBER(double)
ABH_FOR_NUMBER(float)
ABH_FOR_NUMBER(bf16)
ABH_FOR_NUMBER(Dual)
template Values<double> gradients_in(const CaseArrays<double>&, const std::vector<TensorSpec>&);
template Values<double> gradients_in(const CaseArrays<float>&, const std::vector<TensorSpec>&);
template Values<double> gradients_in(const CaseArrays<bf16>&, const std::vector<TensorSpec>&);

double dot(const Values<double>& a, const Values<double>& b) {
  double sum = 0;
  for (std::size_t s = 0; s < a.size(); ++s) {
    for (std::size_t i = 0; i < a[s].size(); ++i) sum += a[s][i] * b[s][i];
  }
  return sum;
}
double derivative_of_dot(const Values<Dual>& out, const Values<double>& d_out) {
  double sum = 0;
  for (std::size_t s = 0; s < out.size(); ++s) {
    for (std::size_t i = 0; i < out[s].size(); ++i) sum += out[s][i].derivative * d_out[s][i];
  }
  return sum;
}

void record_gradcheck(const GradcheckRow& row) {
  gradcheck_table.push_back(row);
  INFO(row.layer << ", " << row.what << ", " << row.pass << " " << row.tensor << ", " << row.device << ", " << row.type
                 << ": error " << row.error << ", tolerance " << row.tolerance);
  CHECK_FALSE(!(row.error <= row.tolerance));
}

void print_gradcheck_table() {
  std::printf("%-22s %-60s %-9s %-16s %-10s %-5s %9s %9s\n", "layer", "case", "pass", "tensor", "device", "type",
              "error", "bar");
  for (const GradcheckRow& row : gradcheck_table) {
    std::printf("%-22s %-60s %-9s %-16s %-10s %-5s %9.1e %9.1e%s\n", row.layer.c_str(), row.what.c_str(),
                row.pass.c_str(), row.tensor.c_str(), row.device.c_str(), row.type.c_str(), row.error, row.tolerance,
                !(row.error <= row.tolerance) ? "  FAIL" : "");
  }
}

double error_in_norm(const Array<double>& got, const Array<double>& reference, double floor) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - reference[i]) * (got[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / std::max(norm, floor));
}

void record_pass(GradcheckRow row, const std::string& pass, const std::vector<TensorSpec>& specs,
                 const Values<double>& got, const Values<double>& reference, double float_tolerance) {
  REQUIRE(got.size() == reference.size());
  const bool narrow = row.type == "bf16";
  const std::vector<Comparison> comparisons = compare(specs, got, reference, true);
  double largest_mean_square = 0;
  for (const Array<double>& values : reference) {
    double sum = 0;
    for (double x : values) sum += x * x;
    if (!values.empty()) largest_mean_square = std::max(largest_mean_square, sum / double(values.size()));
  }
  row.pass = pass;
  if (!narrow) row.tolerance = float_tolerance;
  for (std::size_t s = 0; s < specs.size(); ++s) {
    const double floor = 1e-4 * largest_mean_square * double(reference[s].size());
    row.tensor = specs[s].name;
    row.error = narrow ? error_in_norm(got[s], reference[s], floor) : comparisons[s].error;
    record_gradcheck(row);
  }
}

void set_thread_order([[maybe_unused]] int number) {
#if defined(ABH_EMULATOR)
  using emulator::Order;
  emulator::set_order(number == 0   ? emulator::Order{Order::forward, 0}
                      : number == 1 ? emulator::Order{Order::reverse, 0}
                                    : emulator::Order{Order::shuffled, static_cast<unsigned>(number)});
#endif
}

}  // namespace abh

template class std::vector<double, abh::TestAllocator<double>>;
template class std::vector<float, abh::TestAllocator<float>>;
template class std::vector<abh::bf16, abh::TestAllocator<abh::bf16>>;
template class std::vector<abh::Dual, abh::TestAllocator<abh::Dual>>;
template class std::vector<abh::Array<double>>;
template class std::vector<abh::Array<float>>;
template class std::vector<abh::Array<abh::bf16>>;
template class std::vector<abh::Array<abh::Dual>>;
