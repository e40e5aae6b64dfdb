// What comes to srun's port from anybody, and to the nodes from srun: reports, questions, answers.
#include "step_messages/datagram.hpp"

#include "core/spec.hpp"
#include "core/text.hpp"
#include "fuzz.hpp"
#include "placement/task_map.hpp"
#include "spank/message_server.hpp"
#include "step_messages/control_message.hpp"
#include "step_messages/failure_report.hpp"
#include "step_messages/server_release.hpp"

namespace amldist::fuzz {
namespace {

constexpr std::uint64_t token = 0x00c0ffee00c0ffeeULL;
constexpr std::uint64_t other_token = token ^ 1;

void check_report(std::string_view datagram, FirstFailure& failure) {
  const auto report = FailureReport::parse(datagram, token);
  if (!report) return;
  require(FailureReport::parse(report->to_datagram(token), token) == report, "a report that is written is the same");
  require(is_host(report->host) && report->rank < most_tasks, "a report names a host and a rank");
  failure.take(*report);
}

void check_end(std::string_view datagram, ServerRelease& release) {
  const auto end = WorkerEnd::parse(datagram, token);
  if (!end) return;
  require(WorkerEnd::parse(end->to_datagram(token), token) == end, "an end that is written is the same");
  require(end->chiefs <= 1 && end->rank < end->chiefs + end->workers, "the rank is one of the step's");
  const ServerRelease::Clock::time_point now{};
  release.take(*end, now);
  require(!release.due(now) || release.due(now + std::chrono::hours(1)), "who was released stays so");
}

void check_words(std::string_view datagram) {
  if (const auto word = parse_message_type(datagram, token))
    require(to_datagram(*word, token).size() <= longest_datagram, "");
  for (const Subject subject : {Subject::record, Subject::address, Subject::waits, Subject::state,
                                Subject::wants_stacks, Subject::stack, Subject::shares, Subject::deputy}) {
    const auto text = parse_text(subject, datagram, token);
    if (text) require(to_datagram(subject, *text, token) == datagram, "a text is carried unchanged");
  }
}

void check_forgery(std::string_view datagram) {
  require(!unseal(datagram, other_token) || !unseal(datagram, token), "one datagram bears one token");
  require(!FailureReport::parse(datagram, other_token) || !FailureReport::parse(datagram, token), "nor does a report");
}

/// What srun, or root's process in its place, does with it.
void check_desk(std::string_view datagram, spank::MessageServer& server) {
  const auto answer = server.take(datagram, {});
  require(!answer || unseal(datagram, token).has_value(), "nobody is answered without the token");
  require(!answer || answer->size() <= longest_answer, "an answer fits a datagram");
}

}  // namespace

const std::string_view separator = "\n";

/// One datagram in each line, all to the same srun.
void try_input(std::string_view input) {
  FirstFailure failure(64);
  ServerRelease release;
  spank::MessageServer server(
      {.token = token, .tasks = 64, .nodes = 16, .record = "1", .most_notices = 4096, .tell = nullptr});
  for (Input lines(input); !lines.ended();) {
    const std::string_view datagram = lines.line();
    const auto fields = within(datagram.size() * 48 + 8192, [datagram] { return unseal(datagram, token); });
    require(!fields || (!fields->empty() && datagram.size() <= longest_datagram), "what is unsealed has a field");
    check_report(datagram, failure);
    check_end(datagram, release);
    check_words(datagram);
    check_forgery(datagram);
    check_desk(datagram, server);
    if (const auto channel = ReportChannel::parse(datagram)) {
      require(ReportChannel::parse(channel->to_string()) == channel, "a channel that is written is the same");
    }
  }
  if (failure.stands()) {
    require_sentence(failure.sentence({true, false}));
    require_sentence(failure.sentence({false, true}));
  }
}

}  // namespace amldist::fuzz
