#include "aml_dist/ray/worker.hpp"

#include <poll.h>

#include <array>
#include <optional>
#include <thread>

#include "aml_dist/common/slurmstepd.hpp"
#include "aml_dist/ray/family.hpp"
#include "aml_dist/ray/folder.hpp"
#include "aml_dist/ray/interrupts.hpp"
#include "aml_dist/ray/local_ray.hpp"
#include "aml_dist/ray/meeting.hpp"
#include "aml_dist/ray/surroundings.hpp"
#include "base/net/own_network.hpp"
#include "base/net/socket.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/terminal.hpp"
#include "world/wireup/joiner.hpp"

namespace amldist::ray {
namespace {

using commands::say;
using text::concat;
using world::Frame;
using world::FrameReader;

class Worker {
 public:
  Worker(const Place& place, const Options& options) : place_(place), options_(options) {}

  int run() {
    introduce();
    if (auto status = meet(); !status) {
      say(concat({"ray: ", place_.host, " cannot reach the head: ", status.error().message}));
      return commands::exit_failed;
    }
    interrupts_.emplace();
    while (!status_) {
      wait();
      take_signals();
      if (!status_) hear();
      if (!status_) watch();
    }
    return finish();
  }

 private:
  void introduce() {
    auto program = find_ray();
    if (program) me_.program = std::move(*program);
    else me_.problem = program.error().message;
    me_.resources = choose_resources(read_machine(), process_environment(), notes_);
  }

  Result<void> meet() {
    const world::Destination head = {
        [this](Clock::time_point /*deadline*/) {
          return Result<std::vector<Endpoint>>({{place_.head.to_string(), place_.port(launch::RayPort::meeting)}});
        },
        concat({"node 0 (", place_.head.to_string(), ", port ", std::to_string(place_.port(launch::RayPort::meeting)),
                ")"}),
        ": does a firewall stand between, or has aml-dist ray ended there?"};
    const world::JoinRequest join_request = {group_name(place_),     place_.node, place_.nodes,
                                             world::random_number(), place_.host, {}};
    world::FrameWriter frame = join_request.to_frame();
    me_.add_to(frame);
    auto joined =
        world::join(head, frame.take(), {place_.credentials, group_name(place_)}, Clock::now() + options_.patience);
    if (!joined) return joined.error();
    head_ = std::move(joined->link);
    watch_connection(head_);
    return {};
  }

  void wait() const {
    constexpr int tick = 200;  // ms
    std::array<pollfd, 2> files = {{{head_.get(), POLLIN, 0}, {interrupts_->descriptor(), POLLIN, 0}}};
    static_cast<void>(::poll(files.data(), files.size(), tick));
    reap_orphans({ray_ ? ray_->id() : -1});
  }

  /// The head hears of it too and ends the step when its driver has ended; it has time for that.
  void take_signals() {
    while (const auto signal = interrupts_->next()) {
      if (asks_to_end(*signal) && !deadline_) {
        deadline_ = Clock::now() + options_.grace;
        status_by_signal_ = 128 + *signal;
      }
    }
    if (deadline_ && Clock::now() >= *deadline_) status_ = status_by_signal_;
  }

  void hear() {
    while (!status_) {
      const auto state = reader_.read(head_);
      if (state == FrameReader::State::incomplete) return;
      if (state != FrameReader::State::complete) return head_is_gone();
      Frame frame = reader_.take();
      if (frame.kind<MeetingKind>() == MeetingKind::start) start_ray();
      else end_with_head(frame);
    }
  }

  /// The head says why, if it can.
  void end_with_head(Frame& frame) {
    const bool has_failed = frame.kind<MeetingKind>() == MeetingKind::failed;
    if (const std::string why = has_failed ? frame.text() : std::string(); !why.empty()) say(concat({"ray: ", why}));
    status_ = has_failed ? commands::exit_failed : commands::exit_done;
  }

  void head_is_gone() {
    if (!deadline_) say(concat({"ray: ", place_.host, " has lost the head: its aml-dist ray has ended"}));
    status_ = commands::exit_failed;
  }

  void start_ray() {
    for (const std::string& note : notes_) say(concat({"ray: ", place_.host, ": ", note}));
    if (auto status = try_start(); !status) fail(status.error().message);
  }

  Result<void> try_start() {
    const auto path = folder_path(place_, options_.parent);
    if (!path) return path.error();
    auto folder = make_folder(*path);
    if (!folder) return folder.error();
    const auto own = source_address_towards(place_.head);
    if (!own) return own.error();
    const auto command = start_command(me_.program, place_, *own, me_.resources, options_.wishes, *path);
    auto ray = LocalRay::start(command, variables_of_ray(all_own_variables(), place_, me_.program), std::move(*folder));
    if (!ray) return ray.error();
    ray_.emplace(std::move(*ray));
    return {};
  }

  void watch() {
    if (slurmstepd_.has_ended()) return fail(std::string(lost_slurmstepd));
    if (!ray_) return;
    if (const auto why = ray_->end()) return fail(*why);
    if (has_told_ || !ray_->has_joined()) return;
    has_told_ = true;
    tell(message(MeetingKind::joined));
  }

  /// The head says it, with this node's name.
  void fail(const std::string& why) {
    tell(message(MeetingKind::failed, why));
    status_ = commands::exit_failed;
  }

  void tell(const std::string& frame) const {
    constexpr auto patience = std::chrono::seconds(5);
    static_cast<void>(send_all(head_, frame, Clock::now() + patience));
  }

  int finish() {
    constexpr auto grace = std::chrono::seconds(2);
    end_family(grace);
    if (slurmstepd_.has_ended()) cancel_after_head();
    if (ray_ && *status_ != 0 && options_.keep_on_failure) {
      ray_->folder().keep();
      say(concat({"ray: the folder of Ray on ", place_.host, " is kept: ", ray_->folder().path()}));
    }
    return *status_;
  }

  /// The head has time to end well: its status is the step's.
  void cancel_after_head() {
    constexpr auto patience = std::chrono::seconds(5);
    head_ = {};
    std::this_thread::sleep_for(patience);
    tools::cancel_step(place_.step);
  }

  const Place& place_;
  const Options& options_;
  Introduction me_;
  std::vector<std::string> notes_;
  FileDescriptor head_;
  FrameReader reader_{longest_message};
  tools::Slurmstepd slurmstepd_;
  std::optional<Interrupts> interrupts_;
  std::optional<LocalRay> ray_;
  bool has_told_ = false;
  std::optional<Clock::time_point> deadline_;
  int status_by_signal_ = 0;
  std::optional<int> status_;
};

}  // namespace

int run_worker(const Place& place, const Options& options) { return Worker(place, options).run(); }

}  // namespace amldist::ray
