// What comes to srun's port from anybody, and to the nodes from srun: reports, questions, answers; sealed, and as who
// has the key writes them.
#include "step/messages/datagram.hpp"

#include "base/text/text.hpp"
#include "fuzz.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/task_map.hpp"
#include "spank/server/message_server.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/end_record.hpp"
#include "step/messages/failure_report.hpp"
#include "step/messages/server_release.hpp"
#include "step/server/inbox.hpp"

namespace amldist::fuzz::datagrams {
namespace {

constexpr step::Token token{0x00c0ffee00c0ffee, 0x5ca1ab1e5ca1ab1e};
constexpr std::uint64_t other_token = token.mark ^ 1;

void check_report(std::string_view datagram, step::FirstFailure& failure) {
  const auto report = step::FailureReport::parse(datagram, token);
  if (!report) return;
  require(step::FailureReport::parse(report->to_datagram(token), token) == report,
          "a report that is written is the same");
  require(launch::is_host(report->host) && report->rank < most_tasks, "a report names a host and a rank");
  failure.take(*report);
}

void check_end(std::string_view datagram, step::ServerRelease& release) {
  const auto end = step::WorkerEnd::parse(datagram, token);
  if (!end) return;
  require(step::WorkerEnd::parse(end->to_datagram(token), token) == end, "an end that is written is the same");
  require(end->chiefs <= 1 && end->rank < end->chiefs + end->workers, "the rank is one of the step's");
  const step::ServerRelease::Clock::time_point now{};
  release.take(*end, now);
  require(!release.due(now) || release.due(now + std::chrono::hours(1)), "who was released stays so");
}

void check_words(std::string_view datagram) {
  if (const auto word = step::parse_message_type(datagram, token))
    require(to_datagram(*word, token).size() <= step::longest_datagram, "");
  for (const step::Subject subject :
       {step::Subject::record, step::Subject::address, step::Subject::waits, step::Subject::state,
        step::Subject::wants_stacks, step::Subject::stack, step::Subject::cause, step::Subject::shares,
        step::Subject::stand_in, step::Subject::stop_in}) {
    const auto text = parse_text(subject, datagram, token);
    if (text) require(to_datagram(subject, *text, token) == datagram, "a text is carried unchanged");
  }
}

void check_forgery(std::string_view datagram) {
  require(!step::decode(datagram, other_token) || !step::decode(datagram, token), "one datagram bears one token");
  require(!step::FailureReport::parse(datagram, other_token) || !step::FailureReport::parse(datagram, token),
          "nor does a report");
}

/// A datagram that is not sealed is not taken; sealed it is, once, and says the same.
void check_seal(std::string_view datagram, step::Inbox& inbox, std::uint64_t time) {
  const auto taken = within(datagram.size() * 4 + 8192, [&] { return inbox.take(datagram, {}); });
  require(!taken || seal(token, step::Direction::to_srun, taken->stamp, taken->message) == datagram,
          "only what the key's owner writes is taken");
  require(!unseal(token, step::Direction::to_node, datagram) || !taken, "a question is not an answer");
  if (datagram.size() > step::longest_answer - step::seal_bytes || !datagram.starts_with(encode(token, {}))) return;
  const std::string sealed = seal(token, step::Direction::to_srun, {1, time}, datagram);
  const auto letter = inbox.take(sealed, {});
  require(letter && letter->message == datagram, "a message is carried unchanged");
  require(!inbox.take(sealed, {}), "and once");
}

/// What srun, or its stand-in in root's process, does with it.
void check_desk(std::string_view datagram, spank::MessageServer& server) {
  const auto answer = server.take(datagram, {});
  require(!answer || step::decode(datagram, token).has_value(), "nobody is answered without the token");
  require(!answer || answer->size() <= step::longest_answer, "an answer fits a datagram");
}

}  // namespace

const std::string_view separator = "\n";

/// One datagram in each line, all to the same srun.
void try_input(std::string_view input) {
  step::FirstFailure failure(64);
  step::ServerRelease release;
  spank::MessageServer server(
      {.token = token, .tasks = 64, .nodes = 16, .record = "1", .most_notices = 4096, .tell = nullptr});
  step::Inbox inbox(token, 16);
  std::uint64_t time = 0;
  for (Input lines(input); !lines.ended();) {
    const std::string_view datagram = lines.line();
    check_seal(datagram, inbox, ++time);
    const auto fields = within(datagram.size() * 48 + 8192, [datagram] { return step::decode(datagram, token); });
    require(!fields || (!fields->empty() && datagram.size() <= step::longest_datagram), "what is unsealed has a field");
    check_report(datagram, failure);
    check_end(datagram, release);
    check_words(datagram);
    check_forgery(datagram);
    check_desk(datagram, server);
    if (const auto end = step::EndRecord::parse(datagram))
      require(step::EndRecord::parse(end->to_line()) == end, "a record that is written is the same");
    if (const auto channel = step::ReportChannel::parse(datagram)) {
      require(step::ReportChannel::parse(channel->to_string()) == channel, "a channel that is written is the same");
    }
  }
  if (failure.stands()) {
    require_sentence(failure.record({true, false}).sentence());
    require_sentence(failure.record({false, true}).sentence());
  }
}

}  // namespace amldist::fuzz::datagrams
