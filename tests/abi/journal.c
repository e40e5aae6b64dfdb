#include "journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "output.h"
#include "text.h"

struct journal* journal;

enum { MOST_PRINTED = 40 };

void journal_open(void) {
  void* const memory = mmap(NULL, sizeof *journal, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  journal = memory;
}

void journal_say(enum audience audience, const char* format, va_list arguments) {
  size_t* const length = &journal->said_length[audience];
  char* const said = journal->said[audience];
  const size_t room = JOURNAL_TEXT - *length;
  const int added = vsnprintf(said + *length, room, format, arguments);
  if (added < 0 || (size_t)added + 2 > room) {
    said[*length] = '\0';
    check_failed(__FILE__, __LINE__, "the plugin says more than %d bytes", JOURNAL_TEXT);
    return;
  }
  *length += (size_t)added;
  said[(*length)++] = '\n';
  said[*length] = '\0';
}

char* journal_take(enum audience audience) {
  char* const said = text_format("%s", journal->said[audience]);
  journal->said[audience][0] = '\0';
  journal->said_length[audience] = 0;
  return said;
}

void subject(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(journal->subject, sizeof journal->subject, format, arguments);
  va_end(arguments);
}

void check_failed(const char* file, int line, const char* format, ...) {
  if (journal->failures++ >= MOST_PRINTED) return;
  va_list arguments;
  char message[4096];
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  const char* const name = strrchr(file, '/') != NULL ? strrchr(file, '/') + 1 : file;
  output_print("%s:%d: %s", name, line, text_shown(message));
  if (journal->subject[0] != '\0') output_print(" [%s]", text_shown(journal->subject));
  output_print(" (last callback: %s)\n", journal->callback[0] != '\0' ? journal->callback : "none");
}
