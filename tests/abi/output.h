/* Standard output and error of the host are the plugin's: they lead into memory, where the scenario looks at what the
 * plugin wrote. The host itself speaks through a copy of the real standard error. */
#ifndef AMLDIST_TESTS_ABI_OUTPUT_H
#define AMLDIST_TESTS_ABI_OUTPUT_H

/* Replaces descriptors 1 and 2, lays decoys on 3 to 6, and has crashes reported. Call once. */
void output_open(void);

/* To the real standard error. */
void output_print(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* What was written to standard output (1) or error (2) since the last call; the caller frees it. */
char* output_take(int descriptor);

/* Fails a check if anything was written to a decoy: a descriptor that is not the plugin's to write on. */
void output_check_decoys(void);

#endif
