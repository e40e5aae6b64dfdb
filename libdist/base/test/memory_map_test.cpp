// Lists of mappings as the kernel writes them, and as it never should.
#include "base/memory/memory_map.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace amldist {
namespace {

constexpr std::size_t page = 4096;

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

TEST(MemoryMap, ReadsTheFlagsOfTheMappingsThatAreConcerned) {
  const auto with = [](std::string_view before, std::string_view own) {
    const std::string maps = "0-1000 rw-p 0 00:00 0 \nSize: 4 kB\nAnonHugePages: 0 kB\nVmFlags: rd wr " +
                             std::string(before) + " \n1000-2000 rw-p 0 00:00 0 \nRss: 4 kB\nVmFlags: rd wr " +
                             std::string(own) + " \n2000-3000 rw-p 0 00:00 0 \nVmFlags: lo \n";
    return reason(maps);
  };
  EXPECT_EQ(with("lo dc", "mr mw me ac sd"), "private");
  EXPECT_EQ(with("mr", "lo mr"), "it is locked (mlock)");
  EXPECT_EQ(with("mr", "mr gd"), "it is a stack");
  EXPECT_EQ(with("mr", "ac dc"), "children do not inherit it (MADV_DONTFORK)");
  EXPECT_EQ(with("mr", "ac wf"), "children find it empty (MADV_WIPEONFORK)");
  EXPECT_EQ(with("mr", "dd"), "it is kept out of core dumps (MADV_DONTDUMP)");
  EXPECT_EQ(reason("1000-2000 rw-p 0 00:00 0   [anon: glibc: pthread stack: 7]\n"),
            "it is the process's '[anon: glibc: pthread stack: 7]'");
}

/// A page of a memfd, between two that are not mapped.
class MappedPage {
 public:
  MappedPage() : file_(::memfd_create("test", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.get(), 2 * page), 0);
    place_ = static_cast<char*>(::mmap(nullptr, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(::munmap(place_, 4 * page), 0);
    map(1, PROT_READ | PROT_WRITE, MAP_SHARED, page);
  }
  ~MappedPage() { ::munmap(place_, 4 * page); }
  MappedPage(const MappedPage&) = delete;
  MappedPage& operator=(const MappedPage&) = delete;

  void map(std::size_t where, int access, int flags, off_t offset) {
    ASSERT_NE(::mmap(place_ + where * page, page, access, flags | MAP_FIXED, file_.get(), offset), MAP_FAILED);
  }
  /// Whether `pages` pages from `where` on are the file's from its second page on.
  [[nodiscard]] std::optional<bool> is_shared(const MappingQuery& query, std::size_t where = 1, std::size_t pages = 1) {
    struct stat status = {};
    EXPECT_EQ(::fstat(file_.get(), &status), 0);
    return query.is_shared(reinterpret_cast<std::uintptr_t>(place_) + where * page, pages * page,
                           {"", status.st_ino, page});
  }

 private:
  FileDescriptor file_;
  char* place_ = nullptr;
};

TEST(MappingQuery, KnowsWhatLiesAtAnAddress) {
  MappedPage memory;
  const MappingQuery query;
  if (!memory.is_shared(query)) GTEST_SKIP() << "this kernel cannot be asked (PROCMAP_QUERY, Linux 6.11)";
  EXPECT_EQ(memory.is_shared(query), true);
  EXPECT_EQ(memory.is_shared(query, 0), false);
  EXPECT_EQ(memory.is_shared(query, 1, 2), false);
  memory.map(2, PROT_READ | PROT_WRITE, MAP_PRIVATE, 8192 - 4096);
  EXPECT_EQ(memory.is_shared(query, 1, 2), false);
  memory.map(1, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
  EXPECT_EQ(memory.is_shared(query), false) << "another page of the file";
  memory.map(1, PROT_READ | PROT_WRITE, MAP_PRIVATE, 4096);
  EXPECT_EQ(memory.is_shared(query), false) << "a private one";
  memory.map(1, PROT_READ, MAP_SHARED, 4096);
  EXPECT_EQ(memory.is_shared(query), false) << "one that cannot be written";
}

TEST(MappingQuery, SaysThatItCannotAsk) {
  MappedPage memory;
  EXPECT_EQ(memory.is_shared(MappingQuery(FileDescriptor())), std::nullopt);
  EXPECT_EQ(memory.is_shared(MappingQuery(FileDescriptor(::open("/dev/null", O_RDONLY)))), std::nullopt);
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
    EXPECT_NE(reason(line).find("a line that this library cannot parse"), std::string::npos) << line;
    const std::string behind = std::string("1000-2000 rw-p 0 00:00 0 \n") + line;
    EXPECT_NE(reason(behind).find("a line that this library cannot parse"), std::string::npos) << behind;
  }
}

TEST(MemoryMap, TakesRegionsThatBecameOneWhileTheListWasWritten) {
  EXPECT_EQ(reason("0-1800 rw-p 0 00:00 0 \n1000-4000 rw-p 0 00:00 0 \n"), "private");
  EXPECT_EQ(reason("0-5000 rw-p 0 00:00 0 \n4000-6000 rw-s 0 00:00 0 \n"), "private") << "what comes later has no part";
  EXPECT_EQ(reason("0-1800 rw-p 0 00:00 0 \n1000-4000 rw-s 0 00:00 0 \n"), "it is shared memory already");
  EXPECT_EQ(reason("0-1800 rw-p 0 00:00 0 \n1000-1900 rw-p 0 00:00 0 \n"), "part of it is not mapped");
}

/// Changes the access to some of its pages all the time, so that regions part and become one.
class RestlessMemory {
 public:
  RestlessMemory() : place_(static_cast<char*>(::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      for (std::size_t turn = 0; !stop.stop_requested(); ++turn) {
        constexpr std::size_t step = 7;  // has no common divisor with the number of pages
        const int access = turn / (bytes / page) % 2 == 0 ? PROT_READ | PROT_WRITE : PROT_READ;
        ::mprotect(place_ + turn * step * page % bytes, page, access);
      }
    });
  }
  ~RestlessMemory() {
    thread_ = {};
    ::munmap(place_, bytes);
  }
  RestlessMemory(const RestlessMemory&) = delete;
  RestlessMemory& operator=(const RestlessMemory&) = delete;

 private:
  static constexpr std::size_t bytes = 512 * page;
  char* place_;
  std::jthread thread_;
};

TEST(MemoryMap, IsReadWhileOtherThreadsChangeIt) {
  const RestlessMemory other;
  std::vector<char> memory(4 * page);
  for (int turn = 0; turn < 300; ++turn) {
    const auto maps = own_memory_map_with_flags();
    ASSERT_TRUE(maps);
    EXPECT_EQ(reason(*maps, reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()), "private");
  }
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
