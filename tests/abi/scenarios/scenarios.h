#ifndef AMLDIST_TESTS_ABI_SCENARIOS_H
#define AMLDIST_TESTS_ABI_SCENARIOS_H

#define SCENARIO(name, what) void scenario_##name(void);
#include "scenarios.def"
#undef SCENARIO

/* Ends the process with CTest's mark for a test that cannot run here. */
_Noreturn void skip(const char* why);

#endif
