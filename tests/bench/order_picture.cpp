// The order of 1,024 hosts before and after order=topology, on synthetic fabrics: each rank's leaf switch or block.
//   order_picture FILE.svg
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "aml_dist/common/files.hpp"
#include "base/text/text.hpp"
#include "launch/placement/network_topology.hpp"
#include "shared/svg.hpp"

namespace {

using namespace amldist;
using text::concat;
using Hosts = std::vector<std::string>;

constexpr int all = 1024;

struct Fabric {
  std::string title;
  std::string topology;   ///< as scontrol prints it
  Hosts hosts;            ///< as Slurm orders those of a step
  std::vector<int> leaf;  ///< of host n0, n1, ...
  int leaves;
};

std::string name_of(int host) { return concat({"n", std::to_string(host)}); }

/// Leaves of so many hosts, below spines of eight leaves, or blocks.
Fabric fabric(std::string title, bool blocks, int leaves, const std::vector<int>& leaf, Hosts hosts) {
  Fabric out{std::move(title), {}, std::move(hosts), leaf, leaves};
  constexpr int of_spine = 8;
  std::string top;
  for (int spine = 0; spine * of_spine < leaves; ++spine) {
    std::string below;
    for (int i = spine * of_spine; i < std::min(leaves, (spine + 1) * of_spine); ++i) {
      std::string nodes;
      for (int host = 0; host < all; ++host) {
        if (leaf[static_cast<std::size_t>(host)] == i) nodes += concat({nodes.empty() ? "" : ",", name_of(host)});
      }
      out.topology += blocks ? concat({"BlockName=b", std::to_string(i), " Nodes=", nodes, "\n"})
                             : concat({"SwitchName=l", std::to_string(i), " Level=0 Nodes=", nodes, "\n"});
      below += concat({below.empty() ? "" : ",", nodes});
    }
    out.topology += blocks ? concat({"AggregatedBlock=b", std::to_string(spine), " Nodes=", below, "\n"})
                           : concat({"SwitchName=s", std::to_string(spine), " Level=1 Nodes=", below, "\n"});
    top += concat({top.empty() ? "" : ",", below});
  }
  if (!blocks) out.topology += concat({"SwitchName=top Level=2 Nodes=", top, "\n"});
  return out;
}

/// A line through all hosts: across their order, down the leaf of each.
void draw_order(tools::Svg& svg, const Fabric& fabric, const Hosts& hosts, tools::Point corner,
                const std::string& words) {
  constexpr double width = 460;
  constexpr double height = 190;
  svg.text(static_cast<int>(corner.x), static_cast<int>(corner.y) - 10, words, {13, tools::pale_ink});
  svg.frame(corner, width, height, {tools::grid_ink, 1});
  std::vector<tools::Point> points;
  for (std::size_t place = 0; place < hosts.size(); ++place) {
    const int leaf = fabric.leaf.at(std::stoul(hosts[place].substr(1)));
    points.push_back({std::round(corner.x + (static_cast<double>(place) + 0.5) * width / all),
                      std::round(corner.y + (leaf + 0.5) * height / fabric.leaves)});
  }
  constexpr double thin = 0.7;
  svg.line(points, {"#4a7fb5", thin});
}

std::vector<Fabric> fabrics() {
  Hosts by_name;
  std::vector<int> in_turn;
  std::vector<int> shuffled;
  std::mt19937 random(43);  // NOLINT(cert-msc51-cpp): the same picture each time
  for (int host = 0; host < all; ++host) {
    by_name.push_back(name_of(host));
    in_turn.push_back(host % 32);
    shuffled.push_back(host / 16);
  }
  std::ranges::shuffle(shuffled, random);
  return {fabric("Tree: 32 leaf switches below 4 spines, the hosts connected in turn", false, 32, in_turn, by_name),
          fabric("Blocks of 16, hosts in no order", true, 64, shuffled, by_name)};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: order_picture FILE.svg\n", stderr);
    return 2;
  }
  tools::Svg svg;
  constexpr int of_fabric = 270;
  int top = 60;
  svg.text(24, 36, "1,024 hosts by name, and along the switches (order=topology)", {20, tools::ink, true});
  for (const Fabric& each : fabrics()) {
    const auto network = launch::NetworkTopology::parse(each.topology);
    if (!network) {
      std::fprintf(stderr, "order_picture: %s\n", network.error().message.c_str());
      return 1;
    }
    const Hosts after = network->in_order(each.hosts);
    svg.text(24, top + 14, each.title, {14, tools::ink, true});
    double left = 24;
    for (const auto& [hosts, what] : {std::pair(&each.hosts, "by name: "), std::pair(&after, "along the switches: ")}) {
      const std::string words =
          concat({what, std::to_string(network->hops_along(*hosts)), " links between neighbours"});
      std::printf("%s; %s\n", each.title.c_str(), words.c_str());
      draw_order(svg, each, *hosts, {left, top + 46.0}, words);
      left += 500;
    }
    top += of_fabric;
  }
  svg.text(24, top + 4, "Across: the order of the ranks. Down: each host's leaf switch or block.",
           {12, tools::pale_ink});
  const auto written =
      tools::write_file(argv[1], svg.finish(1008, top + 24, "Hosts along the switches", tools::Scheme::light_and_dark));
  return written ? 0 : 1;
}
