#include "calls/data_type.hpp"

#include <array>

namespace amldist::calls {
namespace {

using namespace std::string_view_literals;

constexpr std::array type_names = {"int8"sv,   "uint8"sv,   "int32"sv,   "uint32"sv,  "int64"sv,
                                   "uint64"sv, "float16"sv, "float32"sv, "float64"sv, "bfloat16"sv,
                                   "int16"sv,  "uint16"sv,  "bool"sv};
constexpr std::array op_names = {"sum"sv, "prod"sv, "max"sv, "min"sv, "avg"sv, "band"sv, "bor"sv, "bxor"sv};
constexpr std::array operation_names = {
    "none"sv,           "allreduce"sv, "reduce"sv,    "broadcast"sv, "allgather"sv, "allgatherv"sv,
    "reduce_scatter"sv, "alltoall"sv,  "alltoallv"sv, "gather"sv,    "scatter"sv,   "send"sv,
    "recv"sv,           "barrier"sv,   "split"sv,     "finalize"sv,  "init"sv,      "reduce_scatterv"sv};
static_assert(type_names.size() == data_types && op_names.size() == reduce_ops);

template <typename Names, typename Number>
std::string_view name_in(const Names& names, Number number) noexcept {
  const auto index = static_cast<std::size_t>(number);
  return index < names.size() ? names[index] : "unknown"sv;
}

}  // namespace

std::string_view to_string(DataType type) noexcept { return name_in(type_names, type); }
std::string_view to_string(ReduceOp op) noexcept { return name_in(op_names, op); }
std::string_view to_string(Operation operation) noexcept { return name_in(operation_names, operation); }

}  // namespace amldist::calls
