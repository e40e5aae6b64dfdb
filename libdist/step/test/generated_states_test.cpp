// What nodes tell of the ranks of generated programs (trace/test/generated_programs.hpp): less than their recorders
// have. Who is named while the step hangs, and once all its ranks have ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>

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

}  // namespace
}  // namespace amldist::step
