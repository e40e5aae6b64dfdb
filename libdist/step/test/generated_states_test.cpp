// What nodes tell of the ranks of generated programs (trace/test/generated_programs.hpp): less than their recorders
// have. Who is named while the step hangs, and once all its ranks have ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <initializer_list>

#include "step/messages/rank_state.hpp"
#include "trace/diagnosis/hang_diagnosis.hpp"
#include "trace/test/generated_programs.hpp"

namespace amldist::step {
namespace {

using trace::HangDiagnosis;
using trace::Recording;
using trace::Writer;
using trace::testing::Fault;
using trace::testing::Program;

constexpr std::array<Fault, 11> faults = {Fault::skip,  Fault::extra,     Fault::order, Fault::root,
                                          Fault::count, Fault::exception, Fault::exit,  Fault::abort,
                                          Fault::kill,  Fault::stop,      Fault::busy};
constexpr std::int64_t now_ns = 1'700'000'001'000'000'000;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
}

std::vector<Recording> told(const std::vector<Recording>& step) {
  std::vector<Recording> states;
  for (const Recording& each : step)
    states.push_back(*parse_rank_state(to_rank_state(each, now_ns), each.size, now_ns));
  return states;
}

struct Count {
  std::uint64_t hangs = 0;
  std::uint64_t right = 0;
  std::uint64_t open = 0;
};

/// `is_decided`: somebody is named.
void judge(const Program& program, std::uint64_t seed, const std::optional<HangDiagnosis>& diagnosis, Count& count) {
  if (!diagnosis) return;
  ++count.hangs;
  const bool is_open = !diagnosis->is_decided();
  const bool is_right =
      std::ranges::all_of(diagnosis->stall.missing, [&](const auto& each) { return each.rank == program.culprit; });
  count.open += is_open ? 1 : 0;
  count.right += !is_open && is_right ? 1 : 0;
  EXPECT_TRUE(is_open || is_right) << "seed " << seed << ", " << name_of(program.fault) << " at rank "
                                   << program.culprit << ": " << sentence(*diagnosis, 0);
}

TEST(GeneratedStates, NameTheCulpritAndNobodyElse) {
  const std::uint64_t seeds = from_environment("AMLDIST_SEEDS", 100);
  const std::uint64_t first = from_environment("AMLDIST_FIRST_SEED", 1);
  Count all;
  for (const Fault fault : faults) {
    Count own;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
      const Program program = trace::testing::ProgramGenerator(seed).make(fault);
      if (program.fault == Fault::none) continue;
      const auto states = told(trace::testing::Model(program, seed).run());
      judge(program, seed, trace::diagnose_hang(states), own);
    }
    std::printf("%s: %llu hangs, %llu right, %llu left open\n", name_of(fault),
                static_cast<unsigned long long>(own.hangs), static_cast<unsigned long long>(own.right),
                static_cast<unsigned long long>(own.open));
    all.hangs += own.hangs;
    all.right += own.right;
  }
  EXPECT_GE(all.hangs, seeds * 2);
  EXPECT_GE(all.right * 100, all.hangs * 97) << all.right << " of " << all.hangs;
}

struct Judged {
  std::uint64_t seed;
  Fault fault;
};
Count judge_all(std::initializer_list<Judged> programs) {
  Count count;
  for (const auto& [seed, fault] : programs) {
    const Program program = trace::testing::ProgramGenerator(seed).make(fault);
    judge(program, seed, trace::diagnose_hang(told(trace::testing::Model(program, seed).run())), count);
  }
  return count;
}

/// Left open once: a rank's groups are made before its first call, and the others have gone far ahead of it.
TEST(GeneratedStates, NameTheCulpritWhereItsOwnPastIsShort) {
  const Count count = judge_all({{8202002, Fault::extra},
                                 {8215001, Fault::skip},
                                 {8260022, Fault::root},
                                 {8287003, Fault::order},
                                 {7144007, Fault::extra}});
  EXPECT_EQ(count.right, 5U);
}

/// An innocent was named once: who was wrong had gone on so far that its node did not tell that call any more.
TEST(GeneratedStates, NameTheCulpritWhereItsWrongCallIsForgotten) {
  const Count count = judge_all({{3006000, Fault::order},
                                 {3006000, Fault::count},
                                 {3007809, Fault::count},
                                 {3008099, Fault::skip},
                                 {1007997, Fault::root},
                                 {2007530, Fault::count}});
  EXPECT_EQ(count.right, 5U);
  EXPECT_EQ(count.open, 1U);
}

}  // namespace
}  // namespace amldist::step
