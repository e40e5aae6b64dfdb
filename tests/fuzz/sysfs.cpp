// sysfs of a node with one device, as slurmstepd reads it where rdma= asks for verification. sysfs is the kernel's, but
// drivers put what they like into it, and a container may bring a tree of its own.
//
// Input: lines; the first byte of each chooses the attribute, the rest is its content.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/os/file_descriptor.hpp"
#include "fabric/checks/checks.hpp"
#include "fabric/sku/sku_table.hpp"
#include "fuzz.hpp"

namespace amldist::fuzz::sysfs {
namespace {

namespace fs = std::filesystem;

struct File {
  const char* path;  ///< below class/infiniband/mlx5_0
  std::string_view healthy;
};
constexpr std::array files = {
    File{"ports/1/state", "4: ACTIVE\n"},
    File{"ports/1/phys_state", "5: LinkUp\n"},
    File{"ports/1/link_layer", "InfiniBand\n"},
    File{"ports/1/rate", "400 Gb/sec (4X NDR)\n"},
    File{"ports/1/lid", "0x1\n"},
    File{"ports/1/sm_lid", "0x2\n"},
    File{"ports/1/pkeys/0", "0xffff\n"},
    File{"ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n"},
    File{"ports/1/gid_attrs/types/0", "RoCE v2\n"},
    File{"ports/1/gid_attrs/ndevs/0", "eth0\n"},
    File{"ports/1/counters/link_downed", "0\n"},
    File{"ports/1/counters/symbol_error", "0\n"},
    File{"fw_ver", "28.39.1002\n"},
    File{"board_id", "MT_0000000838\n"},
    File{"hca_type", "MT4129\n"},
    File{"node_guid", "0011:2233:4455:6677\n"},
};

/// A tree of this process's own, whose files are written anew for each input.
class Tree {
 public:
  Tree() {
    std::string pattern = "/dev/shm/amldist-fuzz-XXXXXX";  // ext4 waits for the disk at every O_TRUNC
    root_ = ::mkdtemp(pattern.data());
    for (const File& file : files) fs::create_directories(place(file).parent_path());
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  ~Tree() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  void write(const File& file, std::string_view content) const {
    const FileDescriptor out(::open(place(file).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    require(out && ::write(out.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()),
            "the tree can be written");
  }
  [[nodiscard]] const std::string& root() const noexcept { return root_; }

 private:
  [[nodiscard]] fs::path place(const File& file) const {
    return fs::path(root_) / "class/infiniband/mlx5_0" / file.path;
  }
  std::string root_;
};

void require_line(const std::string& text) {
  require(std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; }), "a report is printable ASCII");
}

}  // namespace

const std::string_view separator = "\n";

void try_input(std::string_view input) {
  static const Tree tree;
  std::array<std::string_view, files.size()> contents;
  for (std::size_t i = 0; i < files.size(); ++i) contents[i] = files[i].healthy;
  for (Input lines(input); !lines.ended();) {
    Input line(lines.line());
    contents[line.byte() % files.size()] = line.rest();
  }
  for (std::size_t i = 0; i < files.size(); ++i) tree.write(files[i], contents[i]);
  fabric::CheckRequest request;
  request.policy = launch::RdmaPolicy::require;
  constexpr std::size_t most_bytes = std::size_t{16} << 20;
  const auto report = within(most_bytes, [&] {
    return verify_node(fabric::read_node(fabric::Roots::from_options(tree.root(), "")), request, {});
  });
  for (const fabric::Check& check : report.checks) {
    require_line(check.evidence);
    require_line(check.remedy);
  }
}

}  // namespace amldist::fuzz::sysfs
