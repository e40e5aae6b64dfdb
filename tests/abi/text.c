#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void* checked(void* memory) {
  if (memory == NULL) abort();
  return memory;
}

static char* append(char* text, const char* format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  const int length = vsnprintf(NULL, 0, format, again);
  va_end(again);
  if (length < 0) abort();
  const size_t old = text != NULL ? strlen(text) : 0;
  text = checked(realloc(text, old + (size_t)length + 1));
  vsnprintf(text + old, (size_t)length + 1, format, arguments);
  return text;
}

char* text_format(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char* const text = append(NULL, format, arguments);
  va_end(arguments);
  return text;
}

char* text_append(char* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  text = append(text, format, arguments);
  va_end(arguments);
  return text;
}

char* text_repeat(const char* piece, size_t count) {
  const size_t length = strlen(piece);
  char* const text = checked(malloc(length * count + 1));
  for (size_t i = 0; i < count; ++i) memcpy(text + i * length, piece, length);
  text[length * count] = '\0';
  return text;
}

size_t text_lines(const char* text) {
  size_t lines = 0;
  for (const char* rest = text; *rest != '\0';) {
    const char* const end = strchr(rest, '\n');
    ++lines;
    if (end == NULL) break;
    rest = end + 1;
  }
  return lines;
}

static int by_bytes(const void* a, const void* b) { return strcmp(*(char* const*)a, *(char* const*)b); }

void text_sort_lines(char* text) {
  const size_t count = text_lines(text);
  if (count == 0) return;
  char* const copy = text_format("%s", text);
  char** const lines = checked(calloc(count, sizeof *lines));
  size_t found = 0;
  for (char *rest = NULL, *line = strtok_r(copy, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    lines[found++] = line;
  }
  qsort(lines, found, sizeof *lines, by_bytes);
  for (size_t i = 0; i < found; ++i) {
    const size_t length = strlen(lines[i]);
    memcpy(text, lines[i], length);
    text += length;
    if (i + 1 < found) *text++ = '\n';
  }
  *text = '\0';
  free(lines);
  free(copy);
}

const char* text_shown(const char* text) {
  enum { MOST = 1600 };
  static char shown[MOST + 8];
  size_t length = 0;
  for (const unsigned char* c = (const unsigned char*)text; *c != '\0' && length < MOST - 4; ++c) {
    const int plain = (*c >= 0x20 && *c < 0x7f) || *c == '\n';
    length += (size_t)snprintf(shown + length, sizeof shown - length, plain ? "%c" : "\\x%02x", *c);
  }
  shown[length] = '\0';
  return shown;
}
