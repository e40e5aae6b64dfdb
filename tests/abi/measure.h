/* What one step of a given size costs in the plugin's own code, for tests/bench/scale. */
#ifndef AMLDIST_TESTS_ABI_MEASURE_H
#define AMLDIST_TESTS_ABI_MEASURE_H

/* ARGUMENTS: NODES TASKS_PER_NODE block|cyclic OPTION. Prints one line of JSON on standard error (the output is the
 * plugin's); the exit status. */
int measure(char** arguments);

#endif
