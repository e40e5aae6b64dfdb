// In the user's program: what a fatal signal leaves for the line that srun prints, in the file that the package amldist
// writes for exceptions (exception.hpp): the text of a failed assertion, the C++ exception that nobody has caught, the
// place in a Python program.
#pragma once

namespace amldist::step {

/// From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, and std::terminate() of the process's C++ library, leave a
/// note before what was installed for them takes place. Ignored signals stay ignored. Later calls look again for a C++
/// library. `traceback_signal`: raised in the thread that fails; its handler writes Python's traceback into the open
/// file `traceback_file`; 0 if there is no such signal. Returns false outside a step of aml-dist, and installs nothing.
bool note_faults(int traceback_signal, int traceback_file) noexcept;

}  // namespace amldist::step
