#include "step/messages/launch_record.hpp"

#include "support.hpp"

namespace amldist::step {
namespace {

LaunchRecord record() { return {12, 3, "10.0.0.1", PortRanges::parse("20000-29999").value(), "(vector,(0,4,2))"}; }

TEST(LaunchRecord, ReadsBackWhatItWrites) {
  EXPECT_EQ(record().to_string(), "1;step=12.3;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,4,2))");
  EXPECT_EQ(LaunchRecord::parse(record().to_string()).value(), record());
}

TEST(LaunchRecord, ReadsBackComponents) {
  LaunchRecord written = record();
  written.components = {{12, 1, "n1"}, {13, 2, "n[1,3]"}};
  EXPECT_EQ(written.to_string(),
            "1;step=12.3;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,4,2));components=12:1:n1+13:2:n[1,3]");
  const auto read = LaunchRecord::parse(written.to_string());
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, written);
  EXPECT_TRUE(read->is_heterogeneous());
  EXPECT_FALSE(record().is_heterogeneous());
}

TEST(LaunchRecord, ReadsBackFeaturesOfNodes) {
  LaunchRecord written = record();
  written.features = *launch::NodeFeatures::parse("h100:1+ib:0-1");
  EXPECT_EQ(written.to_string(),
            "1;step=12.3;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,4,2));features=h100:1+ib:0-1");
  EXPECT_EQ(LaunchRecord::parse(written.to_string()).value(), written);
  written.components = {{12, 1, "n1"}, {13, 2, "n[1,3]"}};
  EXPECT_EQ(LaunchRecord::parse(written.to_string()).value(), written);
}

TEST(LaunchRecord, ReadsBackHowNodesAreNamed) {
  LaunchRecord written = record();
  for (const char* const text : {"10.0.0.1-10.0.0.4", "0.0.0.0,10.0.0.7", "*-ib0"}) {
    written.peers = *launch::NodeHosts::parse(text);
    EXPECT_EQ(written.to_string(),
              std::string("1;step=12.3;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,4,2));peers=") + text);
    EXPECT_EQ(LaunchRecord::parse(written.to_string()).value(), written);
  }
  written.features = *launch::NodeFeatures::parse("ib:0-1");
  EXPECT_EQ(LaunchRecord::parse(written.to_string()).value(), written);
  written.components = {{12, 1, "n1"}, {13, 2, "n[1,3]"}};
  EXPECT_EQ(LaunchRecord::parse(written.to_string()).value(), written);
}

TEST(LaunchRecord, TakesAnInterfaceInPlaceOfTheAddress) {
  LaunchRecord written = record();
  written.address = "@ib0";
  EXPECT_EQ(LaunchRecord::parse(written.to_string()).value(), written);
}

TEST(LaunchRecord, EveryCutIsRefusedOrHarmless) {
  const std::string text = record().to_string();
  for (std::size_t length = 0; length < text.size(); ++length) {
    const auto cut = LaunchRecord::parse(text.substr(0, length));
    if (!cut) testing::expect_sentence(cut.error().message);
    else EXPECT_NE(cut->map, record().map) << "only the map may be cut, and TaskMap::parse refuses it";
  }
}

TEST(LaunchRecord, RefusesWhatSrunDoesNotWrite) {
  for (const std::string& bad :
       std::vector<std::string>{"",
                                ";",
                                "2;step=12.3;addr=a;ports=1-2;map=x",
                                "1;step=12;addr=a;ports=1-2;map=x",
                                "1;step=12.99999999999;addr=a;ports=1-2;map=x",
                                "1;step=-1.0;addr=a;ports=1-2;map=x",
                                "1;step=1.0;addr=;ports=1-2;map=x",
                                "1;step=1.0;addr=a b;ports=1-2;map=x",
                                "1;step=1.0;addr=a;ports=;map=x",
                                "1;step=1.0;addr=a;ports=0-99999;map=x",
                                "1;addr=a;step=1.0;ports=1-2;map=x",
                                "1;step=1.0;addr=a;ports=1-2;map=x;more=1",
                                "1;step=1.0;addr=@;ports=1-2;map=x",
                                "1;step=1.0;addr=@a/b;ports=1-2;map=x",
                                "1;step=1.0;addr=a;ports=1-2;map=x;hosts=n1",
                                "1;step=1.0;addr=a;ports=1-2;map=x;hosts=;components=1:1",
                                "1;step=1.0;addr=a;ports=1-2;map=x;hosts=n1;components=",
                                "1;step=1.0;addr=a;ports=1-2;map=x;hosts=n1;components=1:1,",
                                "1;step=1.0;addr=a;ports=1-2;map=x;hosts=n1;components=1:-1",
                                "1;step=1.0;addr=a;ports=1-2;map=x;hosts=n1;components=1:99999999999",
                                "1;step=1.0;addr=a;ports=1-2;map=x;components=1:1;hosts=n1",
                                "1;step=1.0;addr=a;ports=1-2;map=x;peers=",
                                "1;step=1.0;addr=a;ports=1-2;map=x;peers=*",
                                "1;step=1.0;addr=a;ports=1-2;map=x;peers=n1",
                                "1;step=1.0;addr=a;ports=1-2;map=x;peers=0.0.0.0-255.255.255.255",
                                "1;step=1.0;addr=a;ports=1-2;map=x;peers=10.0.0.1;features=ib:0",
                                "1;step=1.0;addr=a;ports=1-2;map=x;peers=10.0.0.1;peers=10.0.0.1",
                                "1;step=1.0;addr=a;ports=1-2;map=x;features=",
                                "1;step=1.0;addr=a;ports=1-2;map=x;features=ib",
                                "1;step=1.0;addr=a;ports=1-2;map=x;features=ib:0;features=ib:0",
                                "1;step=1.0;addr=a;ports=1-2;map=x;features=ib:0;components=12:1:n1",
                                std::string(200 * 1024, ';')}) {
    const auto parsed = LaunchRecord::parse(bad);
    ASSERT_FALSE(parsed) << bad.substr(0, 60);
    testing::expect_sentence(parsed.error().message);
  }
}

}  // namespace
}  // namespace amldist::step
