// Element types, reduction operators and operations: their numbers (those of the C ABI), sizes and names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace amldist::calls {

/// Element types, numbered as amldist_type.
enum class DataType : std::uint8_t {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
  int16 = 10,
  uint16 = 11,
  boolean = 12,  ///< a byte that is 0 or 1
};
inline constexpr int data_types = 13;

/// Reduction operators, numbered as amldist_op.
/// band, bor and bxor combine bits.
enum class ReduceOp : std::uint8_t { sum = 0, prod = 1, max = 2, min = 3, avg = 4, band = 5, bor = 6, bxor = 7 };
inline constexpr int reduce_ops = 8;

/// The operation of a call. Flight recorders store the numbers: only add new ones.
enum class Operation : std::uint8_t {
  none = 0,
  allreduce = 1,
  reduce = 2,
  broadcast = 3,
  allgather = 4,
  allgatherv = 5,
  reduce_scatter = 6,
  alltoall = 7,
  alltoallv = 8,
  gather = 9,
  scatter = 10,
  send = 11,
  recv = 12,
  barrier = 13,
  split = 14,
  finalize = 15,
  init = 16,
  reduce_scatterv = 17,
};

[[nodiscard]] constexpr std::size_t size_of(DataType type) noexcept {
  switch (type) {
    case DataType::int8:
    case DataType::uint8:
    case DataType::boolean:
      return 1;
    case DataType::int16:
    case DataType::uint16:
    case DataType::float16:
    case DataType::bfloat16:
      return 2;
    case DataType::int32:
    case DataType::uint32:
    case DataType::float32:
      return 4;
    case DataType::int64:
    case DataType::uint64:
    case DataType::float64:
      return 8;
  }
  return 0;
}

/// "float32", "sum", "allreduce"; "unknown" for any other number.
[[nodiscard]] std::string_view to_string(DataType type) noexcept;
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;
[[nodiscard]] std::string_view to_string(Operation operation) noexcept;

[[nodiscard]] constexpr bool is_floating(DataType type) noexcept {
  return type == DataType::float16 || type == DataType::bfloat16 || type == DataType::float32 ||
         type == DataType::float64;
}
[[nodiscard]] constexpr bool is_bitwise(ReduceOp op) noexcept {
  return op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
}
/// Whether elements of the type can be combined with the operator: floating-point numbers have no bits, bools no
/// average.
[[nodiscard]] constexpr bool can_combine(DataType type, ReduceOp op) noexcept {
  return is_bitwise(op) ? !is_floating(type) : type != DataType::boolean || op != ReduceOp::avg;
}

/// Whether a number of the C ABI is a valid enumerator.
[[nodiscard]] constexpr bool is_data_type(int number) noexcept { return number >= 0 && number < data_types; }
[[nodiscard]] constexpr bool is_reduce_op(int number) noexcept { return number >= 0 && number < reduce_ops; }
/// Converts a number of the C ABI; nullopt if it is not valid.
[[nodiscard]] constexpr std::optional<DataType> to_data_type(int number) noexcept {
  if (!is_data_type(number)) return std::nullopt;
  return static_cast<DataType>(number);
}
[[nodiscard]] constexpr std::optional<ReduceOp> to_reduce_op(int number) noexcept {
  if (!is_reduce_op(number)) return std::nullopt;
  return static_cast<ReduceOp>(number);
}

}  // namespace amldist::calls
