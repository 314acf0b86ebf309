#include "layers/muon.hpp"
#include "tests/harness/optimizer_case.hpp"

namespace abh {
namespace {

// Matrices of one shape as in a training run, with a full-precision copy if T is narrow. `gap` weights of other tensors
// follow each matrix.
template <class T>
struct Matrices {
  static constexpr bool has_master = !std::is_same_v<T, Accum<T>>;

  Index O, I;
  std::vector<Index> offset_m;
  Array<T> weight;
  Array<Accum<T>> master, first_moment;

  Matrices(Index matrices, Index outputs, Index inputs, const Array<Accum<T>>& start, Index gap = 0)
      : O(outputs),
        I(inputs),
        weight(start.begin(), start.end()),
        master(has_master ? start : Array<Accum<T>>()),
        first_moment(start.size(), Accum<T>(0)) {
    for (Index m = 0; m < matrices; ++m) offset_m.push_back(m * (O * I + gap));
  }

  template <class Device>
  void update(Device& device, const Array<Accum<T>>& d_weight, const MuonSettings& settings, const StepState& state) {
    const Array<StepState> state_on_device(1, state);
    muon_update<Device, T>(device, {.weight = weight.data(),
                                    .master = has_master ? master.data() : nullptr,
                                    .first_moment = first_moment.data(),
                                    .d_weight = d_weight.data(),
                                    .offset_m = offset_m.data(),
                                    .matrices = static_cast<Index>(offset_m.size()),
                                    .O = O,
                                    .I = I,
                                    .settings = settings,
                                    .state = state_on_device.data()});
    wait_for(device);
  }
  Values<Accum<T>> tensors() const { return {Array<Accum<T>>(weight.begin(), weight.end()), first_moment}; }
  bool operator==(const Matrices&) const = default;
};

// The state of step number `step` of a run: learning rate and clip scale change, as in a training run.
StepState state_at(std::uint32_t step) {
  return state_of(0.25f / (1.0f + static_cast<float>(step)), step % 2 ? 0.125 : 1);
}
template <class T>
Array<T> gradient_at(std::uint32_t step, Index count) {
  return numbers_as<T>(count, 2 + step, step == 2 ? 1e-3 : 3);
}

struct Shape {
  Index O, I;
};
const std::vector<Shape> shapes = {{1, 1}, {1, 9}, {9, 1}, {5, 5}, {7, 13}, {13, 7}, {16, 40}, {33, 16}, {9, 920}};

// Four steps.
template <class T, class Device>
Matrices<T> run(Device& device, Index matrices, const Shape& shape, const MuonSettings& settings, Index gap = 0) {
  const Index count = matrices * (shape.O * shape.I + gap);
  Matrices<T> result(matrices, shape.O, shape.I, numbers_as<Accum<T>>(count, 1), gap);
  for (std::uint32_t step = 0; step < 4; ++step) {
    result.update(device, gradient_at<Accum<T>>(step, count), settings, state_at(step));
  }
  return result;
}

// The polynomial as published.
double after_rounds(Index rounds, double x) {
  for (Index round = 0; round < rounds; ++round) x = 3.4445 * x - 4.7750 * x * x * x + 2.0315 * x * x * x * x * x;
  return x;
}

// (rows, columns) times (columns, others).
Array<double> product(const Array<double>& a, const Array<double>& b, std::size_t columns) {
  const std::size_t rows = a.size() / columns, others = b.size() / columns;
  Array<double> out(rows * others, 0);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      for (std::size_t o = 0; o < others; ++o) out[r * others + o] += a[r * columns + c] * b[c * others + o];
    }
  }
  return out;
}

Array<double> transposed(const Array<double>& a, std::size_t columns) {
  const std::size_t rows = a.size() / columns;
  Array<double> out(a.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) out[c * rows + r] = a[r * columns + c];
  }
  return out;
}

// An orthogonal matrix: three reflections at random planes.
Array<double> orthogonal(std::size_t size, std::uint64_t seed) {
  Array<double> q(size * size, 0);
  for (std::size_t i = 0; i < size; ++i) q[i * size + i] = 1;
  for (std::uint64_t reflection = 0; reflection < 3; ++reflection) {
    const Array<double> normal = numbers(static_cast<Index>(size), seed + reflection);
    double square = 0;
    for (double x : normal) square += x * x;
    const Array<double> along = product(q, normal, size);
    for (std::size_t r = 0; r < size; ++r) {
      for (std::size_t c = 0; c < size; ++c) q[r * size + c] -= 2 * along[r] * normal[c] / square;
    }
  }
  return q;
}

TEST_CASE("muon: every round applies the polynomial to all singular values", "[muon]") {
  // A gradient with known singular values and vectors: left, values, right. From weights of 0 the first step is left,
  // polynomial^rounds(values), right, times -learning_rate 0.2 max(O, I)^(1/2).
  const Index rounds = GENERATE(0, 1, 2, 5);
  for (const Shape& shape : shapes) {
    CAPTURE(shape.O, shape.I, rounds);
    const auto O = static_cast<std::size_t>(shape.O), I = static_cast<std::size_t>(shape.I), S = std::min(O, I);
    const Array<double> left = orthogonal(O, 10), right = orthogonal(I, 20);
    Array<double> value(S), values(O * I, 0), moved(O * I, 0);
    double length = 0;
    for (std::size_t s = 0; s < S; ++s) {
      value[s] = s % 3 == 2 ? 0 : 1 / (1 + static_cast<double>(s));
      values[s * I + s] = value[s];
      length += value[s] * value[s];
    }
    for (std::size_t s = 0; s < S; ++s) {
      const double x = after_rounds(rounds, value[s] / std::sqrt(length));
      moved[s * I + s] = -0.5 * 0.2 * std::sqrt(static_cast<double>(std::max(O, I))) * x;
      if (rounds == 5 && value[s] > 0.0015 * std::sqrt(length)) CHECK_FALSE(!(std::abs(x - 0.95) <= 0.3));
    }
    CpuDevice<Isa::baseline> device(2);
    Matrices<double> matrix(1, shape.O, shape.I, Array<double>(O * I, 0));
    matrix.update(device, product(product(left, values, O), right, I), {.epsilon = 1e-300, .rounds = rounds},
                  state_of(0.5f));
    const Array<double> wanted = product(product(left, moved, O), right, I);
    require_close({weight("weight", {shape.O * shape.I})}, {matrix.weight}, {wanted}, 1e-12, "double");
  }
}

TEST_CASE("muon: moments and steps match the published algorithm", "[muon]") {
  // With one row the orthogonalised gradient is a multiple of the gradient, so the whole update has a closed form.
  const MuonSettings settings{.beta = 0.8, .epsilon = 1e-3, .weight_decay = 0.3};
  const Index I = 7;
  CpuDevice<Isa::baseline> device(1);
  const Matrices<double> got = run<double>(device, 1, {1, I}, settings);
  Array<double> w = numbers(I, 1), momentum(w.size(), 0);
  for (std::uint32_t step = 0; step < 4; ++step) {
    const Array<double> d = gradient_at<double>(step, I);
    const double learning_rate = state_at(step).learning_rate, clip_scale = state_at(step).clip_scale;
    Array<double> ahead(w.size());
    double square = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      momentum[i] = 0.8 * momentum[i] + 0.2 * clip_scale * d[i];
      ahead[i] = 0.8 * momentum[i] + 0.2 * clip_scale * d[i];
      square += ahead[i] * ahead[i];
    }
    const double x = after_rounds(5, std::sqrt(square) / (std::sqrt(square) + 1e-3));
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] *= 1 - learning_rate * 0.3;
      w[i] -= learning_rate * 0.2 * std::sqrt(7.0) * x * ahead[i] / std::sqrt(square);
    }
  }
  require_close({weight("weight", {I}), weight("first_moment", {I})}, {got.weight, got.first_moment}, {w, momentum},
                1e-13, "double");
}

// Every number that the chapter prints, as far as it leaves the layer: the Gram matrix and the polynomial show in x.
TEST_CASE("muon: the worked example of the chapter", "[muon]") {
  const Array<double> d_weight = {0, -3, 4, 0};
  on_plain_and_cpu([&](auto& device) {
    const auto require_near = [](const Array<double>& got, const Array<double>& wanted, double digit) {
      CHECK_FALSE(!(distance(got, wanted) <= 0.5001 * digit));
    };
    Matrices<double> matrix(1, 2, 2, {1, 0, 0, 1});
    matrix.update(device, d_weight, {.weight_decay = 0.25, .rounds = 1}, state_of(0.5f));
    require_near(matrix.first_moment, {0, -0.15, 0.2, 0}, 1e-5);
    require_near(matrix.weight, {0.875, 0.16875, -0.13810, 0.875}, 1e-5);

    // From weights of 0 with a learning rate of 1 and no decay, the weights are the step.
    const auto step_after = [&](Index rounds) {
      Matrices<double> resting(1, 2, 2, Array<double>(4, 0));
      resting.update(device, d_weight, {.rounds = rounds}, state_of(1));
      return resting.weight;
    };
    require_near(step_after(1), {0, 0.33751, -0.27619, 0}, 1e-5);
    const Array<double> six = {0.6000, 1.1933, 0.9119, 0.8011, 0.9747, 0.7229};
    const Array<double> eight = {0.8000, 0.9765, 0.7211, 1.0895, 0.6960, 1.1192};
    for (Index rounds = 0; rounds <= 5; ++rounds) {
      INFO(rounds << " rounds");
      const auto r = static_cast<std::size_t>(rounds);
      Array<double> x = step_after(rounds);
      for (double& element : x) element /= -0.2 * std::sqrt(2.0);
      require_near(x, {0, -six[r], eight[r], 0}, 1e-4);
      if (rounds == 1) {
        require_near(x, {0, -1.19327, 0.97648, 0}, 1e-5);
        require_near({x[1] / -0.6, x[2] / 0.8}, {1.98878, 1.22060}, 1e-5);
      }
    }
  });
}

TEST_CASE("muon: a transposed gradient gives the transposed step", "[muon]") {
  CpuDevice<Isa::baseline> device(1);
  for (const Shape& shape : shapes) {
    const Index count = shape.O * shape.I;
    const auto O = static_cast<std::size_t>(shape.O), I = static_cast<std::size_t>(shape.I);
    Matrices<double> one(1, shape.O, shape.I, numbers(count, 1));
    Matrices<double> other(1, shape.I, shape.O, transposed(numbers(count, 1), I));
    one.update(device, numbers(count, 2), {}, state_of(0.5f));
    other.update(device, transposed(numbers(count, 2), I), {}, state_of(0.5f));
    require_close({weight("weight", {count})}, {transposed(other.weight, O)}, {one.weight}, 1e-12, "transposed");
  }
}

const std::vector<TensorSpec> specs = {weight("weight", {0}), weight("first_moment", {0})};

TEST_CASE("muon: float against double in every instruction set, with any number of threads", "[muon]") {
  // The last is more than one task.
  for (const Shape& shape : std::vector<Shape>{{7, 13}, {66, 35}, {24, 400}}) {
    CAPTURE(shape.O, shape.I);
    check_update_on_cpus(specs, 2e-5,
                         [&]<class T>(auto& device) { return run<T>(device, 2, shape, {.weight_decay = 0.1}, 3); });
  }
}

TEST_CASE("muon: the gradient's scale has no effect, a zero gradient moves nothing", "[muon][gpu]") {
  const Index O = 6, I = 9, count = O * I;
  for_each_device(1, [&](auto& device) {
    const Array<double> d = numbers(count, 2);
    Values<double> moved;
    for (const double size : {1.0, 1e-5, 1e30, 0.0}) {
      Array<float> d_weight;
      for (double x : d) d_weight.push_back(static_cast<float>(size * x));
      Matrices<float> matrix(1, O, I, Array<float>(static_cast<std::size_t>(count), 0));
      matrix.update(device, d_weight, {}, state_of(1));
      moved.push_back(converted<double>(Values<float>{matrix.weight})[0]);
    }
    require_close({specs[0]}, {moved[1]}, {moved[0]}, 5e-3, "1e-5");  // epsilon is 1e-8
    require_close({specs[0]}, {moved[2]}, {moved[0]}, 1e-4, "1e30");
    CHECK(moved[3] == Array<double>(static_cast<std::size_t>(count), 0));

    // Only decay is left then.
    Matrices<float> decaying(1, O, I, Array<float>(static_cast<std::size_t>(count), 1));
    decaying.update(device, Array<float>(static_cast<std::size_t>(count), 0), {.weight_decay = 0.5}, state_of(0.5f));
    CHECK(decaying.weight == Array<float>(static_cast<std::size_t>(count), 0.75f));

    // 1 - beta is computed from the setting in double, not from its nearest float.
    decaying.update(device, Array<float>(static_cast<std::size_t>(count), 1), {.beta = 0.95}, state_of(0));
    CHECK(decaying.first_moment == Array<float>(static_cast<std::size_t>(count), static_cast<float>(1 - 0.95)));
  });
}

TEST_CASE("muon: a clip scale of NaN changes nothing; zero matrices are allowed", "[muon][gpu]") {
  const StepState broken = state_of(0.5f, std::numeric_limits<double>::quiet_NaN());
  in_every_type([&]<class T>(auto& device, T) {
    Matrices<T> matrices = run<T>(device, 2, {5, 4}, {});
    if (Matrices<T>::has_master) matrices.master[3] += 1;  // differs from its full-precision copy, so a rewrite shows
    const Matrices<T> before = matrices;
    matrices.update(device, Array<Accum<T>>(40, 1), {.weight_decay = 0.1}, broken);
    CHECK(matrices == before);
    matrices.offset_m.clear();
    matrices.update(device, Array<Accum<T>>(40, 1), {.weight_decay = 0.1}, state_of(0.5f));
    CHECK(matrices.weight == before.weight);
  });
}

TEST_CASE("muon: many matrices at once equal separate updates", "[muon][gpu]") {
  // More than one launch of a GPU takes.
  const Index matrices = 67, O = 3, I = 5, count = O * I;
  for_each_device(1, [&](auto& device) {
    const bool library = has_library_products(device);
    const Matrices<float> all = run<float>(device, matrices, {O, I}, {});
    const Array<float> start = numbers_as<float>(matrices * count, 1);
    for (Index m : {Index{0}, Index{63}, Index{64}, matrices - 1}) {
      Matrices<float> alone(1, O, I, start);
      alone.offset_m[0] = m * count;
      for (std::uint32_t step = 0; step < 4; ++step) {
        alone.update(device, gradient_at<float>(step, matrices * count), {}, state_at(step));
      }
      Index different = 0;
      for (std::size_t i = 0; i < start.size(); ++i) {
        const bool own = static_cast<Index>(i) / count == m;
        const float weight = own ? all.weight[i] : start[i];
        different += library ? !(std::abs(alone.weight[i] - weight) <= 1e-5f) : !(alone.weight[i] == weight);
        different += !(alone.first_moment[i] == (own ? all.first_moment[i] : 0));
      }
      CHECK(different == 0);
    }
  });
}

// Alternating shapes, more matrices of one shape than one launch takes, one misaligned shape, and one shape without
// matrices.
TEST_CASE("muon: several shapes at once equal separate updates", "[muon][gpu]") {
  in_every_type([]<class Device, class T>(Device& device, T) {
    struct Maps {
      Index O, I, matrices;
    };
    const std::vector<Maps> maps = {{8, 12, 3}, {12, 8, 2}, {5, 5, 0}, {3, 5, 66}, {64, 80, 1}, {8, 12, 1}};
    std::vector<std::vector<Index>> offsets;
    Index count = 0;
    for (const Maps& m : maps) {
      std::vector<Index>& offset_m = offsets.emplace_back();
      for (Index i = 0; i < m.matrices; ++i, count += m.O * m.I) offset_m.push_back(count);
    }
    const Array<StepState> state(1, state_of(0.5f, 0.25));
    const Array<Accum<T>> start = numbers_as<Accum<T>>(count, 1), d_weight = numbers_as<Accum<T>>(count, 2);
    const auto updated = [&](bool at_once) {
      Matrices<T> all(0, 1, 1, start);
      std::vector<MuonUpdate<T>> updates;
      for (std::size_t i = 0; i < maps.size(); ++i) {
        updates.push_back({.weight = all.weight.data(),
                           .master = all.has_master ? all.master.data() : nullptr,
                           .first_moment = all.first_moment.data(),
                           .d_weight = d_weight.data(),
                           .offset_m = offsets[i].data(),
                           .matrices = maps[i].matrices,
                           .O = maps[i].O,
                           .I = maps[i].I,
                           .settings = {.weight_decay = 0.1, .rounds = 3},
                           .state = state.data()});
      }
      if (at_once) {
        muon_updates<Device, T>(device, updates);
      } else {
        for (const MuonUpdate<T>& update : updates) muon_update<Device, T>(device, update);
      }
      wait_for(device);
      return all;
    };
    const Matrices<T> at_once = updated(true), alone = updated(false);
    CHECK((at_once.first_moment == alone.first_moment));
    if (!has_library_products(device)) CHECK((at_once == alone));
    CHECK((at_once.first_moment != Matrices<T>(0, 1, 1, start).first_moment));
  });
}

// Aligned and not, less than an access and more than a block.
TEST_CASE("muon: GPU kernels at every size", "[muon][gpu]") {
  const MuonSettings settings{.weight_decay = 0.1};
  struct Layout {
    Index matrices;
    Shape shape;
    Index gap;
  };
  const auto check = [&](auto& device, const std::string& name) {
    for (const Layout& l : {Layout{1, {1, 1}, 0},
                            {3, {1, 3}, 1},
                            {2, {3, 7}, 3},
                            {2, {5, 7}, 0},
                            {3, {12, 20}, 4},
                            {2, {21, 10}, 3},
                            {2, {16, 264}, 8}}) {
      const std::string what = std::to_string(l.matrices) + " of " + std::to_string(l.shape.O) + " x " +
                               std::to_string(l.shape.I) + ", gap " + std::to_string(l.gap);
      INFO(name << ", " << what);
      const auto steps = [&]<class T>(auto& any) { return run<T>(any, l.matrices, l.shape, settings, l.gap); };
      GradcheckRow row{"muon", "4 steps, " + what, "weight", "update", name, "float", 0, 2e-5};
      const auto [got, narrow] = check_update_on_gpu(device, row, specs, steps);

      // bf16: the moments as in float, the products in bf16, and the rounded copy of the weights.
      CHECK(narrow.first_moment == got.first_moment);
      const Matrices<double> reference = reference_of(steps);
      Array<double> moved, wanted;  // from where the weights started
      const Array<double> start = numbers(static_cast<Index>(reference.weight.size()), 1);
      for (std::size_t i = 0; i < start.size(); ++i) {
        moved.push_back(static_cast<double>(narrow.master[i]) - start[i]);
        wanted.push_back(reference.weight[i] - start[i]);
      }
      row.type = "bf16";
      row.error = error_in_norm(moved, wanted, 0);
      row.tolerance = 5e-2;
      record_gradcheck(row);
    }
  };
  for_each_gpu(check, true);
}

// A row of a matrix's square that is longer than a block, and more parts of a matrix than a block has threads.
TEST_CASE("muon: on the GPU with matrices larger than a block", "[muon][gpu]") {
  for (const auto& sized : {std::pair{Shape{257, 258}, 1}, {Shape{1, 256 * 4096 + 1}, 0}}) {
    const auto updated = [&, shape = sized.first, rounds = sized.second]<class T>(auto& device, T) {
      Array<T> d_weight;
      for (Index i = 0; i < shape.O * shape.I; ++i) d_weight.push_back(static_cast<T>(i * i % 101 - 40));
      d_weight.back() = 4e4;  // half of the norm: the last part must count
      Matrices<T> matrix(1, shape.O, shape.I, Array<T>(d_weight.size(), T(0)));
      matrix.update(device, d_weight, {.rounds = rounds}, state_of(1));
      return converted<double>(Values<T>{matrix.weight});
    };
    CpuDevice<Isa::baseline> cpu(1);
    const Values<double> reference = updated(cpu, 0.0);
    const auto check = [&](auto& device, const std::string& name) {
      require_close({weight("weight", {0})}, updated(device, 0.0f), reference, 2e-5, name);
    };
    for_each_gpu(check, true);
  }
}

TEST_CASE("muon: on the GPU with each array in turn misaligned", "[muon][gpu]") {
  for_each_gpu_type([]<class T>(auto& device, T) {
    Matrices<T> expected(0, 0, 0, {});
    for_each_shifted_array(sizeof(T), [&](const std::string& what) {
      Matrices<T> matrix(1, 4, 8, Array<float>(32, 1));
      matrix.update(device, numbers_as<float>(32, 1), {}, state_of(0.5f));
      if (what.empty()) expected = matrix;
      CHECK(matrix == expected);
    });
  });
}

TEST_CASE("muon: finds the target matrix of a problem of condition number 1e2", "[muon]") {
  // f(W) = 1/2 |A (W - M)|^2 with A diagonal, from 0.1 to 1. Every step has a length of about learning_rate 0.2 sqrt(8)
  // |x| in every direction, for any curvature; the cosine schedule to 0 makes the last steps small.
  const Index O = 5, I = 8;
  const Array<double> minimum = numbers(O * I, 5);
  CpuDevice<Isa::baseline> device(1);
  Matrices<double> matrix(1, O, I, Array<double>(minimum.size(), 0));
  const int steps = 500;
  for (int step = 0; step < steps; ++step) {
    Array<double> d_weight;
    for (std::size_t i = 0; i < minimum.size(); ++i) {
      const double scale = std::pow(10.0, -0.25 * static_cast<double>(i / static_cast<std::size_t>(I)));
      d_weight.push_back(scale * scale * (matrix.weight[i] - minimum[i]));
    }
    const double learning_rate = 0.1 * 0.5 * (1 + std::cos(3.141592653589793 * step / steps));
    matrix.update(device, d_weight, {}, state_of(static_cast<float>(learning_rate)));
  }
  CHECK_FALSE(!(distance(matrix.weight, minimum) <= 2e-2));
}

}  // namespace
}  // namespace abh
