#include "collective/data_type.hpp"

#include <array>

namespace amldist::collective {
namespace {

template <std::size_t N, typename Enumerator>
std::string_view name_of(const std::array<std::string_view, N>& names, Enumerator enumerator) noexcept {
  const auto number = static_cast<std::size_t>(enumerator);
  return number < N ? names[number] : "unknown";
}

}  // namespace

std::string_view to_string(DataType type) noexcept {
  static constexpr std::array<std::string_view, data_types> names = {"int8",    "uint8",    "int32",   "uint32",
                                                                     "int64",   "uint64",   "float16", "float32",
                                                                     "float64", "bfloat16", "int16",   "uint16"};
  return name_of(names, type);
}

std::string_view to_string(ReduceOp op) noexcept {
  static constexpr std::array<std::string_view, reduce_ops> names = {"sum", "prod", "max", "min", "avg"};
  return name_of(names, op);
}

std::string_view to_string(Operation operation) noexcept {
  static constexpr std::array<std::string_view, 16> names = {
      "none",      "allreduce", "reduce",  "broadcast", "allgather", "allgatherv", "reduce_scatter", "alltoall",
      "alltoallv", "gather",    "scatter", "send",      "recv",      "barrier",    "split",          "finalize"};
  return name_of(names, operation);
}

std::optional<DataType> to_data_type(int number) noexcept {
  if (number < 0 || number >= data_types) return std::nullopt;
  return static_cast<DataType>(number);
}

std::optional<ReduceOp> to_reduce_op(int number) noexcept {
  if (number < 0 || number >= reduce_ops) return std::nullopt;
  return static_cast<ReduceOp>(number);
}

}  // namespace amldist::collective
