/* What the plugin's callbacks cost: processor time and the memory that it asks for, without the host's own work inside
 * them. */
#ifndef AMLDIST_TESTS_ABI_COST_H
#define AMLDIST_TESTS_ABI_COST_H

#include <stddef.h>
#include <stdint.h>

struct cost {
  uint64_t nanoseconds;
  uint64_t bytes; /* of all calls of malloc, so at least the most that was held at a time; 0 in a sanitized host */
};

/* Of the callback that runs: begins, stands still while the host works, and is written into the journal. */
void cost_begin(int callback);
void cost_pause(void);
void cost_resume(void);
void cost_add_memory(size_t bytes);
void cost_end(void);

#endif
