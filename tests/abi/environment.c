#include "environment.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

extern char** environ;

static size_t name_length(const char* assignment) { return strcspn(assignment, "="); }

static char** find(const struct environment* environment, const char* name) {
  const size_t length = name_length(name);
  for (size_t i = 0; i < environment->count; ++i) {
    char* const variable = environment->variables[i];
    if (name_length(variable) == length && strncmp(variable, name, length) == 0) return &environment->variables[i];
  }
  return NULL;
}

const char* environment_get(const struct environment* environment, const char* name) {
  char** const found = find(environment, name);
  return found != NULL ? *found + name_length(name) + 1 : NULL;
}

void environment_put(struct environment* environment, const char* assignment) {
  char* const copy = text_format("%s", assignment);
  char** const found = find(environment, assignment);
  if (found != NULL) {
    free(*found);
    *found = copy;
    return;
  }
  environment->variables = realloc(environment->variables, (environment->count + 1) * sizeof *environment->variables);
  if (environment->variables == NULL) abort();
  environment->variables[environment->count++] = copy;
}

void environment_set(struct environment* environment, const char* name, const char* value) {
  char* const assignment = text_format("%s=%s", name, value);
  environment_put(environment, assignment);
  free(assignment);
}

void environment_format(struct environment* environment, const char* name, const char* format, ...) {
  va_list arguments;
  char value[4096];
  va_start(arguments, format);
  vsnprintf(value, sizeof value, format, arguments);
  va_end(arguments);
  environment_set(environment, name, value);
}

void environment_unset(struct environment* environment, const char* name) {
  char** const found = find(environment, name);
  if (found == NULL) return;
  free(*found);
  *found = environment->variables[--environment->count];
}

void environment_clear(struct environment* environment) {
  for (size_t i = 0; i < environment->count; ++i) free(environment->variables[i]);
  free(environment->variables);
  *environment = (struct environment){0};
}

void environment_copy(struct environment* to, const struct environment* from) {
  environment_clear(to);
  for (size_t i = 0; i < from->count; ++i) environment_put(to, from->variables[i]);
}

void environment_from_process(struct environment* environment) {
  environment_clear(environment);
  for (char** variable = environ; variable != NULL && *variable != NULL; ++variable) {
    environment_put(environment, *variable);
  }
}

void environment_to_process(const struct environment* environment) {
  clearenv();
  for (size_t i = 0; i < environment->count; ++i) {
    char* const name = text_format("%s", environment->variables[i]);
    name[name_length(name)] = '\0';
    setenv(name, name + strlen(name) + 1, 1);
    free(name);
  }
}

char* environment_changes(const struct environment* before, const struct environment* after) {
  char* changes = text_format("%s", "");
  for (size_t i = 0; i < after->count; ++i) {
    char** const old = find(before, after->variables[i]);
    if (old == NULL || strcmp(*old, after->variables[i]) != 0) {
      changes = text_append(changes, "%s\n", after->variables[i]);
    }
  }
  for (size_t i = 0; i < before->count; ++i) {
    const char* const variable = before->variables[i];
    if (find(after, variable) == NULL) {
      changes = text_append(changes, "-%.*s\n", (int)name_length(variable), variable);
    }
  }
  text_sort_lines(changes);
  return changes;
}

void environment_send(const struct environment* environment, int descriptor) {
  for (size_t i = 0; i < environment->count; ++i) {
    const char* rest = environment->variables[i];
    for (size_t left = strlen(rest) + 1; left > 0;) {
      const ssize_t sent = write(descriptor, rest, left);
      if (sent <= 0) _exit(98);
      rest += sent;
      left -= (size_t)sent;
    }
  }
}

void environment_receive(struct environment* environment, int descriptor) {
  char* received = NULL;
  size_t length = 0;
  for (;;) {
    enum { PIECE = 65536 };
    received = realloc(received, length + PIECE + 1);
    if (received == NULL) abort();
    const ssize_t got = read(descriptor, received + length, PIECE);
    if (got <= 0) break;
    length += (size_t)got;
  }
  received[length] = '\0'; /* for a sender that died in the middle of a variable */
  environment_clear(environment);
  for (size_t at = 0; at < length; at += strlen(received + at) + 1) environment_put(environment, received + at);
  free(received);
}
