// What the commands say to people: lines on standard error that begin with "aml-dist: ". Colour only where a terminal
// reads them and NO_COLOR is not set.
#pragma once

#include <string_view>

#include "base/text/result.hpp"

namespace amldist::commands {

enum class Tone { plain, good, bad, faint };

/// One line: the prefix, the sentence, a newline. Control characters in the sentence are written as \xNN.
void say(std::string_view sentence, Tone tone = Tone::plain);

/// Writes the text to standard output as it is; exit_failed where that cannot be done (a full disk, a closed pipe).
int print(std::string_view text);

/// Says the error and returns its exit status.
int fail(const Error& error);

/// Says what keeps us from Slurm and returns exit_no_slurm.
int fail_without_slurm(std::string_view sentence);

/// Whether colours are wanted on this descriptor: a terminal that has them, and NO_COLOR is not set.
[[nodiscard]] bool wants_colour(int descriptor);

}  // namespace amldist::commands
