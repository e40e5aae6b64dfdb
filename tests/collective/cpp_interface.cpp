// The C++ interface, on one rank of several: every call gives what the C call gives, and spans that do not fit together
// are refused before anything is sent.
#include <algorithm>
#include <amldist/amldist.hpp>
#include <amldist/memory_resource.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <vector>

namespace {

using amldist::Blocks;
using amldist::Communicator;
using amldist::Expected;
using amldist::Request;
using amldist::Status;

int failures = 0;

void expect(bool condition, const char* what) {
  if (condition) return;
  ++failures;
  std::printf("%s\n", what);
}
void done(const Status& status, const char* what) {
  if (!status.ok()) std::printf("%s\n", status.message().c_str());
  expect(status.ok(), what);
}
void done(Expected<Request> request, const char* what) {
  if (!request) return done(request.status(), what);
  done(request->wait(), what);
}
void refused(const Status& status, const char* words) {
  expect(status.status() == AMLDIST_EINVAL && status.message().find(words) != std::string::npos, words);
}

/// Waits for what begins without waiting; a Status has no more to wait for.
template <typename Blocking, typename Beginning, typename Check>
void both(const char* what, Blocking blocking, Beginning beginning, Check check) {
  done(blocking(), what);
  expect(check(), what);
  done(beginning(), what);
  expect(check(), what);
}

template <typename T>
std::span<const T> in(const std::vector<T>& data) {
  return data;
}
template <typename T>
std::span<T> out(std::vector<T>& data) {
  return data;
}

struct Numbers {
  explicit Numbers(const Communicator& world)
      : rank(world.rank()), ranks(world.size()), count(static_cast<std::size_t>(ranks)) {}
  int rank;
  int ranks;
  std::size_t count;
  [[nodiscard]] bool is_root() const { return rank == 0; }
};

void reductions(Communicator& world) {
  const Numbers n(world);
  const int sum = n.ranks * (n.ranks + 1) / 2;
  const std::vector<int> own(n.count, n.rank + 1);
  std::vector<int> all(n.count);
  const auto full = [&] { return std::exchange(all, std::vector<int>(n.count)) == std::vector<int>(n.count, sum); };
  both(
      "allreduce", [&] { return world.allreduce(in(own), out(all)); },
      [&] { return world.iallreduce(in(own), out(all)); }, full);
  both(
      "reduce", [&] { return world.reduce(in(own), out(all), 0); }, [&] { return world.ireduce(in(own), out(all), 0); },
      [&] { return !n.is_root() || full(); });
  std::vector<int> one(1);
  both(
      "reduce_scatter", [&] { return world.reduce_scatter(in(own), out(one)); },
      [&] { return world.ireduce_scatter(in(own), out(one)); }, [&] { return std::exchange(one[0], 0) == sum; });
}

void copies(Communicator& world) {
  const Numbers n(world);
  std::vector<int> ranks(n.count);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<int> all(n.count);
  std::vector<int> one = {n.rank};
  const auto in_order = [&] { return std::exchange(all, std::vector<int>(n.count, -1)) == ranks; };
  both(
      "broadcast", [&] { return world.broadcast(out(one), 0); }, [&] { return world.ibroadcast(out(one), 0); },
      [&] { return std::exchange(one[0], n.rank) == 0; });
  both(
      "allgather", [&] { return world.allgather(in(one), out(all)); },
      [&] { return world.iallgather(in(one), out(all)); }, in_order);
  both(
      "gather", [&] { return world.gather(in(one), out(all), 0); }, [&] { return world.igather(in(one), out(all), 0); },
      [&] { return !n.is_root() || in_order(); });
  both(
      "scatter", [&] { return world.scatter(in(ranks), out(one), 0); },
      [&] { return world.iscatter(in(ranks), out(one), 0); }, [&] { return one[0] == n.rank; });
  const std::vector<int> to_each(n.count, n.rank);
  both(
      "alltoall", [&] { return world.alltoall(in(to_each), out(all)); },
      [&] { return world.ialltoall(in(to_each), out(all)); }, in_order);
}

/// Rank r gives r + 1 elements; gaps of one element lie between the blocks.
void uneven_copies(Communicator& world) {
  const Numbers n(world);
  std::vector<std::size_t> counts(n.count);
  std::vector<std::size_t> offsets(n.count);
  std::iota(counts.begin(), counts.end(), 1);
  for (std::size_t r = 1; r < n.count; ++r) offsets[r] = offsets[r - 1] + counts[r - 1] + 1;
  const Blocks blocks{counts, offsets};
  const std::vector<int> own(static_cast<std::size_t>(n.rank) + 1, n.rank);
  std::vector<int> all(offsets.back() + counts.back(), -1);
  const auto in_place = [&] {
    bool right = true;
    for (std::size_t r = 0; r < n.count; ++r) right = right && all[offsets[r]] == static_cast<int>(r);
    all.assign(all.size(), -1);
    return right;
  };
  both(
      "allgatherv", [&] { return world.allgatherv(in(own), out(all), blocks); },
      [&] { return world.iallgatherv(in(own), out(all), blocks); }, in_place);
  const std::vector<int> of_all(offsets.back() + counts.back(), 2);
  std::vector<int> mine(counts[static_cast<std::size_t>(n.rank)], -1);
  both(
      "reduce_scatterv", [&] { return world.reduce_scatterv(in(of_all), out(mine), blocks); },
      [&] { return world.ireduce_scatterv(in(of_all), out(mine), blocks); },
      [&] {
        const bool right = std::ranges::all_of(mine, [&](int each) { return each == 2 * n.ranks; });
        mine.assign(mine.size(), -1);
        return right;
      });
  refused(world.reduce_scatterv(in(of_all), out(mine).first(0), blocks), "a span is too short");
  const std::vector<std::size_t> ones(n.count, 1);
  std::vector<std::size_t> places(n.count);
  std::iota(places.begin(), places.end(), 0);
  const std::vector<int> to_each(n.count, n.rank);
  both(
      "alltoallv",
      [&] {
        return world.alltoallv(in(to_each), {ones, places}, out(all), {ones, offsets});
      },
      [&] {
        return world.ialltoallv(in(to_each), {ones, places}, out(all), {ones, offsets});
      },
      in_place);
  const std::vector<std::size_t> far(n.count, all.size());
  refused(world.allgatherv(in(own), out(all), {counts, far}), "beyond the end");
  refused(world.alltoallv(in(to_each), {{}, {}}, out(all), {ones, offsets}), "one entry for each");
}

void messages(Communicator& world) {
  const Numbers n(world);
  const int next = (n.rank + 1) % n.ranks;
  const int previous = (n.rank + n.ranks - 1) % n.ranks;
  const std::vector<int> own(3, n.rank);
  std::vector<int> got(3, -1);
  int source = -1;
  auto tagged = world.irecv(out(got), amldist::any_source, amldist::Tag{3}, &source);
  done(world.send(in(own), next, amldist::Tag{3}), "send with a tag");
  done(std::move(tagged), "irecv with a tag");
  expect(got == std::vector<int>(3, previous) && source == previous, "what irecv with a tag got");
  auto tagged_send = world.isend(in(own), next, amldist::Tag{4});
  done(world.recv(out(got), previous, amldist::Tag{4}), "recv with a tag");
  done(std::move(tagged_send), "isend with a tag");
  auto receiving = world.irecv(out(got), previous);
  done(world.send(in(own), next), "send");
  done(std::move(receiving), "irecv");
  expect(got == std::vector<int>(3, previous), "what irecv got");
  auto sending = world.isend(in(own), next);
  done(world.recv(out(got), previous), "recv");
  done(std::move(sending), "isend");
  done(world.ibarrier(), "ibarrier");
  done(world.barrier(), "barrier");
}

/// Containers in library memory, whole and in a pool, wherever in it they are.
void containers(Communicator& world) {
  const Numbers n(world);
  amldist::MemoryResource memory(world);
  amldist::MemoryResource same(world);
  expect(memory == same && memory != *std::pmr::new_delete_resource(), "resources of one communicator are equal");
  std::pmr::unsynchronized_pool_resource pool(&memory);
  const std::pmr::vector<int> before(static_cast<std::size_t>(n.rank) * 1000 + 1, &pool);  // other places on each rank
  std::pmr::vector<int> given(300000, n.rank + 1, &pool);
  std::pmr::vector<int> sums(given.size(), &memory);
  const int wanted = static_cast<int>(n.ranks) * (static_cast<int>(n.ranks) + 1) / 2;
  const auto all_right = [&](std::span<const int> got) {
    return std::ranges::all_of(got, [&](int each) { return each == wanted; });
  };
  done(world.allreduce(std::span<const int>(given), std::span<int>(sums)), "allreduce of containers");
  expect(all_right(sums), "sums of containers");
  done(world.allreduce(std::span<int>(given)), "allreduce of a container in place");
  expect(all_right(given), "sums of a container in place");
  bool refused_it = false;
  try {
    const std::pmr::vector<char> endless(std::size_t{1} << 50, &memory);
  } catch (const std::bad_alloc&) {
    refused_it = true;
  }
  expect(refused_it, "what is too long is refused");
}

/// Before any communication: the calls behind it still fit together.
void misfits(Communicator& world) {
  const Numbers n(world);
  if (n.ranks == 1) return;
  const std::vector<int> rest(n.count * 2 + 1);
  std::vector<int> room(n.count * 2 + 1);
  refused(world.alltoall(in(rest), out(room)), "cannot be divided among");
  refused(world.ialltoall(in(rest), out(room)).status(), "cannot be divided among");
  std::vector<int> little(1);
  refused(world.allgather(in(rest), out(room)), "allgather: a span is too short");
  refused(world.reduce_scatter(in(little), out(room)), "reduce_scatter: a span is too short");
  if (n.is_root()) refused(world.reduce(in(rest), out(little), 0), "reduce: a span is too short");
  done(world.barrier(), "the communicator is as it was");
}

void registered(Communicator& world) {
  constexpr std::size_t page = 4096;
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  const std::unique_ptr<float, Free> memory(static_cast<float*>(std::aligned_alloc(page, 4 * page)));
  const std::span<float> all(memory.get(), 4 * page / sizeof(float));
  std::ranges::fill(all, 1.0F);
  for (int round = 0; round < 2; ++round) {  // what was registered can be registered again
    auto made = world.register_memory(all);
    done(made.status(), "register_memory");
    expect(made.ok() && made->data() == all.data() && made->size() == all.size(), "its place");
    done(world.allreduce(std::span<const float>(all), all, amldist::Op::max), "allreduce of registered memory");
    refused(world.register_memory(all.subspan(1)).status(), "whole pages");
  }
  expect(std::ranges::count(all, 1.0F) == std::ssize(all), "what was registered");
}

void settings(Communicator& world) {
  done(world.set_stream(nullptr), "set_stream");
  done(world.set_log([](const char*, void*) {}), "set_log");
  expect(amldist::version() == amldist_version(), "version");
  expect(amldist::check_option("pytorch").ok() && !amldist::check_option("pytorch,x=1").ok(), "check_option");
  expect(amldist::get_identity().status().status() == AMLDIST_EUNAVAILABLE, "no step of aml-dist");
  const auto verified = amldist::verify_node("off");
  expect(verified.ok() && amldist::verify_node("perhaps").status().status() == AMLDIST_EINVAL, "verify_node");
  expect(world.host(0) == amldist_host(world.get(), 0) && world.host(-1).empty(), "host");
}

/// Without a loss: all ranks are left.
void survivors(Communicator& world) {
  const Numbers n(world);
  int flags = 6 | (n.is_root() ? 1 : 0);
  done(world.agree(flags), "agree");
  expect(flags == (n.ranks == 1 ? 7 : 6), "what agree found");
  int stop = -1;
  done(world.should_stop(stop), "should_stop");
  expect(stop == 0 && !amldist::stop_requested(), "nobody wants to stop");
  auto left = world.shrink();
  expect(left.ok() && left->size() == n.ranks && left->rank() == n.rank, "shrink");
  if (left.ok()) done(left->barrier(), "barrier of the survivors");
  expect(world.barrier().status() == AMLDIST_EABORTED, "the old communicator is given up");
}

}  // namespace

int main() {
  auto joined = Communicator::init(std::chrono::seconds(30));
  if (!joined) return std::printf("%s\n", joined.message().c_str()), 1;
  Communicator world = std::move(joined).value();
  reductions(world);
  copies(world);
  uneven_copies(world);
  messages(world);
  containers(world);
  misfits(world);
  registered(world);
  settings(world);
  survivors(world);
  return failures != 0;
}
