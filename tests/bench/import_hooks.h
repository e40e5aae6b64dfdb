/* Replaces functions that a loaded library imports, in that library alone, by rewriting its import table. */
#ifndef AMLDIST_BENCH_IMPORT_HOOKS_H
#define AMLDIST_BENCH_IMPORT_HOOKS_H

#include <stddef.h>

struct import_hook {
  const char* name;
  void* replacement;
};

/* `handle` is dlopen's. A name that the library does not import is passed over. Returns the number of imports replaced,
   or -1 where the table cannot be read or written. */
int hook_imports(void* handle, const struct import_hook* hooks, size_t count);

#endif
