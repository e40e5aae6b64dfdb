#include "step/messages/end_record.hpp"

#include <gtest/gtest.h>

#include "base/text/text.hpp"

namespace amldist::step::end_record_test {
namespace {

using enum EndRecord::Cause;

const EndRecord failed = {.step = "12.0",
                          .cause = rank_exit,
                          .rank = 2,
                          .node = "node3",
                          .status = 7,
                          .time = 1795747032,
                          .evidence = "rank 2 (local 0) on node3: exit status 7"};
constexpr std::string_view failed_line =
    R"({"schema":1,"step":"12.0","cause":"rank_exit","rank":2,"node":"node3","status":7,"signal":null,"time":1795747032,)"
    R"("evidence":"rank 2 (local 0) on node3: exit status 7","nodes_blamed":[]})";

TEST(EndRecord, IsOneLineThatIsReadBack) {
  EXPECT_EQ(failed.to_line(), text::concat({failed_line, "\n"}));
  EXPECT_EQ(EndRecord::parse(failed_line), failed);
  for (int cause = 0; cause <= static_cast<int>(unknown); ++cause) {
    const EndRecord record = {.step = "7.1",
                              .cause = EndRecord::Cause{cause},
                              .signal = 9,
                              .evidence = R"(a "quoted" \ word)",
                              .nodes_blamed = {"node1", "node2"}};
    EXPECT_EQ(EndRecord::parse(record.to_line()), record) << record.to_line();
  }
}

TEST(EndRecord, IsShortAndPrintableWhateverTheEvidence) {
  EndRecord record = failed;
  record.evidence = "\x1b[31m\nred\xff" + std::string(100'000, '"');
  record.nodes_blamed.assign(10'000, "node\n");
  const std::string line = record.to_line();
  EXPECT_LE(line.size(), longest_end_record);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto read = EndRecord::parse(line);
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->evidence.starts_with("?[31m?red?\""));
}

TEST(EndRecord, ReadsNothingElse) {
  const std::string line(failed_line);
  for (std::size_t length = 0; length < line.size(); ++length) EXPECT_FALSE(EndRecord::parse(line.substr(0, length)));
  struct Change {
    std::string_view from;
    std::string_view to;
  };
  for (const auto& [from, to] :
       {Change{"\"schema\":1", "\"schema\":2"}, Change{"rank_exit", "rank_exits"}, Change{":7,", ":256,"},
        Change{":7,", ":-1,"}, Change{":7,", ":07,"}, Change{":7,", ":7.0,"}, Change{",\"signal\"", ", \"signal\""},
        Change{"\"rank\":2", "\"rank\":\"2\""}, Change{"[]", "[,]"}, Change{"[]", "[\"a\",]"},
        Change{"12.0", "12\\u002e0"}, Change{"12.0", "12\n0"}, Change{"]}", "]}}"},
        Change{"exit status", "exit \\status"}}) {
    std::string changed = line;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_FALSE(EndRecord::parse(changed)) << changed;
  }
  EXPECT_FALSE(EndRecord::parse(std::string(100'000, '[')));
}

TEST(EndRecord, SaysToTheUserWhatNobodyElseSays) {
  const auto sentence = [](EndRecord::Cause cause, std::optional<std::uint32_t> rank = {}) {
    EndRecord record = {.cause = cause, .evidence = "x"};
    record.rank = rank;
    return record.sentence();
  };
  EXPECT_EQ(sentence(rank_exit, 1), "first failure: x");
  EXPECT_EQ(sentence(rank_signal, 1), "first failure: x");
  EXPECT_EQ(sentence(cancelled, 1), "first failure: x");
  EXPECT_EQ(sentence(hang, 1), "hang: x");
  EXPECT_EQ(sentence(plugin_missing), "x");
  EXPECT_EQ(sentence(refused), "refused: x");
  for (const auto cause : {out_of_memory, node_unhealthy, link}) EXPECT_EQ(sentence(cause, 1), "first failure: x");
  for (const auto cause : {time_limit, preempted, cancelled, node_down})
    EXPECT_EQ(sentence(cause), "ended by Slurm: x");
  for (const auto cause : {done, unknown}) EXPECT_EQ(sentence(cause), "");
}

TEST(EndRecord, HasAShellsStatus) {
  EXPECT_EQ(failed.shell_status(), 7);
  EXPECT_EQ((EndRecord{.cause = rank_signal, .signal = 9}).shell_status(), 137);
  EXPECT_EQ((EndRecord{.cause = done}).shell_status(), 0);
}

}  // namespace
}  // namespace amldist::step::end_record_test
