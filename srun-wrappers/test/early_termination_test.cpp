// The policies of Azure ML, against the numbers of its reference ("Hyperparameter tuning a model": early termination),
// and against sums done by hand.
#include "aml_run/sweep/early_termination.hpp"

#include <utility>

#include "support.hpp"

namespace amldist::run {
namespace {

using Kind = TerminationPolicy::Kind;

bool ends(const TerminationPolicy& policy, bool maximize, std::vector<double> own, std::vector<Series> others) {
  return !why_terminated(policy, maximize, {std::move(own)}, others).empty();
}

TerminationPolicy bandit_with(double factor, double amount) {
  TerminationPolicy policy{.kind = Kind::bandit};
  policy.slack_factor = factor;
  policy.slack_amount = amount;
  return policy;
}

// "any runs whose best metric is less than 0.8 / (1 + 0.2) = 0.66 will be terminated"
TEST(EarlyTermination, BanditWithAFactorDividesTheBest) {
  const auto policy = bandit_with(0.2, 0);
  EXPECT_TRUE(ends(policy, true, {0.66}, {{{0.8}}}));
  EXPECT_FALSE(ends(policy, true, {0.67}, {{{0.8}}}));
  EXPECT_FALSE(ends(policy, true, {0.9}, {{{0.8}}}));
}

// To be small is the goal: 0.8 * (1 + 0.2) = 0.96.
TEST(EarlyTermination, BanditTowardsTheSmallestMultiplies) {
  const auto policy = bandit_with(0.2, 0);
  EXPECT_TRUE(ends(policy, false, {0.97}, {{{0.8}}}));
  EXPECT_FALSE(ends(policy, false, {0.95}, {{{0.8}}}));
}

// A negative best: -0.8 is better than -1, and 0.8 * 0.2 / 1.2 = 0.133 below it lies -0.933.
TEST(EarlyTermination, BanditOfANegativeMetricKeepsTheBestItself) {
  const auto policy = bandit_with(0.2, 0);
  EXPECT_FALSE(ends(policy, true, {-0.8}, {{{-1}}}));
  EXPECT_FALSE(ends(policy, true, {-0.93}, {{{-0.8}}}));
  EXPECT_TRUE(ends(policy, true, {-0.94}, {{{-0.8}}}));
}

// "slack_amount 0.2: any runs whose best metric is less than 0.6 (0.8 - 0.2)"
TEST(EarlyTermination, BanditWithAnAmountSubtracts) {
  const auto policy = bandit_with(0, 0.2);
  EXPECT_TRUE(ends(policy, true, {0.59}, {{{0.8}}}));
  EXPECT_FALSE(ends(policy, true, {0.61}, {{{0.8}}}));
  EXPECT_TRUE(ends(policy, false, {1.01}, {{{0.8}}}));
  EXPECT_FALSE(ends(policy, false, {0.99}, {{{0.8}}}));
}

// The best of a trial so far counts, and of the others what they had by the same report.
TEST(EarlyTermination, BanditComparesTheBestAtTheSameReport) {
  const auto policy = bandit_with(0.2, 0);
  EXPECT_FALSE(ends(policy, true, {0.7, 0.1}, {{{0.8, 0.8}}}));
  EXPECT_FALSE(ends(policy, true, {0.7, 0.7}, {{{0.8, 0.8, 9}}}));
  EXPECT_TRUE(ends(policy, true, {0.7, 0.7, 0.7}, {{{0.8, 0.8, 9}}}));
  EXPECT_FALSE(ends(policy, true, {0.7, 0.7}, {{{9}}}));  // has not come so far
}

// "applied at every multiple of evaluation_interval that is greater than or equal to delay_evaluation"
TEST(EarlyTermination, TheIntervalAndTheDelaySayWhen) {
  auto policy = bandit_with(0.2, 0);
  policy.interval = 2;
  policy.delay = 3;
  const Series good{{1, 1, 1, 1, 1, 1}};
  for (const std::size_t reports : {1U, 2U, 3U})
    EXPECT_FALSE(ends(policy, true, std::vector(reports, 0.5), {good})) << reports;
  EXPECT_TRUE(ends(policy, true, std::vector(4, 0.5), {good}));
  EXPECT_FALSE(ends(policy, true, {0.5, 0.5, 0.5, 1, 0.5}, {good}));  // at 5 the report of 4 is judged
}

// "stopped at interval 5 if its best primary metric is worse than the median of the running averages over intervals 1:5
// across all training jobs": averages 3, 2, 1.5 and, of this one, (1 + 1 + 1.2 + 1 + 1) / 5 = 1.04; the median is 1.75.
TEST(EarlyTermination, MedianStoppingHoldsTheBestAgainstTheMedianOfTheAverages) {
  TerminationPolicy policy{.kind = Kind::median_stopping};
  policy.delay = 5;
  const std::vector<Series> others = {{{3, 3, 3, 3, 3}}, {{1, 2, 3, 2, 2}}, {{1.5, 1.5, 1.5, 1.5, 1.5}}};
  EXPECT_TRUE(ends(policy, true, {1, 1, 1.2, 1, 1}, others));
  EXPECT_FALSE(ends(policy, true, {1, 1, 1.2, 1}, others));     // before the delay
  EXPECT_FALSE(ends(policy, true, {1, 1, 1.8, 1, 1}, others));  // its best is above
  EXPECT_FALSE(ends(policy, false, {1, 1, 1.2, 1, 1}, others));
}

// Three trials: the median is the middle average, 2; towards the smallest, a best of 2.5 is worse than it.
TEST(EarlyTermination, MedianStoppingOfAnOddNumber) {
  const TerminationPolicy policy{.kind = Kind::median_stopping};
  EXPECT_TRUE(ends(policy, false, {2.5}, {{{1}}, {{2}}}));
  EXPECT_FALSE(ends(policy, false, {1.9}, {{{1}}, {{2}}}));
  EXPECT_FALSE(ends(policy, false, {2.5}, {}));  // alone
}

// "in the lowest 20 % of performance of all jobs": of 5 jobs that is 1, of 4 none.
TEST(EarlyTermination, TruncationEndsTheLowestShare) {
  TerminationPolicy policy{.kind = Kind::truncation_selection};
  policy.percentage = 20;
  const std::vector<Series> four = {{{2}}, {{3}}, {{4}}, {{5}}};
  EXPECT_TRUE(ends(policy, true, {1}, four));
  EXPECT_FALSE(ends(policy, true, {2.5}, four));
  EXPECT_FALSE(ends(policy, true, {1}, {{{2}}, {{3}}, {{4}}}));
  EXPECT_TRUE(ends(policy, false, {6}, four));
  EXPECT_FALSE(ends(policy, false, {1}, four));
}

// Two of five, as 40 % are 2: the second lowest goes, the third stays.
TEST(EarlyTermination, TruncationCountsHowManyAreWorse) {
  TerminationPolicy policy{.kind = Kind::truncation_selection};
  policy.percentage = 40;
  const std::vector<Series> four = {{{1}}, {{3}}, {{4}}, {{5}}};
  EXPECT_TRUE(ends(policy, true, {2}, four));
  EXPECT_FALSE(ends(policy, true, {3.5}, four));
}

// "exclude_finished_jobs": of the five only this one and two others count, and 20 % of three are none.
TEST(EarlyTermination, TruncationMayLeaveOutWhatHasFinished) {
  TerminationPolicy policy{.kind = Kind::truncation_selection};
  policy.percentage = 20;
  const std::vector<Series> four = {{{2}, true}, {{3}, true}, {{4}}, {{5}}};
  EXPECT_TRUE(ends(policy, true, {1}, four));
  policy.exclude_finished = true;
  EXPECT_FALSE(ends(policy, true, {1}, four));
}

TEST(EarlyTermination, WithoutAPolicyOrAReportATrialGoesOn) {
  EXPECT_FALSE(ends({}, true, {0}, {{{1}}}));
  EXPECT_FALSE(ends(bandit_with(0.1, 0), true, {}, {{{1}}}));
}

}  // namespace
}  // namespace amldist::run
