#include "launch/rendezvous/step_port.hpp"

#include <array>
#include <cstdlib>
#include <set>

#include "support.hpp"

namespace amldist::launch::step_port_test {
namespace {

using testing::environment;

constexpr std::array purposes = {PortPurpose::master, PortPurpose::bootstrap, PortPurpose::fabric_check};

PortRanges ports(std::string_view text) { return PortRanges::parse(text).value(); }

TEST(StepPort, DependsOnlyOnItsNumbers) {
  const PortRanges range = ports("20000-29999");
  EXPECT_EQ(step_port(range, {"c", 1, 0}, 0), step_port(range, {"c", 1, 0}, 0));
  EXPECT_NE(step_port(range, {"c", 1, 0}, 0), step_port(range, {"c", 2, 0}, 0));
  EXPECT_NE(step_port(range, {"c", 1, 0}, 0), step_port(range, {"d", 1, 0}, 0));
  EXPECT_NE(step_port(range, {"c", 1, 0}, 0), step_port(range, {"c", 1, 1}, 0)) << "a requeue gets another port";
}

TEST(StepPort, NeverCoincidesForStepsOfOneJob) {
  for (const char* const text :
       {"20000-29999", "20000-20099", "20000-20063", "20000-20006", "1000-1009,3000,5000-5030"}) {
    const PortRanges range = ports(text);
    for (const std::uint32_t job : {1U, 7U, 4294967295U}) {
      std::set<std::uint16_t> seen;
      for (std::uint32_t step = 0; step < range.size(); ++step) {
        const std::uint16_t port = step_port(range, {"c", job, 0}, step);
        EXPECT_TRUE(range.contains(port));
        seen.insert(port);
      }
      EXPECT_EQ(seen.size(), range.size()) << text << " job " << job;
    }
  }
}

TEST(StepPort, LeavesRoomBetweenNeighbouringSteps) {
  const PortRanges range = ports("20000-29999");
  const int first = step_port(range, {"c", 1, 0}, 0);
  const int second = step_port(range, {"c", 1, 0}, 1);
  EXPECT_GE(std::abs(first - second), 64);
}

/// Published numbers: what users saw in earlier releases, they see in this one.
TEST(StepPort, OfTheMasterStaysWhatItWas) {
  EXPECT_EQ(step_port(ports("20000-29999"), {"cluster", 12, 0}, 3), 23811);
  EXPECT_EQ(step_port(ports("20000-29999"), {"cluster", 12, 1}, 0), 25915);
  EXPECT_EQ(step_port(ports("20000-20063"), {"", 4711, 0}, 7), 20042);
}

TEST(StepPort, IsAnotherForEachPurposeOfAStep) {
  for (const char* const text : {"20000-29999", "20000-20128", "20000-20127", "20000-20063", "20000-20002"}) {
    const PortRanges range = ports(text);
    for (std::uint32_t step = 0; step < 300; ++step) {
      std::set<std::uint16_t> seen;
      for (const PortPurpose purpose : purposes) {
        seen.insert(step_port(range, {"c", 7, 0}, step, purpose));
        EXPECT_TRUE(range.contains(*seen.rbegin()));
      }
      EXPECT_EQ(seen.size(), purposes.size()) << text << " step " << step;
    }
  }
}

/// With the ports behind the first that each purpose may take: 48 for TensorFlow, 8 for the others.
TEST(StepPort, OfConcurrentStepsDoNotOverlapInAnyPurpose) {
  const PortRanges range = ports("20000-29999");
  constexpr std::array<int, 3> room = {48, 8, 8};
  std::set<int> seen;
  std::size_t asked = 0;
  for (std::uint32_t step = 0; step < 100; ++step) {
    for (std::size_t purpose = 0; purpose < purposes.size(); ++purpose) {
      const int first = step_port(range, {"c", 7, 0}, step, purposes[purpose]);
      for (int port = first; port < first + room[purpose]; ++port, ++asked) seen.insert(port);
    }
  }
  EXPECT_EQ(seen.size(), asked);
}

TEST(ReservedPort, IsTheFirstForTheMasterAndTheLastForTheFabricCheck) {
  for (const char* const two : {"12001-12005", "12001,12005", "12001-12003,12005"}) {
    const auto given = environment({{"SLURM_STEP_RESV_PORTS", two}});
    EXPECT_EQ(reserved_port(given, PortPurpose::master), 12001) << two;
    EXPECT_EQ(reserved_port(given, PortPurpose::fabric_check), 12005) << two;
    EXPECT_EQ(reserved_port(given, PortPurpose::bootstrap), std::nullopt) << two;
  }
  const auto one = environment({{"SLURM_STEP_RESV_PORTS", "12001"}});
  EXPECT_EQ(reserved_port(one, PortPurpose::master), 12001);
  EXPECT_EQ(reserved_port(one, PortPurpose::fabric_check), std::nullopt);
  for (const char* const bad : {"", "0-1", "x", "99999", "-5"}) {
    EXPECT_EQ(reserved_port(environment({{"SLURM_STEP_RESV_PORTS", bad}}), PortPurpose::master), std::nullopt) << bad;
  }
  EXPECT_EQ(reserved_port(environment({}), PortPurpose::master), std::nullopt);
}

TEST(StepPortBlock, LiesInTheRangeAndApartFromTheNextSteps) {
  for (const char* const text : {"20000-29999", "20000-20059", "20000-20024", "1000-1009,3000,5000-5030"}) {
    const PortRanges range = ports(text);
    std::set<std::uint16_t> seen;
    for (std::uint32_t step = 0; step < 2; ++step) {
      const std::uint16_t first = step_port_block(range, {"c", 7, 0}, step, 12);
      ASSERT_NE(first, 0) << text;
      for (std::uint16_t port = first; port < first + 12; ++port) {
        EXPECT_TRUE(range.contains(port)) << text;
        seen.insert(port);
      }
    }
    EXPECT_TRUE(seen.size() == 24 || range.size() < 48) << text;
  }
  EXPECT_EQ(step_port_block(ports("20000-20010"), {"c", 7, 0}, 0, 12), 0) << "eleven ports";
  EXPECT_EQ(step_port_block(ports("20000-20008,20100-20108"), {"c", 7, 0}, 0, 12), 0) << "no twelve in a row";
}

TEST(PortBeside, IsWhereTheBootstrapIsInAStepsOwnPorts) {
  EXPECT_EQ(port_beside(29500), 29548);
  EXPECT_EQ(port_beside(65487), 65535);
  EXPECT_EQ(port_beside(65488), 65440) << "no port is as far above";
  const PortRanges range = ports("20000-29999");
  const auto master = step_port(range, {"c", 7, 0}, 3, PortPurpose::master);
  EXPECT_EQ(port_beside(master), step_port(range, {"c", 7, 0}, 3, PortPurpose::bootstrap));
}

TEST(PortBeside, IsInTheSitesRange) {
  const PortRanges site = ports("40000-40009,50000");
  for (std::uint16_t master = 1; master < 100; ++master) EXPECT_TRUE(site.contains(port_beside(master, site)));
  EXPECT_NE(port_beside(29500, site), port_beside(29501, site));
}

TEST(OwnStepPort, IsThatOfTheJobAndItsRestart) {
  const auto job = environment({{"SLURM_CLUSTER_NAME", "c"}, {"SLURM_RESTART_COUNT", "2"}});
  EXPECT_EQ(own_step_port(job, 7, 1, PortPurpose::bootstrap),
            step_port(default_port_range(), {"c", 7, 2}, 1, PortPurpose::bootstrap));
  const auto reserved = environment({{"SLURM_STEP_RESV_PORTS", "12001-12003"}});
  EXPECT_EQ(own_step_port(reserved, 7, 1, PortPurpose::fabric_check), 12003);
}

}  // namespace
}  // namespace amldist::launch::step_port_test
