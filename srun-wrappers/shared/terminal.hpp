// The commands' messages for people: lines on standard error that begin with "aml-dist: ". Colour only on a terminal
// and if NO_COLOR is not set.
#pragma once

#include <string_view>

#include "base/text/result.hpp"

namespace amldist::commands {

enum class Tone { plain, good, bad, faint };

/// One line: the prefix, the sentence, a newline. Control characters in the sentence are written as \xNN.
void say(std::string_view sentence, Tone tone = Tone::plain);

/// Writes the text to standard output unchanged; returns exit_failed if that is not possible (a full disk, a closed
/// pipe).
int print(std::string_view text);

/// Prints the error and returns its exit status.
int fail(const Error& error);

/// Prints why Slurm cannot be reached and returns exit_no_slurm.
int fail_without_slurm(std::string_view sentence);

/// Whether colours are wanted on this descriptor: a terminal that has them, and NO_COLOR is not set.
[[nodiscard]] bool wants_colour(int descriptor);

}  // namespace amldist::commands
