// The kernels against plain loops: one and two results, with every kind of store and every alignment.
#include "collective/kernels/reductions.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <vector>

namespace amldist::collective::reductions_test {
namespace {

constexpr std::size_t most = 5000;

template <typename T>
struct Typed;
template <>
struct Typed<float> {
  static constexpr calls::DataType type = calls::DataType::float32;
};
template <>
struct Typed<double> {
  static constexpr calls::DataType type = calls::DataType::float64;
};
template <>
struct Typed<std::uint8_t> {
  static constexpr calls::DataType type = calls::DataType::uint8;
};
template <>
struct Typed<std::int8_t> {
  static constexpr calls::DataType type = calls::DataType::int8;
};
template <>
struct Typed<std::int16_t> {
  static constexpr calls::DataType type = calls::DataType::int16;
};
template <>
struct Typed<std::uint16_t> {
  static constexpr calls::DataType type = calls::DataType::uint16;
};
template <>
struct Typed<std::int64_t> {
  static constexpr calls::DataType type = calls::DataType::int64;
};

template <typename T>
T combined(T a, T b, calls::ReduceOp op) {
  if (op == calls::ReduceOp::prod) return static_cast<T>(a * b);
  if (op == calls::ReduceOp::max) return std::max(a, b);
  if (op == calls::ReduceOp::min) return std::min(a, b);
  if constexpr (std::is_integral_v<T>) {
    if (op == calls::ReduceOp::band) return static_cast<T>(a & b);
    if (op == calls::ReduceOp::bor) return static_cast<T>(a | b);
    if (op == calls::ReduceOp::bxor) return static_cast<T>(a ^ b);
  }
  return static_cast<T>(a + b);
}

/// The average as amldist.h defines it. Integers are divided as 64-bit numbers, whatever T is: no divisor is cut.
template <typename T>
T divided(T sum, std::size_t divisor) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(sum) / static_cast<std::int64_t>(divisor));
  } else {
    return sum / static_cast<T>(divisor);
  }
}

/// What a test varies. `shift` and `apart` are elements: of the first result behind a cache line, and of the second
/// behind the first's place in a line.
struct Way {
  InstructionSet set;
  std::size_t sources;
  std::size_t count;
  std::size_t shift;
  std::size_t apart;
  Store store;
  Store second_store;
  bool twice;
  bool in_place;
};

/// The elements of three sources, made once: they would take longer than what is tested.
template <typename T>
const std::array<std::vector<T>, 3>& given() {
  static const std::array<std::vector<T>, 3> all = [] {
    std::array<std::vector<T>, 3> made;
    for (std::size_t s = 0; s < made.size(); ++s) {
      for (std::size_t i = 0; i < most + 256; ++i) made[s].push_back(static_cast<T>((i * 7 + s * 3) % 5 + 1));
    }
    return made;
  }();
  return all;
}

template <typename T>
class Trial {
 public:
  explicit Trial(const Way& way) : way_(way), inputs_(given<T>().begin(), given<T>().begin() + way.sources) {}

  void expect_right(calls::ReduceOp op) {
    std::vector<T> first(way_.count + 128, T{99});
    std::vector<T> second(way_.count + 128, T{99});
    T* const dst = way_.in_place ? aligned(inputs_[0]) : aligned(first) + way_.shift;
    T* const other =
        way_.in_place && way_.sources > 1 ? aligned(inputs_[1]) : aligned(second) + way_.shift + way_.apart;
    std::vector<const void*> sources;
    for (std::vector<T>& input : inputs_) sources.push_back(aligned(input));
    std::vector<T> wanted(aligned(inputs_[0]), aligned(inputs_[0]) + way_.count);
    for (std::size_t s = 1; s < way_.sources; ++s) {
      for (std::size_t i = 0; i < way_.count; ++i) wanted[i] = combined(wanted[i], aligned(inputs_[s])[i], op);
    }
    if (op == calls::ReduceOp::avg) {
      for (T& each : wanted) each = divided(each, way_.sources);
    }
    const T after = dst[way_.count];
    Reductions(way_.set).fold({dst, way_.twice ? other : nullptr, sources.data(), way_.sources, way_.count,
                               way_.sources, way_.store, way_.second_store},
                              Typed<T>::type, op);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), dst));
    EXPECT_EQ(dst[way_.count], after);
    if (way_.twice) {
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), other));
    }
  }

 private:
  static T* aligned(std::vector<T>& data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data.data());
    return reinterpret_cast<T*>((address + 63) / 64 * 64);
  }

  Way way_;
  std::vector<std::vector<T>> inputs_;
};

template <typename T>
void expect_all_right(const Way& way) {
  for (const calls::ReduceOp op : {calls::ReduceOp::sum, calls::ReduceOp::prod, calls::ReduceOp::max,
                                   calls::ReduceOp::min, calls::ReduceOp::avg}) {
    Trial<T>(way).expect_right(op);
  }
  if constexpr (std::is_integral_v<T>) {
    for (const calls::ReduceOp op : {calls::ReduceOp::band, calls::ReduceOp::bor, calls::ReduceOp::bxor})
      Trial<T>(way).expect_right(op);
  }
}

std::vector<InstructionSet> sets_of_this_processor() {
  std::vector<InstructionSet> sets = {InstructionSet::plain};
  for (const auto set : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (set <= best_instruction_set()) sets.push_back(set);
  }
  return sets;
}

/// All that concerns how results reach memory, for each number of sources and of elements.
std::vector<Way> ways() {
  std::vector<Way> all;
  for (const InstructionSet set : sets_of_this_processor()) {
    for (const std::size_t sources : {1UL, 2UL, 3UL}) {
      for (const std::size_t count : {0UL, 1UL, 63UL, 64UL, 257UL, most}) {
        for (const Store store : {Store::cached, Store::streaming}) {
          all.push_back({set, sources, count, 0, 0, store, Store::cached, false, false});
          all.push_back({set, sources, count, 0, 0, store, Store::cached, true, false});
          all.push_back({set, sources, count, 0, 0, store, Store::streaming, true, false});
        }
      }
    }
  }
  return all;
}

std::string described(const Way& way) {
  return std::string(to_string(way.set)) + ", " + std::to_string(way.sources) + " sources, " +
         std::to_string(way.count) + " elements from " + std::to_string(way.shift) + ", stores " +
         std::to_string(static_cast<int>(way.store)) + " and " +
         (way.twice ? std::to_string(static_cast<int>(way.second_store)) : std::string("none"));
}

TEST(Kernels, FoldLikePlainLoopsWhereverResultsLie) {
  for (Way way : ways()) {
    for (const std::size_t shift : {0UL, 1UL, 7UL}) {
      for (const std::size_t apart : {0UL, 3UL}) {
        way.shift = shift;
        way.apart = apart;
        SCOPED_TRACE(described(way));
        expect_all_right<float>(way);
        expect_all_right<double>(way);
        expect_all_right<std::uint8_t>(way);
        expect_all_right<std::int16_t>(way);
        expect_all_right<std::int64_t>(way);
      }
    }
  }
}

TEST(Kernels, FoldIntoTheirOwnSources) {
  for (Way way : ways()) {
    way.in_place = true;
    SCOPED_TRACE(described(way));
    expect_all_right<float>(way);
    expect_all_right<std::uint8_t>(way);
  }
}

/// Sums of all sizes that T has, divided by `ranks`: alone, as the end of a reduction over several levels, and as the
/// sum of two sources.
template <typename T>
void expect_averages(InstructionSet set, std::size_t ranks) {
  SCOPED_TRACE(std::string(to_string(set)) + ", " + std::string(to_string(Typed<T>::type)) + ", " +
               std::to_string(ranks) + " ranks");
  constexpr std::size_t count = 4099;
  std::vector<T> sums(count);
  for (std::size_t i = 0; i < count; ++i) sums[i] = static_cast<T>(i * 32771);
  const std::vector<T> nothing(count, T{0});
  for (const std::size_t sources : {1UL, 2UL}) {
    const void* const from[] = {sums.data(), nothing.data()};
    std::vector<T> got(count, T{99});
    Reductions(set).fold({got.data(), nullptr, from, sources, count, ranks}, Typed<T>::type, calls::ReduceOp::avg);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(static_cast<int>(got[i]), static_cast<int>(divided(sums[i], ranks))) << "sum " << +sums[i];
    }
  }
}

TEST(Kernels, DivideByMoreRanksThanTheElementTypeCanCount) {
  for (const InstructionSet set : sets_of_this_processor()) {
    for (const std::size_t ranks : {3UL, 127UL, 128UL, 200UL, 255UL, 256UL, 257UL, 65535UL, 65536UL, 70000UL}) {
      expect_averages<std::int8_t>(set, ranks);
      expect_averages<std::uint8_t>(set, ranks);
      expect_averages<std::int16_t>(set, ranks);
      expect_averages<std::uint16_t>(set, ranks);
    }
  }
}

}  // namespace
}  // namespace amldist::collective::reductions_test
