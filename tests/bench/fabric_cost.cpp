// What verifying the fabric costs: a node with 16 devices against the limit of 100 ms and against bare reads of the
// same files, and rounds of an exchange of up to 1,024 nodes.
//
//   fabric_cost [--rounds N]
//
// The node's files lie in a memory file system, so the kernel's own time for `state` and `rate`, which ask the card, is
// not in it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/text/text.hpp"
#include "fabric/between_nodes/node_exchange.hpp"
#include "fabric/checks/checks.hpp"

namespace {

namespace fs = std::filesystem;
namespace fabric = amldist::fabric;
using Clock = std::chrono::steady_clock;

constexpr int devices = 16;
constexpr int gids = 256;
constexpr int pkeys = 128;

void write(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text << '\n';
}

void write_device(const fs::path& root, int index) {
  const fs::path own = root / "class/infiniband" / ("mlx5_" + std::to_string(index));
  const fs::path port = own / "ports/1";
  write(own / "fw_ver", "28.41.1000");
  write(own / "board_id", "MSF0000000010");
  write(own / "hca_type", "MT4129");
  write(own / "node_guid", "0015:5dff:fe33:ff0" + std::to_string(index % 10));
  write(port / "state", "4: ACTIVE");
  write(port / "phys_state", "5: LinkUp");
  write(port / "link_layer", "InfiniBand");
  write(port / "rate", "400 Gb/sec (4X NDR)");
  write(port / "lid", "0x1");
  write(port / "sm_lid", "0x1");
  for (int i = 0; i < pkeys; ++i) write(port / "pkeys" / std::to_string(i), i == 0 ? "0x8018" : "0x0000");
  for (int i = 0; i < gids; ++i) {
    write(port / "gids" / std::to_string(i),
          i == 0 ? "fe80:0000:0000:0000:0015:5dff:fe33:ff00" : "0000:0000:0000:0000:0000:0000:0000:0000");
  }
  for (const char* const name : {"symbol_error", "link_downed", "port_rcv_errors"})
    write(port / "counters" / name, "0");
}

template <typename Work>
std::vector<double> milliseconds(int rounds, Work work) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto began = Clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
  }
  std::ranges::sort(times);
  return times;
}

double median(const std::vector<double>& sorted) { return sorted.at(sorted.size() / 2); }

/// Opens, reads and closes the same files, and nothing else.
void read_bare(const std::vector<std::string>& files) {
  std::array<char, 4096> buffer{};
  for (const std::string& file : files) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    while (::read(descriptor, buffer.data(), buffer.size()) > 0) {
    }
    ::close(descriptor);
  }
}

/// One verification reads 32 unused table entries before it gives up; count the files that it opens.
std::vector<std::string> files_read(const fs::path& root) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    const auto index = amldist::text::to_number(entry.path().filename().string(), 65535);
    if (!index || *index <= 32) files.push_back(entry.path().string());
  }
  return files;
}

void measure_node(int rounds) {
  std::string pattern = "/dev/shm/aml-dist-bench-XXXXXX";
  const char* const made = ::mkdtemp(pattern.data());
  if (made == nullptr) return;
  const fs::path root = made;
  for (int i = 0; i < devices; ++i) write_device(root, i);
  const auto files = files_read(root);
  fabric::CheckRequest request;
  request.policy = amldist::RdmaPolicy::require;
  std::vector<double> own;
  std::vector<double> bare;
  for (int i = 0; i < rounds; ++i) {  // interleaved
    bare.push_back(milliseconds(1, [&] { read_bare(files); }).front());
    own.push_back(milliseconds(1, [&] {
                    const auto node = fabric::read_node(fabric::Roots::from_options(root.string(), ""));
                    if (verify_node(node, request, {}).verdict() != fabric::Verdict::pass) std::abort();
                  }).front());
  }
  std::ranges::sort(own);
  std::ranges::sort(bare);
  std::printf("node verification, %d devices, %zu files read\n", devices, files.size());
  std::printf("  verification   median %7.2f ms   worst %7.2f ms   goal 100 ms: %s\n", median(own), own.back(),
              own.back() <= 100 ? "kept" : "MISSED");
  std::printf("  bare reads     median %7.2f ms   ratio %.2f\n", median(bare), median(own) / median(bare));
  fs::remove_all(root);
}

/// All nodes of an exchange as threads of this process: the time of a round as node 0 sees it.
void measure_exchange(std::uint32_t nodes) {
  const auto port = static_cast<std::uint16_t>(30000 + nodes % 1000);
  const auto place = [&](std::uint32_t node) { return fabric::NodePlace{"127.0.0.1", port, "1.0", node, nodes}; };
  const auto host = fabric::NodeExchangeServer::open(place(0), std::chrono::seconds(60));
  if (!host) {
    std::printf("exchange of %u nodes: %s\n", nodes, host.error().message.c_str());
    return;
  }
  constexpr int rounds = 4;
  const std::string endpoints(1500, 'x');  // 8 devices, two ends each
  const auto began = Clock::now();
  std::vector<std::thread> threads;
  std::vector<double> times;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    threads.emplace_back([&, node] {
      auto exchange = fabric::NodeExchange::join(place(node), std::chrono::seconds(60));
      for (int i = 0; exchange && i < rounds; ++i) {
        const auto start = Clock::now();
        if (!exchange->round({false, {(node + 1) % nodes, (node + nodes - 1) % nodes}}, endpoints)) return;
        if (node == 0) times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
      }
    });
  }
  for (std::thread& each : threads) each.join();
  const double whole = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  if (times.size() != rounds) {
    std::printf("exchange of %u nodes did not come to its end\n", nodes);
    return;
  }
  std::printf("  %5u nodes     a round %7.1f ms   %d rounds with joining %8.1f ms   per node %.3f ms\n", nodes,
              *std::ranges::min_element(times), rounds, whole, whole / nodes);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc == 3 && std::string_view(argv[1]) == "--rounds" ? std::max(3, std::atoi(argv[2])) : 31;
  measure_node(rounds);
  std::printf("exchange, all nodes on this machine: a ring of writes takes 3 rounds, the comparison 2\n");
  for (const std::uint32_t nodes : {4U, 64U, 256U, 1024U}) measure_exchange(nodes);
  return 0;
}
