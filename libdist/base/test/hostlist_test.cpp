#include "base/text/hostlist.hpp"

#include "support.hpp"

namespace amldist::hostlist_test {
namespace {

using testing::expect_sentence;
using Names = std::vector<std::string>;

struct Case {
  const char* text;
  Names names;
};

TEST(Hostlist, ExpandsEveryShapeThatSlurmWrites) {
  for (const Case& c : std::vector<Case>{
           {"node1", {"node1"}},
           {"node[1-3]", {"node1", "node2", "node3"}},
           {"n[1,3,5-7]", {"n1", "n3", "n5", "n6", "n7"}},
           {"n[001-003,7]", {"n001", "n002", "n003", "n7"}},
           {"n[08-11]", {"n08", "n09", "n10", "n11"}},
           {"n[0-1]", {"n0", "n1"}},
           {"rack[0-1]b[0-2]", {"rack0b0", "rack0b1", "rack0b2", "rack1b0", "rack1b1", "rack1b2"}},
           {"rack[0-1]_blade[0-1]", {"rack0_blade0", "rack0_blade1", "rack1_blade0", "rack1_blade1"}},
           {"c[1-2]-ib0", {"c1-ib0", "c2-ib0"}},
           {"a,b[1-2],c", {"a", "b1", "b2", "c"}},
           {"a1,a1", {"a1", "a1"}},
           {"[1-2]", {"1", "2"}},
           {"host.example.org", {"host.example.org"}},
           {"n[3-3]", {"n3"}},
           {"a[1-2]b[1-2]c[1-2]", {"a1b1c1", "a1b1c2", "a1b2c1", "a1b2c2", "a2b1c1", "a2b1c2", "a2b2c1", "a2b2c2"}},
       }) {
    const auto list = Hostlist::parse(c.text);
    ASSERT_TRUE(list) << c.text << ": " << list.error().message;
    EXPECT_EQ(list->expand(), c.names) << c.text;
    ASSERT_EQ(list->size(), c.names.size()) << c.text;
    for (std::size_t i = 0; i < c.names.size(); ++i) EXPECT_EQ(list->at(i), c.names[i]) << c.text;
  }
}

TEST(Hostlist, StaysSmallForThousandsOfNodes) {
  const auto list = Hostlist::parse("n[00001-10240]");
  ASSERT_TRUE(list);
  EXPECT_EQ(list->size(), 10240U);
  EXPECT_EQ(list->at(0), "n00001");
  EXPECT_EQ(list->at(10239), "n10240");
}

TEST(Hostlist, RefusesWhatIsNoList) {
  for (const std::string& bad : std::vector<std::string>{"",
                                                         ",",
                                                         "a,",
                                                         ",a",
                                                         "a,,b",
                                                         "n[",
                                                         "n[1",
                                                         "n]",
                                                         "n[]",
                                                         "n[1-]",
                                                         "n[-2]",
                                                         "n[2-1]",
                                                         "n[1-2",
                                                         "n[a-b]",
                                                         "n[1--2]",
                                                         "n[1,]",
                                                         "n[[1-2]]",
                                                         "n[1]]",
                                                         "a b",
                                                         "a\tb",
                                                         "a\n",
                                                         "n[1-99999999999999999999]",
                                                         "n[1-999999999999999]",
                                                         "n[0-9999]x[0-9999]",
                                                         "n[0-1048576]",
                                                         "\"",
                                                         "a;b",
                                                         "a$(id)",
                                                         std::string(200 * 1024, 'a')}) {
    const auto list = Hostlist::parse(bad);
    ASSERT_FALSE(list) << bad.substr(0, 60);
    expect_sentence(list.error().message);
  }
}

TEST(Hostlist, LimitsTheSumOverEntries) {
  EXPECT_TRUE(Hostlist::parse("a[0-1048575]"));
  EXPECT_FALSE(Hostlist::parse("a[0-1048575],b"));
}

TEST(Hostlist, RefusesNamesThatNoHostHas) {
  const std::string longest(Hostlist::longest_name - 1, 'a');
  EXPECT_TRUE(Hostlist::parse(longest + "[0-9]"));
  const std::string deep = [] {
    std::string brackets;
    for (int i = 0; i < 40'000; ++i) brackets += "[0]";
    return brackets;
  }();
  for (const std::string& text : {longest + "[0-10]", longest + "aa", longest + "[0]a", deep}) {
    const auto list = Hostlist::parse(text);
    ASSERT_FALSE(list) << text.size();
    EXPECT_EQ(list.error().code, Errc::limit);
    testing::expect_sentence(list.error().message);
  }
}

}  // namespace
}  // namespace amldist::hostlist_test
