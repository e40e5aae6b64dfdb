// Lists of mappings as the kernel writes them, and as it never should.
#include "os/memory_map.hpp"

#include <gtest/gtest.h>

#include <string>

namespace amldist {
namespace {

std::string reason(std::string_view maps, std::uintptr_t begin = 0x1000, std::size_t bytes = 0x1000) {
  const auto checked = check_private_memory(maps, begin, bytes);
  return checked ? "private" : checked.error().message;
}

TEST(MemoryMap, KnowsPrivateMemory) {
  EXPECT_EQ(reason("1000-2000 rw-p 00000000 00:00 0 \n"), "private");
  EXPECT_EQ(reason("1000-2000 rw-p 00000000 00:00 0"), "private");
  EXPECT_EQ(reason("0-9000 rw-p 00000000 00:00 0                          [heap]\n"), "private");
  EXPECT_EQ(reason("1000-2000 rw-p 00000000 00:00 0   [anon: glibc: malloc]\n"), "private");
  EXPECT_EQ(reason("1000-2000 rw-p 0 00:00 0 \n2000-4000 rw-p 0 00:00 0 \n", 0x1000, 0x3000), "private");
  EXPECT_EQ(reason("0-1000 r-xp 0 08:01 7 /bin/x\n1000-2000 rw-p 0 00:00 0 \n2000-3000 rw-s 0 00:01 9 /x\n"),
            "private");
}

TEST(MemoryMap, SaysWhatElseItIs) {
  EXPECT_EQ(reason("1000-2000 rw-s 00000000 00:01 77 /dev/zero (deleted)\n"), "it is shared memory already");
  EXPECT_EQ(reason("1000-2000 rw-p 00000000 08:01 77   /data/x y\n"), "it is mapped from the file '/data/x y'");
  EXPECT_EQ(reason("1000-2000 rw-p 00000000 00:0f 77   /anon_hugepage (deleted)\n"),
            "it is mapped from the file '/anon_hugepage (deleted)'");
  EXPECT_EQ(reason("1000-2000 rw-p 00000000 00:00 0   [stack]\n"), "it is the process's '[stack]'");
  EXPECT_EQ(reason("1000-2000 r-xp 00000000 00:00 0   [vdso]\n"), "it is the process's '[vdso]'");
  EXPECT_EQ(reason("1000-2000 r--p 00000000 00:00 0 \n"), "it cannot be read and written (r--p)");
  EXPECT_EQ(reason("1000-2000 ---p 00000000 00:00 0 \n"), "it cannot be read and written (---p)");
  EXPECT_EQ(reason("1000-2000 rwxp 00000000 00:00 0 \n"), "it can be executed (rwxp)");
}

TEST(MemoryMap, JudgesEveryPart) {
  EXPECT_EQ(reason("1000-2000 rw-p 0 00:00 0 \n", 0x1000, 0x2000), "part of it is not mapped");
  EXPECT_EQ(reason("1000-2000 rw-p 0 00:00 0 \n", 0, 0x2000), "part of it is not mapped");
  EXPECT_EQ(reason("1000-2000 rw-p 0 00:00 0 \n3000-4000 rw-p 0 00:00 0 \n", 0x1000, 0x3000),
            "part of it is not mapped");
  EXPECT_EQ(reason("1000-2000 rw-p 0 00:00 0 \n2000-3000 r--p 0 00:00 0 \n", 0x1000, 0x2000),
            "it cannot be read and written (r--p)");
  EXPECT_EQ(reason("", 0x1000, 0x1000), "part of it is not mapped");
  EXPECT_EQ(reason("1000-2000 rw-p 0 00:00 0 \n", UINTPTR_MAX - 0xfff, 0x2000), "it goes beyond the address space");
}

TEST(MemoryMap, RefusesWhatIsNoList) {
  for (const char* const line : {"\n",
                                 "x",
                                 "1000",
                                 "1000-",
                                 "1000-2000",
                                 "1000-2000 rw-p",
                                 "1000-2000 rw-p 0 00:00",
                                 "1000-2000 rw-p 0 0 0",
                                 "1000-2000 rw-p 0 00:00 x",
                                 "1000-2000 rw-p 0 00:00 -1",
                                 "2000-1000 rw-p 0 00:00 0",
                                 "1000-1000 rw-p 0 00:00 0",
                                 "1000-2000 rw 0 00:00 0",
                                 "1000-2000 rwpx 0 00:00 0",
                                 "1000-2000 rw-pp 0 00:00 0",
                                 "-1000-2000 rw-p 0 00:00 0",
                                 "0x1000-0x2000 rw-p 0 00:00 0",
                                 " 1000-2000 rw-p 0 00:00 0",
                                 "1000-11111111111111111 rw-p 0 00:00 0",
                                 "1000-2000  rw-p 0 00:00 0"}) {
    EXPECT_NE(reason(line).find("a line that this library does not know"), std::string::npos) << line;
    const std::string behind = std::string("1000-2000 rw-p 0 00:00 0 \n") + line;
    EXPECT_NE(reason(behind).find("a line that this library does not know"), std::string::npos) << behind;
  }
  EXPECT_NE(reason("1000-3000 rw-p 0 00:00 0 \n2000-4000 rw-s 0 00:00 0 \n").find("does not know"), std::string::npos);
}

TEST(MemoryMap, KnowsPagesOfAFile) {
  const FilePages pages = {"/memfd:amldist", 42, 0x5000};
  const auto is_it = [&](std::string_view maps, std::size_t bytes = 0x1000) {
    return is_shared_mapping(maps, 0x1000, bytes, pages);
  };
  EXPECT_TRUE(is_it("1000-2000 rw-s 00005000 00:01 42 /memfd:amldist (deleted)\n"));
  EXPECT_TRUE(is_it("0-2000 rw-s 00004000 00:01 42 /memfd:amldist (deleted)\n"));
  EXPECT_TRUE(
      is_it("1000-2000 rw-s 5000 00:01 42 /memfd:amldist\n2000-3000 rw-s 6000 00:01 42 /memfd:amldist\n", 0x2000));
  EXPECT_FALSE(
      is_it("1000-2000 rw-s 5000 00:01 42 /memfd:amldist\n2000-3000 rw-s 7000 00:01 42 /memfd:amldist\n", 0x2000));
  EXPECT_FALSE(is_it("1000-2000 rw-s 00005000 00:01 42 /memfd:amldist (deleted)\n", 0x2000));
  EXPECT_FALSE(is_it("1000-2000 rw-s 00005000 00:01 43 /memfd:amldist (deleted)\n"));
  EXPECT_FALSE(is_it("1000-2000 rw-s 00005000 00:01 42 /tmp/file\n"));
  EXPECT_FALSE(is_it("1000-2000 r--s 00005000 00:01 42 /memfd:amldist (deleted)\n"));
  EXPECT_FALSE(is_it("1000-2000 rw-p 00000000 00:00 0 \n"));
}

TEST(MemoryMap, IsThatOfThisProcess) {
  const auto maps = own_memory_map();
  ASSERT_TRUE(maps) << maps.error().message;
  const auto own = reinterpret_cast<std::uintptr_t>(maps->data()) / 4096 * 4096;
  EXPECT_EQ(reason(own_memory_map().value(), own), "private");
}

}  // namespace
}  // namespace amldist
