#include "step/messages/rank_state.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "base/text/hex.hpp"
#include "base/text/printable.hpp"
#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "step/messages/datagram.hpp"
#include "trace/diagnosis/habit.hpp"

namespace amldist::step {
namespace {

using text::concat;
using trace::CallRecord;
using trace::CommunicatorRecord;
using trace::Recording;
using trace::Writer;
using trace::recorder_format::State;

constexpr std::int64_t ns_per_ms = 1'000'000;
/// What it says of two ranks on hosts with long names; the calls of the rank need room, too.
constexpr std::size_t longest_wrong_sentence = 320;
/// The rest is for the order of the calls.
constexpr std::size_t longest_without_order = 1000;
constexpr std::string_view knows_wrong_calls = "amldist";
/// As trace::Writer; "ended" is gone and has closed its recorder well, "exited" is gone with status 0.
constexpr std::array<std::string_view, 5> writers = {"runs", "stopped", "gone", "ended", "exited"};
constexpr std::array<std::string_view, 5> sources = {"amldist", "mpi", "nccl", "torch", trace::without_file};

/// Time since it began, or since its end if it has ended.
std::int64_t age_ms(const CallRecord& call, std::int64_t now_ns) {
  const std::int64_t last = call.pending() ? call.begin_ns() : std::max(call.begin_ns(), call.ended_ns);
  return std::max<std::int64_t>(0, (now_ns - last) / ns_per_ms);
}

/// A word without blanks; "-" for an empty one.
std::string word_of(std::string_view text) {
  std::string word(text.substr(0, 64));
  std::ranges::replace_if(
      word, [](char c) { return c <= ' ' || c >= 0x7f; }, '_');
  return word.empty() ? "-" : word;
}

/// Names may have blanks, so they come last in a line.
std::string name_of(std::string_view text) {
  std::string name(text.substr(0, 64));
  std::ranges::replace_if(
      name, [](char c) { return c < ' ' || c >= 0x7f; }, '?');
  return name.empty() ? "-" : name;
}

/// The first of a row, or a short list; "-" for a long one.
std::string members_word(const trace::MemberRanks& ranks) {
  constexpr std::size_t longest = 48;
  if (ranks.is_row()) return std::to_string(ranks[0]);
  std::string list;
  for (std::size_t i = 0; i < ranks.size() && list.size() <= longest; ++i)
    list += concat({i == 0 ? "" : ",", std::to_string(ranks[i])});
  return list.empty() || list.size() > longest ? "-" : list;
}

bool tells_wrong_call(const Recording& recording) {
  return recording.wrong && !recording.note.empty() && recording.source == knows_wrong_calls &&
         recording.writer == Writer::gone;
}

/// Cut where it is too long.
std::string wrong_line(const Recording& recording) {
  const auto& rank = recording.wrong->rank;
  return concat({"wrong ", rank ? std::to_string(*rank) : "-", " ",
                 text::printable(recording.note, longest_wrong_sentence - std::string_view("...").size()), "\n"});
}

std::string comm_line(const CommunicatorRecord& communicator) {
  const auto& ranks = communicator.world_ranks;
  return concat({"comm ", to_hexadecimal(communicator.id), " ", std::to_string(communicator.rank), " ",
                 std::to_string(communicator.size), " ", std::to_string(communicator.entered), " ", members_word(ranks),
                 " ", std::to_string(ranks.stride()), " ", name_of(communicator.name), "\n"});
}

constexpr std::uint64_t most_breaks = 1000;

/// Only a node has all calls of a rank. Nothing where nothing is known.
std::string habit_word(trace::Habit habit) {
  return habit == trace::Habit::unknown ? std::string() : concat({" ", std::to_string(static_cast<unsigned>(habit))});
}

/// After trace's own states: failed because a message was too long.
constexpr unsigned cut_short = static_cast<unsigned>(State::failed) + 1;

unsigned state_number(const CallRecord& call) {
  const bool is_cut = call.state == State::failed && call.status == trace::recorder_format::too_long;
  return is_cut ? cut_short : static_cast<unsigned>(call.state);
}

std::string call_line(const CallRecord& call, std::size_t comm, std::int64_t now_ns, std::string_view habit) {
  return concat({"call ", std::to_string(comm),
                 " ",     std::to_string(static_cast<unsigned>(call.operation)),
                 " ",     std::to_string(call.sequence),
                 " ",     std::to_string(call.bytes),
                 " ",     std::to_string(static_cast<unsigned>(call.type)),
                 " ",     std::to_string(static_cast<unsigned>(call.reduction)),
                 " ",     std::to_string(call.peer),
                 " ",     std::to_string(call.tag),
                 " ",     std::to_string(state_number(call)),
                 " ",     std::to_string(age_ms(call, now_ns)),
                 " ",     std::to_string(call.ticket),
                 habit,   "\n"});
}

/// Digits of a mark, to which its lowest bit adds whether the call is a custom.
constexpr std::string_view digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/";
constexpr std::size_t digits_of_mark = 3;
static_assert(trace::mark_end * 2 == 64 * 64 * 64 && digits.size() == 64);

/// As many calls as there is room for; nothing without calls.
std::string order_line(const Recording& recording, std::size_t room) {
  constexpr std::size_t most = 64;
  constexpr std::size_t longest_head = 32;
  if (room < longest_head) return {};
  const auto order = trace::order_of(recording, std::min(most, (room - longest_head) / digits_of_mark));
  if (order.calls.empty()) return {};
  std::string line = concat({"order ", std::to_string(order.newest), " "});
  for (const auto& [mark, is_custom] : order.calls) {
    const std::uint32_t value = mark * 2 + (is_custom ? 1 : 0);
    for (const int shift : {12, 6, 0}) line += digits[value >> shift & 63U];
  }
  return line + "\n";
}

std::string activity_line(const trace::ActivityTotals& totals) {
  return concat({"does ", std::to_string(totals.at_ms), " ", std::to_string(totals.cpu_ms), " ",
                 std::to_string(totals.io_bytes), " ", std::to_string(totals.children), " ",
                 std::to_string(static_cast<unsigned>(totals.obstacle)),
                 totals.starved_ms == 0 && totals.runnable == 0 ? "" : concat({" ", std::to_string(totals.starved_ms)}),
                 totals.runnable == 0 ? "" : concat({" ", std::to_string(totals.runnable)}), "\n"});
}

/// Open communicators: those with calls under way, then the last used first.
std::vector<const CommunicatorRecord*> by_importance(const Recording& recording) {
  struct Ranked {
    const CommunicatorRecord* communicator;
    bool pending = false;
    std::uint64_t last = 0;
  };
  std::vector<Ranked> all;
  for (const CommunicatorRecord& each : recording.communicators) {
    if (each.closed) continue;
    Ranked ranked{&each};
    for (const CallRecord& call : recording.calls) {
      if (call.communicator != each.slot) continue;
      ranked.pending |= call.pending();
      ranked.last = call.ticket;
    }
    all.push_back(ranked);
  }
  std::ranges::stable_sort(all, [](const Ranked& a, const Ranked& b) {
    return std::pair(a.pending, a.last) > std::pair(b.pending, b.last);
  });
  std::vector<const CommunicatorRecord*> sorted;
  sorted.reserve(all.size());
  for (const Ranked& each : all) sorted.push_back(each.communicator);
  return sorted;
}

/// The most calls reported in which a rank waits on one communicator.
constexpr std::size_t most_waited_for = 12;

/// A rank that waits for one of more receives than are reported counts as waiting for any rank.
CallRecord as_told(const CallRecord& call, std::size_t waited_for) {
  CallRecord told = call;
  const bool is_of_many = waited_for > most_waited_for && call.state == State::started;
  if (is_of_many && call.operation == calls::Operation::recv) told.peer = trace::recorder_format::any_peer;
  return told;
}

/// The calls of a communicator that matter: those under way, at most a few, and the newest collective ones.
/// `past`: how many of these.
std::vector<const CallRecord*> telling_calls(const Recording& recording, std::uint32_t slot, std::size_t past) {
  constexpr std::size_t most_posted = 4;
  std::vector<const CallRecord*> calls;
  const CallRecord* newest = nullptr;
  for (const CallRecord& call : recording.calls) {
    if (call.communicator != slot) continue;
    newest = &call;
    if (call.state == State::started && calls.size() <= most_waited_for) calls.push_back(&call);
  }
  for (const CallRecord& call : recording.calls) {
    const bool posted = call.communicator == slot && call.state == State::enqueued;
    if (posted && calls.size() < most_posted) calls.push_back(&call);
  }
  // A rank that is ahead of the others may have skipped their call by making another one.
  const std::size_t most_with_past = std::max<std::size_t>(past, calls.size() + 1);
  for (auto call = recording.calls.rbegin(); call != recording.calls.rend() && calls.size() < most_with_past; ++call) {
    const bool tells =
        call->communicator == slot && (trace::recorder_format::is_collective(call->operation) || &*call == newest);
    if (tells && std::ranges::find(calls, &*call) == calls.end()) calls.push_back(&*call);
  }
  return calls;
}

/// The entry that represents the communicators without a slot, and the call in which the rank waits on one of them.
std::string unjudged_lines(const Recording& recording, std::int64_t now_ns) {
  CommunicatorRecord all;
  all.id = trace::recorder_format::unjudged_id;
  const CallRecord* const waits = recording.unjudged_wait();
  if (waits == nullptr) return comm_line(all);
  CallRecord told = *waits;
  told.sequence = 0;
  told.peer = -1;
  return comm_line(all) + call_line(told, 0, now_ns, "");
}

std::string_view word_of_process(const Recording& recording) {
  if (recording.writer == Writer::runs) return "runs";
  if (recording.writer != Writer::gone) return "stopped";
  if (recording.ending == trace::recorder_format::Ending::well) return "ended";
  return recording.has_exited ? "exited" : "gone";
}

/// Reads the fields of a line in order. After an invalid field all later ones are invalid, too.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line) {}

  std::string_view word() {
    const auto end = rest_.find(' ');
    const std::string_view found = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    fine_ &= !found.empty();
    return found;
  }
  std::uint64_t number(std::uint64_t most) {
    const auto found = text::to_number(word(), most);
    fine_ &= found.has_value();
    return found.value_or(0);
  }
  std::int32_t signed_number() {
    const bool negative = rest_.starts_with('-');
    if (negative) rest_.remove_prefix(1);
    const auto found = static_cast<std::int32_t>(number(std::numeric_limits<std::int32_t>::max()));
    return negative ? -found : found;
  }
  std::string_view rest() {
    fine_ &= !rest_.empty();
    return std::exchange(rest_, {});
  }
  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  [[nodiscard]] bool fine() const { return fine_ && at_end(); }
  void refuse() { fine_ = false; }

 private:
  std::string_view rest_;
  bool fine_ = true;
};

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c < 0x7f; });
}

std::string cleared(std::string_view word) { return word == "-" ? std::string() : std::string(word); }

bool parse_rank(Fields fields, std::uint32_t tasks, Recording& out) {
  out.rank = static_cast<std::uint32_t>(fields.number(most_tasks));
  out.size = static_cast<std::uint32_t>(fields.number(most_tasks));
  out.local_rank = static_cast<std::uint32_t>(fields.number(most_tasks));
  const auto* const writer = std::ranges::find(writers, fields.word());
  out.source = cleared(fields.word());
  out.host = cleared(fields.word());
  const auto kind = std::min(static_cast<std::size_t>(writer - writers.begin()), std::size_t{2});
  out.writer = Writer{static_cast<int>(kind)};
  if (writer != writers.end() && *writer == "ended") out.ending = trace::recorder_format::Ending::well;
  out.has_exited = writer != writers.end() && *writer == "exited";
  out.told_breaks = fields.number(most_breaks);
  const bool known = writer != writers.end() && std::ranges::find(sources, out.source) != sources.end();
  return fields.fine() && known && out.size == tasks && out.rank < tasks;
}

/// The world ranks of a row of members, if all of them are in the step. Its size has been checked.
bool add_row(CommunicatorRecord& communicator, std::uint64_t first, std::int64_t stride, std::uint32_t tasks) {
  const auto last = static_cast<std::int64_t>(first) + (std::int64_t{communicator.size} - 1) * stride;
  if (first >= tasks || last < 0 || last >= std::int64_t{tasks}) return false;
  communicator.world_ranks =
      trace::MemberRanks::row(static_cast<std::uint32_t>(first), static_cast<std::int32_t>(stride), communicator.size);
  return true;
}

/// A list of members, all of them in the step.
bool add_list(CommunicatorRecord& communicator, std::string_view list, std::uint32_t tasks) {
  std::vector<std::uint32_t> ranks;
  for (const std::string_view word : text::split(list, ',')) {
    const auto rank = text::to_number(word, tasks - 1);
    if (!rank) return false;
    ranks.push_back(static_cast<std::uint32_t>(*rank));
  }
  if (ranks.size() != communicator.size) return false;
  communicator.world_ranks = trace::MemberRanks::of(ranks);
  return true;
}

bool parse_activity(Fields fields, Recording& out) {
  constexpr std::uint64_t most = 1ULL << 60;
  trace::ActivityTotals totals;
  totals.at_ms = static_cast<std::int64_t>(fields.number(most));
  totals.cpu_ms = fields.number(most);
  totals.io_bytes = fields.number(most);
  totals.children = static_cast<std::uint32_t>(fields.number(std::numeric_limits<std::uint32_t>::max()));
  totals.obstacle =
      trace::Obstacle{static_cast<std::uint8_t>(fields.number(static_cast<std::uint64_t>(trace::Obstacle::processor)))};
  if (!fields.at_end()) totals.starved_ms = fields.number(most);
  if (!fields.at_end())
    totals.runnable = static_cast<std::uint32_t>(fields.number(std::numeric_limits<std::uint32_t>::max()));
  if (!fields.fine() || out.totals) return false;
  out.totals = totals;
  return true;
}

bool parse_place(Fields fields, Recording& out) {
  constexpr std::size_t longest = 64;
  const std::string_view place = fields.rest();
  if (!fields.fine() || !out.place.empty() || place.size() > longest) return false;
  out.place = place;
  return true;
}

bool parse_wrong(Fields fields, Recording& out) {
  const std::string_view word = fields.word();
  const auto rank = text::to_number(word, out.size - 1);
  const std::string_view sentence = fields.rest();
  const bool is_possible = out.source == knows_wrong_calls && out.writer == Writer::gone && (rank || word == "-");
  if (!fields.fine() || !is_possible || out.wrong || sentence.size() > longest_wrong_sentence) return false;
  out.wrong.emplace();
  if (rank) out.wrong->rank = static_cast<std::uint32_t>(*rank);
  out.note = sentence;
  return true;
}

bool parse_comm(Fields fields, Recording& out) {
  CommunicatorRecord comm;
  const std::string_view id_digits = fields.word();
  const auto id = from_hex(id_digits);
  comm.slot = static_cast<std::uint32_t>(out.communicators.size());
  comm.rank = static_cast<std::uint32_t>(fields.number(most_tasks));
  comm.size = static_cast<std::uint32_t>(fields.number(most_tasks));
  comm.entered = fields.number(std::numeric_limits<std::uint64_t>::max());
  const std::string_view first = fields.word();
  const std::int32_t stride = fields.signed_number();
  comm.name = cleared(fields.rest());
  if (!id || id_digits != to_hexadecimal(*id) || comm.rank >= comm.size || !fields.fine()) return false;
  comm.id = *id;
  const auto start = text::to_number(first, most_tasks);
  const bool is_list = first.find(',') != std::string_view::npos;
  if (is_list && !add_list(comm, first, out.size)) return false;
  if (!start && !is_list && first != "-") return false;
  // A world larger than the step has processes of other steps, which are not known here.
  if (start && comm.size <= out.size && !add_row(comm, *start, stride, out.size)) return false;
  out.communicators.push_back(std::move(comm));
  return true;
}

bool parse_order(Fields fields, Recording& out) {
  trace::CallOrder order;
  order.newest = fields.number(std::numeric_limits<std::uint64_t>::max());
  const std::string_view word = fields.word();
  const bool is_whole = !word.empty() && word.size() % digits_of_mark == 0;
  if (!fields.fine() || !is_whole || word.size() / digits_of_mark > order.newest || out.told_order) return false;
  for (std::size_t at = 0; at < word.size(); at += digits_of_mark) {
    std::uint32_t value = 0;
    for (const char c : word.substr(at, digits_of_mark)) {
      const auto digit = digits.find(c);
      if (digit == std::string_view::npos) return false;
      value = value << 6 | static_cast<std::uint32_t>(digit);
    }
    order.calls.push_back({value / 2, value % 2 != 0});
  }
  out.told_order = std::move(order);
  return true;
}

bool parse_call(Fields fields, Recording& out, std::int64_t now_ns) {
  constexpr std::uint64_t most_age_ms = 1'000'000'000'000;  // thirty years
  CallRecord call;
  call.communicator = static_cast<std::uint32_t>(fields.number(most_tasks));
  call.operation = calls::Operation{static_cast<std::uint8_t>(fields.number(255))};
  call.sequence = fields.number(std::numeric_limits<std::uint64_t>::max());
  call.bytes = fields.number(std::numeric_limits<std::uint64_t>::max());
  call.type = calls::DataType{static_cast<std::uint8_t>(fields.number(255))};
  call.reduction = calls::ReduceOp{static_cast<std::uint8_t>(fields.number(255))};
  call.peer = fields.signed_number();
  call.tag = static_cast<std::uint16_t>(fields.number(65535));
  const std::uint64_t state = fields.number(cut_short);
  call.state = state == cut_short ? State::failed : State{static_cast<std::uint8_t>(state)};
  if (state == cut_short) call.status = trace::recorder_format::too_long;
  const auto age = static_cast<std::int64_t>(fields.number(most_age_ms));
  call.ticket = fields.number(std::numeric_limits<std::uint64_t>::max());
  const std::uint64_t habit = fields.at_end() ? 0 : fields.number(static_cast<std::uint64_t>(trace::Habit::kept));
  call.told_habit = trace::Habit{static_cast<std::uint8_t>(habit)};
  call.enqueued_ns = call.started_ns = now_ns - age * ns_per_ms;
  if (!call.pending()) call.ended_ns = call.started_ns;
  if (!fields.fine() || call.communicator >= out.communicators.size()) return false;
  out.calls.push_back(call);
  return true;
}

/// The groups of a state, the most important first, as many as there is room for.
struct ToldGroups {
  std::string lines;
  bool leaves_out = false;
};

/// `number`: of the first group's line; `past`: how many calls are told of each.
ToldGroups told_groups(const Recording& recording, const trace::NewestHabits& newest, std::int64_t now_ns,
                       std::size_t number, std::size_t room, std::size_t past) {
  ToldGroups told;
  for (const CommunicatorRecord* const each : by_importance(recording)) {
    std::string lines = comm_line(*each);
    std::map<std::uint64_t, std::string> by_age;  // readers expect them in the order of the calls
    std::size_t length = told.lines.size() + lines.size();
    const auto telling = telling_calls(recording, each->slot, past);
    const auto waited_for = static_cast<std::size_t>(std::ranges::count(telling, State::started, &CallRecord::state));
    for (const CallRecord* const call : telling) {
      const auto habit = newest.habits.find(call->ticket);
      const auto word = habit_word(habit != newest.habits.end() ? habit->second : trace::Habit::unknown);
      std::string line = call_line(as_told(*call, waited_for), number, now_ns, word);
      if (length + line.size() > room) continue;
      length += line.size();
      by_age.emplace(call->ticket, std::move(line));
    }
    for (const auto& [ticket, line] : by_age) lines += line;
    told.leaves_out = told.lines.size() + lines.size() > room;
    if (told.leaves_out) return told;
    told.lines += lines;
    ++number;
  }
  return told;
}

}  // namespace

std::string to_rank_state(const Recording& recording, std::int64_t now_ns) {
  const auto newest = trace::newest_habits(recording);
  std::string state =
      concat({"rank ", std::to_string(recording.rank), " ", std::to_string(recording.size), " ",
              std::to_string(recording.local_rank), " ", word_of_process(recording), " ", word_of(recording.source),
              " ", word_of(recording.host), " ", std::to_string(newest.broken), "\n"});
  if (recording.totals) state += activity_line(*recording.totals);
  if (!recording.place.empty()) state += concat({"from ", name_of(recording.place), "\n"});
  if (tells_wrong_call(recording)) state += wrong_line(recording);
  const bool has_unjudged = recording.lacks_slots() || recording.unjudged_wait() != nullptr;
  const std::string unjudged = unjudged_lines(recording, now_ns);
  if (has_unjudged) state += unjudged;
  const std::size_t room = longest_without_order - (has_unjudged ? 0 : unjudged.size());
  if (state.size() > room) return state;
  // A shorter past of all groups tells more than a longer one of some.
  ToldGroups told;
  for (const std::size_t past : {std::size_t{7}, std::size_t{3}, std::size_t{1}}) {
    told = told_groups(recording, newest, now_ns, has_unjudged ? 1 : 0, room - state.size(), past);
    if (!told.leaves_out) break;
  }
  state += told.lines;
  if (told.leaves_out && !has_unjudged) state += unjudged;
  return state + order_line(recording, longest_rank_state - state.size());
}

std::optional<Recording> parse_rank_state(std::string_view text, std::uint32_t tasks, std::int64_t now_ns) {
  if (text.size() > longest_rank_state || !text.ends_with('\n')) return std::nullopt;
  Recording recording;
  bool first = true;
  for (const std::string_view line : text::split(text.substr(0, text.size() - 1), '\n')) {
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos || !is_printable(line)) return std::nullopt;
    const std::string_view kind = line.substr(0, blank);
    const Fields fields(line.substr(blank + 1));
    const bool fine = first             ? kind == "rank" && parse_rank(fields, tasks, recording)
                      : kind == "does"  ? parse_activity(fields, recording)
                      : kind == "from"  ? parse_place(fields, recording)
                      : kind == "wrong" ? parse_wrong(fields, recording)
                      : kind == "comm"  ? parse_comm(fields, recording)
                      : kind == "order" ? parse_order(fields, recording)
                                        : kind == "call" && parse_call(fields, recording, now_ns);
    if (!fine) return std::nullopt;
    first = false;
  }
  std::ranges::stable_sort(recording.calls, {}, &CallRecord::ticket);
  return recording;
}

std::optional<std::uint32_t> told_size(std::string_view state, std::uint64_t most) {
  const auto words = text::split(state.substr(0, state.find('\n')), ' ');
  const auto size = words.size() > 2 ? text::to_number(words[2], most) : std::nullopt;
  return size ? std::optional(static_cast<std::uint32_t>(*size)) : std::nullopt;
}

std::int64_t longest_wait_ms(const Recording& recording, std::int64_t now_ns) {
  std::int64_t longest = 0;
  for (const CallRecord& call : recording.calls) {
    const auto* const communicator = recording.communicator(call.communicator);
    const bool waits = call.state == State::started && communicator != nullptr && !communicator->closed;
    if (waits && recording.writer == Writer::runs) longest = std::max(longest, age_ms(call, now_ns));
  }
  return longest;
}

}  // namespace amldist::step
