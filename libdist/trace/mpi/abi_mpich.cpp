// MPICH since 3.1, Intel MPI, MVAPICH: handles are fixed numbers.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "trace/mpi/abi.hpp"

namespace amldist::trace::mpi {
namespace {

/// Whether the library names itself as one that shares MPICH's interface. May be called before MPI_Init.
bool is_mpich(void* library) noexcept {
  const auto ask = reinterpret_cast<int (*)(char*, int*)>(::dlsym(library, "PMPI_Get_library_version"));
  if (ask == nullptr) return false;
  std::array<char, 8192> words{};  // MPI_MAX_LIBRARY_VERSION_STRING
  int length = 0;
  if (ask(words.data(), &length) != 0) return false;
  const std::string_view version(words.data());
  constexpr std::array<std::string_view, 4> known = {"MPICH", "Intel(R) MPI", "MVAPICH", "CRAY MPI"};
  return std::ranges::any_of(known,
                             [&](std::string_view each) { return version.find(each) != std::string_view::npos; });
}

}  // namespace

std::optional<Abi> Abi::of(void* library) noexcept {
  using calls::DataType;
  using calls::ReduceOp;
  if (!is_mpich(library)) return std::nullopt;
  Abi abi;
  abi.world = 0x44000000;
  abi.no_comm = 0x04000000;
  abi.no_request = 0x2c000000;
  abi.packed = 0x4c00010f;
  abi.any_source = -2;
  abi.any_tag = -1;
  abi.no_process = -1;
  abi.in_place = reinterpret_cast<void*>(-1);  // NOLINT(performance-no-int-to-ptr): the interface's own value
  abi.no_status = reinterpret_cast<void*>(1);
  abi.error_truncate = 14;
  abi.error_in_status = 17;
  abi.error_still_pending = 18;
  abi.status = {20, 16};
  constexpr std::array<Type, 21> types = {
      {{0x4c000101, DataType::int8},    {0x4c000118, DataType::int8},    {0x4c000137, DataType::int8},
       {0x4c000102, DataType::uint8},   {0x4c00010d, DataType::uint8},   {0x4c00013b, DataType::uint8},
       {0x4c000203, DataType::int16},   {0x4c000238, DataType::int16},   {0x4c000204, DataType::uint16},
       {0x4c000405, DataType::int32},   {0x4c000439, DataType::int32},   {0x4c00041b, DataType::int32},
       {0x4c000406, DataType::uint32},  {0x4c000807, DataType::int64},   {0x4c00083a, DataType::int64},
       {0x4c000808, DataType::uint64},  {0x4c00083e, DataType::uint64},  {0x4c00040a, DataType::float32},
       {0x4c00041c, DataType::float32}, {0x4c00080b, DataType::float64}, {0x4c00081f, DataType::float64}}};
  for (const Type& each : types) abi.types[abi.type_count++] = each;
  abi.ops = {{{0x58000003, ReduceOp::sum},
              {0x58000004, ReduceOp::prod},
              {0x58000001, ReduceOp::max},
              {0x58000002, ReduceOp::min}}};
  return abi;
}

}  // namespace amldist::trace::mpi
