// Where in a program's files an address is.
#include "trace/record/call_site.hpp"

#include <gtest/gtest.h>

namespace amldist::trace::call_site_test {
namespace {

constexpr std::string_view maps =
    "55d0c0000000-55d0c0001000 r--p 00000000 08:01 11 /home/user/solve\n"
    "55d0c0001000-55d0c0005000 r-xp 00001000 08:01 11 /home/user/solve\n"
    "55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0 [heap]\n"
    "7f0000000000-7f0000010000 r-xp 00000000 08:01 12 /usr/lib/x86_64-linux-gnu/libmpi_mpifh.so.40\n"
    "7f0000100000-7f0000110000 r-xp 00000000 08:01 13 /venv/mpi4py/MPI.cpython-311-x86_64-linux-gnu.so\n"
    "7f0000200000-7f0000210000 r-xp 00000000 08:01 14 /opt/a b/libf\xc3\xbc.so.1\n"
    "7f0000300000-7f0000310000 r-xp 00000000 00:00 0 [vdso]\n";

TEST(CallSite, IsAPlaceInAFile) {
  const auto code = find_code(maps, 0x55d0c0001234);
  ASSERT_TRUE(code);
  EXPECT_EQ(code->module, "/home/user/solve");
  EXPECT_EQ(code->offset, 0x1234U) << "from where the file begins, not this part of it";
  EXPECT_EQ(code->words(), "solve+0x1234");
  EXPECT_EQ(find_code(maps, 0x7f0000200010)->words(), "libf\\xc3\\xbc.so.1+0x10") << "safe for a terminal";
}

TEST(CallSite, IsNotToldWhereItSaysNothing) {
  for (const std::uint64_t address :
       {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{0x55d0c1000000},
        std::uint64_t{0x55d0c0005000}, std::uint64_t{0x7f0000300000}})
    EXPECT_FALSE(find_code(maps, address)) << address;
  EXPECT_FALSE(find_code(maps, 0x7f0000000010)) << "MPI itself: its Fortran calls its C";
  EXPECT_FALSE(find_code(maps, 0x7f0000100010)) << "a module of Python's";
}

TEST(CallSite, IsNoneInForgedMaps) {
  for (const std::string_view forged :
       {"", "\n\n", "-", "- /", "zz-10 r /a", "0-fffffffffffffffff r /a", "10 20-30 /a", "/", "5-1 /a"})
    EXPECT_FALSE(find_code(forged, 0x3)) << forged;
  EXPECT_TRUE(find_code("0-10 r-xp 0 0:0 1 /a", 0x3));
}

}  // namespace
}  // namespace amldist::trace::call_site_test
