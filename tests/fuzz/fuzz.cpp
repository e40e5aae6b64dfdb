#include "fuzz.hpp"

#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace amldist::fuzz {
namespace {

#define TARGET(name) Target{#name, &name::try_input, &name::separator},
constexpr Target targets[] = {
#include "targets.def"
};
#undef TARGET

const Target* chosen = nullptr;

constexpr std::size_t longest_sentence = 1024;
constexpr std::size_t long_text = longest_environment_string - 1;
constexpr std::uint32_t inputs_per_long_text = 1024;

std::size_t allocated_bytes = 0;

void count_malloc(const volatile void* /*address*/, std::size_t bytes) { allocated_bytes += bytes; }
void count_free(const volatile void* /*address*/) {}

/// Chosen by the input itself, so that a finding can be tried again.
bool is_chosen(std::string_view input) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : input) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return !input.empty() && hash % inputs_per_long_text == 0;
}

std::string lengthened(std::string_view input) {
  std::string text(input);
  while (text.size() + chosen->separator->size() + input.size() <= long_text)
    text.append(*chosen->separator).append(input);
  return text;
}

/// The target that the program is called like.
const Target* target_of(std::string_view program) {
  const std::string_view name = program.substr(program.rfind('/') + 1);
  const auto* const found = std::ranges::find(targets, name, &Target::name);
  if (found != std::end(targets)) return found;
  std::fprintf(stderr, "no target is called '%.*s'\n", static_cast<int>(name.size()), name.data());
  std::exit(2);
}

}  // namespace

void require(bool holds, const char* invariant) {
  if (holds) return;
  std::fprintf(stderr, "broken invariant: %s\n", invariant);
  std::abort();
}

void require_sentence(std::string_view message) {
  require(!message.empty() && message.size() <= longest_sentence, "a message is a sentence of bounded length");
  require(std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; }), "a message is printable ASCII");
}

std::size_t allocated() noexcept { return allocated_bytes; }

std::uint8_t Input::byte() noexcept {
  if (rest_.empty()) return 0;
  const char first = rest_.front();
  rest_.remove_prefix(1);
  return static_cast<std::uint8_t>(first);
}

std::uint32_t Input::number(std::uint32_t most) noexcept {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | byte();
  return most == 0xffffffffU ? value : value % (most + 1);
}

std::string_view Input::line() noexcept {
  const std::string_view line = rest_.substr(0, rest_.find('\n'));
  rest_.remove_prefix(std::min(rest_.size(), line.size() + 1));
  return line;
}

}  // namespace amldist::fuzz

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** argv) {
  amldist::fuzz::chosen = amldist::fuzz::target_of((*argv)[0]);
  __sanitizer_install_malloc_and_free_hooks(amldist::fuzz::count_malloc, amldist::fuzz::count_free);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace amldist::fuzz;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  chosen->try_input(input);
  if (is_chosen(input)) chosen->try_input(lengthened(input));
  return 0;
}
