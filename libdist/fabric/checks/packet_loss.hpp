// Packets that a port has lost, repeated or received out of order, by its hw_counters. Pure.
#pragma once

#include <vector>

#include "fabric/checks/checks.hpp"

namespace amldist::fabric {

struct PacketLoss {
  std::vector<Finding> findings;
  std::size_t judged = 0;  ///< counters that could be compared with something
};

/// Compares each port's counters with the baseline and with those of the other ports. Only what three quarters of the
/// others do not have is named: a job that uses some of the ports is no fault. `is_lossless`: InfiniBand, where
/// adaptive routing changes the order of packets, so that against the baseline only what was given up or timed out
/// counts.
[[nodiscard]] PacketLoss find_packet_loss(const std::vector<JudgedPort>& ports, const CounterHistory& history,
                                          bool is_lossless);

}  // namespace amldist::fabric
