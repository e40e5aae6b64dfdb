#include "collective/settings.hpp"

#include <vector>

#include <algorithm>

#include "launch/option/settings.hpp"
#include "support.hpp"
#include "trace/record/settings.hpp"

namespace amldist::collective {
namespace {

using testing::environment;
using testing::Variables;

Settings read(Variables variables) {
  const auto settings = Settings::read(environment(std::move(variables)));
  EXPECT_TRUE(settings) << settings.error().message;
  return settings ? *settings : Settings();
}

/// The tables of the wings that make a world.
std::vector<std::span<const SettingDescription>> tables() {
  return {launch::setting_descriptions(), trace::setting_descriptions(), world::setting_descriptions(),
          setting_descriptions()};
}
std::vector<SettingDescription> all_descriptions() {
  std::vector<SettingDescription> out;
  for (const auto table : tables()) out.insert(out.end(), table.begin(), table.end());
  return out;
}

TEST(Settings, HaveDefaults) {
  for (const Settings& settings : {read({}), read({{"AMLDIST_BOOTSTRAP", ""},
                                                   {"AMLDIST_TRANSPORT", ""},
                                                   {"AMLDIST_TIMEOUT_MS", ""},
                                                   {"AMLDIST_ISA", ""},
                                                   {"AMLDIST_NODE_NAME", ""}})}) {
    EXPECT_EQ(settings.world.bootstrap, world::Bootstrap::automatic);
    EXPECT_EQ(settings.world.transport, world::Carrier::automatic);
    EXPECT_EQ(settings.world.timeout, std::chrono::minutes(5));
    EXPECT_EQ(settings.instruction_set, InstructionSet::avx512);
    EXPECT_EQ(settings.world.secret, launch::SecretPolicy::prefer);
    EXPECT_EQ(settings.world.integrity, world::Integrity::off);
    EXPECT_EQ(settings.world.tcp_congestion, "auto");
    EXPECT_EQ(settings.world.node_name, "");
    EXPECT_FALSE(settings.world.mpi_yields);
    EXPECT_FALSE(settings.world.is_under_srun);
  }
}

TEST(Settings, AreWhatTheVariablesSay) {
  const Settings settings = read({{"AMLDIST_BOOTSTRAP", "pmix"},
                                  {"AMLDIST_TRANSPORT", "tcp"},
                                  {"AMLDIST_TIMEOUT_MS", "1500"},
                                  {"AMLDIST_ISA", "avx2"},
                                  {"AMLDIST_SECRET", "require"},
                                  {"AMLDIST_INTEGRITY", "mac"},
                                  {"AMLDIST_TCP_CONGESTION", "reno"},
                                  {"AMLDIST_NODE_NAME", "a"},
                                  {"AMLDIST_MPI", "/b"},
                                  {"AMLDIST_NCCL", "/c"},
                                  {"AMLDIST_TRACE_DIR", "/d"},
                                  {"OMPI_MCA_mpi_yield_when_idle", "true"},
                                  {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(settings.world.bootstrap, world::Bootstrap::pmix);
  EXPECT_EQ(settings.world.transport, world::Carrier::tcp);
  EXPECT_EQ(settings.world.timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(settings.instruction_set, InstructionSet::avx2);
  EXPECT_EQ(settings.world.secret, launch::SecretPolicy::require);
  EXPECT_EQ(settings.world.integrity, world::Integrity::mac);
  EXPECT_EQ(settings.world.tcp_congestion, "reno");
  EXPECT_EQ(settings.world.node_name, "a");
  EXPECT_EQ(settings.world.mpi_library, "/b");
  EXPECT_EQ(settings.nccl_library, "/c");
  EXPECT_EQ(settings.trace_folder, "/d");
  EXPECT_TRUE(settings.world.mpi_yields);
  EXPECT_TRUE(settings.world.is_under_srun);
}

TEST(Settings, AnUnknownCongestionControlIsRefusedWithThoseThatThisMachineHas) {
  const auto settings = Settings::read(environment({{"AMLDIST_TCP_CONGESTION", "carrier pigeon"}}));
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().code, Errc::invalid_argument);
  EXPECT_TRUE(settings.error().message.starts_with("AMLDIST_TCP_CONGESTION='carrier pigeon': use auto, system"))
      << settings.error().message;
  testing::expect_sentence(settings.error().message);
}

struct Refusal {
  std::string variable;
  std::string value;
  std::string sentence;
};

TEST(Settings, RefuseWhatTheyDoNotKnow) {
  const std::vector<Refusal> refusals = {
      {"AMLDIST_BOOTSTRAP", "carrier pigeon", "AMLDIST_BOOTSTRAP='carrier pigeon': use tcp, pmix, slurm or mpi"},
      {"AMLDIST_TRANSPORT", "pmix", "AMLDIST_TRANSPORT='pmix': use mpi or tcp"},
      {"AMLDIST_ISA", "AVX2", "AMLDIST_ISA='AVX2': use plain, avx2 or avx512"},
      {"AMLDIST_INTEGRITY", "sha", "AMLDIST_INTEGRITY='sha': use off, crc or mac"},
      {"AMLDIST_SECRET", "off", "AMLDIST_SECRET='off': use require or prefer"},
      {"AMLDIST_TIMEOUT_MS", "0", "AMLDIST_TIMEOUT_MS='0': use a number of milliseconds from 1 to 2147483647"},
      {"AMLDIST_TIMEOUT_MS", "-1", "AMLDIST_TIMEOUT_MS='-1': use a number of milliseconds from 1 to 2147483647"},
      {"AMLDIST_TIMEOUT_MS", "2147483648",
       "AMLDIST_TIMEOUT_MS='2147483648': use a number of milliseconds from 1 to 2147483647"},
      {"AMLDIST_TIMEOUT_MS", "5s\n", "AMLDIST_TIMEOUT_MS='5s\\x0a': use a number of milliseconds from 1 to 2147483647"},
  };
  for (const auto& [name, value, sentence] : refusals) {
    const auto settings = Settings::read(environment({{name, value}}));
    ASSERT_FALSE(settings) << name << '=' << value;
    EXPECT_EQ(settings.error().code, Errc::invalid_argument);
    EXPECT_EQ(settings.error().message, sentence);
    testing::expect_sentence(settings.error().message);
  }
}

TEST(Settings, ReadNoVariableThatTheTableLacks) {
  std::vector<std::string> asked;
  const auto settings = Settings::read([&](std::string_view name) -> std::optional<std::string> {
    asked.emplace_back(name);
    return std::nullopt;
  });
  ASSERT_TRUE(settings);
  for (const std::string& name : asked) {
    const auto all = all_descriptions();
    EXPECT_EQ(std::ranges::count(all, name, &SettingDescription::name), 1) << name;
  }
}

TEST(SettingDescriptions, AreSortedAndComplete) {
  for (const auto table : tables()) {
    EXPECT_TRUE(std::ranges::is_sorted(table, {}, &SettingDescription::name));
    for (const SettingDescription& each : table) {
      for (const auto text : {each.name, each.reader, each.values, each.default_value, each.meaning})
        EXPECT_FALSE(text.empty()) << each.name;
    }
  }
}

}  // namespace
}  // namespace amldist::collective
