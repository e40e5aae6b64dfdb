#include "aml_dist/trace/torch_dump.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "aml_dist/common/files.hpp"
#include "aml_dist/trace/pickle.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "step/messages/datagram.hpp"

namespace amldist::tools {
namespace {

using calls::DataType;
using calls::Operation;
using text::concat;
using trace::CallRecord;
using trace::CommunicatorRecord;
using trace::Recording;
using trace::recorder_format::is_collective;
using trace::recorder_format::State;
namespace fs = std::filesystem;

constexpr std::size_t largest_dump = 256U << 20;
constexpr DataType unknown_type{255};
constexpr std::string_view default_group = "default_pg";

struct Name {
  std::string_view theirs;
  Operation operation;
};
/// What PyTorch calls the operations; the first one of each is what we write.
constexpr std::array<Name, 24> operations = {{{"all_reduce", Operation::allreduce},
                                              {"reduce", Operation::reduce},
                                              {"broadcast", Operation::broadcast},
                                              {"all_gather", Operation::allgather},
                                              {"all_gather", Operation::allgatherv},
                                              {"reduce_scatter", Operation::reduce_scatter},
                                              {"reduce_scatter", Operation::reduce_scatterv},
                                              {"all_to_all", Operation::alltoallv},
                                              {"all_to_all", Operation::alltoall},
                                              {"gather", Operation::gather},
                                              {"scatter", Operation::scatter},
                                              {"barrier", Operation::barrier},
                                              {"send", Operation::send},
                                              {"recv", Operation::recv},
                                              {"_all_gather_base", Operation::allgather},
                                              {"all_gather_into_tensor", Operation::allgather},
                                              {"all_gather_into_tensor_coalesced", Operation::allgather},
                                              {"_reduce_scatter_base", Operation::reduce_scatter},
                                              {"reduce_scatter_tensor", Operation::reduce_scatter},
                                              {"reduce_scatter_tensor_coalesced", Operation::reduce_scatter},
                                              {"all_to_all_single", Operation::alltoallv},
                                              {"allreduce_coalesced", Operation::allreduce},
                                              {"_broadcast_oop", Operation::broadcast},
                                              {"_reduce_oop", Operation::reduce}}};

struct TypeName {
  std::string_view theirs;
  DataType type;
};
constexpr std::array<TypeName, 13> types = {{{"Char", DataType::int8},
                                             {"Byte", DataType::uint8},
                                             {"Short", DataType::int16},
                                             {"UInt16", DataType::uint16},
                                             {"Int", DataType::int32},
                                             {"UInt32", DataType::uint32},
                                             {"Long", DataType::int64},
                                             {"UInt64", DataType::uint64},
                                             {"Half", DataType::float16},
                                             {"BFloat16", DataType::bfloat16},
                                             {"Float", DataType::float32},
                                             {"Double", DataType::float64},
                                             {"Bool", DataType::boolean}}};

Error unfit(const std::string& file, std::string_view why) {
  return {Errc::invalid_argument, concat({text::quote(file), " is not a dump of PyTorch's flight recorder: ", why})};
}

/// The number at the end of a name.
std::optional<std::uint32_t> rank_of(const std::string& file) {
  const std::string name = fs::path(file).filename();
  const auto last = name.find_last_not_of("0123456789");
  const auto rank = text::to_number(name.substr(last == std::string::npos ? 0 : last + 1), most_tasks - 1);
  return rank ? std::optional(static_cast<std::uint32_t>(*rank)) : std::nullopt;
}

std::string printable(std::string_view words) {
  std::string shown(words.substr(0, 64));
  std::ranges::replace_if(
      shown, [](char c) { return c < ' ' || c >= 0x7f; }, '?');
  return shown;
}

/// FNV-1a: the same for the same group in all dumps.
std::uint64_t id_of(std::string_view name, std::string_view description) {
  std::uint64_t id = 0xcbf29ce484222325;
  for (const std::string_view each : {name, std::string_view("\n"), description}) {
    for (const char c : each) id = (id ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return id;
}

/// Members as PyTorch writes them: "[0, 2, 4]".
std::vector<std::uint32_t> members_in(std::string_view list) {
  std::vector<std::uint32_t> members;
  if (!list.starts_with('[') || !list.ends_with(']')) return members;
  for (std::string_view word : text::split(list.substr(1, list.size() - 2), ',')) {
    while (word.starts_with(' ')) word.remove_prefix(1);
    const auto rank = text::to_number(word, most_tasks - 1);
    if (!rank) return {};
    members.push_back(static_cast<std::uint32_t>(*rank));
  }
  return members;
}

const PickledValue& field(const PickledValue& of, std::string_view name) {
  static const PickledValue none;
  const auto* const found = of.find(name);
  return found != nullptr ? *found : none;
}

struct Dump {
  std::string file;
  std::uint32_t rank = 0;
  Pickle pickle;

  [[nodiscard]] const PickledValue::List& entries() const { return field(pickle.top(), "entries").elements(); }
};

/// Name and description of the group of a call.
std::pair<std::string, std::string> group_of(const PickledValue& entry) {
  const auto& pair = field(entry, "process_group").elements();
  if (pair.size() != 2) return {};
  return {std::string(pair[0]->text()), std::string(pair[1]->text())};
}

using Groups = std::map<std::pair<std::string, std::string>, std::vector<std::uint32_t>>;

/// All groups with their members: as a dump says, else the ranks that have made a call on it. The default one has all.
Groups groups_in(const std::vector<Dump>& dumps, std::uint32_t size) {
  Groups said;
  std::map<std::pair<std::string, std::string>, std::set<std::uint32_t>> seen;
  for (const Dump& dump : dumps) {
    const auto* const groups = std::get_if<PickledValue::Dictionary>(&field(dump.pickle.top(), "pg_config").content);
    if (groups != nullptr) {
      for (const auto& [name, group] : *groups) {
        auto members = members_in(field(*group, "ranks").text());
        if (!members.empty()) said[{std::string(name->text()), std::string(field(*group, "desc").text())}] = members;
      }
    }
    for (const auto* const entry : dump.entries()) seen[group_of(*entry)].insert(dump.rank);
  }
  Groups all;
  for (const auto& [group, ranks] : seen) {
    auto& members = all[group];
    if (const auto found = said.find(group); found != said.end()) {
      members = found->second;
    } else if (group.second == default_group) {
      for (std::uint32_t rank = 0; rank < size; ++rank) members.push_back(rank);
    } else {
      members.assign(ranks.begin(), ranks.end());
    }
  }
  return all;
}

std::uint64_t elements_in(const PickledValue& sizes) {
  std::uint64_t all = 0;
  for (const auto* const tensor : sizes.elements()) {
    std::uint64_t one = 1;
    for (const auto* const length : tensor->elements())
      one *= static_cast<std::uint64_t>(std::clamp<std::int64_t>(length->number(), 0, 1 << 30));
    all += one;
  }
  return all;
}

DataType type_in(const PickledValue& names) {
  if (names.elements().empty()) return unknown_type;
  const auto* const found = std::ranges::find(types, names.elements().front()->text(), &TypeName::theirs);
  return found != types.end() ? found->type : unknown_type;
}

State state_of(const PickledValue& entry) {
  const std::string_view state = field(entry, "state").text();
  const auto* const retired = std::get_if<bool>(&field(entry, "retired").content);
  if (state == "completed" || (retired != nullptr && *retired)) return State::completed;
  return State::started;
}

/// The peer of "send 0->3" and "recv 3<-0": the number at the end; any peer for "?".
std::int32_t peer_in(std::string_view name) {
  const auto arrow = name.find_first_of("><");
  if (arrow == std::string_view::npos) return -1;
  const auto last = name.find_last_not_of("0123456789");
  const auto peer = text::to_number(name.substr(last + 1), most_tasks);
  return peer ? static_cast<std::int32_t>(*peer) : trace::recorder_format::any_peer;
}

std::optional<CallRecord> call_in(const PickledValue& entry) {
  std::string_view name = field(entry, "profiling_name").text();
  name = name.substr(name.rfind(':') + 1);
  const auto* const found = std::ranges::find(operations, name.substr(0, name.find(' ')), &Name::theirs);
  if (found == operations.end()) return std::nullopt;
  CallRecord call;
  call.operation = found->operation;
  const auto& input = field(entry, "input_sizes");
  const auto& output = field(entry, "output_sizes");
  call.type = type_in(field(entry, input.elements().empty() ? "output_dtypes" : "input_dtypes"));
  const std::size_t size = calls::size_of(call.type);
  call.bytes = elements_in(input.elements().empty() ? output : input) * (size != 0 ? size : 1);
  if (is_collective(call.operation))
    call.sequence = static_cast<std::uint64_t>(std::max<std::int64_t>(0, field(entry, "collective_seq_id").number()));
  else call.peer = peer_in(name);
  call.tag = is_collective(call.operation) ? 0 : trace::recorder_format::any_tag;
  call.state = state_of(entry);
  call.enqueued_ns = call.started_ns = field(entry, "time_created_ns").number();
  call.ended_ns = field(entry, "time_discovered_completed_ns").number();
  if (call.state == State::completed && call.ended_ns == 0) call.ended_ns = call.started_ns;
  return call;
}

Recording recording_of(const Dump& dump, std::uint32_t size, const Groups& groups) {
  Recording recording;
  recording.path = dump.file;
  recording.source = "torch";
  recording.rank = dump.rank;
  recording.size = size;
  recording.writer = trace::Writer::runs;
  std::map<std::pair<std::string, std::string>, std::uint32_t> slots;
  for (const auto& [group, members] : groups) {
    const auto own = std::ranges::find(members, dump.rank);
    if (own == members.end()) continue;
    CommunicatorRecord communicator;
    communicator.slot = static_cast<std::uint32_t>(recording.communicators.size());
    communicator.id = id_of(group.first, group.second);
    communicator.rank = static_cast<std::uint32_t>(own - members.begin());
    communicator.size = static_cast<std::uint32_t>(members.size());
    const bool is_named = !group.second.empty() && group.second != "undefined";
    communicator.name = group.second == default_group ? "world" : printable(is_named ? group.second : group.first);
    communicator.world_ranks = trace::MemberRanks::of(members);
    slots[group] = communicator.slot;
    recording.communicators.push_back(std::move(communicator));
  }
  for (const auto* const entry : dump.entries()) {
    const auto slot = slots.find(group_of(*entry));
    auto call = call_in(*entry);
    if (!call || slot == slots.end()) continue;
    call->ticket = recording.calls.size() + 1;
    call->communicator = slot->second;
    auto& communicator = recording.communicators[slot->second];
    communicator.entered = std::max(communicator.entered, call->sequence);
    if (call->state == State::completed) communicator.completed = std::max(communicator.completed, call->sequence);
    recording.latest_ns = std::max({recording.latest_ns, call->started_ns, call->ended_ns});
    recording.calls.push_back(*call);
  }
  recording.recorded = recording.calls.size();
  if (!recording.calls.empty()) recording.created_ns = recording.calls.front().started_ns;
  return recording;
}

Result<Dump> read_dump(const std::string& file) {
  const auto rank = rank_of(file);
  if (!rank) return unfit(file, "its name does not end with a rank");
  auto bytes = read_whole_file(file, largest_dump);
  if (!bytes)
    return Error{bytes.error().code, concat({"cannot read ", text::quote(file), ": ", bytes.error().message})};
  auto pickle = Pickle::read(std::move(*bytes));
  if (!pickle) return unfit(file, pickle.error().message);
  if (pickle->top().find("entries") == nullptr) return unfit(file, "it has no 'entries'");
  return Dump{file, *rank, std::move(*pickle)};
}

// ---- writing ----

std::string_view their_name(Operation operation) {
  const auto* const found = std::ranges::find(operations, operation, &Name::operation);
  return found != operations.end() ? found->theirs : std::string_view();
}

std::string list_of(const std::vector<std::uint32_t>& members) {
  std::string list;
  for (const std::uint32_t rank : members) list += concat({list.empty() ? "" : ", ", std::to_string(rank)});
  return concat({"[", list, "]"});
}

bool is_world(const CommunicatorRecord& communicator, std::uint32_t size) {
  return communicator.size == size && (communicator.name.empty() || communicator.name == "world");
}

std::string_view description_of(const CommunicatorRecord& communicator, std::uint32_t size) {
  if (is_world(communicator, size)) return default_group;
  return communicator.name.empty() ? std::string_view("undefined") : std::string_view(communicator.name);
}

/// "[[1024]]" and "['Float']", as a tensor of one dimension.
void write_tensor(PickleWriter& out, std::string_view which, const CallRecord& call) {
  const auto* const known = std::ranges::find(types, call.type, &TypeName::type);
  const std::size_t size = calls::size_of(call.type);
  out.text(concat({which, "_sizes"})).begin_list();
  if (call.operation != Operation::barrier)
    out.begin_list().number(static_cast<std::int64_t>(call.bytes / (size != 0 ? size : 1))).end_list();
  out.end_list().text(concat({which, "_dtypes"})).begin_list();
  if (call.operation != Operation::barrier) out.text(known != types.end() ? known->theirs : "Byte");
  out.end_list();
}

void write_time(PickleWriter& out, std::string_view name, std::int64_t time_ns) {
  out.text(name);
  if (time_ns != 0) out.number(time_ns);
  else out.none();
}

struct Numbered {
  const CallRecord* call;
  const CommunicatorRecord* communicator;
  std::uint64_t sequence;  ///< of a message the number among those with its group
};

void write_entry(PickleWriter& out, const Numbered& one, const Recording& recording, std::size_t number) {
  const CallRecord& call = *one.call;
  const bool is_message = !is_collective(call.operation);
  const std::string own = std::to_string(one.communicator->rank);
  const std::string peer = call.peer < 0 ? "?" : std::to_string(call.peer);
  std::string name = concat({recording.source == "nccl" ? "nccl:" : "gloo:", their_name(call.operation)});
  if (is_message) name += concat({" ", own, call.operation == Operation::send ? "->" : "<-", peer});
  const bool ended = call.state == State::completed;
  out.begin_dictionary();
  out.text("frames").begin_list().end_list();
  out.text("record_id").number(static_cast<std::int64_t>(number));
  out.text("pg_id").number(one.communicator->slot);
  out.text("process_group")
      .text(step::to_hexadecimal(one.communicator->id))
      .text(description_of(*one.communicator, recording.size))
      .pair();
  out.text("collective_seq_id").number(static_cast<std::int64_t>(is_message ? 0 : call.sequence));
  out.text("p2p_seq_id").number(static_cast<std::int64_t>(is_message ? one.sequence : 0));
  out.text("op_id").number(static_cast<std::int64_t>(number + 1));
  out.text("profiling_name").text(name);
  out.text("time_created_ns").number(call.enqueued_ns);
  write_tensor(out, "input", call);
  write_tensor(out, "output", call);
  out.text("state").text(ended ? "completed" : call.state == State::enqueued ? "scheduled" : "started");
  write_time(out, "time_discovered_started_ns", call.started_ns);
  write_time(out, "time_discovered_completed_ns", ended ? call.ended_ns : 0);
  out.text("retired").boolean(ended);
  out.text("timeout_ms").number(0);
  out.text("is_p2p").boolean(is_message);
  out.end_dictionary();
}

void write_groups(PickleWriter& out, const std::vector<const Recording*>& recordings) {
  out.text("pg_config").begin_dictionary();
  for (const auto* const recording : recordings) {
    for (const auto& each : recording->communicators) {
      const std::string name = step::to_hexadecimal(each.id);
      out.text(name).begin_dictionary();
      out.text("name").text(name).text("desc").text(description_of(each, recording->size));
      out.text("ranks").text(list_of(each.world_ranks.to_list())).end_dictionary();
    }
  }
  out.end_dictionary().text("pg_status").begin_dictionary();
  for (const auto* const recording : recordings) {
    for (const auto& each : recording->communicators) {
      out.text(step::to_hexadecimal(each.id)).begin_dictionary();
      out.text("last_enqueued_collective").number(static_cast<std::int64_t>(each.entered));
      out.text("last_started_collective").number(static_cast<std::int64_t>(each.entered));
      out.text("last_completed_collective").number(static_cast<std::int64_t>(each.completed)).end_dictionary();
    }
  }
  out.end_dictionary();
}

/// The recorders of one rank, which may be several, as one dump.
std::string dump_of(const std::vector<const Recording*>& recordings) {
  PickleWriter out;
  out.begin_dictionary().text("version").text("2.10").text("comm_lib_version").text("");
  write_groups(out, recordings);
  out.text("entries").begin_list();
  std::size_t number = 0;
  for (const auto* const recording : recordings) {
    std::map<std::pair<std::uint32_t, std::int32_t>, std::uint64_t> messages;
    for (const CallRecord& call : recording->calls) {
      const auto* const communicator = recording->communicator(call.communicator);
      if (communicator == nullptr || their_name(call.operation).empty()) continue;
      const std::uint64_t message = is_collective(call.operation) ? 0 : ++messages[{call.communicator, call.peer}];
      write_entry(out, {&call, communicator, message}, *recording, number++);
    }
  }
  out.end_list().end_dictionary();
  return out.finish();
}

}  // namespace

Result<TracedStep> read_torch_dumps(const std::vector<std::string>& files) {
  std::vector<Dump> dumps;
  std::set<std::uint32_t> ranks;
  for (const std::string& file : files) {
    auto dump = read_dump(file);
    if (!dump) return dump.error();
    if (!ranks.insert(dump->rank).second)
      return unfit(file, concat({"another one is of rank ", std::to_string(dump->rank), ", too"}));
    dumps.push_back(std::move(*dump));
  }
  std::ranges::sort(dumps, {}, &Dump::rank);
  std::uint32_t size = *ranks.rbegin() + 1;
  for (const auto& [group, members] : groups_in(dumps, size))
    for (const std::uint32_t rank : members) size = std::max(size, rank + 1);
  const Groups groups = groups_in(dumps, size);
  TracedStep step;
  for (const Dump& dump : dumps) {
    step.recordings.push_back(recording_of(dump, size, groups));
    step.recordings.back().job = fs::path(files.front()).parent_path().filename();
    step.now_ns = std::max(step.now_ns, step.recordings.back().latest_ns);
  }
  step.folder = fs::path(files.front()).parent_path();
  step.stalls = trace::find_stalls(step.recordings);
  step.hang = trace::diagnose_hang(step.recordings);
  return step;
}

Result<void> write_torch_dumps(const TracedStep& step, const std::string& folder) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) {
    return Error{Errc::unavailable, concat({"cannot make the folder ", text::quote(folder), ": ", problem.message()})};
  }
  std::map<std::uint32_t, std::vector<const Recording*>> by_rank;
  for (const Recording& each : step.recordings) by_rank[each.rank].push_back(&each);
  for (const auto& [rank, recordings] : by_rank) {
    auto written = write_file(concat({folder, "/rank_", std::to_string(rank)}), dump_of(recordings));
    if (!written) return written;
  }
  return {};
}

}  // namespace amldist::tools
