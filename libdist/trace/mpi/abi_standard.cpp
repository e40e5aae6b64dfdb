// The standard's own interface (MPI 5.0): handles are small fixed numbers in pointers.
#include <array>

#include "trace/mpi/abi.hpp"

namespace amldist::trace::mpi {

std::optional<Abi> Abi::of(void* /*library*/) noexcept {
  using calls::DataType;
  using calls::ReduceOp;
  const auto handle = [](std::uintptr_t number) {
    return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): the standard's own values
  };
  Abi abi;
  abi.world = handle(0x101);
  abi.no_comm = handle(0x100);
  abi.no_request = handle(0x180);
  abi.packed = handle(0x207);
  abi.any_source = -1;
  abi.any_tag = -2;
  abi.no_process = -3;
  abi.thread_multiple = 4096;
  abi.in_place = handle(1);
  abi.error_in_status = 19;
  abi.error_still_pending = 18;
  abi.status = {32, 8};
  struct Numbered {
    std::uintptr_t number;
    DataType type;
  };
  constexpr std::array<Numbered, 19> types = {{{0x243, DataType::int8},
                                               {0x244, DataType::int8},
                                               {0x240, DataType::int8},
                                               {0x245, DataType::uint8},
                                               {0x247, DataType::uint8},
                                               {0x241, DataType::uint8},
                                               {0x208, DataType::int16},
                                               {0x248, DataType::int16},
                                               {0x20c, DataType::uint16},
                                               {0x209, DataType::int32},
                                               {0x250, DataType::int32},
                                               {0x20d, DataType::uint32},
                                               {0x251, DataType::uint32},
                                               {0x20a, DataType::int64},
                                               {0x258, DataType::int64},
                                               {0x20e, DataType::uint64},
                                               {0x259, DataType::uint64},
                                               {0x210, DataType::float32},
                                               {0x214, DataType::float64}}};
  for (const Numbered& each : types) abi.types[abi.type_count++] = {handle(each.number), each.type};
  abi.ops = {{{handle(0x21), ReduceOp::sum},
              {handle(0x24), ReduceOp::prod},
              {handle(0x23), ReduceOp::max},
              {handle(0x22), ReduceOp::min}}};
  return abi;
}

}  // namespace amldist::trace::mpi
