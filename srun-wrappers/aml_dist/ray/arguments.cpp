#include "aml_dist/ray/arguments.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "aml_dist/ray/folder.hpp"
#include "base/text/text.hpp"

namespace amldist::ray {
namespace {

using launch::RayPort;
using text::concat;

struct OwnFlag {
  std::string_view name;
  std::string_view instead;
};
constexpr std::string_view no_port = "Ray's ports follow from the step's: use --aml-dist=ray,master_port=N";
constexpr std::array own_flags = {
    OwnFlag{"--head", "node 0 of the step is the head"},
    OwnFlag{"--block", "it is always there"},
    OwnFlag{"--address", "use --aml-dist=ray,master_addr=HOST"},
    OwnFlag{"--node-ip-address", "use --aml-dist=ray,master_addr=HOST"},
    OwnFlag{"--temp-dir", "use --temp-dir of aml-dist ray"},
    OwnFlag{"--include-dashboard", "use --dashboard of aml-dist ray"},
    OwnFlag{"--dashboard-port", "use --dashboard=PORT of aml-dist ray"},
    OwnFlag{"--port", no_port},
    OwnFlag{"--node-manager-port", no_port},
    OwnFlag{"--object-manager-port", no_port},
    OwnFlag{"--runtime-env-agent-port", no_port},
    OwnFlag{"--dashboard-agent-grpc-port", no_port},
    OwnFlag{"--dashboard-agent-listen-port", no_port},
    OwnFlag{"--metrics-export-port", no_port},
    OwnFlag{"--ray-client-server-port", no_port},
};

std::string_view flag_of(std::string_view word) { return word.substr(0, word.find('=')); }

/// Collects the words of one command line.
class Line {
 public:
  Line(std::vector<std::string> words, const std::vector<std::string>& users)
      : words_(std::move(words)), users_(users) {}

  void set(std::string_view flag, std::string_view value) { words_.push_back(concat({flag, "=", value})); }
  void set(std::string_view flag, std::uint64_t value) { set(flag, std::to_string(value)); }
  /// Unless the user names the flag.
  void offer(std::string_view flag, std::string_view value) {
    if (!users_name(flag)) set(flag, value);
  }
  void offer(std::string_view flag, std::uint64_t value) { offer(flag, std::to_string(value)); }
  [[nodiscard]] bool users_name(std::string_view flag) const {
    return std::ranges::any_of(users_, [&](const std::string& word) { return flag_of(word) == flag; });
  }
  [[nodiscard]] std::vector<std::string> take() {
    words_.insert(words_.end(), users_.begin(), users_.end());
    return std::move(words_);
  }

 private:
  std::vector<std::string> words_;
  const std::vector<std::string>& users_;
};

void add_ports(Line& line, const Place& place) {
  line.set("--node-manager-port", place.port(RayPort::node_manager));
  line.set("--object-manager-port", place.port(RayPort::object_manager));
  line.set("--runtime-env-agent-port", place.port(RayPort::runtime_env_agent));
  line.set("--dashboard-agent-grpc-port", place.port(RayPort::dashboard_agent_grpc));
  line.set("--dashboard-agent-listen-port", place.port(RayPort::dashboard_agent_http));
  line.set("--metrics-export-port", place.port(RayPort::metrics_export));
  if (line.users_name("--worker-port-list") || line.users_name("--min-worker-port")) return;
  line.set("--min-worker-port", 0);  // 0: the kernel chooses, so two workers never meet
  line.offer("--max-worker-port", 0);
}

void add_sizes(Line& line, const Resources& resources, const std::string& folder) {
  line.offer("--num-cpus", resources.cpus);
  line.offer("--num-gpus", resources.gpus);
  if (resources.memory > 0) line.offer("--memory", resources.memory);
  if (resources.object_store == 0 || line.users_name("--object-store-memory")) return;
  line.set("--object-store-memory", resources.object_store);
  if (resources.store_on_disk) line.offer("--plasma-directory", folder);
}

void add_head(Line& line, const Place& place, const Wishes& wishes, const std::string& folder) {
  line.set("--port", place.master_port);
  line.set("--ray-client-server-port", place.port(RayPort::client_server));
  line.set("--temp-dir", concat({folder, ray_subfolder}));
  const auto dashboard = dashboard_port(place, wishes);
  line.set("--include-dashboard", dashboard ? "true" : "false");
  if (!dashboard) return;
  line.offer("--dashboard-host", "127.0.0.1");
  line.set("--dashboard-port", *dashboard);
}

}  // namespace

Result<void> check_arguments(const std::vector<std::string>& arguments) {
  for (const std::string& word : arguments) {
    const auto* const found = std::ranges::find(own_flags, flag_of(word), &OwnFlag::name);
    if (found == own_flags.end()) continue;
    return Error{Errc::invalid_argument,
                 concat({"ray: aml-dist sets ", found->name, " of 'ray start' itself: ", found->instead})};
  }
  return {};
}

std::optional<std::uint16_t> dashboard_port(const Place& place, const Wishes& wishes) {
  return wishes.dashboard == 0 ? place.port(RayPort::dashboard) : wishes.dashboard;
}

std::vector<std::string> start_command(const Program& program, const Place& place, const Ipv4& own,
                                       const Resources& resources, const Wishes& wishes, const std::string& folder) {
  const bool head = place.is_head();
  Line line({program.path, "start", head ? "--head" : concat({"--address=", place.address()}), "--block",
             "--log-style=pretty", "--log-color=false"},
            head ? wishes.head_arguments : wishes.worker_arguments);
  line.set("--node-ip-address", own.to_string());
  add_ports(line, place);
  add_sizes(line, resources, folder);
  if (head) add_head(line, place, wishes, folder);
  return line.take();
}

}  // namespace amldist::ray
