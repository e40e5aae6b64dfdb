// Open MPI 4 and 5: handles are addresses of its own objects.
#include <dlfcn.h>

#include "trace/mpi/abi.hpp"

namespace amldist::trace::mpi {
namespace {

/// A program may have its own copy of the object (a copy relocation), which all then use.
void* object(void* library, const char* name) noexcept {
  void* const first = ::dlsym(RTLD_DEFAULT, name);
  return first != nullptr ? first : ::dlsym(library, name);
}

}  // namespace

std::optional<Abi> Abi::of(void* library) noexcept {
  using calls::DataType;
  using calls::ReduceOp;
  Abi abi;
  abi.world = object(library, "ompi_mpi_comm_world");
  if (abi.world == nullptr) return std::nullopt;
  abi.no_comm = object(library, "ompi_mpi_comm_null");
  abi.no_request = object(library, "ompi_request_null");
  abi.packed = object(library, "ompi_mpi_packed");
  struct Named {
    const char* name;
    DataType type;
  };
  constexpr std::array named = {
      Named{"ompi_mpi_char", DataType::int8},           Named{"ompi_mpi_signed_char", DataType::int8},
      Named{"ompi_mpi_int8_t", DataType::int8},         Named{"ompi_mpi_byte", DataType::uint8},
      Named{"ompi_mpi_unsigned_char", DataType::uint8}, Named{"ompi_mpi_uint8_t", DataType::uint8},
      Named{"ompi_mpi_short", DataType::int16},         Named{"ompi_mpi_int16_t", DataType::int16},
      Named{"ompi_mpi_uint16_t", DataType::uint16},     Named{"ompi_mpi_int", DataType::int32},
      Named{"ompi_mpi_int32_t", DataType::int32},       Named{"ompi_mpi_integer", DataType::int32},
      Named{"ompi_mpi_unsigned", DataType::uint32},     Named{"ompi_mpi_uint32_t", DataType::uint32},
      Named{"ompi_mpi_long", DataType::int64},          Named{"ompi_mpi_long_long_int", DataType::int64},
      Named{"ompi_mpi_int64_t", DataType::int64},       Named{"ompi_mpi_unsigned_long", DataType::uint64},
      Named{"ompi_mpi_uint64_t", DataType::uint64},     Named{"ompi_mpi_float", DataType::float32},
      Named{"ompi_mpi_real", DataType::float32},        Named{"ompi_mpi_double", DataType::float64},
      Named{"ompi_mpi_dblprec", DataType::float64}};
  for (const Named& each : named) {
    if (void* const handle = object(library, each.name)) abi.types[abi.type_count++] = {handle, each.type};
  }
  abi.ops = {{{object(library, "ompi_mpi_op_sum"), ReduceOp::sum},
              {object(library, "ompi_mpi_op_prod"), ReduceOp::prod},
              {object(library, "ompi_mpi_op_max"), ReduceOp::max},
              {object(library, "ompi_mpi_op_min"), ReduceOp::min}}};
  abi.in_place = reinterpret_cast<void*>(1);
  return abi;
}

}  // namespace amldist::trace::mpi
