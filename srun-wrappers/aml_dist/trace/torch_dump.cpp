#include "aml_dist/trace/torch_dump.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"
#include "step/messages/datagram.hpp"

namespace amldist::tools {
namespace {

using calls::DataType;
using calls::Operation;
using nlohmann::json;
using text::concat;
using trace::CallRecord;
using trace::CommunicatorRecord;
using trace::Recording;
using trace::recorder_format::is_collective;
using trace::recorder_format::State;
namespace fs = std::filesystem;

/// Dumps are pickles, which Python reads and writes, as data: a pickle that names a class or a function is refused, so
/// that nothing of it is executed. One line of JSON for each file. Where a program was called from is left out.
constexpr const char* read_pickles = R"python(
import json, os, pickle, resource, stat, sys
class Unfit(Exception):
    pass
class Data(pickle.Unpickler):
    def find_class(self, module, name):
        raise Unfit("it names an object of Python, and nothing of a dump is executed")
def read(path):
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > 256 << 20:
            raise Unfit("it is not a regular file of at most 256 MiB")
        dump = Data(file).load()
    if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
        raise Unfit("it has no 'entries'")
    for entry in dump["entries"]:
        entry.pop("frames", None)
    return json.dumps(dump)
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (60 + len(sys.argv), 60 + len(sys.argv)))
for path in sys.argv[1:]:
    try:
        print(read(path))
    except Unfit as error:
        print(json.dumps({"error": str(error)}))
    except OSError as error:
        print(json.dumps({"error": f"it cannot be read: {error.strerror}"}))
    except Exception as error:
        words = f"{type(error).__name__}: {error}".encode("unicode_escape").decode()
        print(json.dumps({"error": f"it is damaged or cut off ({words:.100})"}))
)python";
/// One line of JSON for each file, [path, dump].
constexpr const char* write_pickles = R"python(
import json, pickle, sys
for line in sys.stdin:
    path, dump = json.loads(line)
    for entry in dump["entries"]:
        entry["process_group"] = tuple(entry["process_group"])
    try:
        with open(path, "wb") as file:
            pickle.dump(dump, file, 2)
    except OSError as error:
        sys.exit(f"cannot write '{path}': {error.strerror}")
)python";
constexpr std::size_t longest_output = std::size_t{1} << 30;

constexpr DataType unknown_type{255};
constexpr std::string_view default_group = "default_pg";

struct Name {
  std::string_view theirs;
  Operation operation;
};
/// PyTorch's names of the operations; we write the first one of each.
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

/// null where there is no such field.
const json& field(const json& of, const char* name) {
  static const json none;
  const auto found = of.find(name);
  return found != of.end() ? *found : none;
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : std::string(); }

std::int64_t number_of(const json& value) { return value.is_number_integer() ? value.get<std::int64_t>() : 0; }

struct Dump {
  std::string file;
  std::uint32_t rank = 0;
  json content;

  [[nodiscard]] const json& entries() const { return field(content, "entries"); }
};

/// Name and description of the group of a call.
std::pair<std::string, std::string> group_of(const json& entry) {
  const json& pair = field(entry, "process_group");
  if (!pair.is_array() || pair.size() != 2) return {};
  return {text_of(pair[0]), text_of(pair[1])};
}

using Groups = std::map<std::pair<std::string, std::string>, std::vector<std::uint32_t>>;

/// All groups with their members: as a dump lists them, else the ranks that have made a call on it. The default one has
/// all.
Groups groups_in(const std::vector<Dump>& dumps, std::uint32_t size) {
  Groups said;
  std::map<std::pair<std::string, std::string>, std::set<std::uint32_t>> seen;
  for (const Dump& dump : dumps) {
    for (const auto& [name, group] : field(dump.content, "pg_config").items()) {
      auto members = members_in(text_of(field(group, "ranks")));
      if (!members.empty()) said[{name, text_of(field(group, "desc"))}] = members;
    }
    for (const json& entry : dump.entries()) seen[group_of(entry)].insert(dump.rank);
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

std::uint64_t elements_in(const json& sizes) {
  std::uint64_t all = 0;
  for (const json& tensor : sizes) {
    std::uint64_t one = 1;
    for (const json& length : tensor)
      one *= static_cast<std::uint64_t>(std::clamp<std::int64_t>(number_of(length), 0, 1 << 30));
    all += one;
  }
  return all;
}

DataType type_in(const json& names) {
  if (!names.is_array() || names.empty()) return unknown_type;
  const auto* const found = std::ranges::find(types, text_of(names.front()), &TypeName::theirs);
  return found != types.end() ? found->type : unknown_type;
}

State state_of(const json& entry) {
  const bool ended = text_of(field(entry, "state")) == "completed" || field(entry, "retired") == true;
  return ended ? State::completed : State::started;
}

/// The peer of "send 0->3" and "recv 3<-0": the number at the end; any peer for "?".
std::int32_t peer_in(std::string_view name) {
  const auto arrow = name.find_first_of("><");
  if (arrow == std::string_view::npos) return -1;
  const auto last = name.find_last_not_of("0123456789");
  const auto peer = text::to_number(name.substr(last + 1), most_tasks);
  return peer ? static_cast<std::int32_t>(*peer) : trace::recorder_format::any_peer;
}

std::optional<CallRecord> call_in(const json& entry) {
  std::string name = text_of(field(entry, "profiling_name"));
  name.erase(0, name.rfind(':') + 1);
  const auto* const found = std::ranges::find(operations, name.substr(0, name.find(' ')), &Name::theirs);
  if (found == operations.end()) return std::nullopt;
  CallRecord call;
  call.operation = found->operation;
  const auto& input = field(entry, "input_sizes");
  const auto& output = field(entry, "output_sizes");
  call.type = type_in(field(entry, input.empty() ? "output_dtypes" : "input_dtypes"));
  const std::size_t size = calls::size_of(call.type);
  call.bytes = elements_in(input.empty() ? output : input) * (size != 0 ? size : 1);
  if (is_collective(call.operation))
    call.sequence = static_cast<std::uint64_t>(std::max<std::int64_t>(0, number_of(field(entry, "collective_seq_id"))));
  else call.peer = peer_in(name);
  call.tag = is_collective(call.operation) ? 0 : trace::recorder_format::any_tag;
  call.state = state_of(entry);
  call.enqueued_ns = call.started_ns = number_of(field(entry, "time_created_ns"));
  call.ended_ns = number_of(field(entry, "time_discovered_completed_ns"));
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
  for (const json& entry : dump.entries()) {
    const auto slot = slots.find(group_of(entry));
    auto call = call_in(entry);
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

/// Python runs `program` with `arguments` and `input`; what it prints.
Result<std::string> run_python(const char* program, const std::vector<std::string>& arguments, std::string_view input) {
  std::vector<std::string> words = {"python3", "-IS", "-c", program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  auto done = commands::run_program(words, input, longest_output);
  if (!done) return Error{done.error().code, concat({"PyTorch's dumps need python3: ", done.error().message})};
  if (done->status == 0) return std::move(done->out);
  const std::string_view said = text::split(done->err, '\n').front();
  return Error{Errc::unavailable,
               said.empty() ? concat({"python3 ended with status ", std::to_string(done->status)}) : std::string(said)};
}

Result<std::vector<Dump>> read_dumps(const std::vector<std::string>& files) {
  std::vector<Dump> dumps;
  for (const std::string& file : files) {
    const auto rank = rank_of(file);
    if (!rank) return unfit(file, "its name does not end with a rank");
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored))
      return Error{Errc::not_found, concat({text::quote(file), " is not a regular file"})};
    dumps.push_back({file, *rank, {}});
  }
  const auto read = run_python(read_pickles, files, {});
  if (!read) return read.error();
  const auto lines = text::split(*read, '\n');
  for (std::size_t i = 0; i < dumps.size(); ++i) {
    dumps[i].content = json::parse(i < lines.size() ? lines[i] : std::string_view(), nullptr, false);
    if (!dumps[i].content.is_object()) return unfit(dumps[i].file, "it is damaged");
    if (const json& why = field(dumps[i].content, "error"); !why.is_null()) return unfit(dumps[i].file, text_of(why));
  }
  return dumps;
}

// ---- writing ----

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

json time_or_null(std::int64_t time_ns) { return time_ns != 0 ? json(time_ns) : json(); }

struct Numbered {
  const CallRecord* call;
  const CommunicatorRecord* communicator;
  std::uint64_t sequence;  ///< of a message the number among those with its group
};

json entry_of(const Numbered& one, const Recording& recording, std::size_t number) {
  const CallRecord& call = *one.call;
  const bool is_message = !is_collective(call.operation);
  std::string name = concat({recording.source == "nccl" ? "nccl:" : "gloo:", torch_name(call.operation)});
  if (is_message)
    name += concat({" ", std::to_string(one.communicator->rank), call.operation == Operation::send ? "->" : "<-",
                    call.peer < 0 ? "?" : std::to_string(call.peer)});
  const bool ended = call.state == State::completed;
  // "[[1024]]" and "['Float']", as a tensor of one dimension.
  json sizes = json::array();
  json names = json::array();
  if (call.operation != Operation::barrier) {
    const auto* const known = std::ranges::find(types, call.type, &TypeName::type);
    sizes.push_back({call.bytes / std::max<std::size_t>(calls::size_of(call.type), 1)});
    names.push_back(known != types.end() ? known->theirs : "Byte");
  }
  return {{"frames", json::array()},
          {"record_id", number},
          {"pg_id", one.communicator->slot},
          {"process_group",
           {step::to_hexadecimal(one.communicator->id), description_of(*one.communicator, recording.size)}},
          {"collective_seq_id", is_message ? 0 : call.sequence},
          {"p2p_seq_id", is_message ? one.sequence : 0},
          {"op_id", number + 1},
          {"profiling_name", name},
          {"time_created_ns", call.enqueued_ns},
          {"input_sizes", sizes},
          {"input_dtypes", names},
          {"output_sizes", sizes},
          {"output_dtypes", names},
          {"state", ended                           ? "completed"
                    : call.state == State::enqueued ? "scheduled"
                                                    : "started"},
          {"time_discovered_started_ns", time_or_null(call.started_ns)},
          {"time_discovered_completed_ns", time_or_null(ended ? call.ended_ns : 0)},
          {"retired", ended},
          {"timeout_ms", 0},
          {"is_p2p", is_message}};
}

void add_groups(json& dump, const Recording& recording) {
  for (const auto& each : recording.communicators) {
    const std::string name = step::to_hexadecimal(each.id);
    dump["pg_config"][name] = {
        {"name", name}, {"desc", description_of(each, recording.size)}, {"ranks", list_of(each.world_ranks.to_list())}};
    dump["pg_status"][name] = {{"last_enqueued_collective", each.entered},
                               {"last_started_collective", each.entered},
                               {"last_completed_collective", each.completed}};
  }
}

/// The recorders of one rank, which may be several, as one dump.
json dump_of(const std::vector<const Recording*>& recordings) {
  json dump = {{"version", "2.10"},
               {"comm_lib_version", ""},
               {"pg_config", json::object()},
               {"pg_status", json::object()},
               {"entries", json::array()}};
  for (const auto* const recording : recordings) {
    add_groups(dump, *recording);
    std::map<std::pair<std::uint32_t, std::int32_t>, std::uint64_t> messages;
    for (const CallRecord& call : recording->calls) {
      const auto* const communicator = recording->communicator(call.communicator);
      if (communicator == nullptr || torch_name(call.operation).empty()) continue;
      const std::uint64_t message = is_collective(call.operation) ? 0 : ++messages[{call.communicator, call.peer}];
      dump["entries"].push_back(entry_of({&call, communicator, message}, *recording, dump["entries"].size()));
    }
  }
  return dump;
}

}  // namespace

std::string_view torch_name(Operation operation) noexcept {
  const auto* const found = std::ranges::find(operations, operation, &Name::operation);
  return found != operations.end() ? found->theirs : std::string_view();
}

Result<TracedStep> read_torch_dumps(const std::vector<std::string>& files) {
  auto read = read_dumps(files);
  if (!read) return read.error();
  std::vector<Dump>& dumps = *read;
  std::set<std::uint32_t> ranks;
  for (const Dump& dump : dumps) {
    if (!ranks.insert(dump.rank).second)
      return unfit(dump.file, concat({"another one is of rank ", std::to_string(dump.rank), ", too"}));
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
  std::string dumps;
  for (const auto& [rank, recordings] : by_rank) {
    const json line = {concat({folder, "/rank_", std::to_string(rank)}), dump_of(recordings)};
    dumps += line.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  }
  const auto written = run_python(write_pickles, {}, dumps);
  return written ? Result<void>() : written.error();
}

}  // namespace amldist::tools
