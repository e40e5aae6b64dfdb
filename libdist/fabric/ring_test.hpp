// RDMA writes between the nodes of a step: each node writes to the one `shift` places on, and is written to by the one
// `shift` places back, on every judged device, device by device.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/job_checks.hpp"
#include "fabric/question.hpp"

namespace amldist::fabric {

struct RingPlan {
  std::uint32_t node = 0;
  std::uint32_t nodes = 1;
  std::uint32_t shift = 1;  ///< 1..nodes-1
  bool measure = false;     ///< write for a while, and measure
  std::chrono::milliseconds timeout{10'000};

  [[nodiscard]] std::uint32_t right() const noexcept { return (node + shift) % nodes; }
  [[nodiscard]] std::uint32_t left() const noexcept { return (node + nodes - shift % nodes) % nodes; }
};

/// One node's part. Between the calls the nodes exchange what endpoints() says, and wait for each other.
class RingTest {
 public:
  /// Opens the devices of the judged ports and makes both ends on each. What fails is kept and told to the peers. Null
  /// in a build without libibverbs' headers.
  [[nodiscard]] static std::unique_ptr<RingTest> open(const NodeFacts& node, const Question& question,
                                                      const RingPlan& plan);
  virtual ~RingTest() = default;
  RingTest(const RingTest&) = delete;
  RingTest& operator=(const RingTest&) = delete;

  /// What the neighbours need: a line for each device.
  [[nodiscard]] virtual std::string endpoints() const = 0;
  /// Connects both ends, from the endpoints() of the neighbours.
  virtual void connect(std::string_view left, std::string_view right) = 0;
  /// Writes to the right.
  virtual void write() = 0;
  /// Compares what the left has written. To be called when the left has written.
  virtual void compare() = 0;
  /// One result for each device, as the writer and as the reader of this node.
  [[nodiscard]] virtual std::vector<PairResult> results() const = 0;

 protected:
  RingTest() = default;
};

}  // namespace amldist::fabric
