// The C++ interface of gradient buckets, on one rank of several: a step with a view and one with an own buffer.
#include <amldist/reducer.hpp>
#include <array>
#include <cstdio>
#include <numeric>

namespace {

int failures = 0;

void expect(bool condition, const char* what) {
  if (condition) return;
  ++failures;
  std::printf("%s\n", what);
}

}  // namespace

int main() {
  auto joined = amldist::Communicator::init(std::chrono::seconds(30));
  if (!joined) return std::printf("%s\n", joined.message().c_str()), 1;
  amldist::Communicator world = std::move(joined).value();
  const std::array<std::size_t, 2> counts = {1000, 30};
  auto made = amldist::Reducer<double>::create(world, counts, {.op = amldist::Op::sum});
  expect(made.ok(), "create");
  auto& reducer = *made;
  std::array<double, 30> own = {};
  std::array<double, 3> short_one = {};
  expect(reducer.bind(1, short_one).status() == AMLDIST_EINVAL, "a short span is refused");
  expect(reducer.bind(1, own).ok(), "bind");
  const std::span<double> view = reducer.view(0).value();
  expect(view.size() == 1000, "length of the view");
  std::iota(view.begin(), view.end(), 1.0);
  own.fill(world.rank() + 1.0);
  expect(reducer.ready(1).ok() && reducer.ready(0).ok(), "ready");
  expect(reducer.wait().ok(), "wait");
  expect(view[999] == 1000.0 * world.size(), "the view holds the sum");
  expect(own[7] == world.size() * (world.size() + 1) / 2.0, "the own buffer holds the sum");
  expect(!reducer.ready(2).ok(), "an unknown tensor is refused");
  return failures != 0;
}
