// A data-parallel training loop in C++: linear regression by gradient descent. Every rank has its own part of the data;
// gradients are averaged in shared memory, without a copy. All ranks end with the same weights, those of the generator.
//
//   c++ -std=c++20 -O2 train.cpp $(pkg-config --cflags --libs amldist) -o train
//   srun -N2 -n4 --aml-dist=pytorch ./train
#include <amldist/amldist.hpp>
#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr std::size_t features = 8;
using Row = std::array<float, features>;

struct Sample {
  Row x;
  float y;
};

constexpr float true_weight(std::size_t i) { return static_cast<float>(i) - 3.5F; }

std::vector<Sample> make_data(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  std::vector<Sample> data(1000);
  for (Sample& sample : data) {
    sample.y = 0.01F * normal(random);
    for (std::size_t i = 0; i < features; ++i) {
      sample.x[i] = normal(random);
      sample.y += sample.x[i] * true_weight(i);
    }
  }
  return data;
}

/// Gradient of the mean squared error; returns the error.
float gradient_of(const std::vector<Sample>& data, const Row& weights, std::span<float> gradient) {
  float loss = 0;
  for (float& each : gradient) each = 0;
  for (const Sample& sample : data) {
    float error = -sample.y;
    for (std::size_t i = 0; i < features; ++i) error += weights[i] * sample.x[i];
    for (std::size_t i = 0; i < features; ++i) gradient[i] += 2 * error * sample.x[i] / static_cast<float>(data.size());
    loss += error * error / static_cast<float>(data.size());
  }
  return loss;
}

int train(amldist::Communicator& world) {
  const std::vector<Sample> data = make_data(world.rank());
  auto buffer = world.allocate<float>(features + 1);  // the gradient, and behind it the loss
  if (!buffer) return std::fprintf(stderr, "train: %s\n", buffer.message().c_str()), 1;
  const std::span<float> shared = buffer->span();
  Row weights = {};
  for (int step = 0; step < 50; ++step) {
    shared[features] = gradient_of(data, weights, shared.first(features));
    if (const auto status = world.allreduce(shared, amldist::Op::avg); !status) {
      return std::fprintf(stderr, "train: %s\n", status.message().c_str()), 1;
    }
    for (std::size_t i = 0; i < features; ++i) weights[i] -= 0.1F * shared[i];
    if (world.rank() == 0 && step % 10 == 9) std::printf("step %d: loss %.5f\n", step + 1, shared[features]);
  }
  for (std::size_t i = 0; i < features; ++i) {
    if (std::abs(weights[i] - true_weight(i)) > 0.05F) return std::fprintf(stderr, "train: not converged\n"), 1;
  }
  return 0;
}

}  // namespace

int main() {
  auto world = amldist::Communicator::init(std::chrono::minutes(1));
  if (!world) return std::fprintf(stderr, "train: %s\n", world.message().c_str()), 1;
  const int status = train(*world);
  return world->finalize() && status == 0 ? 0 : 1;
}
