// Replaces the writes between nodes in a build without libibverbs' headers.
#include "fabric/between_nodes/ring_test.hpp"

namespace amldist::fabric {

std::unique_ptr<RingTest> RingTest::open(const NodeFacts& /*node*/, const CheckRequest& /*request*/,
                                         const RingPlan& /*plan*/) {
  return nullptr;
}

}  // namespace amldist::fabric
