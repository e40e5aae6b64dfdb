#include "rendezvous/launch_record.hpp"

#include <limits>

#include "core/environment.hpp"
#include "core/spec.hpp"
#include "core/text.hpp"

namespace amldist {
namespace {

using text::concat;

Error malformed(std::string_view what) {
  return {Errc::invalid_argument, concat({launch_record_variable, " cannot be read (", what,
                                          "): it is made by srun and must not be set by hand"})};
}

bool parse_step(LaunchRecord& record, std::string_view value) {
  constexpr std::uint64_t any = std::numeric_limits<std::uint32_t>::max();
  const auto dot = value.find('.');
  if (dot == std::string_view::npos) return false;
  const auto job = text::to_number(value.substr(0, dot), any);
  const auto step = text::to_number(value.substr(dot + 1), any);
  if (!job || !step) return false;
  record.job_id = static_cast<std::uint32_t>(*job);
  record.step_id = static_cast<std::uint32_t>(*step);
  return true;
}

bool parse_field(LaunchRecord& record, std::string_view name, std::string_view value) {
  if (name == "step") return parse_step(record, value);
  if (name == "addr") {
    record.address = value;
    return is_host(value);
  }
  if (name == "ports") {
    auto ports = PortRanges::parse(value);
    if (!ports) return false;
    record.ports = std::move(*ports);
    return true;
  }
  if (name == "map") {
    record.map = value;
    return true;  // TaskMap::parse judges it, with the step's size
  }
  return false;
}

}  // namespace

std::string LaunchRecord::to_string() const {
  return concat({"1;step=", std::to_string(job_id), ".", std::to_string(step_id), ";addr=", address,
                 ";ports=", ports.to_string(), ";map=", map});
}

Result<LaunchRecord> LaunchRecord::parse(std::string_view text) {
  if (text.size() > longest_environment_string) return Error{Errc::limit, malformed("too long").message};
  const auto fields = text::split(text, ';');
  if (fields.front() != "1") return malformed("unknown version: srun and this node have different releases");
  constexpr std::size_t field_count = 5;
  if (fields.size() != field_count) return malformed("wrong number of fields");
  LaunchRecord record;
  constexpr std::string_view names[] = {"step", "addr", "ports", "map"};
  for (std::size_t i = 1; i < field_count; ++i) {
    const auto equals = fields[i].find('=');
    const bool right_name = equals != std::string_view::npos && fields[i].substr(0, equals) == names[i - 1];
    if (!right_name || !parse_field(record, names[i - 1], fields[i].substr(equals + 1))) return malformed(names[i - 1]);
  }
  return record;
}

}  // namespace amldist
