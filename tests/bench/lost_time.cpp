// What faults cost a training: hours lost in a day under `aml-dist keep`, with a job that only goes back to the queue,
// and where somebody has to submit it again. A model; the decisions are those of keep's own table. What it assumes is
// below, and in docs/keep.md.
//   lost_time FILE.svg
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "aml_dist/bench/chart.hpp"
#include "aml_dist/common/files.hpp"
#include "aml_dist/keep/keep_policy.hpp"
#include "base/text/text.hpp"

namespace {

using namespace amldist;
using namespace amldist::keep;
using text::concat;

constexpr double minute = 60;
constexpr double hour = 3600;
constexpr double day = 24 * hour;

// ---- assumptions, in seconds unless said

constexpr double between_faults = 3 * hour;  // of 10,000 nodes, as Llama 3 had it on 16,384 GPUs (arXiv:2407.21783)
constexpr int all_nodes = 10000;
constexpr int spares = 20;
constexpr double launch = 60;           // srun, to the first line of the program
constexpr double load = 300;            // until the program computes again
constexpr double check = 30;            // aml-dist check, at most
constexpr double requeue_delay = 120;   // Slurm's: the life of a credential
constexpr double queue = 15 * minute;   // on average, for a job that has priority
constexpr double person = 2 * hour;     // on average, until somebody submits it again, nights included
constexpr double slurmd_timeout = 300;  // Slurm's default
constexpr double slow_timeout = 600;    // of a collective call, PyTorch's default for NCCL
constexpr double unnoticed = 0.5;       // of nodes with a broken device, those that Slurm gives the job again
enum class Fault { node_vanishes, device, software, hang };
constexpr std::array<double, 4> shares = {0.20, 0.58, 0.17, 0.05};
/// Until the step has ended: under keep, and without it.
constexpr std::array<double, 4> seen_by_keep = {10, 3, 3, 303};
constexpr std::array<double, 4> seen_without = {slurmd_timeout, 3, 3, slow_timeout};

// ----

struct Chance {
  std::mt19937_64 engine;
  double after(double mean) { return std::exponential_distribution<double>(1 / mean)(engine); }
  bool is(double probability) { return std::bernoulli_distribution(probability)(engine); }
  Fault fault() { return static_cast<Fault>(std::discrete_distribution<int>(shares.begin(), shares.end())(engine)); }
  std::string node(int nodes) {
    return concat({"n", std::to_string(std::uniform_int_distribution(0, nodes - 1)(engine))});
  }
};

/// Seconds from a fault until the program computes again.
class Way {
 public:
  virtual ~Way() = default;
  virtual double down(Fault fault, double ran, Chance& chance) = 0;
};

double from_the_queue(Chance& chance) { return requeue_delay + chance.after(queue) + launch + load; }

class OnlyRequeue : public Way {
 public:
  double down(Fault fault, double /*ran*/, Chance& chance) override {
    double out = seen_without.at(static_cast<std::size_t>(fault)) + from_the_queue(chance);
    while (fault == Fault::device && chance.is(unnoticed)) out += from_the_queue(chance);
    return out;
  }
};

class Nothing : public Way {
 public:
  double down(Fault fault, double /*ran*/, Chance& chance) override {
    return seen_without.at(static_cast<std::size_t>(fault)) + chance.after(person) + chance.after(queue) + launch +
           load;
  }
};

class Kept : public Way {
 public:
  Kept(int nodes, double checkpoint) : count_(nodes), checkpoint_(checkpoint) { begin(); }

  double down(Fault fault, double ran, Chance& chance) override {
    const std::string node = chance.node(count_);
    const bool of_node = fault == Fault::node_vanishes;
    Start start{.cause = of_node                ? Cause::node_down
                         : fault == Fault::hang ? Cause::hang
                                                : Cause::rank_exit,
                .node = node,
                .failure = concat({"failure ", std::to_string(chance.engine())}),
                .status = 1,
                .ran = static_cast<std::int64_t>(ran),
                .advanced = ran > checkpoint_};
    if (of_node) start.blamed = {node};
    history_.push_back(std::move(start));
    double out = seen_by_keep.at(static_cast<std::size_t>(fault)) + check + follow(history_, chance);
    const Start sick{.cause = Cause::node_unhealthy, .blamed = {node}, .status = 1, .ran = 60};
    if (fault == Fault::device) out += follow({&sick, 1}, chance);  // the check finds it
    return out + launch + load;
  }

 private:
  void begin() {
    nodes_ = {};
    for (int i = 0; i < count_; ++i) nodes_.step.push_back(concat({"n", std::to_string(i)}));
    for (int i = 0; i < spares; ++i) nodes_.spares.push_back(concat({"s", std::to_string(next_spare_++)}));
  }

  /// Seconds until the next start.
  double follow(std::span<const Start> history, Chance& chance) {
    const Decision decision = decide(limits_, history, nodes_);
    if (decision.action == Action::requeue) {
      begin();
      return from_the_queue(chance) - launch - load;
    }
    nodes_.step = without(nodes_, decision.excluded);
    nodes_.spares.resize(nodes_.spares.size() - decision.excluded.size());
    return static_cast<double>(decision.wait.count());
  }

  int count_;
  double checkpoint_;
  int next_spare_ = 0;
  Limits limits_ = {.retries = 10000, .requeue = true};
  Nodes nodes_;
  std::vector<Start> history_;
};

/// Hours lost in a day: those in which nothing computes, and those of work that is done again.
double lost(Way& way, int nodes, double checkpoint) {
  constexpr double length = 200 * day;
  Chance faults{std::mt19937_64(7)};  // the same ones for each way
  Chance rest{std::mt19937_64(8)};
  double now = 0;
  double useful = 0;
  while (now < length) {
    const double ran = faults.after(between_faults * all_nodes / nodes);
    useful += std::floor(ran / checkpoint) * checkpoint;
    now += ran + way.down(faults.fault(), ran, rest);
  }
  return 24 * (now - useful) / now;
}

struct Named {
  const char* name;
  std::unique_ptr<Way> (*make)(int nodes, double checkpoint);
};
constexpr std::array<Named, 3> ways = {{
    {"submitted again by somebody", [](int, double) -> std::unique_ptr<Way> { return std::make_unique<Nothing>(); }},
    {"back to the queue each time",
     [](int, double) -> std::unique_ptr<Way> { return std::make_unique<OnlyRequeue>(); }},
    {"aml-dist keep --spares 20 --requeue",
     [](int nodes, double checkpoint) -> std::unique_ptr<Way> { return std::make_unique<Kept>(nodes, checkpoint); }},
}};

std::string two_digits(double value) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), value < 1 ? "%.2f" : "%.1f", value);
  return digits.data();
}

/// Hours lost, by the values of one axis.
template <typename Lost>
tools::Chart chart_of(int left, const std::string& title, const std::string& axis, const std::vector<double>& values,
                      const Lost& lost_at) {
  tools::Axis x{axis, values.front(), values.back(), {}, true};
  std::vector<tools::Curve> curves;
  std::printf("%-36s", axis.c_str());
  for (const double value : values) {
    x.marks.push_back({value, tools::plain_number(value)});
    std::printf("%8s", tools::plain_number(value).c_str());
  }
  double least = 24;
  double most = 0;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    tools::Curve curve{ways.at(i).name, tools::curve_colour(i), {}, {}, false};
    std::printf("\n%-36s", ways.at(i).name);
    for (const double value : values) {
      const double hours = lost_at(ways.at(i), value);
      curve.points.push_back({value, hours});
      curve.labels.push_back(two_digits(hours));
      least = std::min(least, hours);
      most = std::max(most, hours);
      std::printf("%8.2f", hours);
    }
    curves.push_back(std::move(curve));
  }
  std::printf("\n\n");
  return {{left, tools::chart_top, tools::chart_width, tools::chart_height},
          title,
          std::move(x),
          most > 20 * least ? tools::decades("hours lost in a day", least, most)
                            : tools::from_zero("hours lost in a day", most),
          std::move(curves)};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: lost_time FILE.svg\n", stderr);
    return 2;
  }
  const auto by_checkpoint = chart_of(80, "10,000 nodes", "minutes between checkpoints", {5, 10, 20, 40, 80},
                                      [](const Named& way, double value) {
                                        return lost(*way.make(all_nodes, value * minute), all_nodes, value * minute);
                                      });
  const auto by_nodes = chart_of(616, "A checkpoint every 20 minutes", "nodes", {100, 300, 1000, 3000, 10000},
                                 [](const Named& way, double value) {
                                   const int nodes = static_cast<int>(value);
                                   return lost(*way.make(nodes, 20 * minute), nodes, 20 * minute);
                                 });
  tools::Svg svg;
  const std::string title = "What faults cost a training";
  svg.text(24, 38, title, {20, tools::ink, true});
  svg.text(24, 64, "Modelled: a fault every three hours on 10,000 nodes, in proportion on fewer",
           {14, tools::pale_ink});
  tools::draw_chart(svg, by_checkpoint);
  tools::draw_chart(svg, by_nodes);
  tools::draw_legend(svg, by_checkpoint.curves, 80, tools::page_height - 20);
  const auto written = tools::write_file(
      argv[1], svg.finish(tools::page_width, tools::page_height, title, tools::Scheme::light_and_dark));
  return written ? 0 : 1;
}
