// What a communicator refuses before any other rank hears of it.
#include "collective/communicator/call_check.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace amldist::collective::call_check_test {
namespace {

constexpr std::uint32_t size = 4;
constexpr std::uint32_t rank = 1;

std::array<double, 64> memory = {};
constexpr std::size_t apart = 32;

calls::Call call_of(calls::Operation operation, int root = 0) {
  calls::Call call;
  call.operation = operation;
  call.type = calls::DataType::float64;
  call.root = root;
  call.count = 2;
  call.send = memory.data();
  call.recv = operation == calls::Operation::broadcast ? memory.data() : memory.data() + apart;
  return call;
}

/// The refusal; "" for a valid call.
std::string refusal_of(const calls::Call& call) {
  const auto checked = check_call(call, rank, size);
  if (checked) return {};
  EXPECT_EQ(checked.error().code, amldist::Errc::invalid_argument);
  EXPECT_FALSE(passes_quick_check(call, size)) << "passes_quick_check() lets it through";
  return checked.error().message;
}

TEST(CallCheck, EveryOperationIsValidWithBuffers) {
  for (const auto operation :
       {calls::Operation::allreduce, calls::Operation::reduce, calls::Operation::broadcast, calls::Operation::allgather,
        calls::Operation::reduce_scatter, calls::Operation::alltoall, calls::Operation::gather,
        calls::Operation::scatter, calls::Operation::send, calls::Operation::recv, calls::Operation::barrier}) {
    EXPECT_EQ(refusal_of(call_of(operation)), "") << to_string(operation);
    EXPECT_TRUE(passes_quick_check(call_of(operation), size)) << to_string(operation);
  }
}

TEST(CallCheck, ARootIsOneOfTheRanks) {
  EXPECT_EQ(refusal_of(call_of(calls::Operation::reduce, 4)), "reduce: root 4 is not one of the ranks 0 to 3");
  EXPECT_EQ(refusal_of(call_of(calls::Operation::broadcast, -1)), "broadcast: root -1 is not one of the ranks 0 to 3");
  EXPECT_EQ(refusal_of(call_of(calls::Operation::send, 4)), "send: peer 4 is not one of the ranks 0 to 3");
}

TEST(CallCheck, ABufferThatIsUsedIsNeeded) {
  calls::Call call = call_of(calls::Operation::allreduce);
  call.send = nullptr;
  EXPECT_EQ(refusal_of(call), "allreduce: the buffer to send is NULL");
  call = call_of(calls::Operation::allreduce);
  call.recv = nullptr;
  EXPECT_EQ(refusal_of(call), "allreduce: the buffer to receive is NULL");
  call = call_of(calls::Operation::broadcast);
  call.send = call.recv = nullptr;
  EXPECT_EQ(refusal_of(call), "broadcast: the buffer is NULL");
  call = call_of(calls::Operation::recv);
  call.recv = nullptr;
  EXPECT_EQ(refusal_of(call), "recv: the buffer to receive is NULL");
}

TEST(CallCheck, ABufferThatIsNotUsedIsNotNeeded) {
  calls::Call call = call_of(calls::Operation::reduce);  // to rank 0
  call.recv = nullptr;
  EXPECT_EQ(refusal_of(call), "");
  call = call_of(calls::Operation::scatter);  // from rank 0
  call.send = nullptr;
  EXPECT_EQ(refusal_of(call), "");
  call = call_of(calls::Operation::gather, rank);
  call.recv = nullptr;
  EXPECT_EQ(refusal_of(call), "gather: the buffer to receive is NULL");
  call = call_of(calls::Operation::allreduce);
  call.send = call.recv = nullptr;
  call.count = 0;
  EXPECT_EQ(refusal_of(call), "");
}

TEST(CallCheck, ACountFitsIntoMemory) {
  calls::Call call = call_of(calls::Operation::broadcast);
  call.count = SIZE_MAX / 2 / sizeof(double) / size;
  EXPECT_EQ(refusal_of(call), "");
  ++call.count;
  EXPECT_EQ(refusal_of(call), "broadcast: the count is beyond any memory");
}

/// A call of two elements for each rank, with buffers at these places of the memory.
calls::Call placed(calls::Operation operation, std::size_t send, std::size_t recv, int root = 0) {
  calls::Call call = call_of(operation, root);
  call.send = &memory.at(send);
  call.recv = &memory.at(recv);
  return call;
}

std::string overlap_in(calls::Operation operation) {
  return std::string(to_string(operation)) + ": the buffers to send and to receive overlap, other than in place";
}

TEST(CallCheck, BuffersDoNotOverlap) {
  EXPECT_EQ(refusal_of(placed(calls::Operation::allreduce, 0, 1)), overlap_in(calls::Operation::allreduce));
  EXPECT_EQ(refusal_of(placed(calls::Operation::allreduce, 1, 0)), overlap_in(calls::Operation::allreduce));
  EXPECT_EQ(refusal_of(placed(calls::Operation::allreduce, 0, 2)), "");
  EXPECT_EQ(refusal_of(placed(calls::Operation::reduce, 0, 1, rank)), overlap_in(calls::Operation::reduce));
  EXPECT_EQ(refusal_of(placed(calls::Operation::reduce, 0, 1, 0)), "") << "only the root receives";
  EXPECT_EQ(refusal_of(placed(calls::Operation::allgather, 0, 0)), overlap_in(calls::Operation::allgather));
  EXPECT_EQ(refusal_of(placed(calls::Operation::allgather, 7, 0)), overlap_in(calls::Operation::allgather));
  EXPECT_EQ(refusal_of(placed(calls::Operation::allgather, 8, 0)), "");
  EXPECT_EQ(refusal_of(placed(calls::Operation::reduce_scatter, 0, 3)), overlap_in(calls::Operation::reduce_scatter));
  EXPECT_EQ(refusal_of(placed(calls::Operation::alltoall, 0, 7)), overlap_in(calls::Operation::alltoall));
  EXPECT_EQ(refusal_of(placed(calls::Operation::alltoall, 0, 8)), "");
  EXPECT_EQ(refusal_of(placed(calls::Operation::gather, 0, 0, rank)), overlap_in(calls::Operation::gather));
  EXPECT_EQ(refusal_of(placed(calls::Operation::scatter, 0, 0, rank)), overlap_in(calls::Operation::scatter));
  EXPECT_EQ(refusal_of(placed(calls::Operation::scatter, 0, 0, 0)), "") << "only the root sends";
}

TEST(CallCheck, InPlaceIsNoOverlap) {
  EXPECT_EQ(refusal_of(placed(calls::Operation::allreduce, 3, 3)), "");
  EXPECT_EQ(refusal_of(placed(calls::Operation::reduce, 3, 3, rank)), "");
  EXPECT_EQ(refusal_of(placed(calls::Operation::alltoall, 3, 3)), "");
  EXPECT_EQ(refusal_of(placed(calls::Operation::allgather, 2 * rank, 0)), "");
  EXPECT_EQ(refusal_of(placed(calls::Operation::reduce_scatter, 0, 2 * rank)), "");
  EXPECT_EQ(refusal_of(placed(calls::Operation::gather, 2 * rank, 0, rank)), "");
  EXPECT_EQ(refusal_of(placed(calls::Operation::scatter, 0, 2 * rank, rank)), "");
}

TEST(CallCheck, ListedBlocksDoNotOverlap) {
  const std::array<std::size_t, size> counts = {2, 2, 2, 2};
  const std::array<std::size_t, size> even = {0, 4, 8, 12};
  const std::array<std::size_t, size> odd = {2, 6, 10, 14};
  calls::Call call = placed(calls::Operation::alltoallv, 0, 0);
  const calls::CallLists crossing = {counts, even, counts, odd};
  call.lists = &crossing;
  EXPECT_EQ(refusal_of(call), "") << "they lie between each other";
  call.recv = &memory.at(1);
  EXPECT_EQ(refusal_of(call), overlap_in(calls::Operation::alltoallv));
  call = placed(calls::Operation::allgatherv, 4, 0);
  const calls::CallLists received = {{}, {}, counts, even};
  call.lists = &received;
  EXPECT_EQ(refusal_of(call), "") << "in place";
  call.send = &memory.at(5);
  EXPECT_EQ(refusal_of(call), overlap_in(calls::Operation::allgatherv));
  call.send = &memory.at(6);
  EXPECT_EQ(refusal_of(call), "");
}

TEST(CallCheck, ListedBlocksAreReducedInPlaceOrApart) {
  const std::array<std::size_t, size> counts = {2, 2, 2, 2};
  const std::array<std::size_t, size> even = {0, 4, 8, 12};
  calls::Call call = placed(calls::Operation::reduce_scatterv, 0, 4);
  call.count = 2;
  const calls::CallLists lists = {counts, even, {}, {}};
  call.lists = &lists;
  EXPECT_EQ(refusal_of(call), "") << "in place";
  call.recv = &memory.at(6);
  EXPECT_EQ(refusal_of(call), "") << "between the blocks";
  call.recv = &memory.at(5);
  EXPECT_EQ(refusal_of(call), overlap_in(calls::Operation::reduce_scatterv));
  call.recv = nullptr;
  EXPECT_EQ(refusal_of(call), "reduce_scatterv: the buffer to receive is NULL");
}

TEST(CallCheck, OperatorsBelongToTypes) {
  calls::Call call = placed(calls::Operation::allreduce, 0, 8);
  call.redop = calls::ReduceOp::bor;
  call.type = calls::DataType::int16;
  EXPECT_EQ(refusal_of(call), "");
  call.type = calls::DataType::float16;
  EXPECT_EQ(refusal_of(call), "allreduce: float16 cannot be combined by bor");
  call.operation = calls::Operation::broadcast;
  EXPECT_EQ(refusal_of(call), "") << "it combines nothing";
}

TEST(CallCheck, MessagesOfAGroupDoNotOverlap) {
  const auto refused = [](std::size_t recv) {
    const std::array<calls::Call, 3> messages = {placed(calls::Operation::send, 8, 8),
                                                 placed(calls::Operation::send, 2, 2),
                                                 placed(calls::Operation::recv, recv, recv)};
    return !check_group(messages);
  };
  EXPECT_FALSE(refused(0));
  EXPECT_TRUE(refused(1));
  EXPECT_TRUE(refused(2));
  EXPECT_TRUE(refused(3));
  EXPECT_FALSE(refused(4));
  EXPECT_TRUE(refused(9));
}

TEST(CallCheck, ListsAgreeWithTheOwnPart) {
  std::array<std::size_t, size> counts = {1, 2, 3, 4};
  std::array<std::size_t, size> offsets = {0, 1, 3, 6};
  calls::Call call = call_of(calls::Operation::allgatherv);
  calls::CallLists lists = {{}, {}, counts, offsets};
  call.lists = &lists;
  EXPECT_EQ(refusal_of(call), "");
  call.count = 3;
  EXPECT_EQ(refusal_of(call), "allgatherv: 3 elements are given, but counts[own rank] is 2");
  std::array<std::size_t, size> others = {1, 5, 3, 4};
  call.operation = calls::Operation::alltoallv;
  lists.send_counts = others;
  lists.send_offsets = offsets;
  EXPECT_EQ(refusal_of(call), "alltoallv: 5 elements are sent to the own rank, which expects 2");
  others[rank] = 2;
  EXPECT_EQ(refusal_of(call), "");
  offsets[3] = SIZE_MAX;
  EXPECT_EQ(refusal_of(call), "alltoallv: a count or an offset is beyond any memory");
}

}  // namespace
}  // namespace amldist::collective::call_check_test
