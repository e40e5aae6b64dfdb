// What a communicator refuses before any other rank hears of it.
#include "collective/communicator/call_check.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace {

using namespace amldist::collective;

constexpr std::uint32_t size = 4;
constexpr std::uint32_t rank = 1;

std::array<double, 16> memory = {};

Call call_of(Operation operation, int root = 0) {
  Call call;
  call.operation = operation;
  call.type = DataType::float64;
  call.root = root;
  call.count = 2;
  call.send = memory.data();
  call.recv = memory.data();
  return call;
}

/// The refusal; "" for a valid call.
std::string refusal_of(const Call& call) {
  const auto checked = check_call(call, rank, size);
  if (checked) return {};
  EXPECT_EQ(checked.error().code, amldist::Errc::invalid_argument);
  EXPECT_FALSE(is_plainly_valid(call, size)) << "is_plainly_valid() lets it through";
  return checked.error().message;
}

TEST(CallCheck, EveryOperationIsValidWithBuffers) {
  for (const auto operation : {Operation::allreduce, Operation::reduce, Operation::broadcast, Operation::allgather,
                               Operation::reduce_scatter, Operation::alltoall, Operation::gather, Operation::scatter,
                               Operation::send, Operation::recv, Operation::barrier}) {
    EXPECT_EQ(refusal_of(call_of(operation)), "") << to_string(operation);
    EXPECT_TRUE(is_plainly_valid(call_of(operation), size)) << to_string(operation);
  }
}

TEST(CallCheck, ARootIsOneOfTheRanks) {
  EXPECT_EQ(refusal_of(call_of(Operation::reduce, 4)), "reduce: root 4 is not one of the ranks 0 to 3");
  EXPECT_EQ(refusal_of(call_of(Operation::broadcast, -1)), "broadcast: root -1 is not one of the ranks 0 to 3");
  EXPECT_EQ(refusal_of(call_of(Operation::send, 4)), "send: peer 4 is not one of the ranks 0 to 3");
}

TEST(CallCheck, ABufferThatIsUsedIsNeeded) {
  Call call = call_of(Operation::allreduce);
  call.send = nullptr;
  EXPECT_EQ(refusal_of(call), "allreduce: the buffer to send is NULL");
  call = call_of(Operation::allreduce);
  call.recv = nullptr;
  EXPECT_EQ(refusal_of(call), "allreduce: the buffer to receive is NULL");
  call = call_of(Operation::broadcast);
  call.send = call.recv = nullptr;
  EXPECT_EQ(refusal_of(call), "broadcast: the buffer is NULL");
  call = call_of(Operation::recv);
  call.recv = nullptr;
  EXPECT_EQ(refusal_of(call), "recv: the buffer to receive is NULL");
}

TEST(CallCheck, ABufferThatIsNotUsedIsNotNeeded) {
  Call call = call_of(Operation::reduce);  // to rank 0
  call.recv = nullptr;
  EXPECT_EQ(refusal_of(call), "");
  call = call_of(Operation::scatter);  // from rank 0
  call.send = nullptr;
  EXPECT_EQ(refusal_of(call), "");
  call = call_of(Operation::gather, rank);
  call.recv = nullptr;
  EXPECT_EQ(refusal_of(call), "gather: the buffer to receive is NULL");
  call = call_of(Operation::allreduce);
  call.send = call.recv = nullptr;
  call.count = 0;
  EXPECT_EQ(refusal_of(call), "");
}

TEST(CallCheck, ACountFitsIntoMemory) {
  Call call = call_of(Operation::allgather);
  call.count = SIZE_MAX / 2 / sizeof(double) / size;
  EXPECT_EQ(refusal_of(call), "");
  ++call.count;
  EXPECT_EQ(refusal_of(call), "allgather: the count is beyond any memory");
}

TEST(CallCheck, ListsAgreeWithTheOwnPart) {
  std::array<std::size_t, size> counts = {1, 2, 3, 4};
  std::array<std::size_t, size> offsets = {0, 1, 3, 6};
  Call call = call_of(Operation::allgatherv);
  call.recv_counts = counts;
  call.recv_offsets = offsets;
  EXPECT_EQ(refusal_of(call), "");
  call.count = 3;
  EXPECT_EQ(refusal_of(call), "allgatherv: 3 elements are given, but counts[own rank] is 2");
  std::array<std::size_t, size> others = {1, 5, 3, 4};
  call.operation = Operation::alltoallv;
  call.send_counts = others;
  call.send_offsets = offsets;
  EXPECT_EQ(refusal_of(call), "alltoallv: 5 elements are sent to the own rank, which expects 2");
  others[rank] = 2;
  EXPECT_EQ(refusal_of(call), "");
  offsets[3] = SIZE_MAX;
  EXPECT_EQ(refusal_of(call), "alltoallv: a count or an offset is beyond any memory");
}

}  // namespace
