// The work of a diagnosis, counted in calls of functions: four times as many ranks may cost little more than four times
// as much. The sources of the diagnosis are compiled for this test so that each call of a function counts, and none is
// inlined.
#include <gtest/gtest.h>

#include "trace/diagnosis/hang_diagnosis.hpp"
#include "wait_states.hpp"

namespace {
std::uint64_t entered_functions = 0;
}

extern "C" {
__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void*, void*) { ++entered_functions; }
__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void*, void*) {}
}

namespace amldist::trace::testing {
namespace {

std::uint64_t work_of(StandStill what, std::uint32_t ranks) {
  const auto step = standing_still(what, ranks);
  const std::uint64_t before = entered_functions;
  const auto diagnosis = diagnose_hang(step);
  EXPECT_TRUE(diagnosis.has_value() || what == StandStill::from_any) << name_of(what);
  EXPECT_FALSE(diagnosis && sentence(*diagnosis, 60).empty());
  return entered_functions - before;
}

TEST(Diagnosis, CostsAsMuchForEachRankWhateverTheirNumber) {
  for (const StandStill what : stand_stills) {
    const std::uint64_t few = work_of(what, 256);
    const std::uint64_t many = work_of(what, 1024);
    std::printf("%s: %llu calls of functions for 256 ranks, %llu for 1024\n", name_of(what),
                static_cast<unsigned long long>(few), static_cast<unsigned long long>(many));
    EXPECT_GT(few, 256U) << "nothing was counted";
    EXPECT_LT(many, few * 6) << name_of(what) << ": four times the ranks, and a logarithm";
  }
}

}  // namespace
}  // namespace amldist::trace::testing
