#include "launch/rendezvous/own_identity.hpp"

#include "support.hpp"

namespace amldist::launch {
namespace {

using testing::environment;

testing::Variables task() {
  return {{"AMLDIST_STAMP", "12.0 kind=pytorch nodes=4"},
          {"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"NODE_RANK", "2"},
          {"MASTER_PORT", "20001"},
          {"SLURM_PROCID", "5"},
          {"SLURM_NTASKS", "8"}};
}

TEST(OwnIdentity, IsReadBack) {
  const auto own = read_own_identity(environment(task()));
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(own->identity, (Identity{5, 8, 1, 2, 2, 4}));
  EXPECT_EQ(own->master_port, 20001);
}

TEST(OwnIdentity, NeedsEveryVariable) {
  for (const char* const name :
       {"AMLDIST_STAMP", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"}) {
    auto variables = task();
    variables.erase(name);
    const auto own = read_own_identity(environment(variables));
    ASSERT_FALSE(own) << name;
    EXPECT_EQ(own.error().code, Errc::unavailable);
    testing::expect_sentence(own.error().message);
  }
}

TEST(OwnIdentity, RefusesContradictionsAndNamesThem) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"RANK", "8"},
                                                        {"RANK", "4"},
                                                        {"LOCAL_RANK", "2"},
                                                        {"NODE_RANK", "4"},
                                                        {"WORLD_SIZE", "9"},
                                                        {"SLURM_PROCID", "6"},
                                                        {"SLURM_NTASKS", "4"},
                                                        {"RANK", "x"},
                                                        {"RANK", "-1"},
                                                        {"WORLD_SIZE", "99999999999"},
                                                        {"AMLDIST_STAMP", "12.0"},
                                                        {"AMLDIST_STAMP", "12.0 nodes=x"},
                                                        {"AMLDIST_STAMP", "12.0 nodes=2"}}) {
    auto variables = task();
    variables[name] = value;
    const auto own = read_own_identity(environment(variables));
    ASSERT_FALSE(own) << name << "=" << value;
    testing::expect_sentence(own.error().message);
  }
}

}  // namespace
}  // namespace amldist::launch
