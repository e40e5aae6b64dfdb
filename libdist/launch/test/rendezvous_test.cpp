#include "launch/rendezvous/rendezvous.hpp"

#include "launch/rendezvous/stamp.hpp"
#include "launch/rendezvous/step_port.hpp"
#include "support.hpp"

namespace amldist::launch::rendezvous_test {
namespace {

using testing::environment;

PortRanges ports(std::string_view text) { return PortRanges::parse(text).value(); }

RendezvousFacts facts() { return {"10.0.0.1", ports("20000-29999"), JobName{"cluster", 12, 0}, 3}; }

struct Settled {
  Rendezvous rendezvous;
  std::vector<std::string> notes;
};

Settled settled(const Spec& spec, const testing::Variables& variables) {
  Settled out;
  const auto result = settle(spec, facts(), environment(variables), out.notes);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  if (result) out.rendezvous = *result;
  return out;
}

TEST(Rendezvous, IsComputedWithoutUserSettings) {
  const Settled out = settled({}, {});
  EXPECT_EQ(out.rendezvous.address, "10.0.0.1");
  EXPECT_EQ(out.rendezvous.port, step_port(facts().ports, facts().job, 3));
  EXPECT_EQ(out.rendezvous.port_origin, Origin::computed);
  EXPECT_TRUE(out.notes.empty());
}

TEST(Rendezvous, PrefersReservedPortsToTheHash) {
  const Settled out = settled({}, {{"SLURM_STEP_RESV_PORTS", "12001-12003"}});
  EXPECT_EQ(out.rendezvous.port, 12001);
  EXPECT_EQ(out.rendezvous.port_origin, Origin::reserved);
}

TEST(Rendezvous, KeepsTheUsersValuesAndSaysSoOnce) {
  const Settled out =
      settled({}, {{"MASTER_ADDR", "mine"}, {"MASTER_PORT", "6105"}, {"SLURM_STEP_RESV_PORTS", "12001-12003"}});
  EXPECT_EQ(out.rendezvous.address, "mine");
  EXPECT_EQ(out.rendezvous.port, 6105);
  ASSERT_EQ(out.notes.size(), 1U);
  EXPECT_EQ(out.notes[0], "keeping your MASTER_ADDR=mine and MASTER_PORT=6105: unset to let aml-dist choose");
}

TEST(Rendezvous, AKeyBeatsTheEnvironment) {
  const auto spec = parse_spec("pytorch,master_addr=10.9.9.9,master_port=7000");
  const Settled out = settled(*spec, {{"MASTER_ADDR", "mine"}, {"MASTER_PORT", "6105"}});
  EXPECT_EQ(out.rendezvous.address, "10.9.9.9");
  EXPECT_EQ(out.rendezvous.port, 7000);
  EXPECT_TRUE(out.notes.empty());
}

TEST(Rendezvous, AFormAskedForBeatsTheEnvironmentToo) {
  const auto spec = parse_spec("pytorch,master_addr=ip");
  EXPECT_EQ(settled(*spec, {{"MASTER_ADDR", "mine"}}).rendezvous.address, "10.0.0.1");
}

TEST(Rendezvous, ReplacesItsOwnStaleValuesSilently) {
  const Settled out = settled({}, {{"MASTER_ADDR", "10.0.0.7"},
                                   {"MASTER_PORT", "20007"},
                                   {"AMLDIST_STAMP", "12.0 MASTER_ADDR=10.0.0.7 MASTER_PORT=20007"}});
  EXPECT_EQ(out.rendezvous.address, "10.0.0.1");
  EXPECT_EQ(out.rendezvous.port_origin, Origin::computed);
  EXPECT_TRUE(out.notes.empty());
}

TEST(Rendezvous, TellsAUsersValueFromAStaleOne) {
  const Settled out = settled({}, {{"MASTER_ADDR", "mine"},
                                   {"MASTER_PORT", "20007"},
                                   {"AMLDIST_STAMP", "12.0 MASTER_ADDR=10.0.0.7 MASTER_PORT=20007"}});
  EXPECT_EQ(out.rendezvous.address, "mine");
  EXPECT_EQ(out.rendezvous.port_origin, Origin::computed);
  EXPECT_EQ(out.notes.size(), 1U);
}

TEST(Rendezvous, RefusesWhatCannotBeAnAddressOrAPort) {
  std::vector<std::string> notes;
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"MASTER_PORT", "abc"},
                                                                                    {"MASTER_PORT", "0"},
                                                                                    {"MASTER_PORT", "70000"},
                                                                                    {"MASTER_PORT", "80 "},
                                                                                    {"MASTER_ADDR", "a b"},
                                                                                    {"MASTER_ADDR", "::1"},
                                                                                    {"MASTER_ADDR", "x\n"},
                                                                                    {"MASTER_ADDR", "a;rm"}}) {
    const auto result = settle({}, facts(), environment({{name, value}}), notes);
    ASSERT_FALSE(result) << name << "=" << value;
    EXPECT_NE(result.error().message.find(name), std::string::npos);
    testing::expect_sentence(result.error().message);
  }
}

TEST(Rendezvous, RayHasABlockOfPortsThatIsNotSlurms) {
  Spec ray;
  ray.kind = Kind::ray;
  const auto block = settled(ray, {{"SLURM_STEP_RESV_PORTS", "12001"}}).rendezvous;
  EXPECT_EQ(block.port_origin, Origin::computed);
  std::vector<std::string> notes;
  EXPECT_TRUE(settle(ray, facts(), environment({{"MASTER_PORT", "65524"}}), notes));
  const auto high = settle(ray, facts(), environment({{"MASTER_PORT", "65525"}}), notes);
  ASSERT_FALSE(high);
  EXPECT_NE(high.error().message.find("of at most 65524"), std::string::npos) << high.error().message;
}

TEST(Rendezvous, EmptyVariablesAreNotTheUsers) {
  EXPECT_EQ(settled({}, {{"MASTER_ADDR", ""}, {"MASTER_PORT", ""}}).rendezvous.address, "10.0.0.1");
}

TEST(Stamp, ReadsBackWhatItWrites) {
  Stamp stamp("12.3");
  stamp.add("MASTER_ADDR", "10.0.0.1");
  stamp.add("MASTER_PORT", "20001");
  const auto again = Stamp::read(environment({{"AMLDIST_STAMP", stamp.to_string()}}));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->step(), "12.3");
  EXPECT_TRUE(again->wrote("MASTER_ADDR", "10.0.0.1"));
  EXPECT_FALSE(again->wrote("MASTER_ADDR", "10.0.0.2"));
  EXPECT_FALSE(Stamp::read(environment({{"AMLDIST_STAMP", std::string(100000, ' ')}})));
}

}  // namespace
}  // namespace amldist::launch::rendezvous_test
