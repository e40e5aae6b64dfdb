#include "aml_dist/ray/head.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "aml_dist/common/slurmstepd.hpp"
#include "aml_dist/ray/family.hpp"
#include "aml_dist/ray/folder.hpp"
#include "aml_dist/ray/interrupts.hpp"
#include "aml_dist/ray/local_ray.hpp"
#include "aml_dist/ray/peers.hpp"
#include "aml_dist/ray/surroundings.hpp"
#include "base/os/environment.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/terminal.hpp"

namespace amldist::ray {
namespace {

using commands::say;
using text::concat;

class Head {
 public:
  Head(const Place& place, const Options& options) : place_(place), options_(options) {}

  int run() {
    auto peers = Peers::open(place_);
    if (!peers) return commands::fail({Errc::unavailable, concat({"ray: ", place_.host, ": ", peers.error().message})});
    peers_.emplace(std::move(*peers));
    interrupts_.emplace();
    deadline_ = Clock::now() + options_.patience;
    if (auto status = start_ray(); !status) fail(of_head(status.error().message));
    while (!status_) {
      wait();
      take_signals();
      if (!status_) advance();
    }
    return finish();
  }

 private:
  [[nodiscard]] std::string of_head(std::string_view why) const { return concat({place_.host, ": ", why}); }

  Result<void> start_ray() {
    auto program = find_ray();
    if (!program) return program.error();
    program_ = std::move(*program);
    const auto path = folder_path(place_, options_.parent);
    if (!path) return path.error();
    auto folder = make_folder(*path);
    if (!folder) return folder.error();
    std::vector<std::string> notes;
    resources_ = choose_resources(read_machine(), process_environment(), notes);
    for (const std::string& note : notes) say(concat({"ray: ", of_head(note)}));
    const auto command = start_command(program_, place_, place_.head, resources_, options_.wishes, *path);
    auto ray = LocalRay::start(command, variables_of_ray(all_own_variables(), place_, program_), std::move(*folder));
    if (!ray) return ray.error();
    ray_.emplace(std::move(*ray));
    return leave_token();
  }

  /// For the dashboard's form, and whoever attaches from elsewhere.
  Result<void> leave_token() {
    const FileDescriptor file(::open(token_path().c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600));
    if (file && write_all(file.get(), token_of(place_))) return {};
    return Error{Errc::unavailable, concat({token_path(), " cannot be written: ", std::strerror(errno)})};
  }
  [[nodiscard]] std::string token_path() { return concat({ray_->folder().path(), "/token"}); }

  void wait() const {
    constexpr int tick = 200;  // ms
    std::vector<pollfd> files = {{interrupts_->descriptor(), POLLIN, 0}};
    peers_->add_to(files);
    static_cast<void>(::poll(files.data(), files.size(), tick));
    reap_orphans({ray_ ? ray_->id() : -1, driver_ ? driver_->id() : -1});
  }

  /// The driver hears every signal, and has time to end well.
  void take_signals() {
    while (const auto signal = interrupts_->next()) {
      if (driver_ && driver_has_own_group_) driver_->kill_group(*signal);
      if (!asks_to_end(*signal)) continue;
      if (!driver_) status_ = 128 + *signal;
      else if (!kill_at_) kill_at_ = Clock::now() + options_.grace;
    }
  }

  void advance() {
    if (slurmstepd_.has_ended()) return fail(of_head(lost_slurmstepd));
    if (auto status = peers_->serve(); !status) return fail(status.error().message);
    if (const auto stranger = other_version()) return fail(*stranger);
    if (const auto why = ray_->end()) return fail(of_head(*why));
    if (driver_) return watch_driver();
    if (!ray_->has_joined()) return check_deadline(of_head("Ray does not come up"));
    peers_->start_present();
    if (!peers_->are_complete()) return check_deadline(peers_->missing(place_));
    start_driver();
  }

  void check_deadline(const std::string& missing) {
    if (Clock::now() < deadline_) return;
    fail(concat({missing, " (after ", std::to_string(options_.patience.count()), " s; --wait=SECONDS)"}));
  }

  [[nodiscard]] std::optional<std::string> other_version() {
    for (std::uint32_t node = 1; node < place_.nodes; ++node) {
      const Peers::Peer& each = peers_->all()[node];
      const bool came = each.state == Peers::Peer::State::present;
      if (!came || program_.fits(each.introduction.program)) continue;
      peers_->refuse(node);
      return concat({each.host, " has ", each.introduction.program.to_string(), " but the head, ", place_.host,
                     ", has ", program_.to_string(), ": give all nodes one environment"});
    }
    return std::nullopt;
  }

  void start_driver() {
    say_what_there_is();
    driver_has_own_group_ = ::isatty(STDIN_FILENO) == 0;  // one in the background could not read the terminal
    auto driver = start(
        {options_.command, variables_of_driver(all_own_variables(), place_, program_), -1, driver_has_own_group_});
    if (!driver) return fail(driver.error().message);
    driver_.emplace(std::move(*driver));
  }

  void say_what_there_is() {
    std::uint64_t cpus = resources_.cpus;
    std::uint64_t gpus = resources_.gpus;
    std::uint64_t store = resources_.object_store;
    for (const Peers::Peer& each : peers_->all()) {
      if (each.host.empty()) continue;
      cpus += each.introduction.resources.cpus;
      gpus += each.introduction.resources.gpus;
      store += each.introduction.resources.object_store;
    }
    say(concat({"ray: ", program_.to_string(), " on ", text::count(place_.nodes, "node"), " at ", place_.address(),
                ": ", text::count(cpus, "CPU"), ", ", text::count(gpus, "GPU"), ", ", in_words(store),
                " for objects"}));
    if (cpus == place_.nodes && ::sysconf(_SC_NPROCESSORS_ONLN) > 1) {
      say("ray: the step has one CPU on each node: use srun --cpus-per-task=N for more");
    }
    if (!has_token()) {
      say(
          concat({"ray: no token keeps others out of this cluster (Ray has one since 2.52, unless RAY_AUTH_MODE is "
                  "disabled): whoever reaches ",
                  place_.address(), " can run programs as you"}));
    }
    if (const auto port = dashboard_port(place_, options_.wishes)) say_dashboard(std::to_string(*port));
  }

  [[nodiscard]] bool has_token() const {
    const bool is_switched_off = process_environment()("RAY_AUTH_MODE") == "disabled";
    return program_.has_tokens() && !token_of(place_).empty() && !is_switched_off;
  }

  void say_dashboard(const std::string& port) {
    say(concat({"ray: dashboard: ssh -L ", port, ":127.0.0.1:", port, " ", place_.host,
                ", then http://127.0.0.1:", port,
                has_token() ? concat({" (its token is in ", token_path(), " on ", place_.host, ")"}) : std::string()}));
  }

  void watch_driver() {
    if (const auto status = driver_->poll()) status_ = *status;
    else if (kill_at_ && Clock::now() >= *kill_at_) driver_->kill(SIGKILL);
  }

  void fail(const std::string& sentence) {
    say(concat({"ray: ", sentence}));
    has_failed_ = true;
    status_ = commands::exit_failed;
  }

  int finish() {
    constexpr auto grace = std::chrono::seconds(2);
    constexpr auto patience = std::chrono::seconds(10);
    const bool is_orphan = slurmstepd_.has_ended();
    if (has_failed_ && driver_) end_driver();
    if (is_orphan) peers_->give_up(of_head(lost_slurmstepd));
    peers_->end(patience, has_failed_);
    if (const std::string hosts = peers_->present(); !hosts.empty()) {
      say(concat({"ray: ", hosts, ": aml-dist ray has not ended within ", std::to_string(patience.count()),
                  " s: if it is stopped, scancel ", place_.step, " ends the step"}));
    }
    end_family(grace);
    if (is_orphan) tools::cancel_step(place_.step);
    if (ray_ && *status_ != 0 && options_.keep_on_failure) {
      ray_->folder().keep();
      say(concat({"ray: the folder of Ray on ", place_.host, " is kept: ", ray_->folder().path()}));
    }
    return *status_;
  }

  /// Its cluster is no more whole.
  void end_driver() {
    constexpr auto patience = std::chrono::seconds(5);
    driver_->kill(SIGTERM);
    if (!driver_->wait_until(Clock::now() + patience)) driver_->kill(SIGKILL);
  }

  const Place& place_;
  const Options& options_;
  Program program_;
  Resources resources_;
  tools::Slurmstepd slurmstepd_;
  std::optional<Peers> peers_;
  std::optional<Interrupts> interrupts_;
  std::optional<LocalRay> ray_;
  std::optional<ChildProcess> driver_;
  bool driver_has_own_group_ = true;
  Clock::time_point deadline_;
  std::optional<Clock::time_point> kill_at_;
  bool has_failed_ = false;
  std::optional<int> status_;
};

}  // namespace

int run_head(const Place& place, const Options& options) { return Head(place, options).run(); }

}  // namespace amldist::ray
