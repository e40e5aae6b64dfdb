// RDMA writes between the nodes of a step, over every judged device in turn: a node writes to one other, and one other
// writes to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/between_nodes/job_checks.hpp"
#include "fabric/checks/check_request.hpp"

namespace amldist::fabric {

struct RingPlan {
  std::uint32_t node = 0;
  std::uint32_t to = 0;    ///< the node that it writes to
  std::uint32_t from = 0;  ///< the node that writes to it
  bool measure = false;    ///< write for a while and measure the bandwidth
  std::chrono::milliseconds timeout{10'000};
};

/// Each node writes to the one `shift` places ahead, 1..nodes-1.
[[nodiscard]] inline RingPlan ring_plan(std::uint32_t node, std::uint32_t nodes, std::uint32_t shift) {
  return {node, (node + shift) % nodes, (node + nodes - shift % nodes) % nodes};
}

/// One node's part. Between the calls the nodes exchange the result of endpoints() and synchronize.
class RingTest {
 public:
  /// Opens the devices of the judged ports and creates both queue pairs on each. Failures are kept and sent to the
  /// peers. Null in a build without libibverbs' headers.
  [[nodiscard]] static std::unique_ptr<RingTest> open(const NodeFacts& node, const CheckRequest& request,
                                                      const RingPlan& plan);
  virtual ~RingTest() = default;
  RingTest(const RingTest&) = delete;
  RingTest& operator=(const RingTest&) = delete;

  /// What the neighbours need to connect: one line per device.
  [[nodiscard]] virtual std::string endpoints() const = 0;
  /// Connects both ends, from the endpoints() of `plan.from` and `plan.to`.
  virtual void connect(std::string_view from, std::string_view to) = 0;
  /// Writes to `plan.to`.
  virtual void write() = 0;
  /// Whether the writes succeeded, for `plan.to`: a digit for each device: 0 no, 1 yes, 2 also to the
  /// memory of its GPU.
  [[nodiscard]] virtual std::string written() const = 0;
  /// Compares what `plan.from` has written. Call it when that has finished, with its written(): what it could not write
  /// is its own failure; empty if not known.
  virtual void compare(std::string_view written) = 0;
  /// Starts again with other neighbours, on the devices that are open.
  virtual void restart(const RingPlan& plan) = 0;
  /// One result per device and direction.
  [[nodiscard]] virtual std::vector<PairResult> results() const = 0;

 protected:
  RingTest() = default;
};

}  // namespace amldist::fabric
