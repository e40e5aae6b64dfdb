// RDMA writes between the nodes of a step. On every judged device in turn, each node writes to the node `shift` places
// ahead and receives from the node `shift` places behind.
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
  bool measure = false;     ///< write for a while and measure the bandwidth
  std::chrono::milliseconds timeout{10'000};

  [[nodiscard]] std::uint32_t right() const noexcept { return (node + shift) % nodes; }
  [[nodiscard]] std::uint32_t left() const noexcept { return (node + nodes - shift % nodes) % nodes; }
};

/// One node's part. Between the calls the nodes exchange the result of endpoints() and synchronize.
class RingTest {
 public:
  /// Opens the devices of the judged ports and creates both queue pairs on each. Failures are kept and sent to the
  /// peers. Null in a build without libibverbs' headers.
  [[nodiscard]] static std::unique_ptr<RingTest> open(const NodeFacts& node, const Question& question,
                                                      const RingPlan& plan);
  virtual ~RingTest() = default;
  RingTest(const RingTest&) = delete;
  RingTest& operator=(const RingTest&) = delete;

  /// What the neighbours need to connect: one line per device.
  [[nodiscard]] virtual std::string endpoints() const = 0;
  /// Connects both ends, from the endpoints() of the neighbours.
  virtual void connect(std::string_view left, std::string_view right) = 0;
  /// Writes to the right neighbour.
  virtual void write() = 0;
  /// Compares what the left neighbour has written. Call it when that has finished.
  virtual void compare() = 0;
  /// One result per device and direction.
  [[nodiscard]] virtual std::vector<PairResult> results() const = 0;

 protected:
  RingTest() = default;
};

}  // namespace amldist::fabric
