/* Environments as lists of "NAME=VALUE". */
#ifndef AMLDIST_TESTS_ABI_ENVIRONMENT_H
#define AMLDIST_TESTS_ABI_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

struct environment {
  char** variables;
  size_t count;
};

/* Value of a variable, NULL if it is not set. */
const char* environment_get(const struct environment* environment, const char* name);
void environment_set(struct environment* environment, const char* name, const char* value);
void environment_format(struct environment* environment, const char* name, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
/* "NAME=VALUE" as it stands. */
void environment_put(struct environment* environment, const char* assignment);
void environment_unset(struct environment* environment, const char* name);
void environment_clear(struct environment* environment);
void environment_copy(struct environment* to, const struct environment* from);

/* This process's own environment, and back. */
void environment_from_process(struct environment* environment);
void environment_to_process(const struct environment* environment);

/* What turned `before` into `after`, sorted lines: "NAME=VALUE" set or changed, "-NAME" removed. The caller frees it.
 */
char* environment_changes(const struct environment* before, const struct environment* after);

/* Through a pipe, ended by the end of the file. */
void environment_send(const struct environment* environment, int descriptor);
void environment_receive(struct environment* environment, int descriptor);

#endif
