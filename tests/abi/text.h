/* Strings that grow. */
#ifndef AMLDIST_TESTS_ABI_TEXT_H
#define AMLDIST_TESTS_ABI_TEXT_H

#include <stddef.h>

/* Formatted text on the heap; the host stops when memory is short. */
char* text_format(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* Appends to a text on the heap (NULL counts as empty) and returns its new place. */
char* text_append(char* text, const char* format, ...) __attribute__((format(printf, 2, 3)));

/* `count` copies of `piece`, on the heap. */
char* text_repeat(const char* piece, size_t count);

/* Lines of a text: a last line without its newline counts. */
size_t text_lines(const char* text);

/* Reorders the lines of a text by their bytes. */
void text_sort_lines(char* text);

/* A copy of `text` in which everything that a terminal would not show is written as \xNN; at most 1600 bytes. */
const char* text_shown(const char* text);

#endif
