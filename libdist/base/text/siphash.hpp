// SipHash-2-4 (Aumasson and Bernstein, 2012): a code of 64 bits by which who has the key knows that a short text comes
// from somebody who has it, too. Without a library, because the plugin links none.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace amldist {

using SipKey = std::array<std::uint64_t, 2>;

[[nodiscard]] std::uint64_t siphash(const SipKey& key, std::string_view text) noexcept;

}  // namespace amldist
