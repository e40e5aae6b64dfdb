#include "aml_dist/check/fabric_svg.hpp"

#include <algorithm>
#include <array>

#include "base/text/text.hpp"
#include "shared/svg.hpp"

namespace amldist::tools {
namespace {

using fabric::NodeSummary;
using fabric::PairResult;
using fabric::PortSummary;
using fabric::Verdict;
using text::concat;

constexpr std::size_t most_drawn_nodes = 16;
constexpr std::size_t most_ports = 16;
constexpr int fabric_margin = 20;
constexpr int title_height = 56;
constexpr int port_height = 24;
constexpr int head_height = 30;
constexpr int fabric_gap = 14;
constexpr int node_width = 330;
constexpr int fabric_left = fabric_margin + node_width + 200;
constexpr int fabric_width = 90;
constexpr int fabric_page_width = fabric_left + fabric_width + 120;

constexpr std::string_view fail_red = "#c81e1e";
constexpr std::string_view pass_green = "#2f855a";
constexpr std::string_view skip_grey = "#64748b";

std::string_view fill_of(Verdict verdict) {
  if (verdict == Verdict::fail) return fail_red;
  if (verdict == Verdict::warn) return "#b7791f";
  return verdict == Verdict::pass ? pass_green : skip_grey;
}

/// The data of a picture, for a node and for a step alike.
struct Picture {
  std::string title;
  Verdict verdict = Verdict::skip;
  std::vector<NodeSummary> nodes;
  std::vector<PairResult> pairs;
  launch::RdmaPolicy policy = launch::RdmaPolicy::prefer;
  std::vector<std::string> captions = {};  ///< the faults between the nodes
};

bool is_sick(const NodeSummary& node) {
  return !node.verified ||
         std::ranges::any_of(node.checks, [](const auto& each) { return each.verdict == Verdict::fail; });
}

int height_of(const NodeSummary& node) {
  return head_height +
         port_height * static_cast<int>(std::max<std::size_t>(1, std::min(node.ports.size(), most_ports))) + 8;
}

/// The first failing check, as a caption.
std::string caption_of(const NodeSummary& node) {
  for (const fabric::Check& check : node.checks) {
    if (check.verdict == Verdict::fail) return concat({check.id, ": ", check.evidence});
  }
  return node.verified ? "verified" : "nothing to verify";
}

std::string shortened(std::string_view text, std::size_t most) {
  return text.size() <= most ? std::string(text) : concat({text.substr(0, most - 3), "..."});
}

class Drawing {
 public:
  explicit Drawing(Picture picture) : picture_(std::move(picture)) {
    if (picture_.nodes.size() > most_drawn_nodes) {
      std::stable_partition(picture_.nodes.begin(), picture_.nodes.end(), is_sick);
      left_out_ = picture_.nodes.size() - most_drawn_nodes;
      picture_.nodes.resize(most_drawn_nodes);
    }
  }

  std::string draw() {
    int y = title_height;
    for (const NodeSummary& node : picture_.nodes) y += height_of(node) + fabric_gap;
    const int bottom = y;
    draw_title();
    y = title_height;
    const int middle = (title_height + bottom - fabric_gap) / 2;
    for (const NodeSummary& node : picture_.nodes) {
      draw_node(node, y, middle);
      y += height_of(node) + fabric_gap;
    }
    draw_fabric_box(bottom - fabric_gap);
    const int end = draw_failures(bottom + 8);
    return svg_.finish(fabric_page_width, end + fabric_margin, picture_.title);
  }

 private:
  void draw_title() {
    svg_.text(fabric_margin, 26, picture_.title, {16, "#1f2933", true});
    svg_.text(fabric_margin, 46,
              concat({to_string(picture_.verdict), ", policy ", to_string(picture_.policy),
                      left_out_ > 0 ? concat({"; ", std::to_string(left_out_), " more nodes are not drawn"}) : ""}),
              {13, fill_of(picture_.verdict), true});
  }

  void draw_node(const NodeSummary& node, int top, int middle) {
    const bool sick = is_sick(node);
    svg_.open_group(caption_of(node));
    svg_.rectangle({fabric_margin, top, node_width, height_of(node)}, sick ? "#fdf2f2" : "#f5f7fa",
                   sick ? fail_red : "#cbd5e0");
    svg_.text(fabric_margin + 12, top + 20, node.host, {14, sick ? fail_red : "#1f2933", true});
    if (node.ports.empty()) svg_.text(fabric_margin + 20, top + head_height + 16, "no port", {12, skip_grey});
    int y = top + head_height;
    for (std::size_t i = 0; i < std::min(node.ports.size(), most_ports); ++i) {
      draw_port(node.ports[i], y, middle);
      y += port_height;
    }
    svg_.close_group();
  }

  void draw_port(const PortSummary& port, int y, int middle) {
    svg_.rectangle({fabric_margin + 12, y, node_width - 24, port_height - 4}, port.sick ? "#fbd5d5" : "#e6f4ec");
    svg_.text(fabric_margin + 20, y + 15, port.name, {12, port.sick ? fail_red : "#1f2933"});
    svg_.text(fabric_margin + node_width - 20, y + 15, port.text,
              {12, port.sick ? fail_red : skip_grey, false, TextStyle::Anchor::end});
    const int target = middle + (y - middle) / 3;
    const std::array<Point, 2> link = {
        {{fabric_margin + node_width - 12.0, y + 10.0}, {fabric_left, static_cast<double>(target)}}};
    svg_.line(link, {port.sick ? fail_red : pass_green, port.sick ? 3.0 : 1.0});
  }

  void draw_fabric_box(int bottom) {
    const int top = title_height + (bottom - title_height) / 4;
    const int height = std::max(40, (bottom - title_height) / 2);
    svg_.rectangle({fabric_left, top, fabric_width, height}, "#e2e8f0", skip_grey);
    svg_.text(fabric_left + fabric_width / 2, top + height / 2 + 5, "fabric",
              {14, "#1f2933", true, TextStyle::Anchor::middle});
  }

  /// Captions below the picture: which checks failed on which node, and between which nodes no bytes arrive.
  int draw_failures(int y) {
    std::vector<std::string> lines;
    for (const NodeSummary& node : picture_.nodes) {
      for (const fabric::Check& check : node.checks) {
        if (check.verdict == Verdict::fail) lines.push_back(concat({node.host, ": ", check.id, ": ", check.evidence}));
      }
    }
    for (const PairResult& each : picture_.pairs) {
      if (each.problem.empty()) continue;
      lines.push_back(
          concat({name_of(each.from), " -> ", name_of(each.to), " over ", each.device, ": ", each.problem}));
    }
    lines.insert(lines.end(), picture_.captions.begin(), picture_.captions.end());
    constexpr std::size_t most_lines = 12;
    constexpr std::size_t longest_line = 104;
    const std::size_t shown = std::min(lines.size(), most_lines);
    for (std::size_t i = 0; i < shown; ++i)
      svg_.text(fabric_margin, y += 18, shortened(lines[i], longest_line), {12, fail_red});
    if (lines.size() > shown) {
      svg_.text(fabric_margin, y += 18, concat({"and ", std::to_string(lines.size() - shown), " more"}),
                {12, fail_red});
    }
    return y;
  }

  [[nodiscard]] std::string name_of(std::uint32_t node) const {
    return node < picture_.nodes.size() && left_out_ == 0 ? picture_.nodes[node].host
                                                          : concat({"node ", std::to_string(node)});
  }

  Picture picture_;
  std::size_t left_out_ = 0;
  Svg svg_;
};

}  // namespace

std::string draw_fabric(const NodeVerification& node) {
  return Drawing({concat({"RDMA of ", node.host}), node.report.verdict(), {node.summary}, {}, node.report.policy})
      .draw();
}

std::string draw_fabric(const StepReport& step) {
  Picture picture{concat({"RDMA of ", text::count(step.nodes.size(), "node")}), step.report.verdict(), step.nodes,
                  step.pairs, step.report.policy};
  for (const fabric::SlowPart& part : step.slow) {
    if (part.node >= picture.nodes.size()) continue;
    for (PortSummary& port : picture.nodes[part.node].ports) {
      port.sick = port.sick || part.device.empty() || part.device == port.name;
    }
  }
  for (const fabric::Check& check : step.report.checks) {
    if (check.id == "ib.bandwidth" && check.verdict == Verdict::fail) {
      picture.captions.push_back(concat({check.id, ": ", check.evidence}));
    }
  }
  return Drawing(std::move(picture)).draw();
}

}  // namespace amldist::tools
