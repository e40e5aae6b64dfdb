// What the codes of AMLDIST_INTEGRITY cost: one core's rate for each, beside copying the same bytes, in the same run.
//
//   message_code_cost [ROUNDS]
//
// Prints a line for each size of message: microseconds of a copy, of `crc` and of `mac` (median of the rounds, which
// take turns), and their rates in GB/s.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/time/clock.hpp"
#include "world/wireup/message_code.hpp"

namespace amldist {
namespace {

using world::MessageCodes;

template <typename Body>
double microseconds_of(std::size_t repeats, Body body) {
  const auto start = Clock::now();
  for (std::size_t i = 0; i < repeats; ++i) body();
  const std::chrono::duration<double, std::micro> taken = Clock::now() - start;
  return taken.count() / static_cast<double>(repeats);
}

double median(std::vector<double>& values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void measure(std::size_t bytes, int rounds) {
  const std::vector<std::byte> data(bytes, std::byte{0x5a});
  std::vector<std::byte> copy(bytes);
  const std::array<std::byte, 16> header{};
  const world::Key key = world::Key::from_secret("benchmark");
  MessageCodes crc(world::Integrity::crc, key);
  MessageCodes mac(world::Integrity::mac, key);
  std::vector<double> of_copy;
  std::vector<double> of_crc;
  std::vector<double> of_mac;
  unsigned kept = 0;  // so that nothing is optimised away
  const std::size_t repeats = std::max<std::size_t>(1, (std::size_t{1} << 22) / bytes);
  for (int round = 0; round < rounds; ++round) {
    of_copy.push_back(microseconds_of(repeats, [&] {
      std::memcpy(copy.data(), data.data(), bytes);
      kept += static_cast<unsigned>(copy[kept % bytes]);
    }));
    of_crc.push_back(microseconds_of(repeats, [&] { kept += static_cast<unsigned>(crc.next(header, data)[0]); }));
    of_mac.push_back(microseconds_of(repeats, [&] { kept += static_cast<unsigned>(mac.next(header, data)[0]); }));
  }
  const auto rate = [bytes](double microseconds) { return static_cast<double>(bytes) / microseconds / 1000; };
  const double a = median(of_copy);
  const double b = median(of_crc);
  const double c = median(of_mac);
  std::printf("%9zu B: copy %8.2f us, crc %8.2f us, mac %8.2f us; GB/s: copy %6.2f, crc %6.2f, mac %6.2f (%u)\n", bytes,
              a, b, c, rate(a), rate(b), rate(c), kept & 1U);
}

}  // namespace
}  // namespace amldist

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 21;
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{1} << 10, std::size_t{64} << 10, std::size_t{1} << 20}) {
    amldist::measure(bytes, rounds);
  }
}
